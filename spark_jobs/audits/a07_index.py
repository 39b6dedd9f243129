"""A7: every index item leads to a record that has its key, and every key of a record has its item.

Proved: for each item a record begins at its physical offset that has a key (UNIQ_KEY, a word of KEYS, `T#` and its
tags) with the item's hash; each item hangs on the chain of its slot; a file's header says what its items say; each key
of a record has an item as far as the index was kept. One broken item is one finding: the key it no longer serves, and
the chain it no longer fits, are not counted again.

Legal: no index at all; records in front of its first item (begun later, oldest files removed) or behind its last where
it was switched off; stretches without any item between two files or inside one (switched off meanwhile, or dropped by
Apache's recovery); items of records whose log files are gone; the same item twice (Apache's recovery puts the last
record again); no items for tags (before 5.5); what recovery rebuilds; items of damaged records (A1). What that hides:
an index file that is missing as a whole.

Cost: sums of the scan; rows of stretches of 16 MiB of log whose sums differ, and the two records that each index file's
header speaks of.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import WARNING, Audit, findings, measured, none_found, union
from spark_jobs.audits.books import spans_of
from spark_jobs.audits.facts import facts, facts_frame
from spark_jobs.audits.index_keys import (
    TAG,
    differing,
    missing_keys,
    read_items,
    read_keys,
    tagging,
    unmatched_items,
)
from spark_jobs.tables import Tables

CHECK: Final = "A7"
HEADER: Final = "begin_timestamp_ms bigint, end_timestamp_ms bigint"
END: Final = ("end_timestamp_ms", "end_time")


def unserved(missing: DataFrame, broken: DataFrame, taggers: DataFrame, complete: DataFrame) -> DataFrame:
    """Missing keys that are findings: those that no broken item, no older writer and no switched-off index explains.

    *broken* are unmatched items, *taggers* the stores whose index has tags, *complete* the stores whose index says that
    it goes to the end of the log.
    """
    counts = missing.join(broken.select("store", "file").distinct(), ["store", "file"], "left_anti")
    tags = counts.join(F.broadcast(taggers.withColumn("tags_kept", F.lit(True))), "store", "left").where(
        (F.col("part") != TAG) | F.col("tags_kept")
    )
    whole = tags.join(F.broadcast(complete.withColumn("is_complete", F.lit(True))), "store", "left")
    lost = whole.groupBy("store", "file").agg(F.sum((~F.col("is_partial")).cast("int")).alias("lost"))
    overwritten = F.col("file").isNotNull() & (F.col("lost") <= F.col("spare"))
    behind = F.col("is_complete") & (F.col("physical_offset") > F.col("index_end"))
    return (
        whole.join(
            F.broadcast(lost.withColumnRenamed("store", "in").withColumnRenamed("file", "of")),
            (F.col("store") == F.col("in")) & F.col("file").eqNullSafe(F.col("of")),
        )
        .where(F.col("is_partial") | overwritten | F.coalesce(behind, F.lit(False)))
        .withColumn("is_behind", F.coalesce(behind, F.lit(False)) & ~F.col("is_partial"))
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each broken item, chain or header, and for each record with a key that lost its item."""
    files = tables.kind("index").cache()
    if files.isEmpty():
        return none_found(tables.spark)
    stores = facts_frame(tables)
    indexed = files.select("store").distinct()
    keys = tables.kind("keys").join(F.broadcast(indexed), "store")
    buckets = differing(keys, tables.kind("items"), stores).cache()
    parts = []
    broken = files.limit(0).select("store", "file")
    if not buckets.isEmpty():
        record_keys, items = read_keys(tables, buckets).cache(), read_items(tables, buckets).cache()
        unmatched = unmatched_items(items, record_keys, stores, tables.kind("damage")).cache()
        complete = tables.spark.createDataFrame(
            [(one.store,) for one in facts(tables).values() if says_complete(one.page, one.rebuilds)], "store string"
        )
        missing = missing_keys(record_keys, items, files, stores)
        lost = unserved(missing, unmatched, tagging(record_keys, items), complete)
        parts += [broken_items(unmatched), lost_keys(lost)]
        broken = unmatched.select("store", "file").distinct()
    # A broken item breaks its chain, and a broken chain makes the header's counts wrong: the first of them is told.
    chains = tables.kind("item_fault").join(F.broadcast(broken), ["store", "file"], "left_anti")
    told = broken.unionByName(tables.kind("item_fault").select("store", "file")).distinct()
    headed = files.join(F.broadcast(told), ["store", "file"], "left_anti")
    sound = headed.where("status != 'bad_header' and count > 0")
    parts += [
        broken_chains(chains),
        headers(headed.where("status = 'bad_header'")),
        wrong_times(tables, sound, stores),
    ]
    return union(parts, tables.spark)


def says_complete(page: dict, rebuilds: bool) -> bool:
    """Whether pymq's checkpoint vouches for an index up to the end of the log."""
    end = page["pymq_index_end"]
    return end is not None and end >= 0 and not rebuilds


def broken_items(unmatched: DataFrame) -> DataFrame:
    """Findings of items that lead nowhere."""
    return findings(
        unmatched,
        CHECK,
        offset="physical_offset",
        expected=F.format_string(
            "a record at %d with a key whose hash is %d", F.col("physical_offset"), F.col("key_hash")
        ),
        actual=F.lit("no record there has such a key"),
        evidence=F.format_string("item %d of file %s", F.col("item"), F.col("file")),
    )


def lost_keys(lost: DataFrame) -> DataFrame:
    """Findings of keys without an item: one a record, and one for all records behind the end of the index."""
    one = F.when(~F.col("is_behind"), F.col("physical_offset"))
    found = lost.groupBy("store", one.alias("one")).agg(
        F.min("physical_offset").alias("physical_offset"),
        F.min_by("topic", "physical_offset").alias("topic"),
        F.min_by("queue_id", "physical_offset").alias("queue_id"),
        F.count(F.lit(1)).alias("keys"),
        F.min_by("key", "physical_offset").alias("key"),
    )
    return findings(
        found,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="physical_offset",
        expected=F.format_string("an item for %s (%d keys without one)", F.col("key"), F.col("keys")),
        actual=F.lit("none"),
        evidence=F.format_string("record at physical offset %d", F.col("physical_offset")),
    )


def broken_chains(faults: DataFrame) -> DataFrame:
    """Findings of links that do not lead where they should."""
    return findings(
        faults,
        CHECK,
        offset="physical_offset_min",
        expected=F.lit("a chain from the slot through all of its items, newest first"),
        actual=F.col("detail"),
        evidence=F.format_string("file %s", F.col("file")),
    )


def headers(files: DataFrame) -> DataFrame:
    """Findings of headers that contradict the items; `offset` is the byte of the file."""
    trouble = F.coalesce(F.get_json_object("detail", "$.trouble"), F.col("detail"), F.lit("bad_header"))
    at = F.lit(0)
    for words, place in (("begin offset", 16), ("end offset", 24), ("slots used", 32), ("index count", 36)):
        at = F.when(trouble.contains(words), place).otherwise(at)
    return findings(
        files,
        CHECK,
        offset=at,
        expected=F.lit("a header that says what the items say"),
        actual=trouble,
        evidence=F.format_string("header of file %s at %d", F.col("file"), at),
    )


def wrong_times(tables: Tables, files: DataFrame, stores: DataFrame) -> DataFrame:
    """Findings of headers whose times are not those of the first and last record."""
    places = [
        (row.store, offset, offset + 1)
        for row in files.select("store", "physical_offset_min", "physical_offset_end").collect()
        for offset in (row.physical_offset_min, row.physical_offset_end)
    ]
    if not places:
        return none_found(tables.spark)
    records = tables.records(spans_of(places)).select("store", "physical_offset", "store_timestamp").cache()
    begin = records.withColumnsRenamed({"physical_offset": "physical_offset_min", "store_timestamp": "begin_time"})
    end = records.withColumnsRenamed({"physical_offset": "physical_offset_end", "store_timestamp": "end_time"})
    fields = ((0, "begin timestamp", "begin_timestamp_ms", "begin_time"), (8, "end timestamp", *END))
    wrong = F.array(
        *(
            F.when(
                F.col(is_) != F.col(should),
                F.struct(
                    F.lit(at).alias("at"),
                    F.format_string(f"{name} %d", F.col(should)).alias("should"),
                    F.format_string(f"{name} %d", F.col(is_)).alias("is"),
                ),
            )
            for at, name, is_, should in fields
        )
    )
    found = (
        files.withColumn("header", F.from_json("detail", HEADER))
        .select("store", "file", "physical_offset_min", "physical_offset_end", "header.*")
        .join(begin, ["store", "physical_offset_min"], "left")
        .join(end, ["store", "physical_offset_end"], "left")
        .join(F.broadcast(stores.select("store", "judged_end", "rebuilds")), "store")
        .where(~F.col("rebuilds") | (F.col("physical_offset_end") < F.col("judged_end")))
        .withColumn("wrong", F.explode(F.array_compact(wrong)))
    )
    return findings(
        found,
        CHECK,
        severity=WARNING,
        offset=F.col("wrong.at"),
        expected=F.col("wrong.should"),
        actual=F.col("wrong.is"),
        evidence=F.format_string("header of file %s at %d", F.col("file"), F.col("wrong.at")),
    )


def metrics(tables: Tables) -> DataFrame:
    """Keys, items and index files."""
    total = F.sum("count").alias("value")
    return (
        measured(tables.kind("keys").groupBy("store").agg(total), CHECK, "keys", "value")
        .unionByName(measured(tables.kind("items").groupBy("store").agg(total), CHECK, "items", "value"))
        .unionByName(
            measured(
                tables.kind("index").groupBy("store").agg(F.count(F.lit(1)).alias("value")),
                CHECK,
                "index_files",
                "value",
            )
        )
    )


AUDIT: Final = Audit(
    CHECK,
    "index items lead to records with their keys, and keys to items",
    check,
    metrics=metrics,
    tables=("scan", "checkpoint", "commitlog", "index"),
)
