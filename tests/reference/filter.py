"""Filter expressions evaluated on their trees, one function per node, as RocketMQ's Java classes do it.

Values are Python's: None, bool, str, and numbers tagged with Java's class. What Java throws is `Thrown`.
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from pymq.filter import tree

INTEGER, LONG, DOUBLE = "Integer", "Long", "Double"
DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
HEXADECIMAL = re.compile(r"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?|([0-9a-fA-F]*)\.([0-9a-fA-F]+))[pP]([+-]?[0-9]+)[fFdD]?")
JAVA_SPACE = "".join(map(chr, range(0x21)))


class Thrown(Exception):
    """Java's evaluation ends with an exception."""


@dataclass(frozen=True)
class Number:
    """A number of one of Java's classes."""

    kind: str
    value: int | float


Value = None | bool | str | Number


def verdict(root: tree.Node, properties: Mapping[str, str]) -> str:
    """ "TRUE", "FALSE", "NULL" or "ERROR"."""
    try:
        value = evaluate(root, properties)
    except Thrown:
        return "ERROR"
    if value is None:
        return "NULL"
    assert isinstance(value, bool)
    return "TRUE" if value else "FALSE"


def evaluate(node: tree.Node, properties: Mapping[str, str]) -> Value:
    """The value of *node*."""
    match node:
        case tree.Constant():
            return constant(node)
        case tree.Property():
            return properties.get(node.name)
        case tree.Negate():
            value = evaluate(node.operand, properties)
            return Number(value.kind, -value.value) if isinstance(value, Number) else None
        case tree.Not():
            value = evaluate(node.operand, properties)
            assert value is None or isinstance(value, bool)
            return None if value is None else not value
        case tree.Cast():
            return None if evaluate(node.operand, properties) is None else False
        case tree.Comparison():
            return equal(node, properties) if node.operation is tree.Compare.EQ else ordered(node, properties)
        case tree.TextMatch():
            return text_match(node, properties)
        case tree.In():
            value = evaluate(node.operand, properties)
            return None if value is None else (value in node.values) != node.negated
        case tree.Logic():
            return logic(node, properties)


def constant(node: tree.Constant) -> Value:
    """A literal's value."""
    if node.kind in (tree.Kind.INTEGER, tree.Kind.LONG, tree.Kind.DOUBLE):
        assert isinstance(node.value, int | float)
        return Number(node.kind.value, node.value)
    assert node.value is None or isinstance(node.value, bool | str)
    return node.value


def logic(node: tree.Logic, properties: Mapping[str, str]) -> bool | None:
    """In pairs from the left, as the grammar builds them."""
    result = evaluate(node.terms[0], properties)
    for term in node.terms[1:]:
        if result is (not node.is_and):
            return result
        right = evaluate(term, properties)
        if right is (not node.is_and):
            result = right
        else:
            result = None if result is None or right is None else node.is_and
    assert result is None or isinstance(result, bool)
    return result


def text_match(node: tree.TextMatch, properties: Mapping[str, str]) -> bool:
    """CONTAINS and its like."""
    if not node.search:
        return False
    value = evaluate(node.operand, properties)
    if not isinstance(value, str):
        return False
    match node.operation:
        case tree.Match.CONTAINS:
            found = node.search in value
        case tree.Match.STARTSWITH:
            found = value.startswith(node.search)
        case tree.Match.ENDSWITH:
            found = value.endswith(node.search)
    return found != node.negated


def equal(node: tree.Comparison, properties: Mapping[str, str]) -> bool | None:
    """=."""
    left, right = evaluate(node.left, properties), evaluate(node.right, properties)
    if left is None and right is None:
        return True
    if left is None:
        return None
    if right is None:
        return False
    return compare(left, right) == 0


def ordered(node: tree.Comparison, properties: Mapping[str, str]) -> bool | None:
    """< and its like."""
    left = evaluate(node.left, properties)
    if left is None:
        return None
    right = evaluate(node.right, properties)
    if right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        order = compare_doubles(java_double(left), java_double(right))
    else:
        order = compare(left, right)
    operation = node.operation
    return {
        tree.Compare.GT: order > 0,
        tree.Compare.GE: order >= 0,
        tree.Compare.LT: order < 0,
        tree.Compare.LE: order <= 0,
    }[operation]


def compare(left: Value, right: Value) -> int:
    """ComparisonExpression.__compare of two values that are there."""
    if isinstance(left, bool):
        if isinstance(right, str):
            raise Thrown
        return (left > right) - (left < right) if isinstance(right, bool) else -1
    if isinstance(left, str) and isinstance(right, str):
        return 0 if left == right else 1
    if isinstance(left, str):
        if isinstance(right, bool):
            truth = left.lower() == "true"
            return (truth > right) - (truth < right)
        assert isinstance(right, Number)
        return compare_numbers(converted(left, right.kind), right)
    assert isinstance(left, Number)
    if isinstance(right, bool):
        return -1
    if isinstance(right, str):
        return compare_numbers(left, converted(right, left.kind))
    assert isinstance(right, Number)
    return compare_numbers(left, right)


def converted(text: str, kind: str) -> Number:
    """A string as a number of that class."""
    if kind == DOUBLE:
        return Number(DOUBLE, java_double(text))
    return Number(kind, java_int(text, 32 if kind == INTEGER else 64))


def compare_numbers(left: Number, right: Number) -> int:
    """Two numbers: as doubles when one is."""
    if DOUBLE in (left.kind, right.kind):
        return compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def order_bits(value: float) -> tuple[bool, int]:
    """A key that sorts as Double.compareTo does."""
    if math.isnan(value):
        return (True, 0)
    (bits,) = struct.unpack(">q", struct.pack(">d", value))
    return (False, bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF) - 1)


def compare_doubles(left: float, right: float) -> int:
    """Double.compareTo."""
    a, b = order_bits(left), order_bits(right)
    return (a > b) - (a < b)


def java_int(text: str, bits: int) -> int:
    """Integer.valueOf and Long.valueOf."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or any(unicodedata.category(c) != "Nd" or ord(c) > 0xFFFF for c in digits):
        raise Thrown
    value = int("".join(str(unicodedata.digit(c)) for c in digits)) * (-1 if text[0] == "-" else 1)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Thrown
    return value


def java_double(text: str) -> float:
    """Double.valueOf."""
    text = text.strip(JAVA_SPACE)
    bare = text[1:] if text[:1] in ("+", "-") else text
    sign = -1.0 if text[:1] == "-" else 1.0
    if bare == "NaN":
        return math.nan
    if bare == "Infinity":
        return sign * math.inf
    hexadecimal = HEXADECIMAL.fullmatch(text)
    if hexadecimal is not None:
        return java_hex(hexadecimal)
    if DECIMAL.fullmatch(text) is None:
        raise Thrown
    return float(text.rstrip("fFdD"))


def java_hex(found: re.Match[str]) -> float:
    """0x1.8p3."""
    sign, whole, before, after, exponent = found.groups()
    power = max(-100_000, min(100_000, int(exponent)))
    text = f"{sign}0x{whole or before or '0'}.{after or '0'}p{power}"
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf if sign != "-" else -math.inf
