"""Rows for tables: one walk into columns that the caller keeps, and the pieces of many rows as Arrow's buffers.

Nothing here knows pyarrow; a column is a `bytearray` that it takes without a copy. Offsets of text are int32, validity
is a bit a row, as Arrow has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from pymq._scan._codec import Source, pointer
from pymq._scan._columns import LOG_COLUMNS, WalkEnd
from pymq._scan._native import ffi, lib

Buffer = Any
"""Anything contiguous with the buffer protocol that holds native integers of the width a column has."""

ROW_COLUMNS: Final[dict[str, str]] = {
    **LOG_COLUMNS,
    "status": "B",  # a RowStatus; asking for it computes both CRCs
    "unique_key_position": "q",  # the values of three properties; size -1 where there is none
    "unique_key_size": "i",
    "keys_position": "q",
    "keys_size": "i",
    "tags_position": "q",
    "tags_size": "i",
    "text_state": "B",  # a set of TEXT_BAD_PROPERTIES and TEXT_BAD_UTF8
}
"""The columns of `LogRows` and their array type codes."""

ITEM_SIZES: Final = {"q": 8, "i": 4, "I": 4, "B": 1}
C_ITEMS: Final = {"q": "int64_t[]", "i": "int32_t[]", "I": "uint32_t[]", "B": "uint8_t[]"}
TEXT_BAD_PROPERTIES: Final[int] = lib.PYMQ_TEXT_BAD_PROPERTIES
TEXT_BAD_UTF8: Final[int] = lib.PYMQ_TEXT_BAD_UTF8
PAIR_SIZE_MIN: Final = 4  # of a property: name, separator, value, separator


class RowStatus(IntEnum):
    """What an audit says of a whole record."""

    OK = lib.PYMQ_ROW_OK
    BAD_CRC = lib.PYMQ_ROW_BAD_CRC
    BAD_RECORD_CRC = lib.PYMQ_ROW_BAD_RECORD_CRC
    BAD_OFFSET = lib.PYMQ_ROW_BAD_OFFSET


class FindKind(IntEnum):
    """What `find_record` found."""

    NOTHING = lib.PYMQ_FIND_NOTHING
    RECORD = lib.PYMQ_FIND_RECORD
    BLANK = lib.PYMQ_FIND_BLANK
    MORE = lib.PYMQ_FIND_MORE


class Found(NamedTuple):
    """Where a walk can go on: nothing begins before *position*; MORE needs *size* bytes from there to be sure."""

    kind: FindKind
    position: int
    size: int


class Pieces(NamedTuple):
    """Texts or bytes of many rows: offsets (int32, one more than rows), the bytes, a bit a row that has a value."""

    offsets: bytearray
    data: bytearray
    validity: bytearray | None
    absent: int


class Pairs(NamedTuple):
    """Properties of many rows: how many pairs stand before each row, and names and values one after the other."""

    row_offsets: bytearray
    pair_count: int
    names: Pieces
    values: Pieces


class LogRows:
    """Columns of up to *rows_max* records, filled by one call into C; columns that nobody wants cost nothing.

    After `walk`: `count` records were found, the walk ended at byte `position` of what it was given for the reason
    `end`, and `notable_count` of them have a status, a text state or a compressed body.
    """

    def __init__(self, names: Iterable[str], rows_max: int) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.rows_max = rows_max
        self.buffers = {name: bytearray(rows_max * ITEM_SIZES[ROW_COLUMNS[name]]) for name in self.names}
        self.native = ffi.new("struct pymq_log_columns *")
        self._walk = ffi.new("struct pymq_log_walk *")
        self._owners = []
        for name, buffer in self.buffers.items():
            owner = ffi.from_buffer(C_ITEMS[ROW_COLUMNS[name]], buffer, require_writable=True)
            setattr(self.native, name, owner)
            self._owners.append(owner)
        self.count = self.position = self.blank_size = self.notable_count = 0
        self.end = WalkEnd.DONE

    def walk(self, source: Source, base_offset: int, levels: Any, count_max: int | None = None) -> None:
        """Walk *source*, whose first byte lies at *base_offset*; *levels* comes from `delay_levels_of`."""
        rows = self.rows_max if count_max is None else min(count_max, self.rows_max)
        lib.pymq_scan_log(
            pointer(source), memoryview(source).nbytes, base_offset, 0, levels, self.native, rows, self._walk
        )
        self.count, self.position = int(self._walk.count), int(self._walk.position)
        self.blank_size, self.notable_count = int(self._walk.blank_size), int(self._walk.notable_count)
        self.end = WalkEnd(self._walk.end)

    def view(self, name: str) -> memoryview[int]:
        """A column's values up to `count`."""
        code: Any = ROW_COLUMNS[name]
        values: memoryview[int] = memoryview(self.buffers[name]).cast(code)
        return values[: self.count]


def longs(buffer: Buffer) -> Any:
    """A column of int64 for C."""
    return ffi.from_buffer("int64_t[]", buffer)


def ints(buffer: Buffer) -> Any:
    """A column of int32 for C."""
    return ffi.from_buffer("int32_t[]", buffer)


def find_record(source: Source, *, base_offset: int, limit: int, file_end: int) -> Found:
    """The first whole record of *source* that says it stands where it does, or the blank tail up to *file_end*."""
    found = ffi.new("struct pymq_find *")
    lib.pymq_scan_find(pointer(source), memoryview(source).nbytes, base_offset, limit, file_end, found)
    return Found(FindKind(found.kind), int(found.position), int(found.size))


def written_size(source: Source) -> int:
    """Bytes up to and including the last that is not zero."""
    return int(lib.pymq_scan_written(pointer(source), memoryview(source).nbytes))


def is_utf8(source: Source) -> bool:
    """Whether *source* is UTF-8."""
    return bool(lib.pymq_is_utf8(pointer(source), memoryview(source).nbytes))


def gather(source: Source, positions: Buffer, sizes: Buffer, count: int, first: int = 0) -> Pieces:
    """The pieces of rows [first, count) copied together; a negative size is a row without a value."""
    rows, starts, lengths = count - first, longs(positions) + first, ints(sizes) + first
    offsets = bytearray(4 * (rows + 1))
    data = bytearray(lib.pymq_scan_gather_size(lengths, rows))
    validity = bytearray((rows + 7) // 8)
    absent = lib.pymq_scan_gather(
        pointer(source), starts, lengths, rows, ints(offsets), pointer(data), pointer(validity)
    )
    return Pieces(offsets, data, validity if absent else None, int(absent))


def not_utf8(pieces: Pieces) -> list[int]:
    """Rows whose piece is no UTF-8."""
    rows = len(pieces.offsets) // 4 - 1
    count = lib.pymq_scan_not_utf8(pointer(pieces.data), ints(pieces.offsets), rows, ffi.NULL, 0)
    if not count:
        return []
    found = ffi.new("uint32_t[]", count)
    lib.pymq_scan_not_utf8(pointer(pieces.data), ints(pieces.offsets), rows, found, count)
    return list(found)


def host_texts(
    source: Source, record_positions: Buffer, sys_flags: Buffer, count: int, *, store: bool, first: int = 0
) -> Pieces:
    """The born or store hosts of rows [first, count) as text."""
    rows = count - first
    offsets, data = bytearray(4 * (rows + 1)), bytearray(rows * lib.PYMQ_HOST_TEXT_SIZE_MAX)
    owner = pointer(data)
    size = lib.pymq_scan_hosts(
        pointer(source), longs(record_positions) + first, ints(sys_flags) + first, rows, store, ints(offsets), owner
    )
    ffi.release(owner)
    del data[size:]
    return Pieces(offsets, data, None, 0)


def find_properties(
    source: Source, positions: Buffer, sizes: Buffer, count: int, name: bytes
) -> tuple[bytearray, bytearray]:
    """Positions and sizes of the property *name* in each row's properties; size -1 where there is none."""
    found, lengths = bytearray(8 * count), bytearray(4 * count)
    lib.pymq_scan_property(
        pointer(source), longs(positions), ints(sizes), count, name, len(name), longs(found), ints(lengths)
    )
    return found, lengths


def property_pairs(source: Source, positions: Buffer, sizes: Buffer, count: int, first: int = 0) -> Pairs:
    """All properties of rows [first, count), of equal names the last."""
    rows, starts, lengths = count - first, longs(positions) + first, ints(sizes) + first
    room = lib.pymq_scan_gather_size(lengths, rows) // PAIR_SIZE_MIN + rows
    row_offsets = bytearray(4 * (rows + 1))
    name_at, name_size = bytearray(8 * room), bytearray(4 * room)
    value_at, value_size = bytearray(8 * room), bytearray(4 * room)
    pairs = ffi.new("struct pymq_pair_columns *")
    owners = [longs(name_at), ints(name_size), longs(value_at), ints(value_size)]
    pairs.name_position, pairs.name_size, pairs.value_position, pairs.value_size = owners
    found = lib.pymq_scan_property_pairs(pointer(source), starts, lengths, rows, ints(row_offsets), pairs, room)
    names = gather(source, name_at, name_size, found)
    values = gather(source, value_at, value_size, found)
    return Pairs(row_offsets, int(found), names, values)
