"""A6: along each queue physical offsets increase.

Proved: each unit points further into the log than the one before it, also across the queue's files. Of two units that
do not, the one is named that does not fit what stands before both.

Legal: fillers, which point nowhere; what recovery rebuilds.

Cost: the scan has every descent inside a file; where two files meet the units around the seam are read if their sums
overlap.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import Audit, findings, measured, union
from spark_jobs.audits.books import QUEUE, named
from spark_jobs.audits.facts import facts_frame
from spark_jobs.tables import Tables

CHECK: Final = "A6"


def seams(queues: DataFrame, units: DataFrame) -> DataFrame:
    """Places where one file ends and the next begins, and their sums overlap: `left` and `right` queue offsets."""
    order = Window.partitionBy(*QUEUE).orderBy("queue_offset_min")
    files = (
        queues.where("count > 0")
        .withColumn("left", F.lag("queue_offset_max").over(order))
        .where("left is not null")
        .select(*QUEUE, "left", F.col("queue_offset_min").alias("right"))
    )
    sums = (
        units.where("status = 'ok'")
        .withColumn("before_end", F.lag("physical_offset_end").over(order))
        .where(F.col("physical_offset_min") < F.col("before_end"))
        .select(*QUEUE, F.col("queue_offset_min").alias("right"))
    )
    return files.join(sums, [*QUEUE, "right"], "left_semi")


def descents_at(seams: DataFrame, units: DataFrame) -> DataFrame:
    """Seams whose right unit does not point further than the left one: the culprit as the scan names one."""
    places = (
        units.where("status = 'ok'")
        .join(F.broadcast(seams), list(QUEUE))
        .where(F.col("queue_offset").between(F.col("left") - 1, F.col("left")) | F.expr("queue_offset = right"))
    )

    def at(offset: Column) -> Column:
        return F.max(F.when(F.col("queue_offset") == offset, F.col("physical_offset")))

    around = places.groupBy(*QUEUE, "left", "right").agg(
        at(F.col("left") - 1).alias("earlier"), at(F.col("left")).alias("before"), at(F.col("right")).alias("behind")
    )
    is_spike = F.coalesce(F.col("earlier") < F.col("behind"), F.lit(False))
    return around.where(F.col("behind") <= F.col("before")).select(
        *QUEUE,
        F.when(is_spike, F.col("left")).otherwise(F.col("right")).alias("queue_offset_min"),
        F.when(is_spike, F.col("before")).otherwise(F.col("behind")).alias("physical_offset_min"),
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each unit out of order."""
    inside = tables.kind("unit_fault").where("status = 'descent'")
    columns = [*QUEUE, "queue_offset_min", "physical_offset_min"]
    meeting = seams(tables.kind("queue"), tables.kind("units")).cache()
    parts = [inside.select(*columns)]
    if not meeting.isEmpty():
        parts.append(descents_at(meeting, named(tables.table("consumequeue"), meeting)).select(*columns))
    stores = F.broadcast(facts_frame(tables).select("store", "rebuilds", "judged_end"))
    judged = (
        union(parts, tables.spark)
        .distinct()
        .join(stores, "store")
        .where(~F.col("rebuilds") | (F.col("physical_offset_min") < F.col("judged_end")))
    )
    return findings(
        judged,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset_min",
        expected=F.lit("a physical offset between those of the units before and behind it"),
        actual=F.format_string("physical offset %d", F.col("physical_offset_min")),
        evidence=F.format_string("queue offset %d", F.col("queue_offset_min")),
    )


def metrics(tables: Tables) -> DataFrame:
    """Queues that were followed."""
    queues = tables.kind("queue").groupBy("store").agg(F.countDistinct("topic", "queue_id").alias("value"))
    return measured(queues, CHECK, "queues", "value")


AUDIT: Final = Audit(
    CHECK,
    "physical offsets increase along each queue",
    check,
    metrics=metrics,
    tables=("scan", "checkpoint", "consumequeue"),
)
