"""A13, transactions: every rule on stories made by hand, and the golden store's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.audits import a13_transactions as a13
from spark_jobs.audits import meaning
from spark_jobs.tables import Tables
from tests.spark_jobs.audits.frames import frame, marked, moments, places, table

pytestmark = pytest.mark.spark

HALF, OP = meaning.HALF_TOPIC, meaning.OP_HALF_TOPIC
DAY_MS = 86_400_000


def half(store, offset, key="k", physical=None, **more):
    """A half message for topic T; the queue offset tells the physical one."""
    at = 100 * (offset + 1) if physical is None else physical
    return {
        "store": store, "topic": HALF, "queue_offset": offset, "physical_offset": at, "uniq_key": key,
        "real_topic": "T", "is_half": "true",
    } | more  # fmt: skip


def commit(store, prepared, key="k", physical=1000, **more):
    """A committed message."""
    return {
        "store": store, "topic": "T", "queue_offset": physical, "physical_offset": physical, "uniq_key": key,
        "sys_flag": 8, "prepared_transaction_offset": prepared, "is_half": "true",
    } | more  # fmt: skip


def op(store, *offsets, physical=2000, **more):
    """An op message: a row for each half it names."""
    head = {"store": store, "physical_offset": physical, "queue_offset": 0}
    return [head | {"half_queue_offset": offset} | more for offset in offsets]


# Each case: marked messages, op rows, progress, and where its one finding stands (None: there is none).
CASES = {
    "committed": ([half("s", 0), commit("s", 100)], op("s", 0), 1, None),
    "rolled_back": ([half("s", 0)], op("s", 0), 1, None),
    "late_op_of_apache": ([half("s", 0), half("s", 1, check_times=1), commit("s", 200)], op("s", 1), 2, None),
    "pending": ([half("s", 0)], [], 0, None),
    "killed_before_op": ([half("s", 0), commit("s", 100)], [], 1, None),
    "given_up": ([half("s", 0), half("s", 0) | {"topic": meaning.CHECK_MAX_TIME_TOPIC}], [], 1, None),
    "half_expired": ([commit("s", 5)], [], 1, None),
    "sent_twice": (
        [half("s", 0), half("s", 1), commit("s", 100), commit("s", 200, physical=1100)],
        op("s", 0, 1),
        2,
        None,
    ),
    "delayed_commit": (
        [
            half("s", 0),
            commit("s", 100, topic=meaning.SCHEDULE_TOPIC, real_topic="T"),
            commit("s", 100, physical=1500, real_topic="T"),
        ],
        op("s", 0),
        1,
        None,
    ),
    "sent_back": ([half("s", 0), commit("s", 100), commit("s", 100, physical=1500, topic="%RETRY%g")], [], 1, None),
    "no_half": ([half("s", 0), commit("s", 101)], op("s", 0), 1, ("T", 0, 1000)),
    "another_key": ([half("s", 0), commit("s", 100, key="x")], op("s", 0), 1, ("T", 0, 1000)),
    "another_topic": ([half("s", 0, real_topic="U"), commit("s", 100)], op("s", 0), 1, ("T", 0, 1000)),
    "twice": ([half("s", 0), commit("s", 100), commit("s", 100, physical=2500)], op("s", 0), 1, ("T", 0, 2500)),
    "after_end": ([half("s", 0), commit("s", 100, physical=3000)], op("s", 0), 1, ("T", 0, 3000)),
    "visible": ([half("s", 0), half("s", 7, topic="T", real_topic=None)], [], 0, ("T", 0, 7)),
    "forgotten": ([half("s", 0)], [], 1, (HALF, 0, 0)),
    "forgotten_copy": ([half("s", 0), half("s", 1, check_times=1)], [], 2, (HALF, 0, 1)),
    "old": ([half("s", 0, store_timestamp=-4 * DAY_MS)], [], 0, (HALF, 0, 0)),
    "op_astray": ([half("s", 0)], op("s", 0, 9), 1, (OP, 0, 0)),
    "op_unread": ([half("s", 0)], [*op("s", 0), *op("s", None, physical=2100, status="bad_body")], 1, (OP, 0, 0)),
}


def test_each_rule_finds_its_contradiction_and_nothing_else(spark):
    """Goal: one finding where the story breaks, none where it holds. Method: all cases at once, each a store."""
    named = {name: [row | {"store": name} for row in rows] for name, (rows, _, _, _) in CASES.items()}
    rows = marked(spark, [row for found in named.values() for row in found])
    topic = rows.topic
    prepared = (rows.is_half == "true") & (rows.sys_flag.bitwiseAND(12) != 8)
    story = a13.Story(
        rows.where(topic == HALF),
        rows.where(meaning.is_committed()),
        rows.where(topic == meaning.CHECK_MAX_TIME_TOPIC),
        rows.where((topic == "T") & prepared),
        table(spark, "op", [row | {"store": name} for name, (_, ops, _, _) in CASES.items() for row in ops]),
        frame(
            spark,
            {"store": "string", "progress": "long"},
            [{"store": name, "progress": at} for name, (_, _, at, _) in CASES.items()],
        ),
        moments(spark, CASES, log_begin=50),
    )
    expected = sorted((name, *place) for name, (_, _, _, place) in CASES.items() if place is not None)
    assert places(a13.judge(story)) == expected


def test_the_golden_store_has_every_outcome_and_no_contradiction(spark, golden_shared: Path):
    """Goal: no false alarm on Apache's transactions. Method: its store: two committed, one rolled back, one checked."""
    tables = Tables(spark, [str(golden_shared)])
    assert a13.check(tables).collect() == []
    counted = {(row.name, row.label): row.value for row in a13.AUDIT.metrics(tables).collect()}
    assert counted == {
        ("transactions", "committed"): 3,
        ("transactions", "rolled back"): 1,
        ("transactions", "pending"): 1,
        ("half messages put again", None): 6,
    }
