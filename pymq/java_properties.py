r"""Java's properties format, in which every RocketMQ configuration file is written.

A line is `key=value`, `key:value` or `key value`; `#` and `!` begin comments; a trailing backslash continues the line;
`\t`, `\n`, `\uXXXX` and escaped separators are understood. The last of two equal keys wins, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

WHITESPACE = " \t\f"
SEPARATORS = "=:"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
LINE_END = re.compile(r"\r\n|\r|\n")  # and no other: str.splitlines knows more than Java does
UNICODE_ESCAPE = re.compile(r"[0-9a-fA-F]{4}")


class Property(NamedTuple):
    """One key with its value and the line it begins on (1-based)."""

    key: str
    value: str
    line: int


def parse(text: str) -> list[Property]:
    r"""Every property of *text*, in order, repeated keys included.

    Raises:
        ValueError: a malformed `\uXXXX`; the message names the line.
    """
    return [Property(*split(logical, number), number) for number, logical in logical_lines(text)]


def to_dict(text: str) -> dict[str, str]:
    """The properties of *text* as Java's `Properties.load` keeps them."""
    return {item.key: item.value for item in parse(text)}


def render(properties: Mapping[str, str]) -> str:
    """*properties* as RocketMQ prints its configuration: `key=value` lines, sorted, values as they are."""
    return "".join(f"{key}={properties[key]}\n" for key in sorted(properties))


def parse_bool(text: str) -> bool:
    """true or false, in any case.

    # Differs: Java takes every other word as false; a misspelled true is an error here.
    """
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blanks, each with its first line's number."""
    pending, begin = "", 0
    for number, line in enumerate(LINE_END.split(text), 1):
        stripped = line.lstrip(WHITESPACE)
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        begin = begin or number
        trailing = len(stripped) - len(stripped.rstrip("\\"))
        if trailing % 2:
            pending += stripped[:-1]
            continue
        yield begin, pending + stripped
        pending, begin = "", 0
    if pending:
        yield begin, pending


def split(line: str, number: int) -> tuple[str, str]:
    """Key and value of a logical line, unescaped."""
    end = 0
    while end < len(line) and line[end] not in SEPARATORS + WHITESPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(WHITESPACE)
    if rest[:1] and rest[0] in SEPARATORS:
        rest = rest[1:].lstrip(WHITESPACE)
    return unescape(line[:end], number), unescape(rest, number)


def unescape(text: str, number: int) -> str:
    """*text* with its backslash escapes resolved."""
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append(character)
            continue
        escape = text[position]
        position += 1
        if escape != "u":
            parts.append(ESCAPES.get(escape, escape))
            continue
        digits = text[position : position + 4]
        if not UNICODE_ESCAPE.fullmatch(digits):
            raise ValueError(f"line {number}: \\u{digits} is no unicode escape; it needs four hexadecimal digits")
        parts.append(chr(int(digits, 16)))
        position += 4
    # Java writes one letter as two escapes where UTF-16 needs two units.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
