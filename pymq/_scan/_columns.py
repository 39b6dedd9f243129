"""Many things at once: a range of the log, a queue file, an index file, each as one array per field.

The columns are `array.array`s: pyarrow, numpy and memoryview take them without a copy. Files are read with pread,
never mapped: a file that a broker truncates meanwhile is a short read here, not a signal.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from pymq._scan._codec import Check, RecordCrc, Source, pointer, raise_status
from pymq._scan._native import ffi, lib

Columns = Mapping[str, "array[int]"]

LOG_COLUMNS: Final[dict[str, str]] = {
    "physical_offset": "q",
    "total_size": "i",
    "magic": "I",
    "body_crc": "i",
    "body_crc_matches": "B",  # asking for it computes the CRC of every body
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "sys_flag": "i",
    "born_timestamp_ms": "q",
    "store_timestamp_ms": "q",
    "reconsume_times": "i",
    "prepared_transaction_offset": "q",
    "tags_code": "q",
    "record_position": "q",  # positions count from the first byte of the bytes walked
    "body_position": "q",
    "body_size": "i",
    "topic_position": "q",
    "topic_size": "i",
    "properties_position": "q",
    "properties_size": "i",
    "record_crc_state": "B",  # a RecordCrc; asking for it computes the CRC of records that carry one
}
"""The columns of `walk_log` and their array type codes."""

QUEUE_COLUMNS: Final[dict[str, str]] = {"physical_offset": "q", "size": "i", "tags_code": "q"}
INDEX_COLUMNS: Final[dict[str, str]] = {"key_hash": "i", "physical_offset": "q", "seconds": "i", "previous": "i"}
C_TYPES: Final = {"q": "int64_t[]", "i": "int32_t[]", "I": "uint32_t[]", "B": "uint8_t[]"}

WALK_ROWS: Final = 16384  # rows filled per call into C; what bounds the scratch memory of a walk
CHUNK_SIZE: Final = 8 << 20  # bytes per pread of `iterate_log`


class WalkEnd(IntEnum):
    """Why a walk ended."""

    DONE = lib.PYMQ_WALK_DONE
    FULL = lib.PYMQ_WALK_FULL
    BLANK = lib.PYMQ_WALK_BLANK
    TRUNCATED = lib.PYMQ_WALK_TRUNCATED
    CORRUPT = lib.PYMQ_WALK_CORRUPT


class Scratch:
    """Arrays that C fills, and the struct of pointers to them; absent columns stay NULL."""

    def __init__(self, struct: str, types: Mapping[str, str], names: Iterable[str], rows: int) -> None:
        self.arrays = {name: array(types[name], bytes(rows * array(types[name]).itemsize)) for name in names}
        self.native = ffi.new(f"struct {struct} *")
        self._owners = []
        for name, values in self.arrays.items():
            owner = ffi.from_buffer(C_TYPES[types[name]], values, require_writable=True)
            setattr(self.native, name, owner)
            self._owners.append(owner)

    def release(self) -> None:
        """Let go of the arrays' memory, so that they can be resized."""
        for owner in self._owners:
            ffi.release(owner)
        self._owners.clear()

    def trimmed(self, count: int) -> dict[str, array[int]]:
        """The first *count* rows; the scratch must not be used afterwards."""
        self.release()
        for values in self.arrays.values():
            del values[count:]
        return self.arrays


@dataclass(frozen=True, slots=True)
class LogWalk:
    """What a walk found.

    Attributes:
        columns: the arrays asked for, one entry per record.
        count: records found.
        position: the byte of the source where the walk ended.
        end: why it ended there.
        blank_size: what the blank tail at `position` says it covers, with WalkEnd.BLANK.
        body_bytes: sum of the body sizes.
        crc_mismatch_count: bodies with another CRC, when body_crc_matches was asked for.
        record_crc_mismatch_count: records with another CRC than they carry, when record_crc_state was asked for.
        source: the bytes walked, which the position columns point into.
        base_offset: the physical offset of the first of them.
    """

    columns: Columns
    count: int
    position: int
    end: WalkEnd
    blank_size: int
    body_bytes: int
    crc_mismatch_count: int
    record_crc_mismatch_count: int
    source: memoryview
    base_offset: int

    def piece(self, name: str, row: int) -> memoryview:
        """The "body", "topic" or "properties" of record *row*, without a copy; needs its two columns."""
        start = self.columns[f"{name}_position"][row]
        return self.source[start : start + self.columns[f"{name}_size"][row]]


def delay_levels_of(text: str | None) -> Any:
    """The C levels of messageDelayLevel's *text*, or NULL."""
    if text is None:
        return ffi.NULL
    levels = ffi.new("struct pymq_delay_levels *")
    status = lib.pymq_delay_levels_parse(text.encode("utf-8"), levels)
    if status < 0:
        raise_status(status, f"delay levels {text!r}")
    return levels


def walk_log(
    source: Source,
    *,
    base_offset: int = 0,
    checks: Check = Check.STRUCTURE,
    columns: Iterable[str] = tuple(LOG_COLUMNS),
    delay_levels: str | None = None,
    count_max: int | None = None,
) -> LogWalk:
    """Walk records from the first byte of *source*, which lies at physical offset *base_offset*.

    The walk ends at the first byte that begins no valid record under *checks*; `end` says what is there instead.
    *delay_levels* is the broker's messageDelayLevel; without it delay records keep the hash of their tags.

    >>> walk = walk_log(b"")
    >>> walk.count, walk.end.name
    (0, 'DONE')
    """
    view = memoryview(source).cast("B")
    names = list(columns)
    unknown = set(names) - set(LOG_COLUMNS)
    if unknown:
        raise_status(lib.PYMQ_EINVAL, f"no such column: {', '.join(sorted(unknown))}")
    levels = delay_levels_of(delay_levels)
    made = {name: array(LOG_COLUMNS[name]) for name in names}
    left = len(view) // lib.PYMQ_RECORD_SIZE_MIN + 1 if count_max is None else count_max
    scratch = Scratch("pymq_log_columns", LOG_COLUMNS, names, min(left, WALK_ROWS))
    start, native = pointer(view), ffi.new("struct pymq_log_walk *")
    count = position = body_bytes = mismatches = record_mismatches = 0
    while True:
        lib.pymq_scan_log(
            start + position,
            len(view) - position,
            base_offset + position,
            checks,
            levels,
            scratch.native,
            min(left, WALK_ROWS),
            native,
        )
        for name, values in made.items():
            rows = scratch.arrays[name][: native.count]
            if name.endswith("_position"):  # C counts from where this call began
                rows = array("q", (value + position for value in rows)) if position else rows
            values.extend(rows)
        count += native.count
        left -= native.count
        position += native.position
        body_bytes += native.body_bytes
        mismatches += native.crc_mismatch_count
        record_mismatches += native.record_crc_mismatch_count
        if native.end != lib.PYMQ_WALK_FULL or left == 0:
            break
    return LogWalk(
        columns=made,
        count=count,
        position=position,
        end=WalkEnd(native.end),
        blank_size=native.blank_size,
        body_bytes=body_bytes,
        crc_mismatch_count=mismatches,
        record_crc_mismatch_count=record_mismatches,
        source=view,
        base_offset=base_offset,
    )


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """Up to *size* bytes from *position*; fewer only at the end of the file."""
    pieces = []
    while size > 0:
        piece = os.pread(descriptor, size, position)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
        position += len(piece)
    return b"".join(pieces)


def iterate_log(
    path: str | os.PathLike[str],
    *,
    base_offset: int | None = None,
    checks: Check = Check.BODY_CRC | Check.OFFSET,
    columns: Iterable[str] = tuple(LOG_COLUMNS),
    delay_levels: str | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Iterator[LogWalk]:
    """Walk one log file in chunks of about *chunk_size* bytes, one `LogWalk` each.

    *base_offset* is the file's first physical offset, by default its name, as brokers name log files. The last
    walk's `end` says how the file ends: DONE, BLANK, TRUNCATED (cut short) or CORRUPT (also: never written).
    """
    if chunk_size < lib.PYMQ_BLANK_SIZE_MIN:
        raise_status(lib.PYMQ_EINVAL, f"chunk_size {chunk_size}: a chunk holds at least a blank tail's 8 bytes")
    names = tuple(columns)
    first = int(Path(path).name) if base_offset is None else base_offset
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position, wanted = 0, chunk_size
        while True:
            chunk = read_at(descriptor, wanted, position)
            walk = walk_log(
                chunk, base_offset=first + position, checks=checks, columns=names, delay_levels=delay_levels
            )
            at_file_end = len(chunk) < wanted
            if walk.end is WalkEnd.TRUNCATED and walk.position == 0 and not at_file_end:
                # One record longer than the chunk, or one that says so; the file's size bounds what is believed.
                size = max(int.from_bytes(chunk[:4], "big"), 2 * wanted)
                wanted = min(size, os.fstat(descriptor).st_size - position + 1)
                continue
            yield walk
            if at_file_end or walk.end in (WalkEnd.BLANK, WalkEnd.CORRUPT):
                return
            position, wanted = position + walk.position, chunk_size
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify_log` found in one file; offsets are physical."""

    count: int
    body_bytes: int
    mismatched_offsets: list[int]
    end: WalkEnd
    end_offset: int
    record_mismatched_offsets: list[int]


def verify_log(path: str | os.PathLike[str], *, base_offset: int | None = None) -> Verification:
    """Check structure, position, body CRC and, where there is one, the CRC over the record, of one log file.

    A body or a record with another CRC is listed and the walk goes on; a record whose structure or own offset is wrong
    ends it. A whole message passed on with its old properties, while enabledAppendPropCRC was off, carries the CRC of
    the record it was copied from and is listed as well.
    """
    count = body_bytes = end_offset = 0
    mismatched: list[int] = []
    record_mismatched: list[int] = []
    end = WalkEnd.DONE
    wanted = ("physical_offset", "body_crc_matches", "record_crc_state")
    for walk in iterate_log(path, base_offset=base_offset, checks=Check.OFFSET, columns=wanted):
        if walk.crc_mismatch_count:
            offsets, matches = walk.columns["physical_offset"], walk.columns["body_crc_matches"]
            mismatched += [offset for offset, matched in zip(offsets, matches, strict=True) if not matched]
        if walk.record_crc_mismatch_count:
            states = zip(walk.columns["physical_offset"], walk.columns["record_crc_state"], strict=True)
            record_mismatched += [offset for offset, state in states if state == RecordCrc.DIFFERS]
        count += walk.count
        body_bytes += walk.body_bytes
        end, end_offset = walk.end, walk.base_offset + walk.position
    return Verification(count, body_bytes, mismatched, end, end_offset, record_mismatched)


def decode_queue(source: Source) -> Columns:
    """The whole units of a queue file's bytes as columns physical_offset, size and tags_code, unchecked."""
    size = memoryview(source).nbytes
    rows = size // lib.PYMQ_CQ_UNIT_SIZE
    scratch = Scratch("pymq_queue_columns", QUEUE_COLUMNS, QUEUE_COLUMNS, rows)
    count = lib.pymq_scan_queue(pointer(source), size, scratch.native, rows)
    return scratch.trimmed(count)


def scan_tags(source: Source, hashes: Iterable[int], *, matched_max: int | None = None) -> tuple[array[int], int]:
    """Indexes of the units whose tags code is one of *hashes*, and how many units were looked at."""
    rows = memoryview(source).nbytes // lib.PYMQ_CQ_UNIT_SIZE
    wanted = list(hashes)
    limit = rows if matched_max is None else min(matched_max, rows)
    matched, scanned = array("I", bytes(4 * limit)), ffi.new("size_t *")
    owner = ffi.from_buffer("uint32_t[]", matched, require_writable=True)
    found = lib.pymq_cq_scan_tags(
        pointer(source), rows, ffi.new("int64_t[]", wanted), len(wanted), owner, limit, scanned
    )
    ffi.release(owner)
    del matched[found:]
    return matched, int(scanned[0])


class IndexHeader(NamedTuple):
    """An index file's header, fields in file order; item_count is one more than the items."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_offset: int
    end_offset: int
    slot_used: int
    item_count: int


class Index(NamedTuple):
    """An index file: header, slots (item numbers), and the items' columns; item number n is row n - 1."""

    header: IndexHeader
    slots: array[int]
    items: Columns


def decode_index(source: Source, slot_count: int) -> Index:
    """An index file's bytes. *slot_count* is the broker's maxHashSlotNum; the file does not hold it.

    Raises:
        TruncatedRecordError: the bytes end before the slots, or before an item that the header counts.
        InvalidArgumentError: a negative slot_count.
    """
    start, size = pointer(source), memoryview(source).nbytes
    native = ffi.new("struct pymq_index_header *")
    status = lib.pymq_scan_index_header(start, size, native)
    if status < 0:
        raise_status(status, f"an index header in {size} bytes")
    header = IndexHeader(*(getattr(native, name) for name in IndexHeader._fields))
    held = min(max(slot_count, 0), size // 4)  # never more memory than the bytes can fill
    slots = array("i", bytes(4 * held))
    owner = ffi.from_buffer("int32_t[]", slots, require_writable=True)
    status = lib.pymq_scan_index_slots(start, size, slot_count, owner, held)
    ffi.release(owner)
    if status < 0:
        raise_status(status, f"{slot_count} slots in {size} bytes")
    # One row more than the bytes can hold, so that a count beyond them is an error and not silently cut.
    rows = max(min(header.item_count - 1, size // 20 + 1), 0)
    scratch = Scratch("pymq_index_columns", INDEX_COLUMNS, INDEX_COLUMNS, rows)
    found = lib.pymq_scan_index_items(start, size, slot_count, 1, scratch.native, rows)
    if found < 0:
        raise_status(found, f"{header.item_count - 1} items in {size} bytes")
    return Index(header, slots, scratch.trimmed(found))


def read_index(path: str | os.PathLike[str], slot_count: int) -> Index:
    """`decode_index` of a file."""
    return decode_index(read_whole(path), slot_count)


def read_queue(path: str | os.PathLike[str]) -> Columns:
    """`decode_queue` of a file."""
    return decode_queue(read_whole(path))


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """A file's bytes as they are now, by pread."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_at(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
