"""A5: the offsets of a queue are dense from its first unit to its last.

Proved: between a queue's first and last unit there is a unit for every offset: no zeros, no filler, no file missing or
cut short. Neighbouring offsets without a unit are one finding.

Legal: fillers in front of the first unit, where older messages were gone before the queue was made; zeros behind the
last unit, also where a file made ahead follows; in a store that recovery still has to work on, whatever stands behind
the last unit it will keep. A filler further on stands for an offset that never had a message: nothing is lost by it,
and somebody should know (a warning).

Cost: nothing beyond the scan; units are read of queues with a filler out of place, and of queues with holes in a store
that was not stopped cleanly.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import ERROR, WARNING, Audit, findings, measured, union
from spark_jobs.audits.books import PLACE, QUEUE, named, runs
from spark_jobs.audits.facts import facts, facts_frame
from spark_jobs.tables import Tables

CHECK: Final = "A5"
UNIT_SIZE: Final = 20


def last_units(tables: Tables, holes: DataFrame) -> DataFrame:
    """The last unit of each queue that counts (`last_unit`): the last there is, or the last that recovery keeps."""
    last = tables.kind("queue").groupBy(*QUEUE).agg(F.max("queue_offset_max").alias("last_unit"))
    if not any(one.rebuilds for one in facts(tables).values()):
        return last
    stores = facts_frame(tables).where("rebuilds").select("store", "judged_end")
    affected = holes.join(F.broadcast(stores), "store").select(*QUEUE, "judged_end").distinct().cache()
    kept = (
        named(tables.table("consumequeue"), affected)
        .where("status = 'ok'")
        .join(F.broadcast(affected), list(QUEUE))
        .where(F.col("physical_offset") < F.col("judged_end"))
        .groupBy(*QUEUE)
        .agg(F.max("queue_offset").alias("last_kept"))
    )
    rebuilt = affected.select(*QUEUE, F.lit(True).alias("is_rebuilt"))
    return (
        last.join(rebuilt, list(QUEUE), "left")
        .join(kept, list(QUEUE), "left")
        .withColumn("last_unit", F.when(F.col("is_rebuilt"), F.col("last_kept")).otherwise(F.col("last_unit")))
        .drop("is_rebuilt", "last_kept")
    )


def inner_holes(holes: DataFrame, last: DataFrame) -> DataFrame:
    """Holes with a unit behind them, as places."""
    return (
        holes.join(last, list(QUEUE))
        .where(F.col("queue_offset_min") < F.col("last_unit"))
        .select(*QUEUE, F.col("queue_offset_min").alias("queue_offset"), "file")
    )


def seam_holes(queues: DataFrame, last: DataFrame, fillers: DataFrame) -> DataFrame:
    """Places between the last unit of one file and the first of the next, where no file is missing.

    Zeros at the end of a file whose successor begins with zeros look to the scan like the end of the queue.
    """
    order = Window.partitionBy(*QUEUE).orderBy("base")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    base = F.regexp_extract("file", r"(\d+)$", 1).cast("long")
    seams = (
        queues.join(missing_files(queues), list(QUEUE), "left_anti")
        .withColumn("base", base)
        .withColumn("from", F.last("queue_offset_max", ignorenulls=True).over(before) + 1)
        .where(F.col("from") < F.col("queue_offset_min"))
        .join(last, list(QUEUE))
        .where(F.col("queue_offset_min") <= F.col("last_unit"))
        .select(*QUEUE, F.explode(F.sequence("from", F.col("queue_offset_min") - 1)).alias("queue_offset"), "file")
    )
    return seams.join(fillers, list(PLACE), "left_anti")


def inner_fillers(tables: Tables) -> DataFrame:
    """Fillers behind a queue's first unit, as places."""
    units = tables.kind("units")
    first = units.where("status = 'ok'").groupBy(*QUEUE).agg(F.min("queue_offset_min").alias("first_unit"))
    suspects = (
        units.where("status = 'filler'")
        .join(first, list(QUEUE))
        .where(F.col("queue_offset_max") > F.col("first_unit"))
        .select(*QUEUE, "first_unit")
        .distinct()
        .cache()
    )
    if suspects.isEmpty():
        return units.limit(0).select(*QUEUE, F.col("queue_offset_min").alias("queue_offset"), "file")
    return (
        named(tables.table("consumequeue"), suspects)
        .where("status = 'filler'")
        .join(F.broadcast(suspects), list(QUEUE))
        .where(F.col("queue_offset") > F.col("first_unit"))
        .select(*PLACE, "file")
    )


def missing_files(queues: DataFrame) -> DataFrame:
    """Queue files that do not begin where the one before ends: `from` and `to` are the offsets between them."""
    order = Window.partitionBy(*QUEUE).orderBy("base")
    base = F.regexp_extract("file", r"(\d+)$", 1).cast("long")
    return (
        queues.withColumn("base", base)
        .withColumn("end", F.col("base") + F.col("bytes"))
        .withColumn("next_base", F.lead("base").over(order))
        .where(F.col("next_base") != F.col("end"))
        .select(
            *QUEUE,
            "file",
            F.expr(f"end div {UNIT_SIZE}").alias("from"),
            F.expr(f"next_base div {UNIT_SIZE}").alias("to"),
        )
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each run of offsets without a unit."""
    faults, queues = tables.kind("unit_fault").where("status = 'hole'"), tables.kind("queue")
    parts = [gaps(missing_files(queues))]
    fillers = inner_fillers(tables)
    if not faults.isEmpty():
        last = last_units(tables, faults)
        places = inner_holes(faults, last).unionByName(seam_holes(queues, last, fillers)).dropDuplicates(list(PLACE))
        parts.append(said(runs(places.withColumn("reason", F.lit("zeros")), F.col("reason")), ERROR))
    parts.append(said(runs(fillers.withColumn("reason", F.lit("a filler")), F.col("reason")), WARNING))
    return union(parts, tables.spark)


def said(found: DataFrame, severity: str) -> DataFrame:
    """Findings of places."""
    others = F.when(F.col("places") > 1, F.format_string(", and so up to %d", F.col("last"))).otherwise("")
    return findings(
        found,
        CHECK,
        severity=severity,
        topic="topic",
        queue="queue_id",
        offset="first",
        expected=F.lit("a unit, because units stand before and behind it"),
        actual=F.concat(F.col("reason"), others),
        evidence=F.format_string("queue offset %d of file %s", F.col("first"), F.col("file")),
    )


def gaps(found: DataFrame) -> DataFrame:
    """Findings of missing files."""
    return findings(
        found,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="from",
        expected=F.format_string("a file that begins with offset %d", F.col("from")),
        actual=F.format_string("the next file begins with %d", F.col("to")),
        evidence=F.format_string("queue offset %d, behind file %s", F.col("from"), F.col("file")),
    )


def metrics(tables: Tables) -> DataFrame:
    """Queues, units and fillers that were looked at."""
    queues = tables.kind("queue").groupBy("store").agg(F.countDistinct("topic", "queue_id").alias("value"))
    units = tables.kind("units").groupBy("store", "status").agg(F.sum("count").alias("value"))
    return measured(queues, CHECK, "queues", "value").unionByName(
        measured(units, CHECK, "units", "value", label="status")
    )


AUDIT: Final = Audit(
    CHECK,
    "a queue's offsets are dense from its first unit to its last",
    check,
    metrics=metrics,
    tables=("scan", "checkpoint", "consumequeue"),
)
