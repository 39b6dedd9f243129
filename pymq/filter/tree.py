"""An expression as a tree, with the checks RocketMQ makes while it builds one.

Nodes are what RocketMQ's expression classes are. Which of them is *boolean* matters for what it may be combined with,
not for what it evaluates to: a property alone is not boolean, and is cast where a boolean is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1


class Kind(Enum):
    """Java's class of a constant: comparing converts a string to the class it is compared with."""

    NULL = "NULL"
    BOOLEAN = "Boolean"
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"
    STRING = "String"


class Compare(Enum):
    """A comparison."""

    EQ = "="
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="


class Match(Enum):
    """A look into a string."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Constant:
    """NULL, TRUE, 5, 5.5 or 'text'."""

    kind: Kind
    value: bool | int | float | str | None = None
    depth: int = field(default=1, compare=False)

    def __str__(self) -> str:
        match self.value:
            case None:
                return "NULL"
            case bool():
                return "TRUE" if self.value else "FALSE"
            case str():
                return "'" + self.value.replace("'", "''") + "'"
            case _:
                return repr(self.value)


@dataclass(frozen=True, slots=True)
class Property:
    """A message's property: a string, or NULL when the message has none of that name."""

    name: str
    depth: int = field(default=1, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Negate:
    """-x: the negative of a number, NULL for anything else; a property is a string."""

    operand: Node
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """NOT x."""

    operand: Node
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """A property where a boolean is wanted. Compat: it is a string, so FALSE whatever it says, or NULL."""

    operand: Property
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """left = right and its like."""

    operation: Compare
    left: Node
    right: Node
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class TextMatch:
    """x [NOT] CONTAINS 'text' and its like; never NULL."""

    operation: Match
    operand: Node
    search: str
    negated: bool
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """p [NOT] IN ('a', 'b')."""

    operand: Property
    values: tuple[str, ...]
    negated: bool
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    """x AND y AND z, or with OR, evaluated from the left as far as needed."""

    is_and: bool
    terms: tuple[Node, ...]
    depth: int = field(default=1, compare=False)


Node = Constant | Property | Negate | Not | Cast | Comparison | TextMatch | In | Logic

NULL: Final = Constant(Kind.NULL)
TRUE: Final = Constant(Kind.BOOLEAN, True)
FALSE: Final = Constant(Kind.BOOLEAN, False)


def is_boolean(node: Node) -> bool:
    """Whether RocketMQ's class of *node* is a BooleanExpression."""
    if isinstance(node, Constant):
        return node.kind in (Kind.NULL, Kind.BOOLEAN)
    return not isinstance(node, Property | Negate)


def number(value: int) -> Constant:
    """A whole number: an Integer when it fits, else a Long."""
    return Constant(Kind.INTEGER if INT32_MIN <= value <= INT32_MAX else Kind.LONG, value)
