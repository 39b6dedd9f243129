"""A23: retention: nothing was deleted that a group still needed, unless somebody knows of it.

Log files go by age, or because the disk is full, whoever has not read them yet. What a store keeps of that: a queue
that begins behind a group's committed offset. It keeps no record of when that came about, and a group that nobody uses
any more looks the same; so two dumps are compared.

Proved, against an earlier dump of the same broker: no group that could read on from its offset then (the message was
there, or the queue's end) finds its messages gone now. A finding is one queue of one group: how many messages it never
got, and never will.

Legal: groups that were behind already in the earlier dump (they were told then), offsets that were reset since and not
yet followed (`pymqResetTable` is the record of it), topics that were removed, system groups (A13 and A14 judge).

Cannot be proved: with one dump alone, whether anybody missed what is gone. The metric `gone unread` counts it.

Cost: the offsets, and sums of the scan, of both dumps.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import Audit, findings, measured, none_found
from spark_jobs.audits.facts import LONG_MAX
from spark_jobs.audits.pairing import earlier_pairs, paired
from spark_jobs.relations import ALONE
from spark_jobs.tables import Tables

CHECK = "A23"
QUEUE = ["store", "topic", "queue_id"]


def unread() -> Column:
    """How many messages lie between a group's offset and what is left; as many as there can be if that overflows."""
    return F.coalesce(F.try_subtract(F.col("first"), F.col("queue_offset")), F.lit(LONG_MAX))


def behind(offsets: DataFrame, bounds: DataFrame) -> DataFrame:
    """Groups whose next message of a queue is gone: offsets below the queue's first message."""
    return (
        offsets.where(~F.col("consumer_group").startswith(meaning.SYSTEM_GROUP_PREFIX))
        .join(bounds, QUEUE)
        .where((F.col("queue_offset") >= 0) & (F.col("queue_offset") < F.col("first")))
    )


def missed(now: DataFrame, before: DataFrame, bounds_before: DataFrame, excused: DataFrame) -> DataFrame:
    """Rows of *now* (`behind`) that were in time *before* (offsets of the earlier dump, its bounds).

    *excused* are (store, topic, consumer_group, queue_id) of resets.
    """
    in_time = (
        before.join(bounds_before.select(*QUEUE, F.col("first").alias("first_before")), QUEUE, "left")
        .where(F.col("queue_offset") >= F.coalesce("first_before", F.lit(0)))
        .select(*QUEUE, "consumer_group", F.col("queue_offset").alias("offset_before"))
    )
    return now.join(in_time, [*QUEUE, "consumer_group"]).join(
        excused.select(*QUEUE, "consumer_group"), [*QUEUE, "consumer_group"], "left_anti"
    )


def judge(rows: DataFrame) -> DataFrame:
    """Rows of `missed` as findings."""
    return findings(
        rows,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(
            F.lit("what "), F.col("consumer_group"), F.lit(" has not read is kept, from queue offset "),
            F.col("queue_offset"), F.lit(" on"),
        ),
        actual=F.concat(
            F.lit("the queue begins at "), F.col("first"), F.lit(": "), unread().cast("string"),
            F.lit(" messages were deleted unread"),
        ),
        evidence=F.concat(
            F.lit("in the earlier dump the group was at "), F.col("offset_before"), F.lit(" and could read on")
        ),
    )  # fmt: skip


def check(tables: Tables) -> DataFrame:
    """What groups will miss since the earlier dump."""
    couples = earlier_pairs(tables)
    if tables.against is None or not couples:
        return none_found(tables.spark)
    removed = meaning.table(tables, "removed_topics").select("store", "topic").distinct()
    now = behind(meaning.table(tables, "offsets"), meaning.queue_bounds(tables)).join(
        F.broadcast(removed), ["store", "topic"], "left_anti"
    )
    before = paired(tables, meaning.table(tables.against, "offsets"), couples)
    bounds_before = paired(tables, meaning.queue_bounds(tables.against), couples)
    return judge(missed(now, before, bounds_before, meaning.table(tables, "offset_resets")))


def metrics(tables: Tables) -> DataFrame:
    """What each group has missed, whenever that was."""
    gone = behind(meaning.table(tables, "offsets"), meaning.queue_bounds(tables))
    total = F.coalesce(F.try_sum(unread()), F.lit(LONG_MAX))
    counts = gone.groupBy("store", "consumer_group").agg(total.alias("value"))
    return measured(counts, CHECK, "gone unread", "value", label="consumer_group")


AUDIT = Audit(
    CHECK,
    "retention: nothing was deleted that a group still needed",
    check,
    needs=frozenset({"against"}),
    earlier=ALONE,
    metrics=metrics,
    group="meaning",
    tables=("offsets", "offset_resets", "removed_topics", "scan"),
)
