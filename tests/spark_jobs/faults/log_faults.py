"""Faults of the commit log: what is in a record (A1), where it stands (A2), and what it holds (A11)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

from tests.spark_jobs.faults import Case, Expected, NothingFitsError
from tests.spark_jobs.faults.patch import PatchedStore, Placed
from tests.spark_jobs.faults.seeding import Faults

FAULTS = Faults()

CRC_AT, MAGIC_AT = 8, 4
COMPRESSED, COMPRESSION = 1, 7 << 8


def inner(case: Case, wanted: Callable[[Placed], object] = lambda one: True) -> Placed:
    """A record with others before and behind it."""
    return case.store.pick(wanted, case.random, inner=True)


def has_body(one: Placed) -> bool:
    """Whether there is a body of some length, not compressed."""
    return len(one.record.body) >= 8 and not one.record.sys_flag & COMPRESSED


def number(store: PatchedStore, offset: int, change: Callable[[int], int], size: int = 4) -> None:
    """Change a big-endian number of the log."""
    value = int.from_bytes(store.read(offset, size), "big")
    store.write(offset, (change(value) & ((1 << 8 * size) - 1)).to_bytes(size, "big"))


# ---- A1: a record is what it says ------------------------------------------------------------------------------------


@FAULTS.seeds("A1")
def _bit_of_a_body(case: Case) -> Expected:
    one = inner(case, has_body)
    case.store.flip(one.offset + one.body_at + case.random.randrange(len(one.record.body)), case.random.randrange(8))
    return Expected("A1", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A1")
def _zeros_in_a_body(case: Case) -> Expected:
    one = inner(case, lambda one: has_body(one) and any(one.record.body[:4]))
    case.store.write(one.offset + one.body_at, bytes(4))
    return Expected("A1", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A1")
def _bit_of_the_crc(case: Case) -> Expected:
    one = inner(case, has_body)
    case.store.flip(one.offset + CRC_AT + 3, case.random.randrange(8))
    return Expected("A1", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A1")
def _highest_bit_of_the_crc(case: Case) -> Expected:
    one = inner(case, has_body)
    case.store.flip(one.offset + CRC_AT, 7)
    return Expected("A1", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A1")
def _bit_of_the_magic(case: Case) -> Expected:
    one = inner(case)
    case.store.flip(one.offset + MAGIC_AT + case.random.randrange(3), case.random.randrange(8))
    return Expected("A1", offset=one.offset)


@FAULTS.seeds("A1")
def _no_magic(case: Case) -> Expected:
    one = inner(case)
    case.store.write(one.offset + MAGIC_AT, bytes(4))
    return Expected("A1", offset=one.offset)


@FAULTS.seeds("A1")
def _size_too_large(case: Case) -> Expected:
    one = inner(case)
    number(case.store, one.offset, lambda size: size + 1)
    return Expected("A1", offset=one.offset)


@FAULTS.seeds("A1")
def _size_too_small(case: Case) -> Expected:
    one = inner(case)
    number(case.store, one.offset, lambda size: case.random.randrange(92, size))
    return Expected("A1", offset=one.offset)


@FAULTS.seeds("A1")
def _size_of_the_body(case: Case) -> Expected:
    one = inner(case, has_body)
    number(case.store, one.offset + one.body_at - 4, lambda size: size + 1)
    return Expected("A1", offset=one.offset)


@FAULTS.seeds("A1", kinds=("record_crc",))
def _bit_of_a_field(case: Case) -> Expected:
    one = inner(case)
    case.store.flip(one.offset + 40 + 7, case.random.randrange(8))  # born timestamp
    return Expected("A1", one.topic, one.record.queue_id, one.offset)


# ---- A2: the log is one walk -----------------------------------------------------------------------------------------


@FAULTS.seeds("A2")
def _a_byte_further(case: Case) -> Expected:
    one = inner(case)
    case.store.rewrite(one, physical_offset=one.offset + 1)
    return Expected("A2", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A2")
def _place_of_another(case: Case) -> Expected:
    one = inner(case)
    other = case.store.pick(lambda other: other.offset != one.offset, case.random)
    case.store.rewrite(one, physical_offset=other.offset)
    return Expected("A2", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A2")
def _place_below_zero(case: Case) -> Expected:
    one = inner(case)
    case.store.rewrite(one, physical_offset=-1)
    return Expected("A2", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A2")
def _three_records_moved(case: Case) -> Expected:
    records = list(case.store.records())
    runs = [
        run
        for run in zip(records, records[1:], records[2:], strict=False)
        if all(before.offset + before.size == after.offset for before, after in itertools.pairwise(run))
    ]
    if not runs:
        raise NothingFitsError("no three records in a row")
    run = case.random.choice(runs)
    for one in run:
        case.store.rewrite(one, physical_offset=one.offset + 4096)
    return Expected("A2", run[0].topic, run[0].record.queue_id, run[0].offset)


@FAULTS.seeds("A2")
def _another_files_records(case: Case) -> Expected:
    path = case.random.choice(case.store.log_files())
    base, size = int(path.name), case.store.log_file_size
    inside = case.store.find(lambda one: base <= one.offset < base + size)
    if not inside:
        raise NothingFitsError("no record in that file")
    for one in inside:
        case.store.rewrite(one, physical_offset=one.offset + size)
    return Expected("A2", inside[0].topic, inside[0].record.queue_id, base)


def full_file(case: Case) -> tuple[Placed, int, int]:
    """The last record of a file that is full, where the blank behind it begins, and where the file ends."""
    files = case.store.log_files()
    size = case.store.log_file_size
    last: dict[int, Placed] = {}
    for one in case.store.records():
        last[one.offset // size * size] = one
    full = [base for base in last if base + size in last and base // size * size == base]
    if not full or len(files) < 2:
        raise NothingFitsError("no full log file")
    base = case.random.choice(sorted(full))
    return last[base], last[base].offset + last[base].size, base + size


@FAULTS.seeds("A2")
def _blank_too_long(case: Case) -> Expected:
    _, blank, _ = full_file(case)
    number(case.store, blank, lambda size: size + 1)
    return Expected("A2", offset=blank)


@FAULTS.seeds("A2")
def _blank_too_short(case: Case) -> Expected:
    _, blank, _ = full_file(case)
    number(case.store, blank, lambda size: size - 1)
    return Expected("A2", offset=blank)


@FAULTS.seeds("A2")
def _no_blank(case: Case) -> Expected:
    _, blank, end = full_file(case)
    case.store.write(blank, bytes(end - blank))
    return Expected("A2", offset=blank)


@FAULTS.seeds("A2")
def _zeros_at_the_end_of_a_file(case: Case) -> Expected:
    one, _, end = full_file(case)
    case.store.write(one.offset, bytes(end - one.offset))
    return Expected("A2", offset=one.offset)


@FAULTS.seeds("A2")
def _over_the_end_of_a_file(case: Case) -> Expected:
    one, blank, end = full_file(case)
    case.store.write(blank, bytes(end - blank))
    number(case.store, one.offset, lambda _: end - one.offset + 91)
    return Expected("A2", offset=one.offset)


# ---- A11: what a record holds can be read ----------------------------------------------------------------------------


def patched_properties(case: Case, change: Callable[[bytearray, Random], None], least: int = 3) -> Expected:
    """Let *change* work on the properties of a record that has at least so many of them."""
    one = inner(case, lambda one: one.record.properties.count(b"\x02") >= least)
    properties = bytearray(one.record.properties)
    change(properties, case.random)
    case.store.rewrite(one, properties=bytes(properties))
    return Expected("A11", one.topic, one.record.queue_id, one.offset)


def own_text(properties: bytearray) -> int:
    """Where the first value begins, behind its name."""
    return properties.index(0x01) + 1


@FAULTS.seeds("A11")
def _no_text_in_a_value(case: Case) -> Expected:
    def change(properties: bytearray, random: Random) -> None:
        properties[own_text(properties)] = random.randrange(0xF8, 0x100)

    return patched_properties(case, change)


@FAULTS.seeds("A11")
def _no_text_in_a_name(case: Case) -> Expected:
    def change(properties: bytearray, random: Random) -> None:
        properties[0] = random.randrange(0x80, 0xC0)

    return patched_properties(case, change)


@FAULTS.seeds("A11")
def _half_a_character(case: Case) -> Expected:
    def change(properties: bytearray, random: Random) -> None:
        properties[properties.index(0x02) - 1] = random.choice((0xC3, 0xE2, 0xF0))

    return patched_properties(case, change)


@FAULTS.seeds("A11")
def _a_name_without_a_value(case: Case) -> Expected:
    def change(properties: bytearray, random: Random) -> None:
        properties[properties.index(0x01)] = ord("x")

    return patched_properties(case, change)


@FAULTS.seeds("A11")
def _two_values_of_a_name(case: Case) -> Expected:
    def change(properties: bytearray, random: Random) -> None:
        properties[properties.index(0x02)] = 0x01

    return patched_properties(case, change)


@FAULTS.seeds("A11")
def _a_value_without_a_name(case: Case) -> Expected:
    def change(properties: bytearray, random: Random) -> None:
        begin = properties.index(0x02) + 1
        separator = properties.index(0x01, begin)
        properties[begin], properties[separator] = 0x01, ord("x")

    return patched_properties(case, change)


@FAULTS.seeds("A11")
def _no_text_in_the_topic(case: Case) -> Expected:
    one = inner(case)
    topic = bytearray(one.record.topic)
    topic[case.random.randrange(len(topic))] = 0xFF
    case.store.rewrite(one, topic=bytes(topic))
    return Expected("A11", offset=one.offset)


@FAULTS.seeds("A11")
def _not_compressed_at_all(case: Case) -> Expected:
    one = inner(case, has_body)
    flag = COMPRESSED | case.random.choice((0, 1, 2, 3)) << 8
    case.store.rewrite(one, sys_flag=one.record.sys_flag & ~COMPRESSION | flag)
    return Expected("A11", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A11")
def _compressed_by_nothing_known(case: Case) -> Expected:
    one = inner(case, has_body)
    kind = case.random.choice((4, 5, 6, 7))
    case.store.rewrite(one, sys_flag=one.record.sys_flag & ~COMPRESSION | COMPRESSED | kind << 8)
    return Expected("A11", one.topic, one.record.queue_id, one.offset)


@FAULTS.seeds("A11")
def _compressed_and_cut(case: Case) -> Expected:
    one = inner(case, lambda one: one.record.sys_flag & COMPRESSED and len(one.record.body) > 16)
    body = one.record.body[: len(one.record.body) // 2]
    case.store.rewrite(one, body=body.ljust(len(one.record.body), b"\x55"))
    return Expected("A11", one.topic, one.record.queue_id, one.offset)
