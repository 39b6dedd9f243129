"""A1, the records: which damage is one of theirs, and what is excused."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a01_record_integrity as a01
from tests.spark_jobs.audits.hand_made import Story, Told, found, pymq_page

pytestmark = pytest.mark.spark


def damaged(store: Told, status: str, begin: int, end: int, detail: str = "why", **more: object) -> Told:
    """A damage of the scan."""
    place = {"physical_offset_min": begin, "physical_offset_end": end, "file": "commitlog/0"}
    store.ends.append(end)
    return store.scan("damage", status=status, detail=detail, **place, **more)


def test_damaged_records_are_found_where_they_begin(spark: SparkSession):
    """Goal: every kind of damage to a record, once. Method: a store with one of each, and one with what other audits
    find: zeros at the end of a file, text, a record that says it stands elsewhere."""
    story = Story()
    hurt = story.store("hurt").record(0, "T", 1, 5).record(10_000, "T", 1, 6)
    for number, status in enumerate(("bad_crc", "bad_record_crc", "bad_magic", "bad_size", "bad_structure"), 1):
        damaged(hurt, status, number * 1000, number * 1000 + 100, topic="T", queue_id=1)
    others = story.store("others").record(0, "T", 1, 5).record(10_000, "T", 1, 6)
    damaged(others, "bad_magic", 1000, 2000, "zeros up to 2000, although the log goes on behind them")
    for number, status in enumerate(("bad_offset", "bad_blank", "truncated", "bad_text", "bad_compression"), 3):
        damaged(others, status, number * 1000, number * 1000 + 100)
    assert found(a01.check(story.tables(spark))) == [("hurt", "T", 1, number * 1000) for number in range(1, 6)]


def test_what_recovery_cuts_off_is_no_finding(spark: SparkSession):
    """Goal: a torn tail is legal where it may be torn. Method: damage behind what was durable in a killed store, before
    it, behind the end of a store that Apache recovered, and behind the end of one that pymq stopped."""
    story = Story()
    killed = story.store("killed", abort=True, logics_physical_offset=500).both(0, "T", 0, 0)
    damaged(killed, "bad_crc", 300, 400, topic="T", queue_id=0)
    damaged(killed, "bad_magic", 500, 600)
    apache = story.store("apache").both(0, "T", 0, 0)
    damaged(apache, "bad_structure", 100, 250)
    stopped = story.store("stopped", **pymq_page(100)).both(0, "T", 0, 0)
    damaged(stopped, "bad_structure", 100, 250)
    assert found(a01.check(story.tables(spark))) == [("killed", "T", 0, 300), ("stopped", None, None, 100)]
