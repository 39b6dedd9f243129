"""A6: along each queue physical offsets increase.

Proved: each unit points further into the log than the one before it, also across the queue's files. Named are the
fewest units without which the rest would increase: a unit that points too far is named, not all those behind it.

Legal: fillers, which point nowhere; what recovery rebuilds.

Cost: the scan has the descents inside a file, and sums that overlap where two files meet; only of queues with one of
them the units are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import ArrayType, IntegerType

from spark_jobs.audits.base import Audit, findings, measured, none_found
from spark_jobs.audits.books import QUEUE, named
from spark_jobs.audits.facts import facts_frame
from spark_jobs.tables import Tables

CHECK: Final = "A6"
COLUMNS: Final = (*QUEUE, "queue_offset", "physical_offset", "file", "position")


def suspects(faults: DataFrame, units: DataFrame) -> DataFrame:
    """Queues that may have units out of order: with a descent, or with sums that overlap."""
    order = Window.partitionBy(*QUEUE).orderBy("queue_offset_min")
    overlapping = (
        units.where("status = 'ok'")
        .withColumn("before_end", F.lag("physical_offset_end").over(order))
        .where(F.col("physical_offset_min") < F.col("before_end"))
    )
    descending = faults.where("status = 'descent'")
    return descending.select(*QUEUE).unionByName(overlapping.select(*QUEUE)).distinct()


def out_of_order(offsets: Sequence[int]) -> list[int]:
    """Positions of the fewest numbers without which *offsets* increase: all that are in no longest increasing row."""
    ends: list[int] = []  # the smallest number that ends an increasing row of each length
    places: list[int] = []  # where it stands
    before = [-1] * len(offsets)
    for at, offset in enumerate(offsets):
        length = bisect_left(ends, offset)
        if length < len(ends) and ends[length] == offset:
            continue  # of two that are equal the later one is wrong
        before[at] = places[length - 1] if length else -1
        if length == len(ends):
            ends.append(offset)
            places.append(at)
        else:
            ends[length] = offset
            places[length] = at
    kept = set()
    at = places[-1] if places else -1
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [at for at in range(len(offsets)) if at not in kept]


def culprits(units: DataFrame) -> DataFrame:
    """The *units* that are out of order in their queues."""
    find = F.udf(out_of_order, ArrayType(IntegerType()), useArrow=False)  # Arrow's kind of function needs pandas
    unit = F.struct("queue_offset", "physical_offset", "file", "position")
    queues = units.groupBy(*QUEUE).agg(F.sort_array(F.collect_list(unit)).alias("units"))
    wrong = queues.withColumn("at", F.explode(find(F.col("units.physical_offset"))))
    return wrong.select(*QUEUE, F.col("units")[F.col("at")].alias("unit")).select(*QUEUE, "unit.*")


def check(tables: Tables) -> DataFrame:
    """One finding for each unit out of order."""
    queues = suspects(tables.kind("unit_fault"), tables.kind("units")).cache()
    if queues.isEmpty():
        return none_found(tables.spark)
    units = (
        named(tables.table("consumequeue"), queues)
        .where("status = 'ok'")
        .join(F.broadcast(queues), list(QUEUE))
        .select(*COLUMNS)
    )
    stores = F.broadcast(facts_frame(tables).select("store", "rebuilds", "judged_end"))
    judged = (
        culprits(units)
        .join(stores, "store")
        .where(~F.col("rebuilds") | (F.col("physical_offset") < F.col("judged_end")))
    )
    return findings(
        judged,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.lit("a physical offset between those of the units before and behind it"),
        actual=F.format_string("physical offset %d", F.col("physical_offset")),
        evidence=F.format_string(
            "queue offset %d, file %s at %d", F.col("queue_offset"), F.col("file"), F.col("position")
        ),
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
