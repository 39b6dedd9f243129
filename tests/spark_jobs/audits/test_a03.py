"""A3 and A4, records and units: what is missing on either side, and everything that may be."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a03_record_has_unit as a03
from spark_jobs.audits import a04_unit_has_record as a04
from spark_jobs.audits.books import spans_of
from spark_jobs.tables import ByteRange
from tests.spark_jobs.audits.hand_made import Story, found, pymq_page

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def faulty(story: Story) -> None:
    """One store for each fault."""
    story.store("none").both(0, "T", 0, 0).record(100, "T", 0, 1).record(200, "T", 0, 2).both(300, "T", 1, 0)
    story.store("elsewhere").both(0, "T", 0, 0).record(100, "T", 0, 1).unit("T", 0, 1, 101)
    story.store("tags").both(0, "T", 0, 0).record(100, "T", 0, 1, tags=7).unit("T", 0, 1, 100, tags=8)
    story.store("size").both(0, "T", 0, 0).record(100, "T", 0, 1).unit("T", 0, 1, 100, size=99)
    story.store("too many").both(0, "T", 0, 0).unit("T", 0, 1, 0)
    hole = story.store("hole").record(0, "T", 0, 0).both(100, "T", 0, 1)
    hole.scan("unit_fault", topic="T", queue_id=0, queue_offset_min=0, status="hole")
    lost = story.store("lost").record(0, "T", 0, 0)
    lost.put("topics", topic="T", read_queue_nums=1, write_queue_nums=1, perm=6)
    late = story.store("late", abort=True, **pymq_page(200, pymq_clean_end=-1)).both(0, "T", 0, 0)
    late.record(100, "T", 0, 1).record(200, "T", 0, 2)
    low = story.store("low", log_begin=1000).unit("T", 0, 0, 0).both(1000, "T", 0, 1).unit("T", 0, 2, 500)
    low.record(1100, "T", 0, 3).unit("T", 0, 3, 1100)


def legal(story: Story) -> None:
    """One store for each thing that looks like a fault and is none."""
    story.store("expired", log_begin=1000).unit("T", 0, 0, 0).unit("T", 0, 1, 900).both(1000, "T", 0, 2)
    story.store("removed").record(0, "Gone", 0, 0).both(100, "T", 0, 0)
    story.store("listed", **pymq_page(400)).record(0, "T", 0, 0).record(100, "T", 0, 1).both(300, "T", 0, 0).put(
        "removed_topics", topic="T", physical_offset=200
    )
    again = story.store("again").record(0, "T", 0, 0).record(100, "T", 0, 1).record(200, "T", 0, 2)
    again.both(300, "T", 0, 0).both(400, "T", 0, 1)
    half = story.store("half").both(0, "T", 0, 0)
    half.record(100, "T", 0, 0, sys_flag=4).record(200, "T", 0, 0, sys_flag=12).both(300, "T", 0, 1)
    story.store("behind", abort=True, logics_physical_offset=100).both(0, "T", 0, 0).record(100, "T", 0, 1).unit(
        "T", 0, 2, 5000
    )
    hurt = story.store("hurt").both(0, "T", 0, 0).unit("T", 0, 1, 100).both(200, "T", 0, 2)
    hurt.scan("damage", status="bad_magic", physical_offset_min=100, physical_offset_end=200, detail="magic")
    slow = story.store("clock").both(0, "T", 0, 0).record(100, SCHEDULE, 2, 0, tags=9000)
    slow.unit(SCHEDULE, 2, 0, 100, tags=8000)
    levels = story.store("levels").record(100, SCHEDULE, 2, 0, tags=9000).record(200, SCHEDULE, 2, 1, tags=9500)
    levels.unit(SCHEDULE, 2, 0, 100, tags=9700).unit(SCHEDULE, 2, 1, 200, tags=10200)
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "4,7"}
    light = story.store("light").record(0, "T", 0, 0, properties=names).unit("T", 0, 0, 0)
    light.unit("%LMQ%b", 0, 7, 0)


@pytest.mark.spark
def test_records_and_units_are_held_against_each_other(spark: SparkSession):
    """Goal: each fault once on its side, nothing for what is legal. Method: a story of stores with one of each."""
    story = Story()
    faulty(story)
    legal(story)
    for one in story.told:
        directories = {
            (row["topic"], row["queue_id"]) for row in story.rows["consumequeue"] if row["store"] == one.name
        }
        for topic, queue in sorted(directories):
            one.queue(topic, queue, 0, 0)
    tables = story.tables(spark)
    assert found(a03.check(tables)) == [
        ("elsewhere", "T", 0, 1),
        ("hole", "T", 0, 0),
        ("late", "T", 0, 1),
        ("lost", "T", 0, 0),
        ("none", "T", 0, 1),
    ]
    assert found(a04.check(tables)) == [
        ("elsewhere", "T", 0, 1),
        ("low", "T", 0, 2),
        ("size", "T", 0, 1),
        ("tags", "T", 0, 1),
        ("too many", "T", 0, 1),
    ]
    lost = a03.check(tables).where("store = 'lost'").collect()[0]
    assert lost.severity == "warning"
    run = a03.check(tables).where("store = 'none'").collect()[0]
    assert run.actual == "no unit, and so up to 2"


@pytest.mark.spark
def test_books_that_agree_are_not_opened(spark: SparkSession):
    """Goal: rows are read only where sums differ. Method: a story whose rows cannot be read."""
    story = Story()
    story.store("fine").both(0, "T", 0, 0).both(100, "T", 0, 1).queue("T", 0, 0, 1)
    tables = story.tables(spark)
    del tables.rows["consumequeue"], tables.rows["commitlog"]
    tables.rows = dict(tables.rows) | {"topics": [], "removed_topics": []}
    assert found(a03.check(tables)) == []
    assert found(a04.check(tables)) == []


def test_ranges_are_merged_and_bounded():
    """Goal: a query with few ranges. Method: overlapping ones of two stores, and more than are asked for singly."""
    rows = [("b", 5, 9), ("a", 10, 20), ("a", 0, 12), ("a", 30, 40)]
    assert spans_of(rows) == [ByteRange("a", 0, 20), ByteRange("a", 30, 40), ByteRange("b", 5, 9)]
    many = [("a", 10 * number, 10 * number + 1) for number in range(5000)]
    assert spans_of(many) == [ByteRange("a", 0, 49_991)]
