"""The broker's small files as rows: the golden store's, RocketMQ's JSON, damage, and files that say nothing."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from pymq.broker.timer.checkpoint import TimerCheckpoint
from spark_jobs.rocketmq_store.files import open_stores
from spark_jobs.rocketmq_store.small_tables import (
    JSON_FILES,
    READERS,
    UnreadableFileError,
    check_readable,
    digest,
    read_checkpoint,
    read_small,
)
from tests.golden import golden_layout
from tests.spark_jobs.dumps import write_manifest


def rows(table: str, root: Path) -> list[dict[str, Any]]:
    """All rows of a table of one store."""
    return [row for batch in read_small(table, [("here", str(root))]) for row in batch.to_pylist()]


def test_offsets_of_the_golden_store_are_read_with_unquoted_keys(golden_shared: Path):
    """Goal: RocketMQ's JSON is not quite JSON. Method: rows of the file it wrote, and the file's own text."""
    found = {
        (row["topic"], row["consumer_group"], row["queue_id"]): row["queue_offset"]
        for row in rows("offsets", golden_shared)
    }
    assert found["GoldenA", "golden_cg", 1] == 46
    assert found["RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS", 0] == 10
    assert found["%RETRY%golden_pop_GoldenB", "golden_pop", 0] == 1
    text = (golden_shared / "config/consumerOffset.json").read_text()
    assert len(found) == text.partition('"pullOffsetTable"')[0].partition('"offsetTable"')[2].count("\t\t\t")


def test_topics_and_groups_of_the_golden_store_are_read(golden_shared: Path):
    """Goal: configuration as the broker has it. Method: what Apache's tools said of the topics, one group."""
    expected = json.loads((golden_layout.DIRECTORY / "expected.json").read_text())["topics"]
    topics = {row["topic"]: row for row in rows("topics", golden_shared)}
    for name, said in expected.items():
        one = topics[name]
        assert (one["read_queue_nums"], one["write_queue_nums"], one["perm"]) == (
            said["readQueueNums"], said["writeQueueNums"], said["perm"],
        )  # fmt: skip
        assert dict(one["attributes"]) == {key.removeprefix("+"): value for key, value in said["attributes"].items()}
    groups = {row["consumer_group"]: row for row in rows("groups", golden_shared)}
    assert groups["golden_pop"]["retry_max_times"] == 16
    assert groups["golden_pop"]["consume_enable"] is True
    assert json.loads(groups["golden_pop"]["settings"])["groupRetryPolicy"] == {"type": "CUSTOMIZED"}


def test_delay_offsets_and_timer_check_point_of_the_golden_store_are_read(golden_shared: Path):
    """Goal: progress of delays and timers. Method: the golden files."""
    assert [(row["level"], row["queue_offset"]) for row in rows("delay_offsets", golden_shared)] == [
        (1, 2), (2, 1), (3, 1), (18, 0),
    ]  # fmt: skip
    (check,) = rows("timercheck", golden_shared)
    assert (check["read_timestamp"], check["log_flushed"], check["queue_offset"]) == (1794794235000, 2964, 57)
    assert check["status"] == "ok"


def test_checkpoint_of_the_golden_store_is_read(golden_shared: Path):
    """Goal: the page Apache writes. Method: layout.json; no block of pymq's in it."""
    (row,) = rows("checkpoint", golden_shared)
    longs = golden_layout.layout()["checkpointLongs"]
    assert [row["physic_msg_timestamp"], row["logics_msg_timestamp"], row["index_msg_timestamp"]] == longs[:3]
    assert [row["master_flushed_offset"], row["confirm_phy_offset"], row["logics_physical_offset"]] == longs[3:6]
    assert (row["log_begin"], row["log_end"], row["abort"], row["status"]) == (0, 131_072, False, "ok")
    assert [row[name] for name in row if name.startswith("pymq_")] == [None] * 6
    assert row["dump"] is None


def test_dump_says_its_position_and_kind(golden: Path):
    """Goal: a dump's end is its stated one. Method: a manifest, and an abort file beside it."""
    (golden / "abort").write_text("1")
    write_manifest(golden, log_end=70_354, kind="running")
    (row,) = rows("checkpoint", golden)
    assert (row["log_end"], row["dump"], row["abort"]) == (70_354, "running", True)


def pymq_page(version: int = 2) -> bytearray:
    """A checkpoint page as pymq leaves it."""
    longs = struct.pack(">6q", 1, 2, 3, 4, 5, 6)
    page = bytearray(longs.ljust(4096, b"\0"))
    block = struct.pack(">i6q", version, 11, 12, 13, 14, 15, 16) + longs
    page[2048:2160] = b"PYMQCKP1" + struct.pack(">I", zlib.crc32(block)) + block
    return page


def test_pymqs_block_counts_only_while_it_wrote_last():
    """Goal: stale positions are not believed. Method: the block whole, damaged, of another version, and overwritten."""
    page = pymq_page()
    assert read_checkpoint(bytes(page)) == ((1, 2, 3, 4, 5, 6), (11, 12, 13, 14, 15, 16), "ok")
    assert read_checkpoint(bytes(pymq_page(version=3)))[1:] == ((None,) * 6, "ok")
    apache_wrote = bytearray(page)
    apache_wrote[7] = 99
    assert read_checkpoint(bytes(apache_wrote)) == ((99, 2, 3, 4, 5, 6), (None,) * 6, "ok")
    damaged = bytearray(page)
    damaged[2070] ^= 1
    assert read_checkpoint(bytes(damaged)) == ((1, 2, 3, 4, 5, 6), (None,) * 6, "bad_crc")


@pytest.mark.parametrize(
    ("data", "status"),
    [(None, "missing"), (b"", "bad_size"), (bytes(47), "bad_size"), (bytes(48), "bad_size"), (bytes(4097), "bad_size")],
)
def test_checkpoint_that_is_none_has_a_status(data: bytes | None, status: str):
    """Goal: damage is a row. Method: no file, and lengths around what is needed."""
    longs, own, found = read_checkpoint(data)
    assert found == status
    assert own == (None,) * 6
    assert longs == ((0,) * 6 if data is not None and len(data) >= 48 else (None,) * 6)


def test_timer_check_point_of_pymq_and_damaged_ones(golden: Path):
    """Goal: both writers' pages, and damage as rows. Method: pymq's page, half a page, a short file, none."""
    path = golden / "config" / "timercheck"
    path.write_bytes(TimerCheckpoint(read_ms=7000, log_flushed=52, queue_offset=3).encode())
    found = [rows("timercheck", golden)]
    for data in (path.read_bytes()[:2048], b"short"):
        path.write_bytes(data)
        found.append(rows("timercheck", golden))
    path.unlink()
    found.append(rows("timercheck", golden))
    assert [(row["read_timestamp"], row["log_flushed"], row["queue_offset"], row["status"]) for (row,) in found] == [
        (7000, 52, 3, "ok"), (7000, 52, 3, "bad_size"), (None, None, None, "bad_size"), (None, None, None, "missing"),
    ]  # fmt: skip


def test_damaged_json_is_read_from_the_copy_beside_it(golden: Path):
    """Goal: what the broker would know is known. Method: cut the file; the .bak is the version before."""
    expected = rows("topics", golden)
    path = golden / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:500])
    assert rows("topics", golden) == expected
    config = {row["path"]: row["status"] for row in rows("config", golden)}
    assert config["config/topics.json"] == "bad_json"
    assert config["config/topics.json.bak"] == "ok"
    assert len(config) == 2 * len(JSON_FILES)


@pytest.mark.parametrize("table", ["offsets", "offset_resets", "topics", "groups", "delay_offsets"])
def test_nothing_readable_is_an_error_and_not_an_empty_table(golden: Path, table: str):
    """Goal: no rows must mean that there are none. Method: both copies damaged; both gone."""
    for name in JSON_FILES:
        (golden / "config" / name).write_text('{"half')
        (golden / "config" / f"{name}.bak").write_text("[1]")
    with pytest.raises(UnreadableFileError, match="not JSON") as caught:
        check_readable(table, open_stores([golden]))
    assert "\n" not in str(caught.value)
    for path in (golden / "config").iterdir():
        path.unlink()
    check_readable(table, open_stores([golden]))
    assert rows(table, golden) == []


def test_values_that_are_none_of_a_brokers_become_null(golden: Path):
    """Goal: a strange value is no crash. Method: texts for numbers, numbers too large, lists for objects."""
    table = {"T@G": {"0": 5, "x": 6, "1": "7", "2": 2**70, "3": None}, "lost": {"0": 1}, "A@B@C": [1]}
    (golden / "config" / "consumerOffset.json").write_text(
        json.dumps({"offsetTable": table, "pymqResetTable": {"T@G": {"0": 4}}})
    )
    found = [
        (row["topic"], row["consumer_group"], row["queue_id"], row["queue_offset"]) for row in rows("offsets", golden)
    ]
    assert found == [
        ("T", "G", 0, 5),
        ("T", "G", None, 6),
        ("T", "G", 1, 7),
        ("T", "G", 2, None),
        ("T", "G", 3, None),
        ("lost", None, 0, 1),
    ]
    assert [row["queue_offset"] for row in rows("offset_resets", golden)] == [4]
    (golden / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": [], "\ud800": {"perm": "6"}}}))
    assert [(row["topic"], row["perm"]) for row in rows("topics", golden)] == [("T", None), ("?", 6)]


def test_removed_topics_are_read_as_the_store_writes_them(golden: Path):
    """Goal: pymq's own list. Method: names with spaces and line breaks in them, as lengths allow."""
    (golden / "removedTopics").write_bytes(b"pymq removed topics 1\n123456 7 orders1\n9 3 a b\n0 3 \xc3\xa4x\n")
    assert [(row["topic"], row["physical_offset"]) for row in rows("removed_topics", golden)] == [
        ("orders1", 123456), ("a b", 9), ("äx", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "data", [b"", b"removed\n", b"pymq removed topics 1\n12 7 orders1", b"pymq removed topics 1\nx 7 orders1\n"]
)
def test_damaged_list_of_removed_topics_is_an_error(golden: Path, data: bytes):
    """Goal: nobody can tell then which topics are gone. Method: no head, no end, no number."""
    (golden / "removedTopics").write_bytes(data)
    with pytest.raises(UnreadableFileError, match="removedTopics"):
        check_readable("removed_topics", open_stores([golden]))


def test_manifest_gives_a_row_for_each_leaf(golden: Path):
    """Goal: what the dump said of its files. Method: the timer wheel has 37 leaves, the last one shorter."""
    assert rows("manifest", golden) == []
    write_manifest(golden, log_end=70_354)
    leaves = [row for row in rows("manifest", golden) if row["path"] == "timerwheel"]
    assert [row["position"] for row in leaves] == [number << 20 for number in range(37)]
    assert {row["leaf_size"] for row in leaves[:-1]} == {1 << 20}
    assert leaves[-1]["leaf_size"] == leaves[-1]["size"] - (36 << 20)
    (log,) = [row for row in rows("manifest", golden) if row["path"] == "commitlog/00000000000000065536"]
    assert (log["size"], log["leaf_size"]) == (70_354 - 65_536, 70_354 - 65_536)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0" * 16, 0),
        ("7" + "f" * 15, 2**63 - 1),
        ("8" + "0" * 15, -(2**63)),
        ("f" * 16, -1),
        ("g", None),
        (None, None),
        ("1" * 17, None),
    ],
)
def test_digest_is_a_signed_long(text: str | None, value: int | None):
    """Goal: it fits a column. Method: the edges, and what is no digest."""
    assert digest(text) == value


def test_every_small_table_of_an_empty_store_can_be_read(tmp_path: Path):
    """Goal: nothing is needed. Method: a directory with an empty log, every reader."""
    (tmp_path / "commitlog").mkdir()
    counts = {table: len(rows(table, tmp_path)) for table in READERS}
    assert {table: count for table, count in counts.items() if count} == {"config": 8, "checkpoint": 1, "timercheck": 1}
