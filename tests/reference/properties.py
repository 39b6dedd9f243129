"""The properties string: each property is name 0x01 value 0x02, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

NAME_VALUE_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"


def decode_pairs(source: bytes) -> list[tuple[bytes, bytes]]:
    """The pairs Apache's decoder takes, in order: those with a name and a value, split at the first 0x01."""
    pairs = []
    for piece in source.split(PROPERTY_SEPARATOR):
        name, separator, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and separator and value:
            pairs.append((name, value))
    return pairs


def decode_properties(source: bytes) -> dict[bytes, bytes]:
    """The properties; the last of two equal names wins."""
    return dict(decode_pairs(source))


def encode_properties(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The string, each pair closed by 0x02. Raises ValueError for a separator inside a name or a value."""
    made = b""
    for name, value in pairs:
        if any(separator in text for text in (name, value) for separator in (b"\x01", b"\x02")):
            raise ValueError("a name or value holds a separator")
        made += name + NAME_VALUE_SEPARATOR + value + PROPERTY_SEPARATOR
    return made


def are_well_formed(source: bytes) -> bool:
    """Whether a writer can have left this behind: nothing, or at least one name/value separator."""
    return not source or NAME_VALUE_SEPARATOR in source
