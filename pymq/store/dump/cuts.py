"""Queues and index of a running store as they were when the log ended at a position.

Both are written in log order by one thread, so what belongs to the dump is a prefix of each queue and of the items of
the index. Everything below the position was there before the position was told, so it is whole; what follows may be
in the middle of being written and is not looked at further than needed to see that it is not wanted.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from pymq._scan import IndexHeader
from pymq._scan._index_cut import cut_index_slots
from pymq.store.config import CQ_UNIT_SIZE
from pymq.store.dump.copier import FileJob
from pymq.store.dump.leaves import data_runs, read_full, write_full
from pymq.store.dump.log_reader import LogReader
from pymq.store.dump.manifest import LEAF_SIZE
from pymq.store.layout import (
    INDEX_HEADER,
    INDEX_HEADER_SIZE,
    INDEX_ITEM_SIZE,
    INDEX_NAME,
    INDEX_SLOT_SIZE,
    OFFSET_NAME,
    named_files,
)

UNIT_HEAD = struct.Struct(">qi")  # physical offset, size; the tags code is not looked at
ITEM_OFFSET = struct.Struct(">q")
ITEM_OFFSET_AT = 4
FILLER_SIZE = 0x7FFFFFFF  # a unit that belongs to no message


# ---- queues ------------------------------------------------------------------------------------------------------


class QueueReader:
    """The units of one queue, by queue offset, over its files. Keeps one file open."""

    def __init__(self, directory: Path) -> None:
        """Look at the queue's files.

        Raises:
            FileNotFoundError: one was removed meanwhile.
        """
        self.files = [(path, int(path.name), path.stat()) for path in named_files(directory, OFFSET_NAME)]
        self._bases = [base for _, base, _ in self.files]
        self._open: tuple[int, int] | None = None  # which file, descriptor

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    @property
    def first(self) -> int:
        """The queue offset of the first unit there is room for."""
        return self._bases[0] // CQ_UNIT_SIZE if self.files else 0

    @property
    def limit(self) -> int:
        """The queue offset behind the last unit there is room for."""
        if not self.files:
            return 0
        _, base, status = self.files[-1]
        return (base + status.st_size) // CQ_UNIT_SIZE

    def unit(self, offset: int) -> tuple[int, int]:
        """Physical offset and size; (0, 0) where nothing was written.

        Raises:
            FileNotFoundError: its file was removed meanwhile.
        """
        at = offset * CQ_UNIT_SIZE
        number = bisect.bisect_right(self._bases, at) - 1
        if number < 0:
            return 0, 0
        if self._open is None or self._open[0] != number:
            self.close()
            self._open = number, os.open(self.files[number][0], os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(self._open[1], UNIT_HEAD.size, at - self._bases[number])
        return UNIT_HEAD.unpack(data) if len(data) == UNIT_HEAD.size else (0, 0)


def queue_end(queue: QueueReader, queue_id: int, log: LogReader, log_begin: int, position: int) -> int:
    """The queue offset behind the last unit that points below *position*."""
    low, high = queue.first, queue.limit
    while True:
        end = search_end(queue, low, high, position)
        if end == low:
            return end
        physical_offset, size = queue.unit(end - 1)
        if size == FILLER_SIZE or physical_offset < log_begin:
            return end
        # A unit that is just being written may look like anything; one that is below the position has its record.
        record = log.place(physical_offset)
        if record is not None and record == (size, queue_id, end - 1, physical_offset):
            return end
        high = end - 1


def search_end(queue: QueueReader, low: int, high: int, position: int) -> int:
    """The first of *low* to *high* that is not a unit below *position*."""
    while low < high:
        middle = (low + high) // 2
        physical_offset, size = queue.unit(middle)
        if size > 0 and physical_offset < position:
            low = middle + 1
        else:
            high = middle
    return low


def queue_jobs(store: Path, directory: Path, log: LogReader, log_begin: int, position: int) -> Iterator[FileJob]:
    """The files of one queue, up to *position*.

    Raises:
        FileNotFoundError: the queue was removed meanwhile.
    """
    queue = QueueReader(directory)
    try:
        end = queue_end(queue, int(directory.name), log, log_begin, position) * CQ_UNIT_SIZE
        for path, base, status in queue.files:
            written = min(max(end - base, 0), status.st_size)
            if written:
                yield FileJob(
                    path=path.relative_to(store).as_posix(),
                    size=status.st_size,
                    written=written,
                    mtime_ms=status.st_mtime_ns // 1_000_000,
                    cost=min(written, status.st_blocks * 512),
                    origin=path,
                )
    finally:
        queue.close()


def queue_directories(store: Path) -> Iterator[Path]:
    """Every queue's directory."""
    root = store / "consumequeue"
    for topic in sorted(root.iterdir()) if root.is_dir() else ():
        try:
            queues = sorted(topic.iterdir()) if topic.is_dir() else []
        except FileNotFoundError:  # removed since
            continue
        yield from (queue for queue in queues if queue.name.isdigit() and queue.is_dir())


# ---- index -------------------------------------------------------------------------------------------------------


class IndexFile:
    """One file of the index, which its broker may be writing."""

    def __init__(self, path: Path, slots: int, items: int) -> None:
        """Of *slots* and *items*, as configured."""
        self.path = path
        self.slots = slots
        self.items = items
        self.items_at = INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE
        self.size = self.items_at + items * INDEX_ITEM_SIZE

    def item_at(self, number: int) -> int:
        """The file position of an item."""
        return self.items_at + number * INDEX_ITEM_SIZE

    def kept(self, descriptor: int, position: int) -> int:
        """The number of the first item that does not point below *position*."""
        low, high = 1, min(self.header(descriptor).item_count, self.items)
        while low < high:
            middle = (low + high) // 2
            if self.item_offset(descriptor, middle) < position:
                low = middle + 1
            else:
                high = middle
        return low

    def header(self, descriptor: int) -> IndexHeader:
        """As it is now."""
        return IndexHeader(*INDEX_HEADER.unpack(os.pread(descriptor, INDEX_HEADER_SIZE, 0).ljust(INDEX_HEADER_SIZE)))

    def item_offset(self, descriptor: int, number: int) -> int:
        """Where the record of an item begins."""
        data = os.pread(descriptor, ITEM_OFFSET.size, self.item_at(number) + ITEM_OFFSET_AT)
        return int(ITEM_OFFSET.unpack(data)[0])

    def make(self, target: int, cut: int, log: LogReader) -> None:
        """Write the file as it was before item *cut*.

        Raises:
            FileNotFoundError: it was removed meanwhile.
        """
        source = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = self.header(source)
            last = self.item_offset(source, cut - 1)
            slots = bytearray(read_full(source, self.items_at - INDEX_HEADER_SIZE, INDEX_HEADER_SIZE))
            # Items are stored before their slots: what the copied slots name is there by now.
            used = self._cut(source, slots, cut)
            seconds = self._seconds(source, cut - 1)
            head = header._replace(
                end_timestamp_ms=end_timestamp_ms(header, last, seconds, log),
                end_offset=last,
                slot_used=used,
                item_count=cut,
            )
            os.ftruncate(target, self.size)
            write_full(target, INDEX_HEADER.pack(*head), 0)
            write_sparse(target, bytes(slots), INDEX_HEADER_SIZE)
            for at in range(self.item_at(1), self.item_at(cut), LEAF_SIZE):
                write_full(target, read_full(source, min(LEAF_SIZE, self.item_at(cut) - at), at), at)
        finally:
            os.close(source)

    def _cut(self, source: int, slots: bytearray, cut: int) -> int:
        page_at = self.items_at - self.items_at % mmap.ALLOCATIONGRANULARITY
        mapping = mmap.mmap(source, self.size - page_at, prot=mmap.PROT_READ, offset=page_at)
        view = memoryview(mapping)[self.items_at - page_at :]
        try:
            return cut_index_slots(slots, view, self.items, cut)
        finally:
            view.release()
            mapping.close()

    def _seconds(self, source: int, number: int) -> int:
        return int.from_bytes(os.pread(source, 4, self.item_at(number) + 12), "big", signed=True)


def end_timestamp_ms(header: IndexHeader, last: int, seconds: int, log: LogReader) -> int:
    """When the last record that stays was stored: the header's word, the record's, or the end of its second."""
    if header.end_offset == last:
        return header.end_timestamp_ms
    found = log.store_timestamp_ms(last)
    if found is not None:
        return found
    if last == header.begin_offset:
        return header.begin_timestamp_ms
    return header.begin_timestamp_ms + seconds * 1000 + 999


def write_sparse(target: int, data: bytes, at: int) -> None:
    """Write what is not zeros of *data*."""
    for piece_at in range(0, len(data), LEAF_SIZE):
        piece = data[piece_at : piece_at + LEAF_SIZE]
        for begin, end in data_runs(piece):
            write_full(target, piece[begin:end], at + piece_at + begin)


def index_jobs(store: Path, slots: int, items: int, log: LogReader, position: int) -> Iterator[FileJob]:
    """The files of the index, up to *position*.

    Raises:
        FileNotFoundError: one was removed meanwhile.
    """
    for path in named_files(store / "index", INDEX_NAME):
        file = IndexFile(path, slots, items)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_size != file.size:
                continue  # just being made: it has no item yet
            cut = file.kept(descriptor, position)
        finally:
            os.close(descriptor)
        if cut == 1:
            continue
        is_full = cut == items
        yield FileJob(
            path=path.relative_to(store).as_posix(),
            size=file.size,
            written=file.size if is_full else file.item_at(cut),
            mtime_ms=status.st_mtime_ns // 1_000_000,
            cost=min(file.item_at(cut), status.st_blocks * 512),
            origin=path if is_full else None,
            make=None if is_full else make_index(file, cut, log),
        )


def make_index(file: IndexFile, cut: int, log: LogReader) -> Callable[[int], None]:
    """What writes *file* as it was before item *cut*."""
    return lambda target: file.make(target, cut, log)
