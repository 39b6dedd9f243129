"""The one pass: both sides of every pair sum up alike, as plain Python sums them, and every fault is one row."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pymq
from pymq import _scan
from spark_jobs.rocketmq_store import bodies
from spark_jobs.rocketmq_store.queues import QueueRange
from spark_jobs.rocketmq_store.scan import scan_index, scan_log, scan_queue_files
from spark_jobs.rocketmq_store.schema import arrow_schema
from spark_jobs.rocketmq_store.walk import LogRange, split_points
from tests.golden import golden_layout
from tests.reference import cq_unit
from tests.reference import record as reference
from tests.spark_jobs.made_logs import BASE, FILE_SIZE, MadeLog, whole_range
from tests.spark_jobs.plain_scan import log_sums, sums_of

SLOTS, ITEMS = 100, 200  # of the golden broker.conf


def log_rows(*ranges: LogRange) -> list[dict]:
    """The scan of some ranges of the log."""
    return [row for one in ranges for batch in scan_log(one) for row in batch.to_pylist()]


def queue_ranges(store: Path) -> list[QueueRange]:
    """Every queue file of a store."""
    paths = sorted((store / "consumequeue").glob("*/*/*"))
    last = {path.parent: path for path in paths}
    made = max(path.stat().st_size for path in paths)
    return [
        QueueRange(
            "made",
            path.parts[-3],
            int(path.parts[-2]),
            str(path),
            int(path.name),
            path.stat().st_size,
            last[path.parent] == path,
            made,
        )
        for path in paths
    ]


def store_rows(store: Path, slots: int, items: int) -> list[dict]:
    """The scan of a whole store."""
    rows = log_rows(*(whole_range(path) for path in sorted((store / "commitlog").iterdir())))
    rows += [row for batch in scan_queue_files(queue_ranges(store)) for row in batch.to_pylist()]
    for path in sorted((store / "index").iterdir()):
        rows += [row for batch in scan_index("made", str(path), slots, items) for row in batch.to_pylist()]
    return rows


def assert_sides_agree(rows: list[dict]) -> None:
    """Records and units, keys and items: the same groups with the same counts and digests."""
    for left, right in (("records", "units"), ("keys", "items")):
        one, other = sums_of(rows, left), sums_of(rows, right)
        assert {key[1:]: value for key, value in one.items()} == {key[1:]: value for key, value in other.items()}
        assert one


def faults_in(rows: list[dict]) -> list[tuple[str, str]]:
    """Kind and status of every row that says something is wrong."""
    wrong = {"damage", "unit_fault", "item_fault"}
    return [
        (row["kind"], row["status"])
        for row in rows
        if row["kind"] in wrong or (row["kind"] in ("queue", "index") and row["status"] != "ok")
    ]


def test_golden_sides_agree_and_nothing_is_wrong() -> None:
    """Goal: no false alarm on what Apache wrote. Method: the whole golden store."""
    rows = store_rows(golden_layout.STORE, SLOTS, ITEMS)
    assert_sides_agree(rows)
    assert faults_in(rows) == []
    assert [row["status"] for row in rows if row["kind"] == "range"] == ["blank", "unwritten"]
    assert sum(row["count"] for row in rows if row["kind"] == "range") == 325
    assert sum(row["count"] for row in rows if row["kind"] == "traffic") == 325


def test_a_store_of_pymq_agrees_with_itself(tmp_path: Path) -> None:
    """Goal: the same for what pymq wrote. Method: several topics, keys, tags and a roll of the log's files."""
    config = pymq.StoreConfig(
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=100 * 20,
        max_hash_slot_num=50,
        max_index_num=400,
    )
    with pymq.open(tmp_path / "store", config) as store:
        for number in range(700):
            store.send(
                f"topic{number % 3}",
                b"x" * (number % 97),
                queue_id=number % 4,
                tags=f"t{number % 5}",
                keys=[f"k{number}", "m"],
            )
    rows = store_rows(tmp_path / "store", 50, 400)
    assert_sides_agree(rows)
    assert faults_in(rows) == []
    assert sum(row["count"] for row in rows if row["kind"] == "range") == 700


def plain_records(data: bytes, base: int) -> list[reference.Record]:
    """The records of a clean log by the plain decoder."""
    found, position = [], 0
    while position < len(data) and any(data[position : position + 8]):
        record = reference.decode_record(data[position:])
        if isinstance(record, int):
            break
        assert record.physical_offset == base + position
        found.append(record)
        position += record.total_size
    return found


@st.composite
def logs(draw: st.DrawFn) -> MadeLog:
    """Logs with all that changes how a record is filed."""
    log = MadeLog(file_size=8192, base=draw(st.sampled_from([0, BASE, 1 << 24, (1 << 24) * 7 - 4096])))
    for _ in range(draw(st.integers(0, 20))):
        log.add(
            topic=draw(st.sampled_from([b"a", b"b", b"caf\xc3\xa9", b"t" * 130])),
            queue_id=draw(st.integers(0, 2)),
            queue_offset=draw(st.integers(0, 9000)),
            sys_flag=draw(st.sampled_from([0, 4, 8, 12])),
            store_timestamp_ms=draw(st.integers(0, 300_000)),
            properties=draw(
                st.lists(
                    st.tuples(
                        st.sampled_from([b"UNIQ_KEY", b"KEYS", b"TAGS", b"other"]),
                        st.sampled_from([b"x", b"a b", b"  ", b" k  k ", "ü".encode()]),
                    ),
                    max_size=5,
                ).map(_scan.encode_properties)
            ),
        )
    log.data += bytes(log.file_size - len(log.data))
    return log


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs(), st.integers(200, 3000))
def test_sums_of_the_log_are_those_of_plain_python_however_it_is_split(tmp_path: Path, log: MadeLog, step: int) -> None:
    """Goal: C files records and keys as dispatch does. Method: transactions, keys, tags, buckets; one range, many."""
    path = log.write(tmp_path)
    expected = log_sums(plain_records(bytes(log.data), log.base))
    kinds = ("records", "keys", "traffic")
    whole = whole_range(path)
    assert sums_of(log_rows(whole), *kinds) == expected
    edges = [log.base, *split_points(path, log.base, log.file_size, step), log.base + log.file_size]
    parts = [whole._replace(begin=begin, end=end) for begin, end in pairwise(edges)]
    assert sums_of(log_rows(*parts), *kinds) == expected


def test_more_groups_than_a_table_holds_come_in_parts(tmp_path: Path) -> None:
    """Goal: no limit on topics and queues. Method: seven thousand queues, and one bucket each."""
    log = MadeLog(file_size=4 << 20)
    for number in range(7_000):
        log.add(topic=b"topic%d" % (number % 300), queue_id=number, queue_offset=1)
    log.data += bytes(log.file_size - len(log.data))
    rows = log_rows(whole_range(log.write(tmp_path)))
    assert len(sums_of(rows, "records")) == 7_000
    assert sums_of(rows, "records", "keys", "traffic") == log_sums(plain_records(bytes(log.data), log.base))


def test_batches_have_the_tables_schema(tmp_path: Path) -> None:
    """Goal: Spark gets what it was told. Method: every batch of every kind."""
    log = MadeLog().fill()
    log.data[log.starts[2] + 4] ^= 1
    batches = list(scan_log(whole_range(log.write(tmp_path))))
    batches += list(scan_queue_files(queue_ranges(golden_layout.STORE)))
    batches += list(scan_index("made", str(sorted((golden_layout.STORE / "index").iterdir())[0]), SLOTS, ITEMS))
    assert {kind for batch in batches for kind in batch.column("kind").to_pylist()} >= {"damage", "units", "items"}
    for batch in batches:
        assert batch.schema.equals(arrow_schema("scan"))
        batch.validate(full=True)


# ---- faults of the log -----------------------------------------------------------------------------------------------


def scanned(tmp_path: Path, log: MadeLog) -> list[dict]:
    """The damage rows of a log."""
    return [row for row in log_rows(whole_range(log.write(tmp_path))) if row["kind"] == "damage"]


@pytest.mark.parametrize(
    ("at", "status", "counted"),
    [(5, "bad_magic", False), (2, "bad_size", False), (35, "bad_offset", False), (104, "bad_crc", True)],
)
def test_a_spoilt_record_is_one_damage_row_and_counted_only_if_dispatch_would(
    tmp_path: Path, at: int, status: str, counted: bool
) -> None:
    """Goal: damage at its place, and the other side excused or not. Method: spoil record 3; look at row and sums."""
    log = MadeLog().fill()
    clean = sums_of(log_rows(whole_range(log.write(tmp_path))), "records", "keys")
    log.data[log.starts[3] + at] ^= 0x01
    rows = log_rows(whole_range(log.write(tmp_path)))
    damage = [row for row in rows if row["kind"] == "damage"]
    assert [(row["status"], row["physical_offset_min"]) for row in damage] == [(status, BASE + log.starts[3])]
    assert damage[0]["physical_offset_end"] == BASE + log.starts[4]
    assert (damage[0]["topic"], damage[0]["queue_id"], damage[0]["queue_offset_min"]) == ("orders", 1, 3)
    assert damage[0]["detail"]
    assert (sums_of(rows, "records", "keys") == clean) == counted
    whole = next(row for row in rows if row["kind"] == "range")
    assert whole["count"] == len(log.starts) - (status in ("bad_magic", "bad_size"))


def test_zeros_where_no_log_is_written_end_a_range_and_are_no_damage(tmp_path: Path) -> None:
    """Goal: how a range ended is told. Method: a full file, an unfinished one, one cut in two, a missing one."""
    full, short = MadeLog().fill(), MadeLog().unfinished(3)
    path = full.write(tmp_path / "full")
    ends = [
        row
        for row in log_rows(whole_range(path), whole_range(short.write(tmp_path / "short")))
        if row["kind"] == "range"
    ]
    assert [(row["status"], row["physical_offset_end"] - BASE) for row in ends] == [
        ("blank", full.blank_at),
        ("unwritten", ends[1]["bytes"]),
    ]
    middle = BASE + full.starts[4]
    first = log_rows(whole_range(path)._replace(end=middle))
    assert [(row["status"], row["physical_offset_end"], row["count"]) for row in first if row["kind"] == "range"] == [
        ("done", middle, 4)
    ]
    gone = log_rows(LogRange("made", str(tmp_path / "gone"), 0, 0, FILE_SIZE, FILE_SIZE))
    assert [row["status"] for row in gone] == ["missing"]


@pytest.mark.parametrize(
    ("properties", "status"),
    [
        (b"a\x01b\x02c\x02", "bad_properties"),
        (b"a\x01b\x01c\x02", "bad_properties"),
        (b"\x01b\x02", "bad_properties"),
        (b"a\x01\xff\x02", "bad_text"),
    ],
)
def test_bad_text_is_a_damage_row_and_the_record_counts(tmp_path: Path, properties: bytes, status: str) -> None:
    """Goal: encodings are checked. Method: properties that no writer makes; empty values, which brokers make, pass."""
    log = MadeLog()
    log.add(properties=b"a\x01\x02b\x01c")
    log.add(properties=properties)
    log.data += bytes(log.file_size - len(log.data))
    rows = log_rows(whole_range(log.write(tmp_path)))
    damage = [row for row in rows if row["kind"] == "damage"]
    assert [(row["status"], row["queue_offset_min"]) for row in damage] == [(status, 1)]
    assert sum(row["count"] for row in rows if row["kind"] == "records") == 2


def test_a_topic_that_is_no_utf8_is_told(tmp_path: Path) -> None:
    """Goal: topics too. Method: a stray byte; the row shows it replaced."""
    log = MadeLog()
    log.add(topic=b"caf\xe9")
    log.data += bytes(log.file_size - len(log.data))
    damage = scanned(tmp_path, log)
    assert [(row["status"], row["topic"]) for row in damage] == [("bad_text", "caf\N{REPLACEMENT CHARACTER}")]
    assert "topic" in damage[0]["detail"]


TEXT = b"some text that compresses, some text that compresses" * 40
COMPRESSIONS = {
    "zlib without a type": (1, zlib.compress(TEXT)),
    "zlib": (0x301, zlib.compress(TEXT)),
    "lz4": (0x101, lz4.frame.compress(TEXT)),
    "zstd": (0x201, zstandard.ZstdCompressor().compress(TEXT)),
}


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compressed_bodies_are_tried_as_their_flag_says(tmp_path: Path, name: str) -> None:
    """Goal: a body that cannot be read is told. Method: each kind whole, cut short, and as what it is not."""
    flag, body = COMPRESSIONS[name]
    log = MadeLog()
    for text in (body, body[:-7], b"plain text", b""):
        log.add(body=text, sys_flag=flag)
    log.data += bytes(log.file_size - len(log.data))
    assert [(row["status"], row["queue_offset_min"]) for row in scanned(tmp_path, log)] == [
        ("bad_compression", 1),
        ("bad_compression", 2),
    ]


def test_an_unknown_compression_and_a_missing_package_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what could not be checked is said, not raised. Method: type 5; and lz4 and zstandard not to be imported."""
    log = MadeLog()
    for flag, body in ((0x501, b"?"), COMPRESSIONS["lz4"], COMPRESSIONS["zstd"]):
        log.add(body=body, sys_flag=flag)
    log.data += bytes(log.file_size - len(log.data))
    monkeypatch.setitem(__import__("sys").modules, "lz4.frame", None)
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    details = [row["detail"] for row in scanned(tmp_path, log)]
    assert "type 5" in details[0]
    assert details[1:] == [
        "not checked: the package lz4 is not installed",
        "not checked: the package zstandard is not installed",
    ]
    assert bodies.compression_trouble(memoryview(zlib.compress(bytes(50 << 20))), 1) is None


# ---- faults of queues ------------------------------------------------------------------------------------------------


def queue_file(directory: Path, base: int, units: list[cq_unit.Unit], size: int = 400) -> QueueRange:
    """A queue file, and how it is asked for."""
    path = directory / "consumequeue" / "T" / "0" / f"{base:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(cq_unit.encode_unit, units)).ljust(size, b"\0"))
    return QueueRange("made", "T", 0, str(path), base, path.stat().st_size, True, 400)


def units_from(first: int, count: int) -> list[cq_unit.Unit]:
    """Units in order."""
    return [cq_unit.Unit(1000 + 100 * number, 100, number % 3) for number in range(first, first + count)]


def queue_rows(*files: QueueRange) -> list[dict]:
    """The scan of some queue files."""
    return [row for batch in scan_queue_files(files) for row in batch.to_pylist()]


@pytest.mark.parametrize(("offset", "culprit"), [(99_999, 7), (1001, 7), (1550, 7), (1600, 7), (1700, None)])
def test_a_unit_out_of_order_is_one_fault_at_itself(tmp_path: Path, offset: int, culprit: int | None) -> None:
    """Goal: the spoilt unit is named, not its neighbour. Method: unit 7 points too far, too low, at the one before."""
    units = units_from(0, 12)
    units[7] = units[7]._replace(physical_offset=offset)
    rows = queue_rows(queue_file(tmp_path, 0, units))
    faults = [(row["status"], row["queue_offset_min"]) for row in rows if row["kind"] == "unit_fault"]
    assert faults == ([] if culprit is None else [("descent", culprit)])
    details = [row["detail"] for row in rows if row["kind"] == "units"]
    assert details == ([None] if culprit is None else ["descents=1"])


def test_order_goes_on_from_file_to_file_in_one_scan_or_two(tmp_path: Path) -> None:
    """Goal: files are one queue. Method: the second file begins below the first's end; scanned together and alone."""
    first = queue_file(tmp_path, 0, units_from(0, 20))._replace(is_last=False)
    second = queue_file(tmp_path, 400, [cq_unit.Unit(1500, 100, 0), *units_from(21, 3)])
    for rows in (queue_rows(first, second), queue_rows(second)):
        assert [(row["status"], row["queue_offset_min"]) for row in rows if row["kind"] == "unit_fault"] == [
            ("descent", 20)
        ]


def test_holes_and_fillers_are_summed_apart(tmp_path: Path) -> None:
    """Goal: only units that point to a record are compared. Method: two fillers, units, a hole, a unit."""
    filler, hole = cq_unit.Unit(0, 0x7FFFFFFF, 0), cq_unit.Unit(0, 0, 0)
    rows = queue_rows(queue_file(tmp_path, 0, [filler, filler, *units_from(2, 3), hole, *units_from(6, 1)]))
    assert {row["status"]: row["count"] for row in rows if row["kind"] == "units"} == {"ok": 4, "filler": 2, "hole": 1}
    assert [(row["status"], row["queue_offset_min"]) for row in rows if row["kind"] == "unit_fault"] == [("hole", 5)]
    whole = next(row for row in rows if row["kind"] == "queue")
    assert (whole["count"], whole["queue_offset_min"], whole["queue_offset_max"], whole["status"]) == (4, 2, 6, "ok")


def test_more_faults_than_fit_come_all(tmp_path: Path) -> None:
    """Goal: nothing is dropped. Method: five thousand holes in one file, and buckets in between."""
    units = units_from(0, 1) + [cq_unit.Unit(0, 0, 0)] * 5000 + units_from(5001, 1)
    rows = queue_rows(queue_file(tmp_path, 0, units, size=6_000_000))
    assert sum(row["kind"] == "unit_fault" for row in rows) == 5000
    assert sum(row["count"] for row in rows if row["kind"] == "units" and row["status"] == "hole") == 5000


def test_sizes_of_queue_files_are_told(tmp_path: Path) -> None:
    """Goal: short and odd files are seen. Method: each, and one that is gone."""
    whole = queue_file(tmp_path, 0, units_from(0, 20))
    short = queue_file(tmp_path, 400, units_from(20, 2), size=40)._replace(is_last=False)
    odd = queue_file(tmp_path, 800, units_from(40, 1), size=33)
    gone = whole._replace(path=str(tmp_path / "gone"), base=1200)
    statuses = [row["status"] for row in queue_rows(whole, short, odd, gone) if row["kind"] == "queue"]
    assert statuses == ["ok", "short", "odd_size", "missing"]


# ---- faults of the index ---------------------------------------------------------------------------------------------


def index_rows(path: Path) -> list[dict]:
    """The scan of one index file."""
    return [row for batch in scan_index("made", str(path), SLOTS, ITEMS) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("position", "kinds"),
    [
        (40 + 400 + 20 * 50 + 16, [("item_fault", "bad_chain"), ("index", "bad_chain")]),
        (40 + 400 + 20 * 50, [("item_fault", "bad_chain"), ("index", "bad_chain")]),
        (24, [("index", "bad_header")]),
    ],
)
def test_a_spoilt_number_of_an_index_file_is_one_fault(
    tmp_path: Path, position: int, kinds: list[tuple[str, str]]
) -> None:
    """Goal: one number, one fault. Method: an item's previous, its hash, the header's end offset."""
    path = tmp_path / "index" / "20261116015600332"
    path.parent.mkdir()
    shutil.copy(golden_layout.STORE / "index" / path.name, path)
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, position, struct.unpack_from(">i", data, position)[0] + 7)
    path.write_bytes(data)
    rows = index_rows(path)
    assert faults_in(rows) == kinds
    header = json.loads(next(row["detail"] for row in rows if row["kind"] == "index"))
    assert header["item_count"] == 200
    if kinds[0][0] == "item_fault":
        fault = next(row for row in rows if row["kind"] == "item_fault")
        assert fault["detail"].startswith("item 50: ")
        assert fault["physical_offset_min"] == struct.unpack_from(">q", data, 40 + 400 + 20 * 50 + 4)[0]


def test_an_index_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Goal: nothing raises. Method: gone, and empty."""
    assert [row["status"] for row in index_rows(tmp_path / "gone")] == ["bad_header"]
    (tmp_path / "empty").write_bytes(b"")
    assert [row["status"] for row in index_rows(tmp_path / "empty")] == ["bad_header"]
