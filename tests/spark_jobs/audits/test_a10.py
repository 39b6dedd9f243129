"""A10 and A11, topics and contents: what does not fit, what cannot be read, and what only looks so."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import a10_topics as a10
from spark_jobs.audits import a11_contents as a11
from tests.spark_jobs.audits.hand_made import Story, Told, found
from tests.spark_jobs.audits.test_a01 import damaged

pytestmark = pytest.mark.spark


def topic(store: Told, name: str = "T", queues: int = 2, perm: int = 6, **more: int) -> Told:
    """A configured topic."""
    row = {"read_queue_nums": queues, "write_queue_nums": queues, "perm": perm} | more
    return store.put("topics", topic=name, **row)


def read(store: Told, queue: int, offset: int, group: str = "G") -> Told:
    """An offset of a group."""
    return store.put("offsets", topic="T", consumer_group=group, queue_id=queue, queue_offset=offset)


def test_topics_that_do_not_fit_are_found(spark: SparkSession):
    """Goal: each misfit once, and nothing RocketMQ or an operator does on purpose. Method: a store for each."""
    story = Story()
    topic(story.store("fine").both(0, "T", 0, 0).both(100, "%RETRY%G", 0, 0).both(200, "rmq_sys_x", 4, 0))
    topic(story.store("unknown").both(0, "T", 0, 0).both(100, "New", 0, 0).both(200, "New", 1, 0))
    story.store("embedded").both(0, "T", 0, 0)
    topic(story.store("removed").both(0, "T", 0, 0).both(100, "Old", 0, 0)).put(
        "removed_topics", topic="Old", physical_offset=300
    )
    topic(story.store("expired", log_begin=1000).unit("Old", 0, 0, 100).both(1000, "T", 0, 0))
    topic(story.store("queues"), queues=-1)
    topic(story.store("bits"), perm=22)
    for name, perm in (("closed", 2), ("open", 4)):
        topic(topic(story.store(f"{name} dead letters"), "%DLQ%G", 1, perm), "%RETRY%G", 1, 6)
    topic(story.store("closed retries"), "%RETRY%G", 1, 4)
    topic(story.store("closed by its owner"), perm=0)
    read(topic(story.store("shrunk and read").both(0, "T", 2, 0)), 2, 1)
    read(topic(story.store("shrunk and unread").both(0, "T", 2, 0)), 2, 0)
    topic(story.store("shrunk, nobody reads").both(0, "T", 2, 0))
    story.store("damaged").put("config", path="config/topics.json", size=7, status="bad_json", detail="ends early")
    assert found(a10.check(story.tables(spark))) == [
        ("bits", "T", None, None),
        ("closed dead letters", "%DLQ%G", None, None),
        ("closed retries", "%RETRY%G", None, None),
        ("damaged", None, None, None),
        ("queues", "T", None, None),
        ("shrunk and unread", "T", 2, 0),
        ("shrunk, nobody reads", "T", 2, 0),
        ("unknown", "New", None, None),
    ]


def test_contents_that_cannot_be_read_are_one_finding_a_record(spark: SparkSession):
    """Goal: a record with two troubles is one finding; what was not looked into is none. Method: rows of the scan."""
    story = Story()
    hurt = story.store("hurt").record(10_000, "T", 0, 9)
    place = {"topic": "T", "queue_id": 0, "queue_offset_min": 3}
    damaged(hurt, "bad_text", 100, 200, **place)
    damaged(hurt, "bad_properties", 100, 200, **place)
    damaged(hurt, "bad_compression", 300, 400, **place)
    damaged(hurt, "bad_compression", 500, 600, "not checked: the package lz4 is not installed", **place)
    damaged(hurt, "bad_crc", 700, 800, **place)
    killed = story.store("killed", abort=True, logics_physical_offset=200).record(0, "T", 0, 0)
    damaged(killed, "bad_text", 300, 400, **place)
    tables = story.tables(spark)
    assert found(a11.check(tables)) == [("hurt", "T", 0, 100), ("hurt", "T", 0, 300)]
    assert [(row.name, row.value) for row in a11.metrics(tables).collect()] == [("not_checked", 1)]
