"""A22, consumption: what lies below an offset was handled, what was handled is there, and is what was sent."""

from __future__ import annotations

import pytest

from spark_jobs.audits import a22_handled as a22
from spark_jobs.audits.ledgers import beside, placed
from spark_jobs.ledger import SCHEMA
from tests.spark_jobs.audits.frames import RECORD, frame, moments, places, table

pytestmark = pytest.mark.spark

NAMES = [part.split()[0] for part in SCHEMA.split(", ")]


def lines(*offsets, **more):
    """A group has handled these of queue 1 of T; its record lies at a hundred times the offset."""
    return [
        {
            "kind": "R", "topic": "T", "queue_id": 1, "queue_offset": offset, "consumer_group": "g", "status": "ok",
            "message_id": f"7F00000100002A9F{offset * 100:016X}", "file": "file:/handled.tsv",
        } | more
        for offset in offsets
    ]  # fmt: skip


def records(*offsets, **more):
    """The log has these."""
    return [
        {"topic": "T", "queue_id": 1, "queue_offset": offset, "physical_offset": offset * 100} | more
        for offset in offsets
    ]


# Lines, records, the committed offset, and where findings stand.
CASES = {
    "all": (lines(1, 2, 3), records(1, 2, 3), 4, []),
    "again": (lines(1, 2, 2, 3), records(1, 2, 3), 4, []),
    "more_than_committed": (lines(1, 2, 3), records(1, 2, 3), 2, []),
    "began_later": (lines(3), records(1, 2, 3), 4, []),
    "filtered": (lines(1, 3, subscription="red || green"), records(1, 3, tags="red") + records(2, tags="blue"), 4, []),
    "by_expression": (lines(1, 3, subscription="sql:a > 1"), records(1, 2, 3), 4, []),
    "never_dispatched": (lines(1, 3), records(1, 3) + records(2, sys_flag=4), 4, []),
    "of_no_group": (lines(1, 3, consumer_group=None), records(1, 2, 3), 4, []),
    "by_its_own_topic": (lines(1), records(1, topic="%RETRY%g"), 0, []),
    "skipped": (lines(1, 3), records(1, 2, 3), 4, [2]),
    "two_skipped_together": (lines(1, 4), records(1, 2, 3, 4), 5, [2]),
    "two_skipped_apart": (lines(1, 3, 5), records(1, 2, 3, 4, 5), 6, [2, 4]),
    "last_skipped": (lines(1, 2), records(1, 2, 3), 4, [3]),
    "tag_skipped": (lines(1, 3, subscription="red || green"), records(1, 2, 3, tags="red"), 4, [2]),
    "not_there": (lines(1, 2), records(1), 3, [2]),
    "elsewhere": (lines(1), records(1, topic="U"), 2, [1]),
}


def handled(spark, cases):
    """Lines of some cases beside their records."""
    both = None
    for name, (rows, _, _, _) in cases.items():
        made = spark.createDataFrame([tuple(row.get(part) for part in NAMES) for row in rows], SCHEMA)
        one = placed(made, moments(spark, [name], log_begin=1), None)
        both = one if both is None else both.unionByName(one)
    found = [row | {"store": name} for name, (_, rows, _, _) in cases.items() for row in rows]
    log = frame(spark, RECORD, found)
    return beside(both, log), log


def test_what_was_skipped_and_what_is_not_there_is_found(spark):
    """Goal: rules 1 and 2. Method: all cases at once, each a store."""
    both, log = handled(spark, CASES)
    offsets = table(
        spark,
        "offsets",
        [
            {"store": name, "topic": "T", "consumer_group": "g", "queue_id": 1, "queue_offset": at}
            for name, (_, _, at, _) in CASES.items()
        ],
    )
    expected = sorted((name, "T", 1, offset) for name, (_, _, _, found) in CASES.items() for offset in found)
    assert places([a22.skipped(both, offsets, log), a22.phantom(both)]) == expected


def test_a_body_that_is_not_the_one_sent_is_found(spark):
    """Goal: rule 3. Method: producer and consumer agree on one record, and not on another."""
    case = {"s": (lines(1, sender=1, sequence=1) + lines(2, sender=1, sequence=9), records(1, 2), 3, [])}
    both, _ = handled(spark, case)
    sent = frame(
        spark,
        {"store": "string", "physical_offset": "long", "sender": "long", "sequence": "long"},
        [{"store": "s", "physical_offset": 100 * at, "sender": 1, "sequence": at} for at in (1, 2)],
    )
    assert places([a22.changed(both, sent)]) == [("s", "T", 1, 2)]
