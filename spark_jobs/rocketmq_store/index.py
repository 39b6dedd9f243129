"""Index files as rows: one item each, checked against the chain its slot begins.

A file is read in pieces; what is held of it are its slots. What is wrong is told apart so that one damaged number is
one fault: an item whose `previous` is wrong, an item whose hash says another slot than the chain that leads to it, a
slot that does not hold its newest item, a header that contradicts the items.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pymq import _scan
from spark_jobs.rocketmq_store.queues import numbers
from spark_jobs.rocketmq_store.records import file_of
from spark_jobs.rocketmq_store.schema import arrow_schema

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ITEM_SIZE: Final = 20
ROWS_MAX: Final = 8192
PIECE_ITEMS: Final = 256 << 10
MOVES_MAX: Final = 16  # wrong hashes of one file that are told apart from wrong links
TRIALS_MAX: Final = 16


class ItemFault(NamedTuple):
    """One broken link, at an item (its number)."""

    item: int
    slot: int
    detail: str


class IndexFile:
    """An open index file made with *slots* slots for *items* items (position 0 included, which is never used).

    `header` is None when the file is too short to have header and slots; `count` is how many items it holds by the
    header, or by its slots where the header cannot be right; `header_trouble` says what is wrong with the header.
    """

    def __init__(self, path: str | os.PathLike[str], slots: int, items: int) -> None:
        self.slot_count, self.item_limit = slots, items
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.descriptor).st_size
        self.items_at = HEADER_SIZE + SLOT_SIZE * slots
        self.header: _scan.IndexHeader | None = None
        self.slots: array[int] = array("i")
        self.count = 0
        self.header_trouble: str | None = None
        head = self.read(0, self.items_at)
        if len(head) < self.items_at or slots <= 0:
            self.header_trouble = f"{self.size} bytes, header and {slots} slots alone have {self.items_at}"
            return
        self.header = header_of(head)
        self.slots = array("i", head[HEADER_SIZE:])
        self.slots.byteswap()
        self.count = self.find_count(self.header.item_count - 1)
        self.header_trouble = self.find_header_trouble(self.header)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file, fewer at its end."""
        pieces = []
        while size > 0:
            piece = os.pread(self.descriptor, size, position)
            if not piece:
                break
            pieces.append(piece)
            position, size = position + len(piece), size - len(piece)
        return b"".join(pieces)

    def item(self, number: int) -> dict[str, int]:
        """One item by its number."""
        columns = _scan.decode_items(self.read(self.items_at + ITEM_SIZE * number, ITEM_SIZE))
        return {name: values[0] for name, values in columns.items()} if columns["key_hash"] else {}

    def is_written(self, number: int) -> bool:
        """Whether an item of that number is there and not all zeros."""
        return number > 0 and any(self.read(self.items_at + ITEM_SIZE * number, ITEM_SIZE))

    def find_count(self, said: int) -> int:
        """How many items there are. The newest item is always some slot's, so the slots know the number too; where they
        disagree with the header, what is written decides."""
        fits = (self.size - self.items_at) // ITEM_SIZE - 1
        known = pc.max(numbers(self.slots, pa.int32())).as_py() or 0
        if said == known:
            return max(min(said, fits), 0)
        if known > said and self.is_written(known):
            return min(known, fits)
        return said if 0 <= said <= fits and (said == 0 or self.is_written(said)) else max(min(known, fits), 0)

    def find_header_trouble(self, header: _scan.IndexHeader) -> str | None:
        """What the header says that the rest of the file does not, or None."""
        made = self.items_at + ITEM_SIZE * self.item_limit
        if self.item_limit and self.size != made:
            return f"{self.size} bytes, {self.slot_count} slots and {self.item_limit} items have {made}"
        if header.item_count - 1 != self.count and not (self.count == 0 and header.item_count == 0):
            return f"index count {header.item_count}, expected {self.count + 1}"
        used = self.slot_count - self.slots.count(0)
        if header.slot_used != used:
            return f"{header.slot_used} slots used, expected {used}"
        if self.count:
            first, last = self.item(1)["physical_offset"], self.item(self.count)["physical_offset"]
            if header.begin_offset != first:
                return f"begin offset {header.begin_offset}, the first item has {first}"
            if header.end_offset != last:
                return f"end offset {header.end_offset}, the last item has {last}"
        return None

    def pieces(self, piece_items: int = PIECE_ITEMS) -> Iterator[tuple[int, _scan.Columns]]:
        """The items in order: number of the first, columns."""
        for first in range(1, self.count + 1, piece_items):
            count = min(piece_items, self.count + 1 - first)
            yield first, _scan.decode_items(self.read(self.items_at + ITEM_SIZE * first, ITEM_SIZE * count))

    def chains(self, moves: list[tuple[int, int]]) -> _scan.Chains:
        """Every link held against what the items would have made."""
        chains = _scan.Chains(self.slot_count, moves)
        for first, items in self.pieces():
            chains.add(items, first)
        chains.finish(self.slots)
        return chains

    def faults(self) -> list[ItemFault]:
        """Every broken link by itself, in the order of the items; the first thousand."""
        if self.header is None:
            return []
        chains, moves = self.explained(self.chains([]))
        found = [ItemFault(*move, self.move_detail(*move)) for move in moves]
        for item, slot, expected, actual in chains.faults:
            if item:
                found.append(ItemFault(item, slot, f"previous {actual}, expected {expected}"))
            else:
                found.append(ItemFault(expected, slot, f"slot {slot} holds {actual}, its newest item is {expected}"))
        return sorted(found)

    def move_detail(self, item: int, slot: int) -> str:
        """Why an item's hash is wrong, in words."""
        key_hash = self.item(item)["key_hash"]
        return f"key hash {key_hash} belongs to slot {key_hash % self.slot_count}, the chain of slot {slot} holds it"

    def explained(self, chains: _scan.Chains) -> tuple[_scan.Chains, list[tuple[int, int]]]:
        """The faults that are left once items with a wrong hash are put into the slots whose chains hold them.

        Such an item is missing in one chain and one too many in another: at least two faults that one move explains. A
        link that is wrong by itself is not explained by any move.
        """
        moves: list[tuple[int, int]] = []
        while chains.fault_count > 1 and len(moves) < MOVES_MAX:
            trials = [sorted([*moves, move]) for move in self.suspects(chains.faults) if move not in moves]
            tried = [(self.chains(trial), trial) for trial in trials[:TRIALS_MAX]]
            best = min(tried, key=lambda one: one[0].fault_count, default=None)
            if best is None or best[0].fault_count + 1 >= chains.fault_count:
                break
            chains, moves = best
        return chains, moves

    def suspects(self, faults: list[_scan.Fault]) -> list[tuple[int, int]]:
        """Items that a chain of another slot leads to, with that slot."""
        found = {}
        for fault in faults[:TRIALS_MAX]:
            if 0 < fault.actual <= self.count:
                slot = self.item(fault.actual)["key_hash"] % self.slot_count
                if slot != fault.slot:
                    found[fault.actual, fault.slot] = True
        return list(found)


def header_of(head: bytes) -> _scan.IndexHeader:
    """The header's fields."""
    longs, ints = array("q", head[:32]), array("i", head[32:HEADER_SIZE])
    longs.byteswap()
    ints.byteswap()
    return _scan.IndexHeader(*longs, *ints)


def read_items(store: str, path: str | os.PathLike[str], slots: int, items: int) -> Iterator[pa.RecordBatch]:
    """The items of one file, `arrow_schema("index")`; *slots* and *items* are what the files were made with.

    A header that is wrong is a row of its own, item 0; a file that cannot be read has that row alone.
    """
    schema, file = arrow_schema("index"), file_of(path)
    bad_header = pa.RecordBatch.from_pylist([{"store": store, "file": file, "item": 0, "status": "bad_header"}], schema)
    try:
        opened = IndexFile(path, slots, items)
    except OSError:
        yield bad_header
        return
    try:
        if opened.header_trouble is not None:
            yield bad_header
        if opened.header is None:
            return
        broken = {fault.item for fault in opened.faults()}
        for first, columns in opened.pieces(ROWS_MAX):
            yield items_batch(store, file, opened, first, columns, broken, schema)
    finally:
        opened.close()


def items_batch(
    store: str,
    file: str,
    opened: IndexFile,
    first: int,
    columns: _scan.Columns,
    broken: set[int],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """One piece of the items as a batch."""
    count = len(columns["key_hash"])
    begin = opened.header.begin_timestamp_ms if opened.header is not None else 0
    hashes, seconds = numbers(columns["key_hash"], pa.int32()), numbers(columns["seconds"], pa.int32())
    quotient = pc.divide(hashes, opened.slot_count)
    statuses = pa.repeat(pa.scalar("ok", pa.string()), count)
    wrong = [item - first for item in broken if first <= item < first + count]
    if wrong:
        rows = set(wrong)
        statuses = pa.array(["bad_chain" if row in rows else "ok" for row in range(count)], pa.string())
    made = {
        "store": pa.repeat(pa.scalar(store, pa.string()), count),
        "file": pa.repeat(pa.scalar(file, pa.string()), count),
        "item": pa.array(range(first, first + count), pa.int32()),
        "key_hash": hashes,
        "physical_offset": numbers(columns["physical_offset"], pa.int64()),
        "store_timestamp": pc.add(pc.multiply(seconds.cast(pa.int64()), 1000), begin),
        "seconds": seconds,
        "previous": numbers(columns["previous"], pa.int32()),
        "slot": pc.subtract(hashes, pc.multiply(quotient, opened.slot_count)).cast(pa.int32()),
        "status": statuses,
    }
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
