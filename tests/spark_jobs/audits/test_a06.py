"""A6, the order of a queue: which units are named, and that seams between files count."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a06_queue_order as a06
from tests.spark_jobs.audits.hand_made import Story, found


@pytest.mark.parametrize(
    ("offsets", "wrong"),
    [
        ([], []),
        ([1, 2, 3, 4], []),
        ([1, 9, 3, 4], [1]),  # too far ahead: not the fault of those behind it
        ([9, 2, 3, 4], [0]),
        ([1, 2, 0, 4], [2]),
        ([1, 2, 3, 0], [3]),
        ([1, 3, 2, 4], [1]),
        ([1, 2, 2, 4], [2]),  # of two equal ones the later
        ([1, 9, 3, 0, 5], [1, 3]),
    ],
)
def test_the_fewest_units_out_of_order_are_named(offsets: list[int], wrong: list[int]):
    """Goal: one finding for one fault. Method: rows of numbers with what has to go to leave them increasing."""
    assert a06.out_of_order(offsets) == wrong


@pytest.mark.spark
def test_units_out_of_order_are_found_also_where_files_meet(spark: SparkSession):
    """Goal: no place is left out, nothing legal is named. Method: a queue in order, one with a descent inside, one with
    a descent that only its buckets' sums show, one that recovery still has to cut."""
    story = Story()
    story.store("fine").both(0, "T", 0, 0).both(100, "T", 0, 1)
    inside = story.store("inside").both(0, "T", 0, 0).unit("T", 0, 1, 900).both(100, "T", 0, 2).both(200, "T", 0, 3)
    inside.scan("unit_fault", topic="T", queue_id=0, queue_offset_min=1, physical_offset_min=900, status="descent")
    seam = story.store("seam")
    for number in range(4):
        seam.both(100 + number * 100, "T", 1, 4094 + number)
    seam.rows["consumequeue"][-2]["physical_offset"] = 50
    seam.rows["scan"][-3]["physical_offset_min"] = 50
    torn = story.store("torn", abort=True, logics_physical_offset=200)
    torn.both(0, "T", 0, 0).unit("T", 0, 1, 900).unit("T", 0, 2, 300)
    torn.scan("unit_fault", topic="T", queue_id=0, queue_offset_min=1, physical_offset_min=900, status="descent")
    assert found(a06.check(story.tables(spark))) == [("inside", "T", 0, 1), ("seam", "T", 1, 4096)]
