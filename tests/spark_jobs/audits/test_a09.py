"""A9, consumer offsets."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a09_offsets as a09
from tests.spark_jobs.audits.hand_made import Story, Told, found


def queue(story: Story, name: str, offset: int | None, group: str = "G", **page: object) -> Told:
    """A store with a queue of five messages, and an offset committed in it."""
    store = story.store(name, **page)
    for number in range(5):
        store.both(number * 100, "T", 0, number)
    if offset is not None:
        store.put("offsets", topic="T", consumer_group=group, queue_id=0, queue_offset=offset)
    return store.queue("T", 0, 0, 4)


@pytest.mark.spark
def test_offsets_outside_their_queue_are_found(spark: SparkSession):
    """Goal: an offset that skips messages is an error, one of a queue that is gone is not. Method: a store for each."""
    story = Story()
    for name, offset in (("fine", 5), ("begin", 0), ("beyond", 6), ("negative", -1)):
        queue(story, name, offset)
    queue(story, "gone", None).put("offsets", topic="Old", consumer_group="G", queue_id=0, queue_offset=99)
    queue(story, "killed", 9, abort=True)
    lagging = queue(story, "lagging", 6)
    lagging.record(500, "T", 0, 5)
    damaged = queue(story, "damaged", 5)
    damaged.put("config", path="config/consumerOffset.json", size=7, status="bad_json", detail="it ends early")
    damaged.put("config", path="config/topics.json", size=7, status="bad_json", detail="it ends early")
    assert found(a09.check(story.tables(spark))) == [
        ("beyond", "T", 0, 6),
        ("damaged", None, None, None),
        ("negative", "T", 0, -1),
    ]


@pytest.mark.spark
def test_numbers_at_the_end_of_what_there_is_are_findings_and_end_no_check(spark: SparkSession):
    """Symptom: one offset of -2^63, or one record damaged to offset 2^63-1, and A9 could not run for any store."""
    story = Story()
    queue(story, "lowest", -(2**63))
    queue(story, "highest", 5).record(500, "T", 0, 2**63 - 1)
    queue(story, "negative", -1)
    tables = story.tables(spark)
    assert found(a09.check(tables)) == [("lowest", "T", 0, -(2**63)), ("negative", "T", 0, -1)]
    lag = {row.store: row.value for row in a09.metrics(tables).where("name = 'lag'").collect()}
    assert lag["lowest"] == 2**63 - 1
    assert lag["negative"] == 6


@pytest.mark.spark
def test_offsets_that_went_back_are_found_unless_a_reset_says_why(spark: SparkSession):
    """Goal: going back is noticed between dumps of one broker only. Method: the same pairs, as earlier dumps and as
    replicas: one that went back, with a reset, with another group's, of a queue that began anew."""
    now, before = Story(), Story()
    for name in ("back", "reset", "another", "forward"):
        queue(before, name, 4)
        queue(now, name, 5 if name == "forward" else 3)
    reset = {"topic": "T", "queue_id": 0, "queue_offset": 3}
    now.told[1].put("offset_resets", consumer_group="G", **reset)
    now.told[2].put("offset_resets", consumer_group="H", **reset)
    queue(before, "anew", None).put("offsets", topic="T", consumer_group="G", queue_id=0, queue_offset=50)
    queue(now, "anew", 2)
    for relation, expected in (
        ("earlier", [("another", "T", 0, 3), ("back", "T", 0, 3)]),
        ("replica", []),
    ):
        tables = Story.tables(now, spark, against=before.tables(spark), relation=relation)
        assert found(a09.check(tables)) == expected
