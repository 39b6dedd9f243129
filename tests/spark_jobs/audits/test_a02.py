"""A2, the walk: damage of places, records of other places in runs, ranges that do not meet."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a02_log_walk as a02
from tests.spark_jobs.audits.hand_made import Story, found
from tests.spark_jobs.audits.test_a01 import damaged

pytestmark = pytest.mark.spark


def test_each_break_of_the_walk_is_one_finding(spark: SparkSession):
    """Goal: a file under a wrong name is one finding, and every kind of break is found. Method: runs of records that
    are off by the same, blank tails and zeros that do not fit, a walk that stops short of the next range."""
    story = Story()
    story.store("fine").record(0, "T", 0, 0)
    moved = story.store("moved").record(10_000, "T", 0, 9)
    for offset in (0, 100, 200):
        damaged(moved, "bad_offset", offset, offset + 100, f"says it stands at {offset + 65536}, stands at {offset}")
    damaged(moved, "bad_offset", 300, 400, "says it stands at -1, stands at 300")
    blank = story.store("blank").record(10_000, "T", 0, 9)
    damaged(blank, "bad_blank", 700, 1000)
    damaged(blank, "truncated", 2000, 3000)
    damaged(blank, "bad_magic", 4000, 5000, "zeros up to 5000, although the log goes on behind them")
    damaged(blank, "bad_magic", 6000, 7000, "magic 12345678, expected daa320a7 or daa320ab")
    gap = story.store("gap")
    for begin, end in ((0, 400), (500, 900)):
        place = {"physical_offset_min": begin, "physical_offset_end": end}
        gap.scan("range", file="commitlog/1", status="done", bytes=end - begin, **place)
    assert found(a02.check(story.tables(spark))) == [
        ("blank", None, None, 700),
        ("blank", None, None, 2000),
        ("blank", None, None, 4000),
        ("gap", None, None, 400),
        ("moved", None, None, 0),
        ("moved", None, None, 300),
    ]
