"""Reading single records of a log that somebody else may be writing, and finding where a stopped one ends."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple, Self

from pymq._scan import Check, Record, WalkEnd, decode_record, walk_log
from pymq.errors import CorruptRecordError
from pymq.store.dump.leaves import leaf_digest, nonzero_end, read_full
from pymq.store.layout import OFFSET_NAME, find_commit_log_size, named_files

TAIL_SIZE = 64 << 10
MAGIC_AT = 4
MAGICS = (bytes.fromhex("daa320a7"), bytes.fromhex("daa320ab"))


class UnitRecord(NamedTuple):
    """What a record says of its place."""

    size: int
    queue_id: int
    queue_offset: int
    physical_offset: int


class LogReader:
    """Reads below *directory*/commitlog by physical offset. Keeps one file open."""

    def __init__(self, directory: Path) -> None:
        """Find the files; sizes are told by their names."""
        self.directory = directory / "commitlog"
        self.files = {int(path.name): path for path in named_files(self.directory, OFFSET_NAME)}
        self.file_size = find_commit_log_size(self.directory) or 0
        self._open: tuple[int, int] | None = None  # base, descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def read(self, offset: int, count: int) -> bytes:
        """*count* bytes at *offset*, fewer at the end of its file; none where there is no file."""
        if not self.file_size:
            return b""
        base = offset - offset % self.file_size
        if self._open is None or self._open[0] != base:
            self.close()
            path = self.files.get(base)
            if path is None:
                return b""
            try:
                self._open = base, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
        return read_full(self._open[1], min(count, base + self.file_size - offset), offset - base)

    def place(self, offset: int) -> UnitRecord | None:
        """What the record at *offset* says of its place; None where there is none."""
        head = self.read(offset, 36)
        if len(head) < 36 or head[MAGIC_AT : MAGIC_AT + 4] not in MAGICS:
            return None
        number = int.from_bytes
        return UnitRecord(
            number(head[0:4], "big", signed=True),
            number(head[12:16], "big", signed=True),
            number(head[20:28], "big", signed=True),
            number(head[28:36], "big", signed=True),
        )

    def store_timestamp_ms(self, offset: int) -> int | None:
        """When the record at *offset* was stored; None where there is none."""
        place = self.place(offset)
        if place is None or place.size <= 0:
            return None
        try:
            record = decode_record(self.read(offset, place.size), checks=Check.OFFSET, physical_offset=offset)
        except CorruptRecordError:
            return None
        return record.store_timestamp_ms if isinstance(record, Record) else None

    def tail(self, end: int) -> tuple[int, str]:
        """Where the last bytes below *end* begin, and their digest: by which a log is known again."""
        if end <= 0 or not self.file_size:
            return end, leaf_digest(b"")
        begin = max(end - TAIL_SIZE, (end - 1) // self.file_size * self.file_size)
        return begin, leaf_digest(self.read(begin, end - begin))


def stopped_log_end(directory: Path) -> tuple[int, int]:
    """Where the log of a store that nobody writes begins and ends.

    It ends behind the last record of the last file that has any, or, if that is further, behind the last byte that is
    not zero: a torn or damaged end belongs to the dump, so that whoever looks at it sees it.
    """
    files = named_files(directory / "commitlog", OFFSET_NAME)
    if not files:
        return 0, 0
    begin = int(files[0].name)
    for path in reversed(files):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            data_end = nonzero_end(descriptor, size)
            if data_end:
                return begin, int(path.name) + records_end(descriptor, size, int(path.name), data_end)
        finally:
            os.close(descriptor)
    return begin, begin


def records_end(descriptor: int, size: int, base: int, data_end: int) -> int:
    """Behind the last record of a file that begins below *data_end*, or *data_end* if that is further."""
    data = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)  # closed when nothing looks into it any more
    at = end = 0
    while at < data_end:
        walk = walk_log(memoryview(data)[at:], base_offset=base + at, checks=Check.OFFSET, columns=())
        at = end = at + walk.position
        if at >= data_end:
            break
        if walk.end is WalkEnd.BLANK:
            return size
        at = next_record(data, at + 1, base, data_end)
    return max(end, data_end)


def next_record(data: mmap.mmap, at: int, base: int, limit: int) -> int:
    """Where the next record begins that knows its place, or *limit*."""
    found = {magic: data.find(magic, at + MAGIC_AT) for magic in MAGICS}
    while any(place >= 0 for place in found.values()):
        magic = min((magic for magic in MAGICS if found[magic] >= 0), key=found.__getitem__)
        place = found[magic] - MAGIC_AT
        if is_record(data, place, base):
            return min(place, limit)
        found[magic] = data.find(magic, found[magic] + 1)
    return limit


def is_record(data: mmap.mmap, place: int, base: int) -> bool:
    """Whether a record begins at *place* of a file and says so."""
    try:
        record = decode_record(memoryview(data), at=place, checks=Check.OFFSET, physical_offset=base + place)
    except CorruptRecordError:
        return False
    return isinstance(record, Record)
