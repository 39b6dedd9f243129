"""A16, delay levels: every rule on messages made by hand, and the golden store's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.audits import a16_delays as a16
from spark_jobs.audits import meaning
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.frames import marked, moments, places, table

pytestmark = pytest.mark.spark

WAIT = meaning.SCHEDULE_TOPIC


def waiting(offset, due=2000, **more):
    """A message of level 1 for queue 3 of T."""
    return {
        "topic": WAIT, "queue_id": 0, "queue_offset": offset, "physical_offset": 100 + offset, "tags_code": due,
        "uniq_key": f"k{offset}", "real_topic": "T", "real_queue_id": 3, "delay": 1,
    } | more  # fmt: skip


def copy(offset, stored=2050, **more):
    """What waiting(offset) was delivered as."""
    return waiting(offset) | {
        "topic": "T", "queue_id": 3, "queue_offset": 10 + offset, "physical_offset": 1000 + offset,
        "store_timestamp": stored, "tags_code": 0,
    } | more  # fmt: skip


# Messages, how far level 1 has come, and where the one finding stands.
CASES = {
    "delivered": ([waiting(0), copy(0)], 1, None),
    "delivered_on_the_dot": ([waiting(0), copy(0, stored=2000)], 1, None),
    "pending": ([waiting(0, due=99_000)], 0, None),
    "killed_before_the_file": ([waiting(0), copy(0)], 0, None),
    "delivered_twice": ([waiting(0), copy(0), copy(0, queue_offset=20, physical_offset=3000)], 1, None),
    "failed_again": (
        [
            waiting(0, reconsume_times=1),
            copy(0, reconsume_times=1),
            waiting(1, due=9**9, uniq_key="k0", reconsume_times=2),
        ],
        1,
        None,
    ),
    "passed": ([waiting(0)], 1, (WAIT, 0, 0)),
    "skipped": ([waiting(0), waiting(1), copy(1)], 0, (WAIT, 0, 0)),
    "early": ([waiting(0), copy(0, stored=1999)], 1, ("T", 3, 10)),
    "never_waited": ([waiting(0), copy(0), copy(7, uniq_key="x")], 1, ("T", 3, 17)),
    "failed_less_often": ([waiting(0), copy(0), copy(0, queue_offset=30, reconsume_times=2)], 1, ("T", 3, 30)),
}


def delays(spark, **moment):
    """The frames of all cases."""
    rows = marked(spark, [row | {"store": name} for name, (found, _, _) in CASES.items() for row in found])
    offsets = [{"store": name, "level": 1, "queue_offset": at} for name, (_, at, _) in CASES.items()]
    return a16.Delays(
        rows.where(rows.topic == WAIT),
        rows.where(rows.topic != WAIT),
        table(spark, "delay_offsets", offsets),
        moments(spark, CASES, **moment),
    )


def test_each_rule_finds_its_contradiction_and_nothing_else(spark):
    """Goal: one finding where a level breaks its promise, none elsewhere. Method: all cases at once, each a store."""
    expected = sorted((name, *place) for name, (_, _, place) in CASES.items() if place is not None)
    assert places(a16.judge(delays(spark))) == expected


def test_a_due_message_of_a_running_broker_is_reported_after_minutes_and_not_before(spark):
    """Goal: overdue by the store's time, and by time the broker ran. Method: three moments around the limit."""
    for now_ms, since, expected in (
        (99_000 + meaning.OVERDUE_MS, 0, []),
        (99_001 + meaning.OVERDUE_MS, 0, [("pending", WAIT, 0, 0)]),
        (99_001 + meaning.OVERDUE_MS, 99_002, []),
    ):
        found = delays(spark, now_ms=now_ms, running_since=since)
        assert places([a16.overdue(found, a16.judged(found))]) == expected


def test_a_log_that_begins_later_is_not_asked_for_what_waited(spark):
    """Goal: what retention took is no finding. Method: the same cases in a log that does not begin at 0."""
    assert places([a16.never_waited(delays(spark, log_begin=1))]) == []


def test_the_golden_store_is_clean(spark, golden_shared: Path):
    """Goal: no false alarm on Apache's delays. Method: its store: four delivered, one of them a retry, one pending."""
    tables = Tables(spark, [str(golden_shared)])
    assert a16.check(tables).collect() == []
    counted = {(row.name, row.label): row.value for row in a16.AUDIT.metrics(tables).collect()}
    assert counted == {("lateness_ms", "100"): 4, ("waiting", "level 18"): 1}
