"""Faults of two logs that should be one: replicas (A20), dumps in time (A24)."""

from __future__ import annotations

from collections.abc import Callable

from tests.spark_jobs.faults import Case, Expected, NothingFitsError, PatchedStore
from tests.spark_jobs.faults.patch import Placed
from tests.spark_jobs.faults.seeding import Faults

FAULTS = Faults()


def common(case: Case, wanted: Callable[[Placed], object] = lambda one: True) -> Placed:
    """A record that both logs have, with others behind it."""
    there = {one.offset for one in case.other.records()}
    records = [one for one in case.store.records() if one.offset in there]
    found = [one for one in records[1:-6] if wanted(one)]
    if not found:
        raise NothingFitsError("no record of both fits")
    return case.random.choice(found)


def has_body(one: Placed) -> bool:
    """Whether there is a body."""
    return bool(one.record.body)


def at(check: str, one: Placed) -> Expected:
    """The finding of a record."""
    return Expected(check, one.topic, one.record.queue_id, one.offset)


def flip_body(case: Case, store: PatchedStore, one: Placed) -> None:
    """A bit of the body."""
    store.flip(one.offset + one.body_at + case.random.randrange(len(one.record.body)), case.random.randrange(8))


def change_property(store: PatchedStore, one: Placed) -> None:
    """Another value of the first property, of the same length."""
    properties = bytearray(one.record.properties)
    place = properties.index(0x01) + 1
    properties[place] = ord("Q") if properties[place] != ord("Q") else ord("R")
    store.rewrite(one, properties=bytes(properties))


# ---- A20 -------------------------------------------------------------------------------------------------------------


@FAULTS.seeds("A20", against="master")
def _a_bit_of_the_slaves_body(case: Case) -> Expected:
    one = common(case, has_body)
    flip_body(case, case.store, one)
    return at("A20", one)


@FAULTS.seeds("A20", against="master")
def _a_bit_of_the_masters_body(case: Case) -> Expected:
    one = common(case, has_body)
    flip_body(case, case.other, one)
    return at("A20", one)


@FAULTS.seeds("A20", against="master")
def _stored_at_another_time(case: Case) -> Expected:
    one = common(case)
    case.store.rewrite(one, store_timestamp_ms=one.record.store_timestamp_ms + 1)
    return at("A20", one)


@FAULTS.seeds("A20", against="master")
def _another_property(case: Case) -> Expected:
    one = common(case, lambda one: b"\x01" in one.record.properties)
    change_property(case.store, one)
    return at("A20", one)


@FAULTS.seeds("A20", against="master")
def _a_record_that_never_came(case: Case) -> Expected:
    one = common(case)
    case.store.write(one.offset, bytes(one.size))
    return Expected("A20", offset=one.offset)


@FAULTS.seeds("A20", against="same")
def _another_flag(case: Case) -> Expected:
    one = common(case)
    case.store.rewrite(one, flag=one.record.flag ^ 1 << case.random.randrange(31))
    return at("A20", one)


@FAULTS.seeds("A20", against="same")
def _another_queue_offset(case: Case) -> Expected:
    one = common(case)
    case.store.rewrite(one, queue_offset=one.record.queue_offset + 1)
    return at("A20", one)


@FAULTS.seeds("A20", against="same")
def _three_records_of_another_log(case: Case) -> Expected:
    one = common(case)
    behind = [later for later in case.store.records() if later.offset >= one.offset][:3]
    for later in behind:
        case.store.rewrite(later, born_timestamp_ms=later.record.born_timestamp_ms + 1000)
    return at("A20", one)


@FAULTS.seeds("A20", against="same")
def _a_damaged_magic(case: Case) -> Expected:
    one = common(case)
    case.other.flip(one.offset + 4, case.random.randrange(8))
    return at("A20", one)


@FAULTS.seeds("A20", against="same")
def _counted_differently(case: Case) -> Expected:
    one = common(case)
    case.other.rewrite(one, reconsume_times=one.record.reconsume_times + 1)
    return at("A20", one)


# ---- A24 -------------------------------------------------------------------------------------------------------------


@FAULTS.seeds("A24", against="earlier")
def _a_body_written_over(case: Case) -> Expected:
    one = common(case, has_body)
    flip_body(case, case.store, one)
    return at("A24", one)


@FAULTS.seeds("A24", against="earlier")
def _another_body_before(case: Case) -> Expected:
    one = common(case, has_body)
    body = one.record.body[:-1] + bytes([one.record.body[-1] ^ 1])
    case.other.rewrite(one, body=body)
    return at("A24", one)


@FAULTS.seeds("A24", against="earlier")
def _a_property_written_over(case: Case) -> Expected:
    one = common(case, lambda one: b"\x01" in one.record.properties)
    change_property(case.store, one)
    return at("A24", one)


@FAULTS.seeds("A24", against="earlier")
def _a_time_written_over(case: Case) -> Expected:
    one = common(case)
    case.store.rewrite(one, store_timestamp_ms=one.record.store_timestamp_ms - 1)
    return at("A24", one)


@FAULTS.seeds("A24", against="earlier")
def _a_record_wiped(case: Case) -> Expected:
    one = common(case)
    case.store.write(one.offset, bytes(one.size))
    return Expected("A24", offset=one.offset)


@FAULTS.seeds("A24", against="same")
def _the_last_record_lost(case: Case) -> Expected:
    last = list(case.store.records())[-1]
    case.store.write(last.offset, bytes(last.size))
    return Expected("A24", offset=last_end(case, last.offset))


def last_end(case: Case, offset: int) -> int:
    """Where the last record before *offset* ends: a blank tail between is not counted."""
    before = [one for one in case.other.records() if one.offset < offset]
    return before[-1].offset + before[-1].size


@FAULTS.seeds("A24", against="same")
def _the_tail_lost(case: Case) -> Expected:
    records = list(case.store.records())
    file = records[-1].offset // case.store.log_file_size
    tail = [one for one in records[-5:] if one.offset // case.store.log_file_size == file]
    for one in tail:
        case.store.write(one.offset, bytes(one.size))
    return Expected("A24", offset=last_end(case, tail[0].offset))


@FAULTS.seeds("A24", against="same")
def _removed_files_back(case: Case) -> Expected:
    files = case.other.log_files()
    if len(files) < 2 or int(files[1].name) >= case.other.log_end():
        raise NothingFitsError("a single log file")
    files[0].unlink()
    return Expected("A24", offset=int(files[0].name))


@FAULTS.seeds("A24", against="same")
def _an_offset_written_over(case: Case) -> Expected:
    one = common(case)
    case.store.rewrite(one, queue_offset=one.record.queue_offset + 1)
    return at("A24", one)


@FAULTS.seeds("A24", against="same")
def _neighbours_written_over(case: Case) -> Expected:
    one = common(case)
    behind = [later for later in case.store.records() if later.offset >= one.offset][:4]
    for later in behind:
        case.store.rewrite(later, flag=later.record.flag + 1)
    return at("A24", one)
