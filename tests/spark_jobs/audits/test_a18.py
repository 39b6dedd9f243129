"""A18, duplicates: keys that repeat, where the second copy comes from, and the golden store, which has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import a18_duplicates as a18
from spark_jobs.audits import meaning
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.frames import frame, places

pytestmark = pytest.mark.spark

COLUMNS = {
    "store": "string",
    "physical_offset": "long",
    "status": "string",
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "long",
    "sys_flag": "int",
    "uniq_key": "string",
    "properties": "map<string,string>",
}


def pair(topic="T", first=None, last=None, **more):
    """Two records of one key, the second with queue offset 9."""
    one = {"topic": topic, "uniq_key": "k", "properties": {}, "physical_offset": 100}
    return [one | (first or {}) | more, one | {"physical_offset": 900, "queue_offset": 9} | (last or {}) | more]


# Records, and where the one finding stands.
CASES = {
    "one_each": ([*pair(last={"uniq_key": "other"})], None),
    "one_key_in_two_topics": (pair(last={"topic": "U"}), None),
    "no_keys": (pair(uniq_key=None), None),
    "delivered_again": (pair(properties={"REAL_TOPIC": "T", "DELAY": "1"}), None),
    "timed_again": (pair(properties={"REAL_TOPIC": "T", "TIMER_DEQUEUE_MS": "5"}), None),
    "committed_again": (pair(sys_flag=8), None),
    "retried": (pair(topic="%RETRY%g"), None),
    "died_twice": (pair(topic="%DLQ%g"), None),
    "half_messages": (pair(topic=meaning.HALF_TOPIC), None),
    "waiting": (pair(topic=meaning.SCHEDULE_TOPIC), None),
    "popped": (pair(topic="rmq_sys_REVIVE_LOG_c"), None),
    "unread": (pair(last={"status": "bad_structure"}), None),
    "sent_again": (pair(), ("T", 0, 9)),
    "sent_and_delayed": (pair(last={"properties": {"REAL_TOPIC": "T"}}), ("T", 0, 9)),
    "three_times": ([*pair(), *pair(last={"physical_offset": 500, "queue_offset": 5})[1:]], ("T", 0, 9)),
}


def test_each_repeated_key_is_one_finding_unless_something_excuses_it(spark):
    """Goal: duplicates are seen, copies by design are not. Method: all cases at once, each a store."""
    records = frame(spark, COLUMNS, [row | {"store": name} for name, (rows, _) in CASES.items() for row in rows])
    found = a18.sources(a18.repeated(records.select(*a18.COLUMNS)), records)
    expected = sorted((name, *place) for name, (_, place) in CASES.items() if place is not None)
    assert places([a18.doubled(found)]) == expected
    sources = {row.store: row.source for row in found.where(F.col("source") != "producer").collect()}
    assert sources == {"delivered_again": "delay", "timed_again": "timer", "committed_again": "transaction"}


def test_the_golden_store_is_clean(spark, golden_shared: Path):
    """Goal: no false alarm on Apache's store. Method: its messages, batches and copies included."""
    tables = Tables(spark, [str(golden_shared)])
    assert a18.check(tables).collect() == []
    assert a18.AUDIT.metrics(tables).collect() == []
