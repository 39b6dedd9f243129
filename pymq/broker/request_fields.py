"""Reading a request's fields, refused as Apache's broker refuses them when they are missing or malformed."""

from __future__ import annotations

from pymq.remoting.codes import ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError

TRUE = "true"


def text_field(command: Command, name: str) -> str:
    """A field that must be there.

    Raises:
        RemotingError: it is not.
    """
    value = command.fields.get(name)
    if value is None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return value


def integer_field(command: Command, name: str, default: int | None = None, *, bits: int = 32) -> int:
    """A whole number that Java's int (or, with 64 *bits*, long) can hold; *default* where it may be missing.

    Raises:
        RemotingError: missing without a default, or no such number.
    """
    if default is not None and command.fields.get(name) is None:
        return default
    value = text_field(command, name)
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not digits.isascii() or not digits.isdigit() or not -(1 << (bits - 1)) <= int(value) < 1 << (bits - 1):
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f'the field <{name}> is no {bits}-bit number: "{value}"')
    return int(value)


def boolean_field(command: Command, name: str, default: bool = False) -> bool:
    """A truth value as Java reads it: the word true, in any case."""
    value = command.fields.get(name)
    return default if value is None else value.lower() == TRUE
