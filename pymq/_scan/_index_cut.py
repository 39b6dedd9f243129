"""Index files as they were when the log ended earlier; see csrc/include/pymq/index_cut.h."""

from __future__ import annotations

from pymq._scan._codec import Source
from pymq._scan._native import ffi, lib
from pymq.errors import InvalidArgumentError

SLOT_SIZE = 4
ITEM_SIZE = 20


def cut_index_slots(slots: bytearray, items: Source, item_limit: int, cut_number: int) -> int:
    """Let *slots*, a copy of an index file's, know only items below *cut_number*; how many slots are in use.

    *items* are the file's from number 0 on and may be a mapping that a broker writes to.

    Raises:
        InvalidArgumentError: *items* are not *item_limit* items, or the slots are no whole ones.
    """
    if memoryview(items).nbytes < item_limit * ITEM_SIZE or len(slots) % SLOT_SIZE or cut_number < 1:
        raise InvalidArgumentError(
            f"{len(slots)} bytes of slots, {memoryview(items).nbytes} of items, cut at {cut_number}: not of one file"
        )
    kept = ffi.from_buffer("uint8_t[]", items)
    owner = ffi.from_buffer("uint8_t[]", slots, require_writable=True)
    try:
        return int(lib.pymq_index_cut_slots(owner, len(slots) // SLOT_SIZE, kept, item_limit, cut_number))
    finally:
        ffi.release(owner)
        ffi.release(kept)
