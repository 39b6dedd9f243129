"""Expressions to programs: the bytes that csrc/codec/filter_evaluate.c runs on a record's properties.

The format stands in csrc/include/pymq/filter_program.h; the core looks at a program before it takes it.
Values that a comparison or a jump may leave out are left out as RocketMQ leaves them out, because what is not evaluated
cannot fail: a failed conversion anywhere is no match.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from pymq.filter.errors import FilterError
from pymq.filter.parser import Parsed, parse
from pymq.filter.tree import (
    Cast,
    Compare,
    Comparison,
    Constant,
    In,
    Kind,
    Logic,
    Match,
    Negate,
    Node,
    Not,
    Property,
    TextMatch,
)

MAGIC: Final = b"SQ\x01"
SIZE_MAX: Final = 65535  # PYMQ_FILTER_SIZE_MAX
PROPERTIES_MAX: Final = 128  # PYMQ_FILTER_PROPERTIES_MAX
NAME_SIZE_MAX: Final = 255
TEXT_SIZE_MAX: Final = 65535
COUNT_MAX: Final = 65535


class Op(IntEnum):
    """Instructions."""

    NULL = 0x01
    TRUE = 0x02
    FALSE = 0x03
    INTEGER = 0x04
    LONG = 0x05
    DOUBLE = 0x06
    STRING = 0x07
    PROPERTY = 0x08
    NEGATE = 0x10
    NOT = 0x11
    CAST = 0x12
    EQUAL = 0x20
    GREATER = 0x21
    GREATER_EQUAL = 0x22
    LESS = 0x23
    LESS_EQUAL = 0x24
    CONTAINS = 0x30
    STARTSWITH = 0x32
    ENDSWITH = 0x34
    IN = 0x38
    AND = 0x40
    AND_JUMP = 0x41
    OR = 0x42
    OR_JUMP = 0x43
    NULL_JUMP = 0x44
    UNLESS_JUMP = 0x45
    RETURN = 0x50


NEGATED: Final = 1  # added to CONTAINS, STARTSWITH, ENDSWITH and IN
COMPARISONS: Final = {
    Compare.EQ: Op.EQUAL,
    Compare.GT: Op.GREATER,
    Compare.GE: Op.GREATER_EQUAL,
    Compare.LT: Op.LESS,
    Compare.LE: Op.LESS_EQUAL,
}
MATCHES: Final = {Match.CONTAINS: Op.CONTAINS, Match.STARTSWITH: Op.STARTSWITH, Match.ENDSWITH: Op.ENDSWITH}


def compile_expression(expression: str) -> bytes:
    """The program of *expression*.

    Raises:
        FilterError: it is refused; the error says where and why.
    """
    return compile_tree(parse(expression).root, expression)


def compile_parsed(parsed: Parsed, expression: str) -> bytes:
    """The program of an expression that has been read."""
    return compile_tree(parsed.root, expression)


def compile_tree(root: Node, expression: str = "") -> bytes:
    """The program of a tree; *expression* is its text, for errors."""
    writer = Writer(expression)
    writer.node(root)
    writer.emit(Op.RETURN)
    return writer.program()


def compile_tags(tags: Iterable[str]) -> bytes:
    """A program that wants any of *tags*: for subscriptions to more of them than a row of hashes holds."""
    return compile_tree(In(Property("TAGS"), tuple(sorted(tags)), False))


def compile_retry(property_name: str, trees: Mapping[str, Node]) -> bytes:
    """A program for a retry topic: by the topic that a message's *property_name* says it came from, that topic's
    expression; TRUE for messages of any other."""
    writer = Writer("")
    for topic, root in sorted(trees.items()):
        writer.property(property_name)
        writer.emit(Op.STRING)
        writer.text(topic)
        writer.emit(Op.EQUAL)
        behind = writer.jump(Op.UNLESS_JUMP)
        writer.node(root)
        writer.emit(Op.RETURN)
        writer.land(behind)
    writer.emit(Op.TRUE)
    writer.emit(Op.RETURN)
    return writer.program()


class Writer:
    """Collects names and code; jumps are set once the names' size is known."""

    def __init__(self, expression: str) -> None:
        """Nothing yet."""
        self._expression = expression
        self._names: dict[bytes, int] = {}
        self._code = bytearray()
        self._jumps: list[tuple[int, int]] = []  # where a target is written, and what: both positions in the code

    def fail(self, reason: str) -> FilterError:
        """The expression as a whole is too much."""
        return FilterError(reason, self._expression, 0)

    def too_large(self) -> FilterError:
        """It does not fit."""
        return self.fail(f"the expression needs more than the {SIZE_MAX} bytes that a filter has")

    def program(self) -> bytes:
        """The bytes."""
        names = b"".join(bytes([len(name)]) + name for name in self._names)
        head = MAGIC + bytes([len(self._names)]) + names
        if len(head) + len(self._code) > SIZE_MAX:
            raise self.too_large()
        for at, target in self._jumps:
            struct.pack_into(">H", self._code, at, len(head) + target)
        return head + bytes(self._code)

    # ---- pieces --------------------------------------------------------------------------------------------------

    def emit(self, op: int) -> None:
        """One instruction."""
        self._code.append(op)

    def text(self, text: str) -> None:
        """A string operand. A lone surrogate, which no message's UTF-8 has, is kept so that it matches nothing."""
        encoded = text.encode("utf-8", "surrogatepass")
        if len(encoded) > TEXT_SIZE_MAX:
            raise self.fail(f"a string of {len(encoded)} bytes; {TEXT_SIZE_MAX} at most")
        self._code += struct.pack(">H", len(encoded)) + encoded

    def property(self, name: str) -> None:
        """Push a property."""
        encoded = name.encode("utf-8", "surrogatepass")
        if len(encoded) > NAME_SIZE_MAX:
            raise self.fail(f"a property's name of {len(encoded)} bytes; {NAME_SIZE_MAX} at most")
        index = self._names.setdefault(encoded, len(self._names))
        if index >= PROPERTIES_MAX:
            raise self.fail(f"more than {PROPERTIES_MAX} different properties")
        self._code += bytes([Op.PROPERTY, index])

    def jump(self, op: int) -> int:
        """A jump whose target is not known yet; what land() is to be told."""
        self._code += bytes([op, 0, 0])
        return len(self._code) - 2

    def land(self, jump: int) -> None:
        """The target is here."""
        self._jumps.append((jump, len(self._code)))

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        """What pushes the value of *node*.

        A tree may hold a node twice (BETWEEN compares its left side with both ends), and that one another twice: what
        is written doubles with each, so the end is looked at all the way.
        """
        if len(self._code) > SIZE_MAX:
            raise self.too_large()
        match node:
            case Constant():
                self.constant(node)
            case Property():
                self.property(node.name)
            case Negate() | Not() | Cast():
                self.node(node.operand)
                self.emit(Op.NEGATE if isinstance(node, Negate) else Op.NOT if isinstance(node, Not) else Op.CAST)
            case Comparison():
                self.comparison(node)
            case TextMatch():
                self.text_match(node)
            case In():
                self.in_list(node)
            case Logic():
                self.logic(node)

    def constant(self, node: Constant) -> None:
        """A literal."""
        value = node.value
        match node.kind:
            case Kind.NULL:
                self.emit(Op.NULL)
            case Kind.BOOLEAN:
                self.emit(Op.TRUE if value else Op.FALSE)
            case Kind.STRING:
                self.emit(Op.STRING)
                self.text(str(value))
            case Kind.INTEGER:
                self._code += struct.pack(">Bi", Op.INTEGER, value)
            case Kind.LONG:
                self._code += struct.pack(">Bq", Op.LONG, value)
            case Kind.DOUBLE:
                self._code += struct.pack(">Bd", Op.DOUBLE, value)

    def comparison(self, node: Comparison) -> None:
        """Both sides; an ordering with nothing on its left does not look at its right, which might fail."""
        self.node(node.left)
        simple = isinstance(node.right, Constant | Property)
        behind = None if simple or node.operation is Compare.EQ else self.jump(Op.NULL_JUMP)
        self.node(node.right)
        self.emit(COMPARISONS[node.operation])
        if behind is not None:
            self.land(behind)

    def text_match(self, node: TextMatch) -> None:
        """CONTAINS and its like. Compat: an empty text is never contained, nor not, and nothing is evaluated for it."""
        if not node.search:
            self.emit(Op.FALSE)
            return
        self.node(node.operand)
        self.emit(MATCHES[node.operation] + (NEGATED if node.negated else 0))
        self.text(node.search)

    def in_list(self, node: In) -> None:
        """IN."""
        values = tuple(dict.fromkeys(node.values))
        if len(values) > COUNT_MAX:
            raise self.fail(f"IN with {len(values)} values; {COUNT_MAX} at most")
        self.node(node.operand)
        self.emit(Op.IN + (NEGATED if node.negated else 0))
        self._code += struct.pack(">H", len(values))
        for value in values:
            if len(self._code) > SIZE_MAX:
                raise self.too_large()
            self.text(value)

    def logic(self, node: Logic) -> None:
        """AND and OR, which end where the result is known."""
        jump, join = (Op.AND_JUMP, Op.AND) if node.is_and else (Op.OR_JUMP, Op.OR)
        self.node(node.terms[0])
        ends = []
        for term in node.terms[1:]:
            ends.append(self.jump(jump))
            self.node(term)
            self.emit(join)
        for end in ends:
            self.land(end)
