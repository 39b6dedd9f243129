"""The two sides of A3 and A4: what the log says stands in a queue, and what the queue has.

The scan has both as sums over 4,096 queue offsets. Where the sums agree there is nothing to see: equal counts and equal
digests of (queue offset, physical offset, size, tags code). Rows are read only of buckets that do not agree, and of
those only what is not excused as a whole:

    units below the log             their records went with old log files
    records of a removed topic      `removedTopics` says so; with Apache, which keeps no list, there is no queue
                                    directory and no configuration, or the topic's units all begin behind them
    what recovery rebuilds          see `facts`

A topic that was removed and made again begins at queue offset 0, so an older record stands where a younger one of the
same name stands, or behind the queue's end; a hole in the queue is never of that kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import settled, wrapped_sum
from spark_jobs.audits.facts import LONG_MAX, facts_frame, small
from spark_jobs.tables import ByteRange, Tables

BUCKET_BITS: Final = 12
SPANS_MAX: Final = 4096  # ranges of the log to ask for one by one; beyond that one for each store
TOPICS_MAX: Final = 512  # topics to name in a filter
QUEUE: Final = ("store", "topic", "queue_id")
BUCKET: Final = (*QUEUE, "bucket")
PLACE: Final = (*QUEUE, "queue_offset")
DISPATCHED: Final = "sys_flag & 12 in (0, 8) and status in ('ok', 'bad_crc', 'bad_record_crc')"


def sums(rows: DataFrame, name: str) -> DataFrame:
    """A bucket's count, digest and physical offsets, its columns called after *name*."""
    upper, lower = wrapped_sum("digest")
    grouped = rows.groupBy(*BUCKET).agg(
        F.sum("count").alias(f"{name}_count"),
        upper.alias("upper"),
        lower.alias("lower"),
        F.min("physical_offset_min").alias(f"{name}_min"),
        F.max("physical_offset_end").alias(f"{name}_end"),
    )
    return grouped.withColumn(f"{name}_digest", settled(F.col("upper"), F.col("lower"))).drop("upper", "lower")


def topic_states(units: DataFrame, queues: DataFrame, topics: DataFrame, removed: DataFrame) -> DataFrame:
    """What excuses records of a topic, a row a topic.

    `birth`: its queues begin there, so older records are of another life of the topic, unless a hole tells otherwise.
    `removed_below`: `removedTopics` says that nothing below is in a queue. `is_lost`: it is configured, and has no
    queue directory at all.
    """
    one = ["store", "topic"]
    born = units.where("status = 'ok'").groupBy(*one).agg(F.min("physical_offset_min").alias("first_unit"))
    there = queues.groupBy(*one).agg(F.lit(True).alias("has_directory"))
    listed = topics.select(*one, F.lit(True).alias("is_configured"))
    gone = removed.groupBy(*one).agg(F.max("physical_offset").alias("removed_below"))
    joined = there.join(born, one, "full").join(listed, one, "full").join(gone, one, "full")
    has_directory = F.coalesce("has_directory", F.lit(False))
    is_configured = F.coalesce("is_configured", F.lit(False))
    birth = (
        F.when(F.col("first_unit").isNotNull(), F.col("first_unit"))
        .when(has_directory | is_configured, F.lit(0))
        .otherwise(F.lit(LONG_MAX))
    )
    return joined.select(
        *one,
        birth.alias("birth"),
        F.coalesce("removed_below", F.lit(0)).alias("removed_below"),
        (~has_directory & is_configured).alias("is_lost"),
    )


def disagreeing(records: DataFrame, units: DataFrame, stores: DataFrame, states: DataFrame) -> DataFrame:
    """Buckets whose two sides differ and that are not excused as a whole: the key, and both sides' counts and spans."""
    joined = (
        sums(records, "record")
        .join(sums(units.where("status = 'ok'"), "unit"), list(BUCKET), "full")
        .where(
            ~F.col("record_count").eqNullSafe(F.col("unit_count"))
            | ~F.col("record_digest").eqNullSafe(F.col("unit_digest"))
        )
        .join(F.broadcast(stores), "store")
        .join(states, ["store", "topic"], "left")
    )
    no_records, no_units = F.col("record_count").isNull(), F.col("unit_count").isNull()
    below_log = no_records & (F.col("unit_end") <= F.col("log_begin"))
    gone_below = F.greatest(F.coalesce("birth", F.lit(LONG_MAX)), F.coalesce("removed_below", F.lit(0)))
    of_removed = no_units & (F.col("record_end") <= gone_below)
    rebuilt = (
        F.col("rebuilds")
        & (no_records | (F.col("record_min") >= F.col("judged_end")))
        & (no_units | (F.col("unit_min") >= F.col("judged_end")))
    )
    return joined.where(~below_log & ~of_removed & ~rebuilt).select(
        *BUCKET, "record_count", "record_min", "record_end", "unit_count", "unit_min", "unit_end"
    )


def spans_of(rows: Iterable[tuple[str, int, int]]) -> list[ByteRange]:
    """Ranges that cover all of *rows* (store, begin, end): merged, and one for each store when they are too many."""
    merged: list[ByteRange] = []
    for store, begin, end in sorted(rows):
        if merged and merged[-1].store == store and begin <= merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(end, merged[-1].end))
        else:
            merged.append(ByteRange(store, begin, end))
    if len(merged) <= SPANS_MAX:
        return merged
    stores = {one.store for one in merged}
    return [
        ByteRange(
            store,
            min(one.begin for one in merged if one.store == store),
            max(one.end for one in merged if one.store == store),
        )
        for store in sorted(stores)
    ]


def places(tables: Tables, buckets: DataFrame) -> DataFrame:
    """Every place of the disagreeing *buckets*: the record that says it stands there, beside the unit that does.

    A place has as many rows as it has records: one, or none, or one for each life of a removed topic.
    """
    spans = buckets.where("record_min is not null").select("store", "record_min", "record_end").distinct().collect()
    ranges = spans_of((row.store, row.record_min, row.record_end) for row in spans)
    keys = F.broadcast(buckets.select(*BUCKET))
    bucket = F.shiftright("queue_offset", BUCKET_BITS).alias("bucket")
    records = (
        tables.records(ranges)
        .where(DISPATCHED)
        .withColumn("bucket", bucket)
        .join(keys, list(BUCKET))
        .select(
            *PLACE,
            F.col("physical_offset").alias("record_offset"),
            F.col("size").alias("record_size"),
            F.col("tags_code").alias("record_tags"),
        )
    )
    units = (
        named(tables.table("consumequeue"), buckets)
        .where("status = 'ok'")
        .withColumn("bucket", bucket)
        .join(keys, list(BUCKET))
        .select(
            *PLACE,
            F.col("physical_offset").alias("unit_offset"),
            F.col("size").alias("unit_size"),
            F.col("tags_code").alias("unit_tags"),
            F.col("file").alias("unit_file"),
            F.col("position").alias("unit_position"),
        )
    )
    return records.join(units, list(PLACE), "full")


def named(frame: DataFrame, buckets: DataFrame) -> DataFrame:
    """*frame* of the topics that *buckets* has, when they are few enough to be named: whole directories go unread."""
    topics = [row.topic for row in buckets.select("topic").distinct().limit(TOPICS_MAX + 1).collect()]
    return frame if len(topics) > TOPICS_MAX else frame.where(F.col("topic").isin(topics))


class Books:
    """Both sides of all stores, worked out once for A3 and A4."""

    def __init__(self, tables: Tables) -> None:
        """Compare the sums; rows are read where `places` is asked for."""
        self.tables = tables
        self.stores = facts_frame(tables)
        units = tables.kind("units")
        self.states = topic_states(
            units, tables.kind("queue"), small(tables, "topics"), small(tables, "removed_topics")
        ).cache()
        self.buckets = disagreeing(tables.kind("records"), units, self.stores, self.states).cache()
        self.is_empty = self.buckets.isEmpty()

    @property
    def places(self) -> DataFrame:
        """See `places`."""
        return self.tables.once("places", lambda: places(self.tables, self.buckets).cache())


def books(tables: Tables) -> Books:
    """The books of *tables*."""
    return tables.once("books", lambda: Books(tables))


def runs(frame: DataFrame, reason: Column) -> DataFrame:
    """Neighbouring places with one *reason* as one row: a lost queue file is one finding, not 300,000.

    Columns `first` and `last` (queue offsets), `places`, and those of the first place.
    """
    order = Window.partitionBy(*QUEUE, "reason").orderBy("queue_offset")
    step = F.col("queue_offset") - F.lag("queue_offset").over(order)
    begins = F.when(F.coalesce(step, F.lit(2)) <= 1, 0).otherwise(1)
    numbered = (
        frame.withColumn("reason", reason).withColumn("begins", begins).withColumn("run", F.sum("begins").over(order))
    )
    kept = [name for name in frame.columns if name not in (*QUEUE, "queue_offset", "reason")]
    return numbered.groupBy(*QUEUE, "reason", "run").agg(
        F.min("queue_offset").alias("first"),
        F.max("queue_offset").alias("last"),
        F.count(F.lit(1)).alias("places"),
        *(F.min_by(name, "queue_offset").alias(name) for name in kept),
    )
