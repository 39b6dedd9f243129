"""What is wrong with an expression, and where."""

from __future__ import annotations

LIMIT_TEXT_MAX = 40  # characters of a token that a message repeats


class FilterError(ValueError):
    """An expression that is refused.

    Attributes:
        reason: what is wrong, without the place.
        line, column: where, both counted from 1; a column is a character.
        offset: the same as an index into the expression.
    """

    def __init__(self, reason: str, expression: str, offset: int) -> None:
        """The character at *offset* of *expression* is where it goes wrong."""
        self.reason = reason
        self.offset = min(offset, len(expression))
        self.line, self.column = place(expression, self.offset)
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


def place(expression: str, offset: int) -> tuple[int, int]:
    """Line and column of the character at *offset*; CR, LF and CR LF each end a line."""
    before = expression[:offset].replace("\r\n", "\n").replace("\r", "\n")
    line = before.count("\n") + 1
    return line, len(before) - (before.rfind("\n") + 1) + 1


def shown(text: str) -> str:
    """A token as messages repeat it."""
    return text if len(text) <= LIMIT_TEXT_MAX else text[:LIMIT_TEXT_MAX] + "…"
