"""A9: consumer offsets lie in their queues, and never go back.

Proved: no group has committed a negative offset, or one behind the end of its queue, where it would pass over messages
that are still to come; `consumerOffset.json` can be read. Against an earlier dump of the same broker: no offset is
lower than it was, unless a reset is recorded for it (`pymqResetTable`).

Legal: offsets of queues that do not exist (any more); offsets below the queue's first message (retention was faster
than the group: A23 says for whom that matters); offsets that went back with their queue, which was removed and begun
anew; in a store that waits for recovery, offsets behind the end: what the log lost, recovery takes back. A reset that
the group has followed already leaves no record, and Apache's never does: hence a warning.

Cost: the offsets, and sums of the scan.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import ERROR, WARNING, Audit, findings, measured, quoted, union
from spark_jobs.audits.books import QUEUE
from spark_jobs.audits.facts import LONG_MAX, behind_last, facts_frame, small
from spark_jobs.audits.pairing import paired, pairs
from spark_jobs.relations import ALSO, EARLIER
from spark_jobs.tables import Tables

CHECK: Final = "A9"
FILE: Final = "config/consumerOffset.json"
ONE: Final = (*QUEUE, "consumer_group")


def queue_ends(records: DataFrame, queues: DataFrame) -> DataFrame:
    """Where each queue ends (`queue_end`): behind its last unit, or behind its last record that dispatch still owes."""
    last = F.max("queue_offset_max").alias("last")
    both = queues.groupBy(*QUEUE).agg(last).unionByName(records.groupBy(*QUEUE).agg(last))
    return both.groupBy(*QUEUE).agg(behind_last(F.max("last")).alias("queue_end"))


def outside(offsets: DataFrame, ends: DataFrame, stores: DataFrame) -> DataFrame:
    """Offsets no queue has."""
    placed = offsets.join(ends, list(QUEUE), "left").join(F.broadcast(stores.select("store", "rebuilds")), "store")
    return placed.where(
        (F.col("queue_offset") < 0) | (~F.col("rebuilds") & (F.col("queue_offset") > F.col("queue_end")))
    )


def gone_back(now: DataFrame, before: DataFrame, resets: DataFrame, ends: DataFrame) -> DataFrame:
    """Offsets that are lower than before, without a reset, in queues that are still the same."""
    earlier = before.withColumnRenamed("queue_offset", "offset_before")
    return (
        now.join(earlier, list(ONE))
        .where(F.col("queue_offset") < F.col("offset_before"))
        .join(resets, list(ONE), "left_anti")
        .join(ends, list(QUEUE))
        .where(F.col("queue_end") >= F.col("offset_before"))
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each offset that is wrong."""
    offsets, ends = small(tables, "offsets"), queue_ends(tables.kind("records"), tables.kind("queue"))
    damaged = small(tables, "config").where(F.col("path") == FILE).where("status not in ('ok', 'missing')")
    parts = [unreadable(damaged), beyond(outside(offsets, ends, facts_frame(tables)))]
    if tables.against is not None:
        couples = [pair for pair in pairs(tables) if pair.relation == EARLIER]
        before = paired(tables, small(tables.against, "offsets"), couples)
        went_back = gone_back(offsets, before, small(tables, "offset_resets").select(*ONE), ends)
        parts.append(back(went_back))
    return union(parts, tables.spark)


def unreadable(files: DataFrame) -> DataFrame:
    """A finding when the file cannot be read; the one before it was used."""
    return findings(
        files,
        CHECK,
        severity=ERROR,
        expected=F.lit("offsets as a broker writes them"),
        actual=F.concat_ws(": ", F.col("status"), F.col("detail")),
        evidence=F.format_string("file %s at 0; its .bak was read instead", F.col("path")),
    )


def beyond(offsets: DataFrame) -> DataFrame:
    """Findings of offsets that no queue has."""
    return findings(
        offsets,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.when(F.col("queue_offset") < 0, F.lit("an offset from 0 on")).otherwise(
            F.format_string("at most %d, where the queue ends", F.col("queue_end"))
        ),
        actual=F.col("queue_offset").cast("string"),
        evidence=F.format_string("committed by group %s in %s", quoted("consumer_group"), F.lit(FILE)),
    )


def back(offsets: DataFrame) -> DataFrame:
    """Findings of offsets that went back."""
    return findings(
        offsets,
        CHECK,
        severity=WARNING,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.format_string("at least %d, as in the earlier dump", F.col("offset_before")),
        actual=F.col("queue_offset").cast("string"),
        evidence=F.format_string("group %s, and no reset is recorded for it", quoted("consumer_group")),
    )


def metrics(tables: Tables) -> DataFrame:
    """What each group has still to consume, by topic."""
    ends = queue_ends(tables.kind("records"), tables.kind("queue"))
    distance = F.try_subtract(F.col("queue_end"), F.col("queue_offset"))
    behind = F.greatest(F.coalesce(distance, F.lit(LONG_MAX)), F.lit(0))
    lag = (
        small(tables, "offsets")
        .join(ends, list(QUEUE))
        .groupBy("store", "topic", "consumer_group")
        .agg(F.coalesce(F.try_sum(behind), F.lit(LONG_MAX)).alias("value"))
    )
    offsets = small(tables, "offsets").groupBy("store").agg(F.count(F.lit(1)).alias("value"))
    return measured(lag, CHECK, "lag", "value", label="consumer_group").unionByName(
        measured(offsets, CHECK, "offsets", "value")
    )


AUDIT: Final = Audit(
    CHECK,
    "consumer offsets lie in their queues and never go back",
    check,
    metrics=metrics,
    earlier=ALSO,
    tables=("offsets", "offset_resets", "config", "scan", "checkpoint"),
)
