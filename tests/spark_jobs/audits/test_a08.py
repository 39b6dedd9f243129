"""A8 and A12, the checkpoint and how a store was left: rules over pages, without Spark, and golden with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a08_checkpoint as a08
from spark_jobs.audits import a12_stop as a12
from spark_jobs.audits.facts import Facts
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.hand_made import Story, found, pymq_page

END, LAST_MS = 10_000, 5_000


def left(**page: Any) -> Facts:
    """A store of 10,000 bytes, stopped cleanly; some things may be said of it otherwise."""
    about = {name: page.pop(name) for name in ("abort", "dump", "records", "padded_end", "written_end") if name in page}
    whole = {
        "status": "ok", "physic_msg_timestamp": 0, "logics_msg_timestamp": 0, "index_msg_timestamp": 0,
        "master_flushed_offset": 0, "confirm_phy_offset": 0, "logics_physical_offset": 0, "pymq_safe_offset": None,
        "pymq_flushed_offset": None, "pymq_clean_end": None, "pymq_last_record": None, "pymq_unit_total": None,
        "pymq_index_end": None,
    } | page  # fmt: skip
    known: dict[str, Any] = {
        "store": "one", "log_begin": 0, "log_end": END, "padded_end": END, "written_end": END, "stated_end": None,
        "front": END, "records": 7, "bytes": END, "last_store_timestamp": LAST_MS, "abort": False, "dump": None,
    } | about  # fmt: skip
    return Facts(is_pymq=whole["pymq_safe_offset"] is not None, page=whole, **known)


def own(**page: Any) -> Facts:
    """The same, stopped by pymq."""
    return left(**(pymq_page(END) | page))


def fields(one: Facts) -> list[int]:
    """The bytes of the page that A8 complains about."""
    return [row["offset"] for row in (*a08.page_trouble(one), *a08.page_beyond(one))]


@pytest.mark.parametrize(
    ("one", "wrong"),
    [
        (left(), []),
        (own(), []),
        (left(physic_msg_timestamp=LAST_MS, logics_physical_offset=END), []),
        (left(physic_msg_timestamp=LAST_MS + 1), [0]),
        (left(logics_msg_timestamp=LAST_MS + 1), [8]),
        (left(logics_msg_timestamp=LAST_MS + 1, abort=True), []),  # Apache flushed queues ahead of the log
        (left(index_msg_timestamp=LAST_MS + 1), [16]),
        (left(physic_msg_timestamp=-1), [0]),
        (left(master_flushed_offset=1 << 50, confirm_phy_offset=1 << 50), []),  # the master's, of a slave
        (own(confirm_phy_offset=END + 1), [32]),
        (left(logics_physical_offset=END + 1), [40]),
        (left(logics_physical_offset=END + 1, abort=True), []),
        (left(logics_physical_offset=END + 40, padded_end=END + 40), []),  # behind a blank tail
        (own(pymq_safe_offset=END + 1), [2064]),
        (own(pymq_flushed_offset=END + 1), [2072]),
        (own(pymq_last_record=END), [2088]),
        (own(pymq_index_end=END), [2104]),
        (own(pymq_index_end=-2, pymq_last_record=-1), []),
        (left(status="missing"), [0]),
        (left(status="missing", abort=True), []),
        (left(status="missing", records=0), []),
        (left(status="bad_crc"), [2048]),
    ],
)
def test_a_page_says_no_more_than_there_is(one: Facts, wrong: list[int]):
    """Goal: every field has its bound, and no more than that. Method: pages with one field too far, and legal ones."""
    assert fields(one) == wrong


def stated(one: Facts, tails: a12.Tails) -> list[int | None]:
    """Where A12 complains."""
    return [row["offset"] for row in (*a12.log_trouble(one), *a12.tail_trouble(one, tails))]


@pytest.mark.parametrize(
    ("one", "tails", "wrong"),
    [
        (own(), a12.Tails(), []),
        (own(pymq_clean_end=END + 1), a12.Tails(), [END]),
        (own(pymq_clean_end=END - 1), a12.Tails(), [END]),
        (own(pymq_clean_end=END + 40, padded_end=END + 40), a12.Tails(), []),
        (own(pymq_clean_end=-1), a12.Tails(7, 9), []),  # dispatch had not caught up: the next open will
        (own(written_end=END + 5), a12.Tails(), [END]),
        (own(abort=True, pymq_clean_end=END + 1), a12.Tails(), [END]),
        (own(abort=True, pymq_clean_end=END - 1, pymq_unit_total=9), a12.Tails(), []),
        (own(pymq_unit_total=9), a12.Tails(9), []),
        (own(pymq_unit_total=9), a12.Tails(8), [None]),
        (own(pymq_index_end=400), a12.Tails(0, 400), []),
        (own(pymq_index_end=400), a12.Tails(0, 300), [300]),
        (own(pymq_index_end=-1), a12.Tails(0, 300), [300]),
        (own(pymq_index_end=-2), a12.Tails(0, 300), []),  # the index is switched off
        (own(dump="running", abort=True, pymq_clean_end=-1, pymq_unit_total=9), a12.Tails(), []),
    ],
)
def test_a_store_is_left_as_its_page_says(one: Facts, tails: a12.Tails, wrong: list[int | None]):
    """Goal: clean stops are held to their word, others to what they must still have. Method: pages and tails."""
    assert stated(one, tails) == wrong


@pytest.mark.spark
def test_queues_end_where_their_units_do(spark: SparkSession):
    """Goal: the sum of queue ends is the core's, and a short file is found. Method: queues with units, with fillers
    only, empty ones that begin late, and a file shorter than the others."""
    story = Story()
    page = pymq_page(200, pymq_unit_total=2 + 3 + 20)
    one = story.store("fine", **page).both(0, "T", 0, 0).both(100, "T", 0, 1).queue("T", 0, 0, 1)
    one.scan("queue", topic="T", queue_id=1, file=f"consumequeue/T/1/{0:020d}", bytes=400, count=0)
    one.scan("units", topic="T", queue_id=1, status="filler", queue_offset_min=0, queue_offset_max=2, count=3)
    one.scan("queue", topic="T", queue_id=2, file=f"consumequeue/T/2/{400:020d}", bytes=400, count=0)
    short = story.store("short").both(0, "T", 0, 0).queue("T", 0, 0, 0, size=20).queue("T", 1, 0, 5)
    short.scan("queue", topic="T", queue_id=2, file=f"consumequeue/T/2/{0:020d}", bytes=0, count=0)
    story.store("killed", abort=True).both(0, "T", 0, 0).queue("T", 0, 0, 0, size=20).queue("T", 1, 0, 5)
    assert found(a12.check(story.tables(spark))) == [("short", "T", 0, 0)]


@pytest.mark.spark
def test_a_page_names_a_record_that_is_there(spark: SparkSession):
    """Goal: the last record of pymq's page begins where it says, unless it is damaged. Method: three stores."""
    story = Story()
    story.store("fine", **pymq_page(200, pymq_last_record=100)).both(0, "T", 0, 0).both(100, "T", 0, 1)
    story.store("beside", **pymq_page(200, pymq_last_record=101)).both(0, "T", 0, 0).both(100, "T", 0, 1)
    hurt = story.store("hurt", **pymq_page(300, pymq_last_record=100)).both(0, "T", 0, 0).both(200, "T", 0, 1)
    hurt.scan("damage", status="bad_magic", physical_offset_min=100, physical_offset_end=200)
    assert found(a08.check(story.tables(spark))) == [("beside", None, None, 2088)]


@pytest.mark.spark
def test_what_apache_left_is_as_it_says(spark: SparkSession, golden_shared: Path):
    """Goal: no false alarm over another broker's page. Method: the golden store."""
    tables = Tables(spark, [str(golden_shared)])
    assert found(a08.check(tables)) == []
    assert found(a12.check(tables)) == []
