"""The chains of an index file, checked while its items pass by: no more than slots and one piece are held."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pymq._scan._codec import Source, pointer
from pymq._scan._columns import INDEX_COLUMNS, Columns, Scratch
from pymq._scan._native import ffi, lib

ITEM_SIZE: Final = 20
FAULTS_MAX: Final = 1024


class Fault(NamedTuple):
    """A link that is not what its items would have made: item 0 is the slot's own value."""

    item: int
    slot: int
    expected: int
    actual: int


def decode_items(source: Source) -> Columns:
    """Whole items as they lie in a file."""
    count = memoryview(source).nbytes // ITEM_SIZE
    scratch = Scratch("pymq_index_columns", INDEX_COLUMNS, INDEX_COLUMNS, count)
    lib.pymq_scan_items(pointer(source), count, scratch.native)
    return scratch.trimmed(count)


class Chains:
    """The newest item of each of *slot_count* slots so far.

    *moves* are (item, slot) pairs, sorted, of items taken to belong to another slot than their hash says.
    """

    def __init__(self, slot_count: int, moves: Sequence[tuple[int, int]] = ()) -> None:
        self.slot_count = slot_count
        self.fault_count = 0
        self.faults: list[Fault] = []
        self._newest = ffi.new("int32_t[]", slot_count)
        self._moves = ffi.new("struct pymq_chain_move[]", list(moves))
        self._native = ffi.new("struct pymq_chain_fault[]", FAULTS_MAX)

    def add(self, items: Columns, first_item: int) -> None:
        """Check the next items, the first of which has the number *first_item*."""
        count = len(items["key_hash"])
        found = lib.pymq_scan_chain_items(
            ffi.from_buffer("int32_t[]", items["key_hash"]),
            ffi.from_buffer("int32_t[]", items["previous"]),
            count,
            first_item,
            self.slot_count,
            self._moves,
            len(self._moves),
            self._newest,
            self._native,
            FAULTS_MAX,
        )
        self._keep(int(found))

    def finish(self, slots: array[int]) -> None:
        """Check the slots, after the last item."""
        owner: Any = ffi.from_buffer("int32_t[]", slots)
        self._keep(int(lib.pymq_scan_chain_slots(owner, self._newest, self.slot_count, self._native, FAULTS_MAX)))

    def _keep(self, found: int) -> None:
        """Count all faults, keep the first."""
        self.fault_count += found
        room = max(FAULTS_MAX - len(self.faults), 0)
        for fault in self._native[0 : min(found, room)]:
            self.faults.append(Fault(fault.item, fault.slot, fault.expected, fault.actual))
