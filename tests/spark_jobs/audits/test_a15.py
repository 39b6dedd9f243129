"""A15, timers: every rule on logs and wheels made by hand, and the golden store's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.audits import a15_timers as a15
from spark_jobs.audits import meaning
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.frames import frame, marked, places, table

pytestmark = pytest.mark.spark

TOPIC = meaning.TIMER_TOPIC
STATE = {
    "store": "string",
    "read_timestamp": "long",
    "vouched": "long",
    "topic_end": "long",
    "precision_ms": "int",
    "log_begin": "long",
    "now_ms": "long",
    "is_clean": "boolean",
}
READ_MS = 50_000  # slots before it are over


def unit(position, slot=60_000, previous=-1, magic=1, physical=None, size=100):
    """A unit of the timer log; its message lies at ten times its position unless said."""
    at = position * 10 + 10 if physical is None else physical
    return {
        "log_position": position, "previous": previous, "magic": magic, "slot_timestamp": slot,
        "physical_offset": at, "size": size,
    }  # fmt: skip


def slot(first, last, count, time=60_000):
    """A slot of the wheel."""
    return {
        "slot_timestamp": time,
        "first_position": first,
        "last_position": last,
        "count": count,
        "precision_ms": 1000,
    }


def timer(position, out_ms=60_000, **more):
    """The message of a unit."""
    at = position * 10 + 10
    return {
        "topic": TOPIC, "queue_offset": position // 52, "physical_offset": at, "uniq_key": f"k{position}",
        "real_topic": "T", "real_queue_id": 0, "timer_out_ms": out_ms,
    } | more  # fmt: skip


def delivery(position, stored=41_500, out_ms=40_000, **more):
    """What timer(position) was delivered as."""
    return timer(position, out_ms) | {
        "topic": "T", "physical_offset": 90_000, "store_timestamp": stored, "timer_dequeue_ms": stored,
    } | more  # fmt: skip


CHAIN = [unit(0), unit(52, previous=0)]
MESSAGES = [timer(0), timer(52)]

# Units, slots, messages, and where the one finding stands.
CASES = {
    "chain": (CHAIN, [slot(0, 52, 2)], MESSAGES, None),
    "recalled": (
        [unit(0), unit(52, previous=0, magic=5)],
        [slot(0, 52, 0)],
        [timer(0), timer(52, timer_delete_key="k0")],
        None,
    ),
    "begun_anew": ([unit(0), unit(52)], [slot(52, 52, 1)], MESSAGES, None),
    "over_is_not_judged": (
        [unit(0, slot=40_000, previous=999)],
        [slot(7, 7, 7, time=40_000)],
        [timer(0, 40_000), delivery(0)],
        None,
    ),
    "delivered": ([unit(0, slot=40_000)], [], [timer(0, 40_000), delivery(0)], None),
    "delivered_twice": ([], [], [timer(0, 40_000), delivery(0), delivery(0, queue_offset=8)], None),
    "recall_in_time": ([], [], [timer(0, 40_000), timer(52, 40_000, timer_delete_key="k0")], None),
    "rolled": ([unit(52)], [slot(52, 52, 1)], [timer(0), timer(52) | {"uniq_key": "k0", "timer_roll_times": 1}], None),
    "put_off": ([unit(0, slot=60_000)], [slot(0, 0, 1)], [timer(0, 40_000)], None),
    "expired": ([unit(0, physical=4)], [slot(0, 0, 1)], [], None),
    "not_yet_read": ([], [], [timer(52 * 50)], None),
    "cycle": ([unit(0), unit(52, previous=52)], [slot(0, 52, 2)], MESSAGES, (TOPIC, None, 52)),
    "stranger": (
        [unit(0), unit(52, slot=61_000), unit(104, previous=52)],
        [slot(0, 104, 2), slot(52, 52, 1, time=61_000)],
        [timer(0), timer(52, 61_000), timer(104)],
        (TOPIC, None, 104),
    ),
    "wrong_count": (CHAIN, [slot(0, 52, 3)], MESSAGES, (TOPIC, None, 60_000)),
    "no_slot": (CHAIN, [], MESSAGES, (TOPIC, None, 60_000)),
    "no_chain": (CHAIN, [slot(0, 52, 2), slot(0, 0, 1, time=70_000)], MESSAGES, (TOPIC, None, 70_000)),
    "another_size": ([unit(0, size=99)], [slot(0, 0, 1)], [timer(0)], (TOPIC, None, 0)),
    "no_message": ([unit(0), unit(52, previous=0)], [slot(0, 52, 2)], [timer(0)], (TOPIC, None, 52)),
    "no_unit": ([unit(0)], [slot(0, 0, 1)], MESSAGES, (TOPIC, 0, 1)),
    "undelivered": ([], [], [timer(0, 40_000)], (TOPIC, 0, 0)),
    "recall_for_another_time": (
        [],
        [],
        [timer(0, 40_000), timer(52, 42_000, timer_delete_key="k0")],
        (TOPIC, 0, 0),
    ),
    "early": ([], [], [timer(0, 40_000), delivery(0, stored=39_999)], ("T", 0, 0)),
    "before_its_very_time": (
        [],
        [],
        [timer(0, 40_000, timer_deliver_ms=40_700), delivery(0, stored=40_699)],
        ("T", 0, 0),
    ),
}


def timers(spark, **state):
    """The frames of all cases."""
    said = {
        "read_timestamp": READ_MS, "vouched": 10_000, "topic_end": 40, "precision_ms": 1000, "log_begin": 10,
        "now_ms": 100_000, "is_clean": True,
    } | state  # fmt: skip
    units, slots, messages = (
        [row | {"store": name} for name, case in CASES.items() for row in case[index]] for index in range(3)
    )
    found = marked(spark, messages)
    return a15.Timers(
        table(spark, "timerlog", units),
        table(spark, "timerwheel", slots),
        frame(spark, STATE, [said | {"store": name} for name in CASES]),
        found.where(found.topic == TOPIC),
        found.where(found.topic != TOPIC),
    )


def test_each_rule_finds_its_contradiction_and_nothing_else(spark):
    """Goal: one finding where timers break their promise, none elsewhere. Method: all cases at once, each a store."""
    expected = sorted((name, *place) for name, (_, _, _, place) in CASES.items() if place is not None)
    assert sorted(places(a15.judge(timers(spark))), key=str) == sorted(expected, key=str)


def test_a_wheel_is_not_judged_after_an_unclean_stop(spark):
    """Goal: what recovery makes again is no finding. Method: the same cases, killed: wheels may say what they like."""
    found = places([a15.wrong_slots(one, a15.pending(one)) for one in [timers(spark, is_clean=False)]])
    assert found == []


def test_the_golden_store_is_clean(spark, golden_shared: Path):
    """Goal: no false alarm on Apache's timers. Method: its store: delivered, pending and recalled ones, and POP's."""
    tables = Tables(spark, [str(golden_shared)])
    assert a15.check(tables).collect() == []
    counted = {(row.name, row.label): row.value for row in a15.AUDIT.metrics(tables).collect()}
    assert counted[("pending timers", None)] == 3
    assert sum(value for (name, _), value in counted.items() if name == "lateness_ms") == 52
