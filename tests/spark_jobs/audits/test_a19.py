"""A19, order: births along a sharding key, and acknowledged sends along a queue."""

from __future__ import annotations

import pytest

from spark_jobs.audits import a19_order as a19
from spark_jobs.ledger import SCHEMA
from spark_jobs.report.commands import place_of
from spark_jobs.report.model import Finding
from tests.spark_jobs.audits.frames import frame, places

pytestmark = pytest.mark.spark

COLUMNS = {
    "store": "string",
    "status": "string",
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "long",
    "physical_offset": "long",
    "born_timestamp": "long",
    "born_host": "string",
    "sys_flag": "int",
    "reconsume_times": "int",
    "properties": "map<string,string>",
}


def line(*births, key="a", queue=0, host="p", first=0, topic="T", **properties):
    """Messages of one key, born then."""
    return [
        {
            "topic": topic,
            "queue_id": queue,
            "queue_offset": first + at,
            "born_timestamp": born,
            "born_host": host,
            "properties": {"__SHARDINGKEY": key} | properties,
        }
        for at, born in enumerate(births)
    ]


CASES = {
    "in_order": (line(1, 2, 3), None),
    "of_one_millisecond": (line(1, 1, 1), None),
    "two_keys": (line(5, 6) + line(1, 2, key="b", first=2), None),
    "two_producers": (line(5, 6) + line(1, 2, host="q", first=2), None),
    "two_queues": (line(5, 6) + line(1, 2, queue=1), None),
    "delayed": (line(5, 1, REAL_TOPIC="T"), None),
    "retried": (line(5, 1, topic="%RETRY%g"), None),
    "inverted": (line(1, 3, 2, 4), ("T", 0, 2)),
    "one_from_the_future": (line(1, 99, 2, 3), ("T", 0, 2)),
}


def test_a_message_born_before_the_one_in_front_of_it_is_found(spark):
    """Goal: rule 1. Method: all cases at once, each a store."""
    records = frame(spark, COLUMNS, [row | {"store": name} for name, (rows, _) in CASES.items() for row in rows])
    expected = sorted((name, *place) for name, (_, place) in CASES.items() if place is not None)
    assert places([a19.inverted(a19.keyed(records))]) == expected


def test_a_send_that_began_after_an_answer_lies_behind_that_message(spark):
    """Goal: rule 2. Method: three sends of a queue: one after the other, together, and the last one in front."""
    columns = {
        "store": "string",
        "physical_offset": "long",
        "topic": "string",
        "queue_id": "int",
        "queue_offset": "long",
    }
    records, sends = [], []
    for number, (name, times) in enumerate(
        {
            "in_order": [(0, 5), (6, 9), (10, 12)],
            "together": [(4, 9), (0, 8), (1, 5)],
            "overtaken": [(20, 25), (0, 5), (6, 9)],
        }.items()
    ):
        for offset, (sent, done) in enumerate(times):
            place = 4096 * (1 + number) + offset
            records.append({"store": name, "physical_offset": place, "topic": "T", "queue_offset": offset})
            sends.append(("A", "T", 0, offset, f"7F00000100002A9F{place:016X}", sent, done))
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    known = ("kind", "topic", "queue_id", "queue_offset", "message_id", "sent_ns", "done_ns")
    rows = [tuple(dict(zip(known, send, strict=True)).get(name) for name in names) for send in sends]
    found = a19.overtaken(
        spark.createDataFrame(rows, SCHEMA), frame(spark, columns | {"store_host": "string"}, records)
    )
    assert places([found]) == [("overtaken", "T", 0, 0)]


def test_a_key_that_looks_like_a_place_leads_nowhere_else(spark):
    """Symptom: the command offered for a finding read the file that a sharding key named. Method: such keys, with
    quotes and backslashes around them, out of their order; the command is the one of the record."""
    keys = [f"{around}file ../../../etc/passwd at 0{around}" for around in ("", '"', '\\"', '"\\')]
    rows = [row for number, key in enumerate(keys) for row in line(5, 3, key=key, queue=number)]
    found = [Finding(*row) for row in a19.inverted(a19.keyed(frame(spark, COLUMNS, rows))).collect()]
    assert len(found) == len(keys)
    assert {tuple(place_of(finding) or ()) for finding in found} == {("--physical-offset", "0")}
