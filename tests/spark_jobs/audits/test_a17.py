"""A17, retries and dead letters: every rule on messages made by hand, and the golden store's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.audits import a17_retries as a17
from spark_jobs.audits import meaning
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.frames import RECORD, frame, marked, moments, places

pytestmark = pytest.mark.spark

HOST = "7F00000100002A9F"
ORIGIN = {"topic": "T", "physical_offset": 256, "queue_offset": 2, "uniq_key": "k"}
BACK = {
    "topic": "%RETRY%g",
    "queue_offset": 4,
    "physical_offset": 4096,
    "uniq_key": "k",
    "origin_message_id": f"{HOST}{256:016X}",
    "retry_topic": "T",
    "reconsume_times": 1,
    "real_topic": "%RETRY%g",
}
DEAD = BACK | {"topic": "%DLQ%g", "real_topic": None}
HERE = ("%RETRY%g", 0, 4)

# A message that was sent back, what lies at its origin, and where the one finding stands.
CASES = {
    "delivered": (BACK, ORIGIN, None),
    "waiting": (BACK | {"topic": meaning.SCHEDULE_TOPIC}, ORIGIN, None),
    "dead": (DEAD, ORIGIN, None),
    "as_often_as_the_group_allows": (BACK | {"reconsume_times": 20}, ORIGIN, None),
    "dead_at_last": (DEAD | {"reconsume_times": 21}, ORIGIN, None),
    "as_often_as_the_client_allows": (BACK | {"reconsume_times": 30, "reconsume_max": 30}, ORIGIN, None),
    "expired": (BACK | {"origin_message_id": f"{HOST}{5:016X}"}, ORIGIN, None),
    "from_another_broker": (BACK | {"origin_message_id": f"7F00000200002A9F{999:016X}"}, ORIGIN, None),
    "counted_by_its_producer": (BACK | {"reconsume_times": 6}, ORIGIN | {"reconsume_times": 5}, None),
    "no_id": (BACK | {"origin_message_id": "what"}, ORIGIN, HERE),
    "no_offset_in_its_id": (BACK | {"origin_message_id": f"{HOST}8000000000000000"}, ORIGIN, HERE),
    "a_later_place": (BACK | {"origin_message_id": f"{HOST}{4096:016X}"}, ORIGIN, HERE),
    "nothing_there": (BACK | {"origin_message_id": f"{HOST}{257:016X}"}, ORIGIN, HERE),
    "another_topic": (BACK, ORIGIN | {"topic": "U"}, HERE),
    "another_key": (BACK, ORIGIN | {"uniq_key": "x"}, HERE),
    "another_body": (BACK, ORIGIN | {"body_crc": 8}, HERE),
    "another_birth": (BACK, ORIGIN | {"born_timestamp": 1001}, HERE),
    "never_delivered": (BACK | {"reconsume_times": 0}, ORIGIN, HERE),
    "not_once_more": (BACK | {"reconsume_times": 5}, ORIGIN | {"reconsume_times": 5}, HERE),
    "too_often": (BACK | {"reconsume_times": 21}, ORIGIN, HERE),
}


def test_each_rule_finds_its_contradiction_and_nothing_else(spark):
    """Goal: one finding where a line breaks, none elsewhere. Method: all cases at once, each a store."""
    rows = marked(spark, [back | {"store": name} for name, (back, _, _) in CASES.items()])
    columns = {name: RECORD.get(name, "long") for name in a17.ORIGIN_COLUMNS} | {
        "uniq_key": "string",
        "body_crc": "int",
        "body_size": "int",
        "reconsume_times": "int",
    }
    stores = [{"store": name} for name in CASES]
    lines = a17.Lines(
        a17.returned(rows),
        frame(spark, columns, [origin | {"store": name} for name, (_, origin, _) in CASES.items()]),
        frame(spark, {"store": "string", "host": "string"}, [store | {"host": "127.0.0.1:10911"} for store in stores]),
        frame(
            spark,
            {"store": "string", "group": "string", "retry_max_times": "int"},
            [store | {"group": "g", "retry_max_times": 20} for store in stores],
        ),
        moments(spark, CASES, log_begin=100),
    )
    expected = sorted((name, *place) for name, (_, _, place) in CASES.items() if place is not None)
    assert places(a17.judge(lines)) == expected


def test_the_golden_store_is_clean(spark, golden_shared: Path):
    """Goal: no false alarm on Apache's retries. Method: its store, with one retry and one dead letter."""
    tables = Tables(spark, [str(golden_shared)])
    assert a17.check(tables).collect() == []
    counted = {(row.name, row.label): row.value for row in a17.AUDIT.metrics(tables).collect()}
    assert counted == {
        ("sent back", "%RETRY%golden_cg"): 1,
        ("sent back", "%DLQ%golden_dlq"): 1,
        ("reconsume times", "delivery 1"): 2,
    }
