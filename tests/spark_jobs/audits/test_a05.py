"""A5, the density of queues: holes, fillers and files, and those that are legal."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a05_queue_density as a05
from tests.spark_jobs.audits.hand_made import Story, Told, found

pytestmark = pytest.mark.spark


def hole(store: Told, offset: int) -> Told:
    """A unit that is zeros."""
    return store.scan("unit_fault", topic="T", queue_id=0, queue_offset_min=offset, status="hole", file="f")


def filler(store: Told, offset: int) -> Told:
    """A unit that stands for no message."""
    place = {"topic": "T", "queue_id": 0}
    store.put("consumequeue", queue_offset=offset, physical_offset=0, size=2**31 - 1, status="filler", **place)
    return store.scan(
        "units", queue_offset_min=offset, queue_offset_max=offset, bucket=0, status="filler", digest=0, **place
    )


def test_gaps_are_found_once_and_legal_ones_not_at_all(spark: SparkSession):
    """Goal: one finding for each run of offsets without a unit. Method: a story of stores with one gap each."""
    story = Story()
    two = story.store("hole").both(0, "T", 0, 0).both(100, "T", 0, 4).queue("T", 0, 0, 4)
    for offset in (1, 2, 3):
        hole(two, offset)
    made_ahead = story.store("made ahead").both(0, "T", 0, 0).queue("T", 0, 0, 0)
    hole(made_ahead, 1)
    hole(made_ahead, 2)
    torn = story.store("torn", abort=True, logics_physical_offset=50).both(0, "T", 0, 0).unit("T", 0, 2, 100)
    hole(torn.queue("T", 0, 0, 2), 1)
    kept = story.store("kept", abort=True, logics_physical_offset=500).both(0, "T", 0, 0).both(100, "T", 0, 2)
    hole(kept.queue("T", 0, 0, 2).record(600, "T", 0, 3), 1)
    head = story.store("head").both(0, "T", 0, 2).queue("T", 0, 2, 2)
    filler(filler(head, 0), 1)
    inner = story.store("inner").both(0, "T", 0, 0).both(100, "T", 0, 2).queue("T", 0, 0, 2)
    filler(inner, 1)
    files = story.store("file").queue("T", 0, 0, 19).queue("T", 0, 40, 59, base=800)
    files.queue("U", 0, 0, 19).queue("U", 0, 20, 39, base=400)
    story.store("short").queue("T", 0, 0, 9, size=200).queue("T", 0, 20, 39, base=400)
    seam = story.store("seam").both(0, "T", 0, 18).both(100, "T", 0, 21).queue("T", 0, 0, 18)
    hole(seam.queue("T", 0, 21, 25, base=400), 20)
    findings = a05.check(story.tables(spark))
    assert found(findings) == [
        ("file", "T", 0, 20),
        ("hole", "T", 0, 1),
        ("inner", "T", 0, 1),
        ("kept", "T", 0, 1),
        ("seam", "T", 0, 19),
        ("short", "T", 0, 10),
    ]
    assert [row.store for row in findings.where("severity = 'warning'").collect()] == ["inner"]
