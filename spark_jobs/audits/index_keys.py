"""The two sides of A7: keys that records have, and items that the index has, held against each other.

The scan has both as sums over 16 MiB of log; rows are read only where the sums differ, and not where a whole stretch
is excused: below the first item (the index was begun later, or its oldest files are gone), below the log, behind what
can be judged, and where no item stands at all (the index was switched off meanwhile, or Apache's recovery dropped a
file and did not walk so far back).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from spark_jobs.audits.base import settled, wrapped_sum
from spark_jobs.audits.books import spans_of
from spark_jobs.tables import Tables

BUCKET_BITS: Final = 24
TAG: Final = "tag"
ROLLBACK: Final = 12

KEYS: Final = ("store", "physical_offset", "topic", "queue_id", "part", "key", "key_hash")
KEY: Final = ArrayType(
    StructType(
        [
            StructField("part", StringType()),  # unique, key, tag
            StructField("key", StringType()),
            StructField("key_hash", IntegerType()),
        ]
    )
)


def differing(keys: DataFrame, items: DataFrame, stores: DataFrame) -> DataFrame:
    """Buckets (store, bucket) whose sums differ and that are not excused as a whole."""

    def sums(rows: DataFrame, name: str) -> DataFrame:
        upper, lower = wrapped_sum("digest")
        return (
            rows.groupBy("store", "bucket")
            .agg(
                F.sum("count").alias(f"{name}_count"),
                upper.alias("upper"),
                lower.alias("lower"),
                F.min("physical_offset_min").alias(f"{name}_min"),
                F.max("physical_offset_end").alias(f"{name}_end"),
            )
            .withColumn(f"{name}_digest", settled(F.col("upper"), F.col("lower")))
            .drop("upper", "lower")
        )

    joined = (
        sums(keys, "key")
        .join(sums(items, "item"), ["store", "bucket"], "full")
        .where(
            ~F.col("key_count").eqNullSafe(F.col("item_count")) | ~F.col("key_digest").eqNullSafe(F.col("item_digest"))
        )
        .join(F.broadcast(stores), "store")
    )
    no_keys = F.col("key_count").isNull()
    gone = no_keys & (F.col("item_end") <= F.col("log_begin"))
    rebuilt = (
        F.col("rebuilds")
        & (F.col("item_min") >= F.col("judged_end"))
        & (no_keys | (F.col("key_min") >= F.col("judged_end")))
    )
    return joined.where(F.col("item_count").isNotNull() & ~gone & ~rebuilt).select("store", "bucket")


def keys_of(topic: str, unique: str | None, words: str | None, tags: str | None) -> list[tuple[str, str, int]]:
    """The keys of a record as dispatch finds them: which part, the key, its hash."""
    from pymq import _scan

    found = [("unique", unique)] if unique is not None else []
    found += [("key", word) for word in (words or "").split(" ") if word]
    found += [(TAG, tags)] if tags else []
    return [
        (part, key, _scan.index_key_hash(topic.encode(), f"T#{key}".encode() if part == TAG else key.encode()))
        for part, key in found
    ]


def read_keys(tables: Tables, buckets: DataFrame) -> DataFrame:
    """The keys of all records of *buckets*: the columns of KEYS."""
    ranges = spans_of(
        (row.store, row.bucket << BUCKET_BITS, (row.bucket + 1) << BUCKET_BITS)
        for row in buckets.collect()
        if row.bucket >= 0
    )
    records = tables.records(ranges).where("status in ('ok', 'bad_crc', 'bad_record_crc')")
    keys = F.udf(keys_of, KEY, useArrow=False)  # Arrow's kind of function needs pandas
    return (
        records.where(f"sys_flag & {ROLLBACK} != {ROLLBACK}")
        .withColumn("one", F.explode(keys("topic", "uniq_key", "keys", "tags")))
        .select("store", "physical_offset", "topic", "queue_id", "one.*")
    )


def read_items(tables: Tables, buckets: DataFrame) -> DataFrame:
    """The index items that point into *buckets*."""
    return (
        tables.table("index")
        .where("item > 0")
        .withColumn("bucket", F.shiftright("physical_offset", BUCKET_BITS))
        .join(F.broadcast(buckets), ["store", "bucket"])
        .select("store", "file", "item", "key_hash", "physical_offset")
    )


def unmatched_items(items: DataFrame, keys: DataFrame, stores: DataFrame, damage: DataFrame) -> DataFrame:
    """Items for which no record has the key, where nothing excuses that."""
    hurt = damage.where("status not in ('bad_crc', 'bad_text', 'bad_properties', 'bad_compression')").select(
        F.col("store").alias("hurt_store"),
        F.col("physical_offset_min").alias("hurt_from"),
        F.col("physical_offset_end").alias("hurt_to"),
    )
    inside = (
        (F.col("store") == F.col("hurt_store"))
        & (F.col("physical_offset") >= F.col("hurt_from"))
        & (F.col("physical_offset") < F.col("hurt_to"))
    )
    return (
        items.join(keys, ["store", "physical_offset", "key_hash"], "left_anti")
        .join(F.broadcast(stores), "store")
        .where(F.col("physical_offset") >= F.col("log_begin"))
        .where(~F.col("rebuilds") | (F.col("physical_offset") < F.col("judged_end")))
        .join(F.broadcast(hurt), inside, "left_anti")
        .select("store", "file", "item", "key_hash", "physical_offset")
    )


def missing_keys(keys: DataFrame, items: DataFrame, files: DataFrame, stores: DataFrame) -> DataFrame:
    """Keys without an item, where neither the ends of the index nor recovery excuse that.

    A store with an index file whose header makes no sense is left out: what that file holds is not known.

    Columns of KEYS, `file` (the index file in whose span the record lies; null between two), `is_partial` (other keys
    of the record have items), and `spare`: items of that file that stand there twice.
    """
    one = ["store", "physical_offset", "key_hash"]
    wanted = keys.groupBy(*one).agg(
        F.count(F.lit(1)).alias("wanted"),
        *(F.first(name).alias(name) for name in ("topic", "queue_id", "part", "key")),
    )
    there = items.groupBy(*one).agg(F.count(F.lit(1)).alias("there"))
    record = Window.partitionBy("store", "physical_offset")
    joined = wanted.join(there, one, "left").withColumn("there", F.coalesce("there", F.lit(0)))
    counted = joined.withColumn("of_record", F.sum("there").over(record)).withColumn(
        "is_partial", F.col("of_record") > 0
    )
    spans = files.where("count > 0").select(
        "store",
        "file",
        F.col("physical_offset_min").alias("first_item"),
        F.col("physical_offset_end").alias("last_item"),
    )
    ends = spans.groupBy("store").agg(
        F.min("first_item").alias("index_begin"),
        F.array_union(F.collect_set("first_item"), F.collect_set("last_item")).alias("ends"),
        F.max("last_item").alias("index_end"),
    )
    unread = files.where("status = 'bad_header'").select("store").distinct()
    lacking = (
        counted.where("there < wanted")
        .join(F.broadcast(unread), "store", "left_anti")
        .join(F.broadcast(ends), "store")
        .where(F.col("physical_offset") > F.col("index_begin"))
        # A record whose other keys went into a file that is gone stands at the end, or at the beginning, of its file.
        .where(~F.array_contains("ends", F.col("physical_offset")) | (F.col("physical_offset") == F.col("index_end")))
        .join(F.broadcast(stores), "store")
        .where(F.col("physical_offset") < F.col("judged_end"))
    )
    spare = (
        items.join(joined.where("there > wanted").select(*one), one, "left_semi")
        .groupBy("store", "file")
        .agg((F.count(F.lit(1)) - F.countDistinct("physical_offset", "key_hash")).alias("spare"))
    )
    span = F.col("physical_offset").between(F.col("first_item"), F.col("last_item"))
    placed = (
        lacking.join(
            F.broadcast(spans.withColumnRenamed("store", "of")), (F.col("store") == F.col("of")) & span, "left"
        )
        .join(F.broadcast(spare), ["store", "file"], "left")
        .withColumn("spare", F.coalesce("spare", F.lit(0)))
    )
    return placed.select(*KEYS, "file", "is_partial", "spare", "index_end", "is_pymq")


def tagging(keys: DataFrame, items: DataFrame) -> DataFrame:
    """Stores whose index has items for tags: releases before 5.5 made none."""
    return (
        keys.where(F.col("part") == TAG)
        .join(items, ["store", "physical_offset", "key_hash"], "left_semi")
        .select("store")
        .distinct()
    )
