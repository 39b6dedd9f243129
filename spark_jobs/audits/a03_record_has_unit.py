"""A3: every record that dispatch puts into a queue has exactly one unit, at its queue offset.

Proved: for each record that is no prepared and no rollback half of a transaction, the unit at the record's queue offset
of its queue points at the record. Two units of one record, or two records of one unit, cannot both hold that: the other
one is found here, or by A4. Neighbouring records without a unit are one finding.

Legal: records of removed topics, what recovery rebuilds, records that are damaged (A1). What cannot be told from a
topic removed under Apache: a topic of one queue whose oldest queue files are gone.

Cost: sums of the scan; rows only of buckets of 4,096 queue offsets whose sums differ (see `books`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import ERROR, WARNING, Audit, findings, measured, none_found, union
from spark_jobs.audits.books import PLACE, books, runs
from spark_jobs.tables import Tables

CHECK: Final = "A3"


def unlisted(places: DataFrame, stores: DataFrame, states: DataFrame, holes: DataFrame) -> DataFrame:
    """Places whose record has no unit that points at it, where nothing excuses that; with `reason` and `is_lost`."""
    points_here = F.col("unit_offset") == F.col("record_offset")
    judged = (
        places.withColumn("is_taken", F.max(F.coalesce(points_here, F.lit(False))).over(Window.partitionBy(*PLACE)))
        .where(F.col("record_offset").isNotNull() & ~F.coalesce(points_here, F.lit(False)))
        .join(F.broadcast(stores), "store")
        .join(states, ["store", "topic"], "left")
        .join(holes.select(*PLACE, F.lit(True).alias("is_hole")), list(PLACE), "left")
    )
    # A topic that nothing speaks of, no directory and no configuration, was removed.
    birth = F.coalesce("birth", F.lit(2**63 - 1))
    no_unit = F.col("unit_offset").isNull() & F.col("is_hole").isNull()
    earlier_life = (F.col("record_offset") < birth) & (no_unit | F.col("is_taken"))
    removed = F.col("record_offset") < F.coalesce("removed_below", F.lit(0))
    rebuilt = F.col("rebuilds") & (F.col("record_offset") >= F.col("judged_end"))
    reason = F.when(F.col("unit_offset").isNotNull(), "elsewhere").otherwise("none")
    return judged.where(~earlier_life & ~removed & ~rebuilt).select(
        *PLACE,
        "record_offset",
        "unit_offset",
        F.coalesce("is_lost", F.lit(False)).alias("is_lost"),
        reason.alias("reason"),
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each run of records without a unit of their own."""
    both = books(tables)
    if both.is_empty:
        return none_found(tables.spark)
    holes = (
        tables.kind("unit_fault")
        .where("status = 'hole'")
        .select("store", "topic", "queue_id", F.col("queue_offset_min").alias("queue_offset"))
    )
    found = runs(unlisted(both.places, both.stores, both.states, holes), F.col("reason"))
    return union(
        [said(found.where(~F.col("is_lost")), ERROR), said(found.where("is_lost"), WARNING)],
        tables.spark,
    )


def said(found: DataFrame, severity: str) -> DataFrame:
    """Findings in words."""
    here = F.format_string("a unit for the record at physical offset %d", F.col("record_offset"))
    others = F.when(F.col("places") > 1, F.format_string(", and so up to %d", F.col("last"))).otherwise("")
    actual = F.when(
        F.col("reason") == "elsewhere", F.format_string("a unit that points at %d", F.col("unit_offset"))
    ).otherwise("no unit")
    lost = F.when(
        F.col("is_lost"),
        "; the topic is configured and has no queue on disk: it is lost, or was removed and made again under Apache",
    ).otherwise("")
    return findings(
        found,
        CHECK,
        severity=severity,
        topic="topic",
        queue="queue_id",
        offset="first",
        expected=here,
        actual=F.concat(actual, others),
        evidence=F.concat(
            F.format_string("queue offset %d, record at physical offset %d", F.col("first"), F.col("record_offset")),
            lost,
        ),
    )


def metrics(tables: Tables) -> DataFrame:
    """Records held against units, and how many buckets had to be looked into."""
    records = tables.kind("records").groupBy("store").agg(F.sum("count").alias("value"))
    opened = books(tables).buckets.groupBy("store").agg(F.count(F.lit(1)).alias("value"))
    return measured(records, CHECK, "records", "value").unionByName(
        measured(opened, CHECK, "buckets_looked_into", "value")
    )


AUDIT: Final = Audit(
    CHECK,
    "every record has one unit, at its queue offset",
    check,
    metrics=metrics,
    tables=("scan", "checkpoint", "topics", "removed_topics", "commitlog", "consumequeue"),
)
