"""Tokens of a filter expression: the longest match at each place, as RocketMQ's SelectorParser cuts them.

Compat, in what the grammar says rather than what one expects:
    a number does not begin with 0 unless it is 0: `07` is 0 followed by 7, `0L` is 0 followed by the name L;
    a line comment needs its line's end: `-- x` at the end of the expression is two minus signs;
    names are ASCII letters, digits, `_` and `$`; there is no `!=`, no `LIKE`, no hexadecimal number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pymq.filter.errors import FilterError, shown

END: Final = "end of the expression"
NAME: Final = "a property's name"
STRING: Final = "a string"
DECIMAL: Final = "a whole number"
FLOATING: Final = "a number"
WORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)

# Alternatives of one start are in order of length where both can match; re.ASCII keeps [a-z] what it says.
SKIPPED = re.compile(
    r"""[ \t\n\r\f]
      | --[^\n\r]*(?:\r\n|\n|\r)
      | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/""",
    re.VERBOSE,
)
TOKEN = re.compile(
    r"""(?P<floating>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)? | \.[0-9]+(?:E[+-]?[0-9]+)? | [0-9]+E[+-]?[0-9]+)
      | (?P<decimal>0 | [1-9][0-9]*L?)
      | (?P<string>'(?:''|[^'])*')
      | (?P<word>[A-Z_$][A-Z0-9_$]*)
      | (?P<sign><> | <= | >= | [=<>(),+-])""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token: *kind* is a reserved word or sign itself, or one of NAME, STRING, DECIMAL, FLOATING, END."""

    kind: str
    text: str
    offset: int

    def __str__(self) -> str:
        return END if self.kind == END else shown(self.text)


def tokens(expression: str) -> Iterator[Token]:
    """The tokens of *expression*, then END for ever; cut one by one, so that what is never asked for is never refused.

    Raises:
        FilterError: no token begins here.
    """
    offset = 0
    while offset < len(expression):
        skipped = SKIPPED.match(expression, offset)
        if skipped is not None:
            offset = skipped.end()
            continue
        found = TOKEN.match(expression, offset)
        if found is None:
            raise FilterError(unreadable(expression, offset), expression, offset)
        yield Token(kind_of(found), found.group(), offset)
        offset = found.end()
    while True:
        yield Token(END, "", len(expression))


def kind_of(found: re.Match[str]) -> str:
    """What the matched text is."""
    text = found.group()
    match found.lastgroup:
        case "word":
            return text.upper() if text.upper() in WORDS else NAME
        case "string":
            return STRING
        case "decimal":
            return DECIMAL
        case "floating":
            return FLOATING
        case _:
            return text


def unreadable(expression: str, offset: int) -> str:
    """Why no token begins at *offset*."""
    rest = expression[offset:]
    if rest.startswith("'"):
        return "this string has no closing '"
    if rest.startswith("/*"):
        return "this comment has no closing */"
    if rest.startswith("!="):
        return "no token begins with '!'; not equal is written <>"
    return f"no token begins with {rest[0]!r}"
