"""Columns: walks of the log, queue files and index files, beside the plain-Python reading."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymq import _scan, errors
from tests.native.strategies import INT32, INT64, RECORDS, TEXT, damaged
from tests.reference import cq_unit, index_file, java_hash, properties
from tests.reference import record as reference

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden-store"
TRANSACTION_MASK, TRANSACTION_COMMIT = 3 << 2, 2 << 2
GOLDEN_SLOTS = 100  # maxHashSlotNum of its broker.conf
Guard = Callable[[bytes], memoryview]

UNITS = st.builds(cq_unit.Unit, INT64, INT32, st.integers(-3, 3) | INT64)
LOGS = st.lists(RECORDS.map(reference.encode_record), max_size=4).map(b"".join)


def reference_walk(source: bytes, *, check_crc: bool) -> tuple[list[reference.Record], int, str]:
    """The records from the first byte on, where the walk ends, and why."""
    found: list[reference.Record] = []
    position = 0
    while position < len(source):
        try:
            record = reference.decode_record(source[position:], check_crc=check_crc)
        except reference.TruncatedError:
            return found, position, "TRUNCATED"
        except reference.CorruptError:
            return found, position, "CORRUPT"
        if isinstance(record, int):
            return found, position, "BLANK"
        found.append(record)
        position += record.total_size
    return found, position, "DONE"


@given(damaged(LOGS) | st.binary(max_size=200), st.booleans())
def test_walks_find_the_same_records_and_the_same_end(guarded: Guard, source: bytes, check_crc: bool) -> None:
    """Goal: one walk. Method: logs with accidents, walked by both next to a page that may not be touched."""
    expected, position, end = reference_walk(source, check_crc=check_crc)
    checks = _scan.Check.BODY_CRC if check_crc else _scan.Check.STRUCTURE
    walk = _scan.walk_log(guarded(source), checks=checks)
    assert (walk.count, walk.position, walk.end.name) == (len(expected), position, end)
    for name in _scan.LOG_COLUMNS:
        if name not in reference.Record.__dataclass_fields__:
            continue  # positions, and what is computed: compared below
        assert list(walk.columns[name]) == [getattr(record, name) for record in expected], name
    for row, record in enumerate(expected):
        assert bytes(walk.piece("body", row)) == record.body
        assert bytes(walk.piece("topic", row)) == record.topic
        assert bytes(walk.piece("properties", row)) == record.properties
        matches = not record.body or reference.body_crc(record.body) == record.body_crc
        assert bool(walk.columns["body_crc_matches"][row]) == matches
        tags = properties.decode_properties(record.properties).get(b"TAGS", b"")
        assert walk.columns["tags_code"][row] == java_hash.java_hash(tags)


@given(LOGS, st.integers(1, 3))
def test_a_walk_in_steps_equals_a_walk_at_once(source: bytes, step: int) -> None:
    """Goal: full columns lose nothing. Method: walk with a small limit until it ends, and compare."""
    whole = _scan.walk_log(source)
    offsets: list[int] = []
    position = 0
    while True:
        walk = _scan.walk_log(memoryview(source)[position:], count_max=step)
        offsets += walk.columns["physical_offset"]
        position += walk.position
        if walk.end is not _scan.WalkEnd.FULL:
            break
    assert offsets == list(whole.columns["physical_offset"])
    assert (position, walk.end) == (whole.position, whole.end)


@given(st.lists(UNITS, max_size=20), st.binary(max_size=19))
def test_units_are_the_same(guarded: Guard, units: list[cq_unit.Unit], rest: bytes) -> None:
    """Goal: one unit format. Method: bytes by the reference, columns by the native decoder."""
    source = b"".join(cq_unit.encode_unit(unit) for unit in units) + rest
    columns = _scan.decode_queue(guarded(source))
    found = zip(columns["physical_offset"], columns["size"], columns["tags_code"], strict=True)
    assert [cq_unit.Unit(*fields) for fields in found] == units == cq_unit.decode_units(source)


@given(st.lists(UNITS, max_size=40), st.sets(st.integers(-3, 3), max_size=5), st.none() | st.integers(0, 10))
def test_tag_scans_find_the_same_units(
    guarded: Guard, units: list[cq_unit.Unit], hashes: set[int], matched_max: int | None
) -> None:
    """Goal: one filter. Method: scan by both, with every number of hashes and every limit."""
    source = b"".join(cq_unit.encode_unit(unit) for unit in units)
    limit = len(units) if matched_max is None else min(matched_max, len(units))
    expected, scanned = cq_unit.scan_tags(units, hashes, limit)
    found, looked_at = _scan.scan_tags(guarded(source), hashes, matched_max=matched_max)
    assert list(found) == expected
    assert looked_at == scanned


KEYS = st.tuples(TEXT, TEXT, INT64, st.integers(1, 2**41))


@given(st.integers(1, 7), st.lists(KEYS, max_size=12))
def test_index_files_are_read_alike(guarded: Guard, slot_count: int, keys: list[tuple[bytes, bytes, int, int]]) -> None:
    """Goal: one index format. Method: a file made by the reference, read into columns, compared item by item."""
    made = index_file.IndexFile(slot_count, 10)
    accepted = [made.put(*key) for key in keys]
    assert sum(accepted) == min(len(keys), 9)  # position 0 is never used
    index = _scan.decode_index(guarded(made.to_bytes()), slot_count)
    assert tuple(index.header) == tuple(index_file.HEADER.unpack_from(made.to_bytes()))
    assert list(index.slots) == made.slots
    found = zip(*(index.items[name] for name in index_file.Item._fields), strict=True)
    assert [index_file.Item(*fields) for fields in found] == made.items
    again = index_file.IndexFile.from_bytes(made.to_bytes(), slot_count)
    assert again.to_bytes() == made.to_bytes()


@given(st.binary(max_size=300), st.integers(-2, 80))
def test_arbitrary_index_bytes_are_read_or_refused_inside(guarded: Guard, source: bytes, slot_count: int) -> None:
    """Goal: no index file crashes a reader. Method: any bytes, any slot count, guarded."""
    try:
        index = _scan.decode_index(guarded(source), slot_count)
    except (errors.TruncatedRecordError, errors.InvalidArgumentError):
        assert (
            slot_count < 0
            or len(source) < 40 + 4 * slot_count
            or (int.from_bytes(source[36:40], "big", signed=True) * 20 > len(source) - 40 - 4 * slot_count)
        )
    else:
        assert len(index.slots) == slot_count
        assert len(index.items["key_hash"]) == max(index.header.item_count - 1, 0)


def test_golden_queues_point_at_their_records() -> None:
    """Goal: queues, log and hashes of a real store agree. Method: follow every unit of every golden queue file."""
    log: dict[int, tuple[int, int, bytes, int]] = {}
    queued = followed = 0
    levels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    for path in sorted((GOLDEN / "store" / "commitlog").iterdir()):
        for walk in _scan.iterate_log(path, delay_levels=levels, chunk_size=4099):
            for row, offset in enumerate(walk.columns["physical_offset"]):
                log[offset] = (
                    walk.columns["total_size"][row],
                    walk.columns["tags_code"][row],
                    bytes(walk.piece("topic", row)),
                    walk.columns["queue_id"][row],
                )
                transaction = walk.columns["sys_flag"][row] & TRANSACTION_MASK
                queued += transaction in (0, TRANSACTION_COMMIT)  # prepared and rolled back stand in no queue
    assert len(log) == 325
    for path in sorted((GOLDEN / "store" / "consumequeue").glob("*/*/*")):
        columns = _scan.read_queue(path)
        for offset, size, tags_code in zip(*columns.values(), strict=True):
            if size == 0:
                continue  # never written
            assert log[offset] == (size, tags_code, path.parts[-3].encode(), int(path.parts[-2]))
            followed += 1
    assert followed == queued


def test_golden_index_files_hold_the_hashes_of_their_records_keys() -> None:
    """Goal: our key hash is Apache's. Method: recompute every golden item's hash from its record's properties."""
    log = {int(path.name): path.read_bytes() for path in (GOLDEN / "store" / "commitlog").iterdir()}
    checked = 0
    for path in sorted((GOLDEN / "store" / "index").iterdir()):
        index = _scan.read_index(path, GOLDEN_SLOTS)
        for key_hash, offset in zip(index.items["key_hash"], index.items["physical_offset"], strict=True):
            base = max(start for start in log if start <= offset)
            record = _scan.decode_record(log[base], at=offset - base)
            assert isinstance(record, _scan.Record)
            known = properties.decode_properties(record.properties)
            keys = [known.get(b"UNIQ_KEY", b""), *known.get(b"KEYS", b"").split(), b"T#" + known.get(b"TAGS", b"")]
            assert key_hash in {_scan.index_key_hash(record.topic, key) for key in keys}
            checked += 1
    assert checked == 4 * 199 + 30


def test_verify_names_the_record_with_a_broken_body(tmp_path: Path) -> None:
    """Goal: one bit is one finding. Method: flip a bit in the body of the golden log's second record."""
    source = bytearray((GOLDEN / "store" / "commitlog" / "00000000000000000000").read_bytes())
    copy = tmp_path / "00000000000000000000"
    copy.write_bytes(source)
    clean = _scan.verify_log(copy)
    assert clean.mismatched_offsets == []
    assert (clean.count, clean.end, clean.end_offset) == (192, _scan.WalkEnd.BLANK, 65366)
    source[300 + 88] ^= 4
    copy.write_bytes(source)
    broken = _scan.verify_log(copy)
    assert broken.mismatched_offsets == [300]
    assert (broken.count, broken.end) == (192, _scan.WalkEnd.BLANK)


@pytest.mark.parametrize("chunk_size", [8, 99, 300, 301, 4099, 65535, 65536, 65537])
def test_a_file_is_walked_alike_whatever_the_chunk(chunk_size: int) -> None:
    """Goal: chunks do not show. Method: the golden log in chunks smaller than, equal to and above a record."""
    path = GOLDEN / "store" / "commitlog" / "00000000000000000000"
    walks = list(_scan.iterate_log(path, chunk_size=chunk_size, columns=["physical_offset"]))
    whole = _scan.walk_log(path.read_bytes())
    offsets = [offset for walk in walks for offset in walk.columns["physical_offset"]]
    assert offsets == list(whole.columns["physical_offset"])
    assert walks[-1].end is _scan.WalkEnd.BLANK


def test_bad_arguments_are_refused_by_name() -> None:
    """Goal: a wrong call says what is wrong. Method: one wrong argument each."""
    with pytest.raises(errors.InvalidArgumentError, match="no such column: nonsense"):
        _scan.walk_log(b"", columns=["nonsense"])
    with pytest.raises(errors.InvalidArgumentError, match="delay levels"):
        _scan.walk_log(b"", delay_levels="1x")
    with pytest.raises(errors.InvalidArgumentError, match="chunk_size 7"):
        next(_scan.iterate_log("0", chunk_size=7))
    with pytest.raises(errors.InvalidArgumentError, match="position 2 of 1"):
        _scan.decode_record(b"x", at=2)


def test_importing_starts_no_thread() -> None:
    """Goal: a process may fork after the import. Method: count the threads of a fresh interpreter."""
    code = "import os; from pymq import _scan; _scan.crc32(b'x' * 99); print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.stdout.strip() == b"1", done.stderr
