"""Walking a range of one log file: stretches of records, stretches of damage, and how it ended.

A range owns what *starts* in it, so neighbouring ranges give together what one range over both would give, wherever
they meet. Where no record begins the walk goes on at the next position whose record is whole and says that it stands
there (or at the file's blank tail); everything up to it is one damage. Nothing here raises for what is in a file.

Zeros to the end of a file were never written: they end the walk and are no damage, unless something says that they
should have been written, which is a dump's stated end or a later file that has been begun.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from pymq import _scan

CHUNK_SIZE: Final = 8 << 20  # what is read at once to be handed on in batches
FIND_SIZE: Final = 64 << 10  # how much is looked at first for the next record: damage is mostly short
HOLES_MAX: Final = 4096
NOTHING: Final = _scan.Found(_scan.FindKind.NOTHING, 0, 0)
ANCHOR_WINDOW: Final = 64 << 10  # how far a range looks back first for a record to start from
MAGIC_NAMES: Final = {_scan.MAGIC_V1: "v1", _scan.MAGIC_V2: "v2", _scan.MAGIC_BLANK: "blank"}
RECORD_SIZE_MIN: Final = 91
HEAD_SIZE: Final = 8


class LogRange(NamedTuple):
    """What begins in [begin, end) of the log file at *path*; all but sizes are physical offsets.

    Attributes:
        base: of the file's first byte.
        file_end: base plus the file's size.
        log_end: nothing at or above it belongs to the log; -1 when nobody has said where it ends.
    """

    store: str
    path: str
    base: int
    begin: int
    end: int
    file_end: int
    log_end: int = -1


class Stretch(NamedTuple):
    """Records back to back: rows [first, rows.count), whose positions count from the first byte of *source*.

    Source and rows are only good until the walk goes on.
    """

    offset: int  # physical, of the first byte of source
    source: memoryview
    rows: _scan.LogRows
    first: int


class Damage(NamedTuple):
    """Bytes that are no record, from *offset* on."""

    offset: int
    size: int
    status: str
    detail: str
    record: _scan.Record | None  # what can still be read of it, when it says that it stands here


class End(NamedTuple):
    """How the walk ended: done, blank, unwritten, missing (the file could not be read)."""

    offset: int
    status: str
    detail: str = ""


class LogFileReader:
    """One log file, read by pread; bytes behind its end, or behind what it should hold, are not there."""

    def __init__(self, one: LogRange) -> None:
        self.one = one
        self.descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        self.window = bytearray(FIND_SIZE)
        held = one.base + os.fstat(self.descriptor).st_size
        self.limit = min(one.file_end, held) if one.log_end < 0 else min(one.file_end, held, one.log_end)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

    def read(self, begin: int, end: int, target: bytearray | None = None) -> memoryview:
        """Bytes from physical offset *begin* up to *end*, as far as they are there; into *target* when that is large
        enough."""
        size = max(min(end, self.limit) - begin, 0)
        if target is None or len(target) < size:
            target = bytearray(size)
        view, done = memoryview(target)[:size], 0
        while done < size:
            got = os.preadv(self.descriptor, [view[done:]], begin - self.one.base + done)
            if got == 0:
                break
            done += got
        return view[:done]

    def find(self, begin: int, end: int | None = None) -> _scan.Found:
        """Where a whole record or the blank tail begins first from *begin* on and below *end*; *position* is physical
        here, and kind NOTHING when there is none."""
        stop = self.limit if end is None else min(end, self.limit)
        at, size = begin, FIND_SIZE
        while at < stop:
            window = self.read(at, at + size, self.window)
            if len(self.window) < size:
                self.window = bytearray(size)  # damage goes on, so more is looked at from now on
            found = _scan.find_record(window, base_offset=at, limit=self.limit, file_end=self.one.file_end)
            at += found.position
            if found.kind is _scan.FindKind.MORE:
                if len(window) < size:  # the file has been cut meanwhile
                    at += 1
                size = max(found.size, FIND_SIZE)
            elif found.kind is not _scan.FindKind.NOTHING:
                return found._replace(position=at) if at < stop else NOTHING
            elif len(window) < size:
                return NOTHING
            else:
                size = CHUNK_SIZE
        return NOTHING

    def begins(self, offset: int) -> _scan.FindKind:
        """Whether a whole record that says *offset*, or the blank tail, begins exactly there."""
        found = self.find(offset, offset + 1)
        return found.kind

    def data_end(self, begin: int) -> int:
        """Behind the last byte from *begin* on that the file system has: holes read as zeros, and need not be read."""
        at = begin - self.one.base
        try:
            for _ in range(HOLES_MAX):
                hole = os.lseek(self.descriptor, at, os.SEEK_HOLE)
                try:
                    at = os.lseek(self.descriptor, hole, os.SEEK_DATA)
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        return max(min(self.one.base + hole, self.limit), begin)
                    raise
        except OSError:
            return self.limit  # a file system that cannot tell
        return self.limit

    def written_end(self, begin: int) -> int:
        """Behind the last byte from *begin* on that is not zero; *begin* when there is none."""
        end, size = self.data_end(begin), FIND_SIZE
        while end > begin:
            start = max(begin, end - size)
            written = _scan.written_size(self.read(start, end))
            if written:
                return start + written
            end, size = start, CHUNK_SIZE
        return begin

    def successor_begun(self) -> bool:
        """Whether the next file of the log has something in it."""
        path = Path(self.one.path)
        try:
            with path.with_name(f"{self.one.file_end:0{len(path.name)}d}").open("rb") as file:
                return any(file.read(HEAD_SIZE))
        except OSError:
            return False


def split_points(path: str | os.PathLike[str], base: int, size: int, step: int) -> list[int]:
    """Physical offsets to cut a log file at: the first record at or behind every multiple of *step* bytes."""
    points: list[int] = []
    reader = LogFileReader(LogRange("", str(path), base, base, base + size, base + size))
    try:
        at, end = base + step, reader.data_end(base)
        while at < end:
            found = reader.find(at, end)
            if found.kind is not _scan.FindKind.RECORD:
                break
            points.append(found.position)
            at = base + ((found.position - base) // step + 1) * step
    finally:
        reader.close()
    return points


def walk_range(
    one: LogRange, rows_of: Callable[[], _scan.LogRows], *, levels: Any, chunk_size: int = CHUNK_SIZE
) -> Iterator[Stretch | Damage | End]:
    """Everything that starts in a range, in order, and at last an `End`.

    *rows_of* gives the columns for the next stretch: new ones, or always the same; *levels* are those of
    `pymq._scan.delay_levels_of`.
    """
    try:
        reader = LogFileReader(one)
    except OSError as error:
        yield End(one.begin, "missing", f"{type(error).__name__}: {error.strerror}")
        return
    try:
        for found in walk_from(reader, anchor(reader), min(one.end, reader.limit), rows_of, levels, chunk_size):
            if isinstance(found, End) or found.offset >= one.begin:
                yield found
            elif isinstance(found, Stretch):
                first = bisect_left(found.rows.view("record_position"), one.begin - found.offset)
                if first < found.rows.count:
                    yield found._replace(first=first)
    finally:
        reader.close()


def anchor(reader: LogFileReader) -> int:
    """Where to start walking so that what starts in the range is seen as a walk of the whole file would see it."""
    one, window = reader.one, ANCHOR_WINDOW
    if one.begin <= one.base or reader.begins(one.begin) is _scan.FindKind.RECORD:
        return max(one.begin, one.base)
    while one.begin - window > one.base:
        found = reader.find(one.begin - window, one.begin)
        if found.kind is _scan.FindKind.RECORD:
            return found.position
        window *= 4
    return one.base


def walk_from(
    reader: LogFileReader, at: int, stop: int, rows_of: Callable[[], _scan.LogRows], levels: Any, chunk_size: int
) -> Iterator[Stretch | Damage | End]:
    """Walk from *at*, where something begins, over everything that starts below *stop*."""
    target = bytearray(chunk_size)
    single = 0  # size of one record that needs reading on its own, 0 while chunks do
    while at < stop:
        chunk_begin = at
        chunk = reader.read(at, at + single if single else min(at + chunk_size, stop), target)
        end, rows = _scan.WalkEnd.FULL, None
        while end is _scan.WalkEnd.FULL and at - chunk_begin < len(chunk):
            rows = rows_of()
            source = chunk[at - chunk_begin :]
            rows.walk(source, at, levels, 1 if single else None)
            end = rows.end
            if rows.count:
                yield Stretch(at, source, rows, 0)
            at += rows.position
        if end in (_scan.WalkEnd.DONE, _scan.WalkEnd.FULL) and len(chunk):
            single = 0
        elif end is _scan.WalkEnd.BLANK and rows is not None and at + rows.blank_size == reader.one.file_end:
            yield End(at, "blank")
            return
        elif end is _scan.WalkEnd.TRUNCATED and at > chunk_begin and chunk_begin + len(chunk) < stop:
            single = 0
        elif end is _scan.WalkEnd.TRUNCATED and not single and (size := whole_size(reader, at)):
            single = size
        else:
            single = 0
            found = damage_at(reader, at)
            yield found
            if isinstance(found, End):
                return
            at += found.size
    yield End(at, "done")


def whole_size(reader: LogFileReader, at: int) -> int:
    """What the record at *at* says it has, or 0 when so much is not there."""
    head = reader.read(at, at + HEAD_SIZE)
    size = int.from_bytes(head[:4], "big", signed=True)
    if int.from_bytes(head[4:], "big") == _scan.MAGIC_BLANK:
        return HEAD_SIZE
    return size if len(head) == HEAD_SIZE and RECORD_SIZE_MIN <= size <= reader.limit - at else 0


def damage_at(reader: LogFileReader, at: int) -> Damage | End:
    """What is wrong at *at*, and up to where; or that nothing was ever written from there on."""
    one = reader.one
    open_ended = one.log_end < 0 and not reader.successor_begun()
    if not any(reader.read(at, at + HEAD_SIZE)) and reader.written_end(at) == at:
        if open_ended:
            return End(at, "unwritten")
        detail = f"zeros up to {reader.limit}, although the log goes on behind them"
        return Damage(at, reader.limit - at, "bad_magic", detail, None)
    found = reader.find(at + 1)
    goes_on = found.kind is not _scan.FindKind.NOTHING
    end = found.position if goes_on else reader.written_end(at) if open_ended else reader.limit
    status, detail = judge(reader, at, end, goes_on)
    return Damage(at, end - at, status, detail, salvage(reader, at, end))


def judge(reader: LogFileReader, at: int, end: int, goes_on: bool) -> tuple[str, str]:
    """The status of what begins at *at* and is no record, and why, in words."""
    head = reader.read(at, at + HEAD_SIZE)
    left = reader.limit - at
    if len(head) < HEAD_SIZE:
        return "truncated", f"{len(head)} bytes left, a record has at least {RECORD_SIZE_MIN}"
    size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:], "big")
    if magic == _scan.MAGIC_BLANK:
        return "bad_blank", f"a blank tail of {size} bytes where {reader.one.file_end - at} are left of the file"
    if magic not in MAGIC_NAMES:
        return "bad_magic", f"magic {magic:08x}, expected {_scan.MAGIC_V1:08x} or {_scan.MAGIC_V2:08x}"
    if size < RECORD_SIZE_MIN:
        return "bad_size", f"total size {size}, at least {RECORD_SIZE_MIN} expected"
    if size > left:
        if goes_on:
            return "bad_size", f"total size {size} where {left} bytes are left; the next record comes after {end - at}"
        return "truncated", f"total size {size} where {left} bytes are left"
    if size != end - at and parts_size(reader.read(at, end)) == end - at:
        return "bad_size", f"total size {size}, its parts have {end - at}"
    return "bad_structure", f"total size {size}, but body, topic and properties do not add up to it"


def parts_size(record: memoryview) -> int:
    """What the lengths inside a record add up to, or 0 when they lead outside."""
    if len(record) < RECORD_SIZE_MIN:
        return 0
    sys_flag = int.from_bytes(record[36:40], "big")
    at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    for width in (4, 2 if int.from_bytes(record[4:8], "big") == _scan.MAGIC_V2 else 1, 2):
        at += width + int.from_bytes(record[at : at + width], "big")
        if at > len(record):
            return 0
    return at


def salvage(reader: LogFileReader, at: int, end: int) -> _scan.Record | None:
    """The record that was meant, when it says that it stands at *at* and repairing magic and size makes it whole."""
    if end - at > CHUNK_SIZE:
        return None
    bytes_left = bytearray(reader.read(at, end))
    if len(bytes_left) < RECORD_SIZE_MIN or int.from_bytes(bytes_left[28:36], "big", signed=True) != at:
        return None
    magics = [magic for magic in (_scan.MAGIC_V1, _scan.MAGIC_V2) if magic.to_bytes(4, "big") == bytes_left[4:8]]
    for magic in magics or (_scan.MAGIC_V1, _scan.MAGIC_V2):
        bytes_left[4:8] = magic.to_bytes(4, "big")
        bytes_left[:4] = parts_size(memoryview(bytes_left)).to_bytes(4, "big")
        walk = _scan.walk_log(bytes_left, base_offset=at, checks=_scan.Check.OFFSET, columns=(), count_max=1)
        if walk.count == 1:
            found = _scan.decode_record(bytes(bytes_left[: walk.position]), checks=_scan.Check.STRUCTURE)
            return found if isinstance(found, _scan.Record) else None
    return None
