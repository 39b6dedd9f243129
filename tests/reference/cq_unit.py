"""The 20-byte unit of a consume queue."""

from __future__ import annotations

import struct
from typing import NamedTuple

UNIT = struct.Struct(
    ">"
    "q"  # physical offset
    "i"  # record size
    "q"  # tags code
)


class Unit(NamedTuple):
    """One unit, fields in file order."""

    physical_offset: int
    size: int
    tags_code: int


def encode_unit(unit: Unit) -> bytes:
    """The unit's 20 bytes."""
    return UNIT.pack(*unit)


def decode_units(source: bytes) -> list[Unit]:
    """Every whole unit; bytes after the last one are left."""
    whole = len(source) // UNIT.size * UNIT.size
    return [Unit(*fields) for fields in UNIT.iter_unpack(source[:whole])]


def scan_tags(units: list[Unit], hashes: set[int], matched_max: int) -> tuple[list[int], int]:
    """Indexes of the units whose tags code is wanted, up to *matched_max*, and how many units were looked at."""
    matched: list[int] = []
    for index, unit in enumerate(units):
        if len(matched) == matched_max:
            return matched, matched_last(matched)
        if unit.tags_code in hashes:
            matched.append(index)
    if len(matched) == matched_max:
        return matched, matched_last(matched)
    return matched, len(units)


def matched_last(matched: list[int]) -> int:
    """Units looked at when the list became full: up to and including its last match."""
    return matched[-1] + 1 if matched else 0
