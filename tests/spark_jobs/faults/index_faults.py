"""Faults of the index (A7): items, chains, headers, and records that changed under it."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.spark_jobs.faults import Case, Expected, NothingFitsError
from tests.spark_jobs.faults.patch import Item, put
from tests.spark_jobs.faults.seeding import Faults

FAULTS = Faults()

HEADER_SIZE, SLOT = 40, struct.Struct(">i")
END_TIMESTAMP_AT, BEGIN_OFFSET_AT, COUNT_AT = 8, 16, 36


def live_item(case: Case) -> tuple[Path, int, Item]:
    """An item whose record the log has; neither the first nor the last of its file, of which the header speaks."""
    begin = int(case.store.log_files()[0].name)
    path, number, item = case.store.pick_item(case.random, lambda item: item.physical_offset >= begin)
    count = len(case.store.index(path).items["key_hash"])
    if not 1 < number < count:
        raise NothingFitsError("the first or the last item")
    return path, number, item


def all_items(case: Case) -> set[tuple[int, int]]:
    """Key hash and physical offset of every item."""
    found: set[tuple[int, int]] = set()
    for path in case.store.index_files():
        items = case.store.index(path).items
        found |= set(zip(items["key_hash"], items["physical_offset"], strict=True))
    return found


def chained_slot(case: Case) -> tuple[Path, int, int, Item]:
    """A slot in use whose newest item's record the log has: file, slot, number and item."""
    path, _, item = live_item(case)
    slot = item.key_hash % case.store.index_counts[0]
    number = case.store.index(path).slots[slot]
    newest = case.store.item(path, number)
    return path, slot, number, newest


@FAULTS.seeds("A7")
def _an_item_a_byte_beside(case: Case) -> Expected:
    path, number, item = live_item(case)
    case.store.put_item(path, number, item._replace(physical_offset=item.physical_offset + 1))
    return Expected("A7", offset=item.physical_offset + 1)


@FAULTS.seeds("A7")
def _an_item_of_another_key(case: Case) -> Expected:
    path, number, item = live_item(case)
    known = all_items(case)
    key_hash = case.random.randrange(1 << 31)
    while (key_hash, item.physical_offset) in known:
        key_hash = case.random.randrange(1 << 31)
    case.store.put_item(path, number, item._replace(key_hash=key_hash))
    return Expected("A7", offset=item.physical_offset)


@FAULTS.seeds("A7")
def _an_item_of_another_record(case: Case) -> Expected:
    path, number, item = live_item(case)
    known = all_items(case)
    other = case.store.pick(lambda one: (item.key_hash, one.offset) not in known, case.random)
    case.store.put_item(path, number, item._replace(physical_offset=other.offset))
    return Expected("A7", offset=other.offset)


@FAULTS.seeds("A7")
def _an_item_of_no_key(case: Case) -> Expected:
    path, number, item = live_item(case)
    case.store.put_item(path, number, item._replace(key_hash=0))
    return Expected("A7", offset=item.physical_offset)


@FAULTS.seeds("A7")
def _a_chain_that_leads_elsewhere(case: Case) -> Expected:
    path, _, number, newest = chained_slot(case)
    wrong = number - 1 if newest.previous != number - 1 else number - 2
    case.store.put_item(path, number, newest._replace(previous=wrong))
    return Expected("A7", offset=newest.physical_offset)


@FAULTS.seeds("A7")
def _an_empty_slot(case: Case) -> Expected:
    path, slot, _, newest = chained_slot(case)
    put(path, HEADER_SIZE + SLOT.size * slot, SLOT.pack(0))
    return Expected("A7", offset=newest.physical_offset)


@FAULTS.seeds("A7")
def _a_slot_of_another_chain(case: Case) -> Expected:
    path, slot, number, newest = chained_slot(case)
    put(path, HEADER_SIZE + SLOT.size * slot, SLOT.pack(number - 1 if number > 1 else number + 1))
    return Expected("A7", offset=newest.physical_offset)


@FAULTS.seeds("A7")
def _a_header_that_begins_elsewhere(case: Case) -> Expected:
    path, _, _ = live_item(case)
    begin = case.store.index(path).header.begin_offset
    put(path, BEGIN_OFFSET_AT, struct.pack(">q", begin + case.random.randrange(1, 1000)))
    return Expected("A7", offset=BEGIN_OFFSET_AT)


@FAULTS.seeds("A7")
def _a_header_of_another_time(case: Case) -> Expected:
    path = case.store.index_files()[-1]
    begin = int(case.store.log_files()[0].name)
    header = case.store.index(path).header
    if header.item_count < 2 or header.end_offset < begin:
        raise NothingFitsError("no item whose record is there")
    put(path, END_TIMESTAMP_AT, struct.pack(">q", header.end_timestamp_ms - 3_600_000))
    return Expected("A7", offset=END_TIMESTAMP_AT)


@FAULTS.seeds("A7")
def _a_record_with_another_key(case: Case) -> Expected:
    indexed = {offset for _, offset in all_items(case)}
    one = case.store.pick(
        lambda one: one.offset in indexed and len(one.properties.get("UNIQ_KEY", "")) > 8, case.random, inner=True
    )
    key = one.properties["UNIQ_KEY"]
    case.store.set_property(one, "UNIQ_KEY", "XYZ" + key[3:] if not key.startswith("XYZ") else "ZYX" + key[3:])
    return Expected("A7", offset=one.offset)
