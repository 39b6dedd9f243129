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
    """A whole number that Java's int (or, with 64 *bits*, long) can hold.

    # Compat: with a *default*, what is missing or malformed counts as it: Apache's reader leaves such a field null.

    Raises:
        RemotingError: without a default: missing, or no such number.
    """
    value = command.fields.get(name) or ""
    digits = value[1:] if value[:1] in ("-", "+") else value
    if digits.isascii() and digits.isdigit() and -(1 << (bits - 1)) <= int(value) < 1 << (bits - 1):
        return int(value)
    if default is not None:
        return default
    text_field(command, name)
    raise RemotingError(ResponseCode.SYSTEM_ERROR, f'the field <{name}> is no {bits}-bit number: "{value}"')


def boolean_field(command: Command, name: str, default: bool = False) -> bool:
    """A truth value as Java reads it: the word true, in any case."""
    value = command.fields.get(name)
    return default if value is None else value.lower() == TRUE
