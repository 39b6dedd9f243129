"""A4: every unit of a queue points at a record that says it stands there.

Proved: at the unit's physical offset a record begins, of the unit's topic, queue and queue offset, with the unit's size
and tags code. Neighbouring units that are wrong in the same way are one finding.

Legal: units below the beginning of the log, as long as none before them is above it; what recovery rebuilds; units of
damaged records (A1 and A2 name those); units of light queues (`%LMQ%`), whose records are of another topic and name
the queue in INNER_MULTI_DISPATCH. Of delayed messages the tags code is the delivery time: it may lie up to a day before
store time + delay, because a clock that was set back counts from its own time; and if all units of a level are off by
the same, the level was configured otherwise.

Cost: as A3, and of each wrong unit the record it points at.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import Audit, findings, measured, none_found
from spark_jobs.audits.books import PLACE, QUEUE, books, runs, spans_of
from spark_jobs.tables import Tables

CHECK: Final = "A4"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
CLOCK_BACK_MS_MAX: Final = 24 * 60 * 60 * 1000
DISPATCH_NAMES: Final = "INNER_MULTI_DISPATCH"
DISPATCH_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"


def unfounded(places: DataFrame, stores: DataFrame, units: DataFrame) -> DataFrame:
    """Units without their record, where neither the log's beginning nor recovery excuses it; with a `reason`.

    *units* are the scan's sums of them, to know where a queue's units come into the log.
    """
    here = F.col("record_offset") == F.col("unit_offset")
    tags = F.coalesce(here & F.expr("unit_tags = record_tags"), F.lit(False))
    judged = (
        places.where(F.col("unit_offset").isNotNull())
        .withColumn("tags_agree", tags | other_time(here))
        .groupBy(*PLACE, "unit_offset", "unit_size", "unit_tags", "unit_file", "unit_position")
        .agg(
            F.max(F.coalesce(here, F.lit(False))).alias("is_there"),
            F.max(F.coalesce(here & (F.col("record_size") == F.col("unit_size")), F.lit(False))).alias("size_agrees"),
            F.max("tags_agree").alias("tags_agree"),
            F.max(F.when(here, F.col("record_size"))).alias("record_size"),
            F.max(F.when(here, F.col("record_tags"))).alias("record_tags"),
        )
        .join(F.broadcast(stores), "store")
    )
    came_in = (
        units.where("status = 'ok'")
        .join(F.broadcast(stores.select("store", "log_begin")), "store")
        .where(F.col("physical_offset_min") >= F.col("log_begin"))
        .groupBy(*QUEUE)
        .agg(F.min("queue_offset_min").alias("came_in_at"))
    )
    before = Window.partitionBy(*QUEUE).orderBy("queue_offset").rowsBetween(Window.unboundedPreceding, -1)
    was_in = F.max((F.col("unit_offset") >= F.col("log_begin")).cast("int")).over(before)
    reason = (
        F.when(~F.col("is_there"), "elsewhere").when(~F.col("size_agrees"), "size").when(~F.col("tags_agree"), "tags")
    )
    expired = (
        F.col("unit_offset").between(F.lit(0), F.col("log_begin") - 1)
        & (F.coalesce("was_in", F.lit(0)) == 0)
        & (F.coalesce("came_in_at", F.lit(2**63 - 1)) >= F.col("queue_offset"))
    )
    rebuilt = F.col("rebuilds") & (F.col("unit_offset") >= F.col("judged_end"))
    return (
        judged.withColumn("was_in", was_in)
        .withColumn("reason", reason)
        .where(F.col("reason").isNotNull())
        .join(came_in, list(QUEUE), "left")
        .where(~expired & ~rebuilt)
        .drop(*(name for name in stores.columns if name != "store"), "was_in", "came_in_at")
    )


def other_time(here: Column) -> Column:
    """Whether a delayed message's delivery time is one that another clock, or another level, has given."""
    early = F.col("record_tags") - F.col("unit_tags")
    off = F.when(here, early)
    whole = Window.partitionBy(*QUEUE)
    same = (F.min(off).over(whole) == F.max(off).over(whole)) & (F.count(off).over(whole) > 1)
    clock = (early >= 0) & (early <= CLOCK_BACK_MS_MAX)
    return F.coalesce((F.col("topic") == SCHEDULE_TOPIC) & here & (clock | same), F.lit(False))


def in_damage(units: DataFrame, damage: DataFrame) -> DataFrame:
    """*units* without those that point into damage of the log."""
    hurt = damage.where("status not in ('bad_crc', 'bad_text', 'bad_properties', 'bad_compression')").select(
        "store", F.col("physical_offset_min").alias("hurt_from"), F.col("physical_offset_end").alias("hurt_to")
    )
    inside = (
        (units.store == hurt.store)
        & (F.col("unit_offset") >= F.col("hurt_from"))
        & (F.col("unit_offset") < F.col("hurt_to"))
    )
    return units.join(F.broadcast(hurt), inside, "left_anti")


def beheld(tables: Tables, units: DataFrame) -> DataFrame:
    """*units* with what stands where they point (`there`), without those of light queues."""
    wanted = units.where("reason = 'elsewhere'").select("store", "unit_offset").distinct().collect()
    ranges = spans_of((row.store, row.unit_offset, row.unit_offset + 1) for row in wanted if row.unit_offset >= 0)
    if not ranges:
        return units.withColumn("there", F.lit(None).cast("string"))
    names = F.split(F.col("properties")[DISPATCH_NAMES], ",")
    offsets = F.split(F.col("properties")[DISPATCH_OFFSETS], ",")
    seen = tables.records(ranges, properties="map").select(
        "store",
        F.col("physical_offset").alias("unit_offset"),
        F.when(F.col("topic").isNull(), F.col("status"))
        .otherwise(F.format_string("a record of %s, queue %d, offset %d", "topic", "queue_id", "queue_offset"))
        .alias("there"),
        F.arrays_zip(names.alias("name"), offsets.alias("offset")).alias("light"),
    )
    light = F.exists(
        F.coalesce("light", F.array().cast("array<struct<name:string,offset:string>>")),
        lambda one: (one["name"] == F.col("topic")) & (one["offset"] == F.col("queue_offset").cast("string")),
    )
    return units.join(seen, ["store", "unit_offset"], "left").where(~light).drop("light")


def check(tables: Tables) -> DataFrame:
    """One finding for each run of units that point at nothing of their own."""
    both = books(tables)
    if both.is_empty:
        return none_found(tables.spark)
    wrong = in_damage(unfounded(both.places, both.stores, tables.kind("units")), tables.kind("damage")).cache()
    found = runs(beheld(tables, wrong), F.col("reason"))
    expected = (
        F.when(F.col("reason") == "size", F.format_string("size %d, as the record has", F.col("record_size")))
        .when(F.col("reason") == "tags", F.format_string("tags code %d, as the record gives", F.col("record_tags")))
        .otherwise(F.format_string("a record of this queue's offset %d at %d", F.col("first"), F.col("unit_offset")))
    )
    actual = (
        F.when(F.col("reason") == "size", F.format_string("size %d", F.col("unit_size")))
        .when(F.col("reason") == "tags", F.format_string("tags code %d", F.col("unit_tags")))
        .otherwise(F.coalesce("there", F.lit("no record begins there")))
    )
    others = F.when(F.col("places") > 1, F.format_string(", and so up to %d", F.col("last"))).otherwise("")
    return findings(
        found,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="first",
        expected=expected,
        actual=F.concat(actual, others),
        evidence=F.format_string(
            "queue offset %d, file %s at %d", F.col("first"), F.col("unit_file"), F.col("unit_position")
        ),
    )


def metrics(tables: Tables) -> DataFrame:
    """Units held against records."""
    units = tables.kind("units").where("status = 'ok'").groupBy("store").agg(F.sum("count").alias("value"))
    return measured(units, CHECK, "units", "value")


AUDIT: Final = Audit(
    CHECK,
    "every unit points at its record",
    check,
    metrics=metrics,
    tables=("scan", "checkpoint", "topics", "removed_topics", "commitlog", "consumequeue"),
)
