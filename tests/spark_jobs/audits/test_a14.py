"""A14, POP: every rule on check-points made by hand, and the golden store's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.audits import a14_pop as a14
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.frames import RECORD, frame, marked, moments, places, table

pytestmark = pytest.mark.spark

POP = {"topic": "T", "consumer_group": "g", "queue_id": 1, "start_offset": 5, "pop_timestamp": 1000, "broker_name": "b"}
POINT = POP | {
    "kind": "ck",
    "offsets": [5, 6],
    "count": 2,
    "bit_map": 0,
    "invisible_ms": 500,
    "queue_offset": 3,
    "revive_queue_id": 0,
    "physical_offset": 900,
    "store_timestamp": 1400,
}
ACK = POP | {"kind": "ack", "revive_queue_id": 0, "store_timestamp": 1500, "queue_offset": 4, "physical_offset": 950}
ACKED_6 = ACK | {"offsets": [6]}
COPY = {
    "topic": "%RETRY%g_T",
    "queue_offset": 0,
    "physical_offset": 2000,
    "store_timestamp": 9000,
    "reconsume_times": 1,
    "uniq_key": "k5",
    "first_pop_time": 1000,
}

# Rows of popck, revived copies, the revive offset, and where the one finding stands.
CASES = {
    "acked": ([POINT, ACK | {"offsets": [5]}, ACKED_6], [], 3, None),
    "acked_in_a_batch": ([POINT, ACK | {"kind": "batch_ack", "offsets": [5, 6]}], [], 3, None),
    "acked_in_the_map": ([POINT | {"bit_map": 3}], [], 3, None),
    "in_flight": ([POINT], [], 2, None),
    "revived": ([POINT, ACKED_6], [COPY], 3, None),
    "revived_second_form": ([POINT, ACKED_6], [COPY | {"topic": "%RETRY%g+T"}], 3, None),
    "revived_twice": ([POINT, ACKED_6], [COPY, COPY | {"queue_offset": 1, "physical_offset": 2100}], 3, None),
    "ack_too_late": ([POINT, ACK | {"offsets": [5], "store_timestamp": 8500}, ACKED_6], [COPY], 3, None),
    "handed_on": (
        [POINT, ACKED_6, POINT | {"offsets": [5], "count": 1, "physical_offset": 990, "queue_offset": 9}],
        [],
        3,
        None,
    ),
    "visibility_changed": (
        [
            POINT,
            ACK | {"offsets": [5]},
            ACKED_6,
            POINT | {"pop_timestamp": 1200, "offsets": [5], "queue_offset": 7, "physical_offset": 960},
        ],
        [COPY],
        7,
        None,
    ),
    "message_expired": ([POINT | {"offsets": [50], "start_offset": 50}], [], 3, None),
    "lost": ([POINT, ACKED_6], [], 3, ("T", 1, 5)),
    "ack_of_another_pop": ([POINT, ACKED_6, ACK | {"offsets": [5], "pop_timestamp": 1}], [], 3, ("T", 1, 5)),
    "acked_came_again": ([POINT, ACK | {"offsets": [5]}, ACKED_6], [COPY], 3, ("%RETRY%g_T", 0, 0)),
    "too_early": ([POINT, ACKED_6], [COPY | {"store_timestamp": 1499}], 3, ("%RETRY%g_T", 0, 0)),
    "unread": (
        [POINT | {"bit_map": 3}, ACK | {"kind": None, "status": "bad_body"}],
        [],
        3,
        (a14.meaning.REVIVE_PREFIX, 0, 4),
    ),
}


def pops(spark, names, now_ms=10_000):
    """The frames of some cases."""
    stores = [{"store": name} for name in names]
    originals = [{"topic": "T", "queue_id": 1, "queue_offset": at, "uniq_key": f"k{at}"} for at in (5, 6)]
    record = RECORD | {
        "uniq_key": "string",
        "born_timestamp": "long",
        "body_crc": "int",
        "body_size": "int",
        "reconsume_times": "int",
    }
    return a14.Pops(
        table(spark, "popck", [row | store for store in stores for row in CASES[store["store"]][0]]),
        marked(spark, [row | store for store in stores for row in CASES[store["store"]][1]]),
        frame(spark, record, [row | store for store in stores for row in originals]),
        frame(
            spark,
            {"store": "string", "revive_queue_id": "int", "progress": "long"},
            [store | {"revive_queue_id": 0, "progress": CASES[store["store"]][2]} for store in stores],
        ),
        frame(spark, {"store": "string", "topic": "string"}, [store | {"topic": "T"} for store in stores]),
        frame(
            spark,
            {"store": "string", "consumer_group": "string"},
            [store | {"consumer_group": "g"} for store in stores],
        ),
        moments(spark, names, now_ms=now_ms),
    )


def test_each_rule_finds_its_contradiction_and_nothing_else(spark):
    """Goal: one finding where POP's promise breaks, none where it holds. Method: all cases at once, each a store."""
    expected = sorted((name, *place) for name, (_, _, _, place) in CASES.items() if place is not None)
    assert places(a14.judge(pops(spark, CASES))) == expected


def test_a_check_point_that_waits_for_minutes_is_reported_once(spark):
    """Goal: revive that stands still is seen. Method: the case in flight, looked at four minutes later."""
    found = pops(spark, ["in_flight"], now_ms=1500 + 240_000)
    stuck = a14.stuck(found, a14.covered(found))
    assert places([stuck]) == [("in_flight", a14.meaning.REVIVE_PREFIX, 0, 3)]


def test_the_golden_store_is_clean(spark, golden_shared: Path):
    """Goal: no false alarm on Apache's POP. Method: its store, with acks, a changed visibility, a revived message."""
    tables = Tables(spark, [str(golden_shared)])
    assert a14.check(tables).collect() == []
    counted = {(row.name, row.label): row.value for row in a14.AUDIT.metrics(tables).collect()}
    assert counted[("pop", "ck")] == 6
    assert counted[("revived", "%RETRY%golden_pop_GoldenB")] == 1
