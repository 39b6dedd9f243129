"""A2: the log is one walk from its first byte to its end.

Proved: from each file's first byte on one record follows the other, each where it says it stands, up to one blank tail
that covers the rest of the file exactly; every file but the last is full; the first record of a file says the offset
that is the file's name. A file with another name than its records say is one finding, not one for each of them.

Legal: zeros from the end of the log to the end of the last file, and files made ahead; what recovery cuts off (A1).

Cost: the rows the scan has for ranges (one for each 128 MiB) and damages; nothing else is read.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.a01_record_integrity import ZEROS
from spark_jobs.audits.base import Audit, counted, findings, union
from spark_jobs.audits.facts import facts, facts_frame
from spark_jobs.tables import Tables

CHECK: Final = "A2"
MISPLACED: Final = "bad_offset"
STATUSES: Final = ("bad_blank", "truncated")
OWN_OFFSET: Final = r"says it stands at (-?\d+)"


def in_place(damage: DataFrame, stores: DataFrame) -> DataFrame:
    """Damage that is about the walk, where nothing excuses it."""
    detail = F.coalesce(F.col("detail"), F.lit(""))
    wanted = F.col("status").isin(*STATUSES, MISPLACED) | ((F.col("status") == "bad_magic") & detail.startswith(ZEROS))
    return (
        damage.where(wanted)
        .join(F.broadcast(stores.select("store", "torn_from")), "store")
        .where(F.col("physical_offset_min") < F.col("torn_from"))
    )


def misplaced(damage: DataFrame) -> DataFrame:
    """Records that say they stand elsewhere: runs of neighbours that are all off by the same, one row each."""
    shift = F.regexp_extract("detail", OWN_OFFSET, 1).cast("long") - F.col("physical_offset_min")
    order = Window.partitionBy("store", "file").orderBy("physical_offset_min")
    follows = (F.lag("physical_offset_end").over(order) == F.col("physical_offset_min")) & (
        F.lag("shift").over(order) == F.col("shift")
    )
    runs = (
        damage.where(F.col("status") == MISPLACED)
        .withColumn("shift", shift)
        .withColumn("begins", F.when(F.coalesce(follows, F.lit(False)), 0).otherwise(1))
        .withColumn("run", F.sum("begins").over(order))
    )
    return runs.groupBy("store", "file", "run", "shift").agg(
        F.min("physical_offset_min").alias("offset"),
        F.count(F.lit(1)).alias("records"),
        F.min_by("topic", "physical_offset_min").alias("topic"),
        F.min_by("queue_id", "physical_offset_min").alias("queue_id"),
    )


def broken(ranges: DataFrame) -> DataFrame:
    """Ranges that do not meet the next one of their file, and files that could not be read."""
    order = Window.partitionBy("store", "file").orderBy("physical_offset_min")
    after = F.lead("physical_offset_min").over(order)
    return ranges.withColumn("after", after).where(
        (F.col("status") == "missing")
        | (F.col("after").isNotNull() & (F.col("status") == "done") & (F.col("physical_offset_end") != F.col("after")))
        | (F.col("after").isNotNull() & F.col("status").isin("blank", "unwritten"))
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each place where the walk breaks off or goes wrong."""
    damage = in_place(tables.kind("damage"), facts_frame(tables))
    return union(
        [
            stretches(damage.where(F.col("status") != MISPLACED)),
            places(misplaced(damage)),
            gaps(broken(tables.kind("range"))),
        ],
        tables.spark,
    )


def stretches(damage: DataFrame) -> DataFrame:
    """Findings of blank tails that do not fit, records that run over the end, zeros inside the log."""
    expected = (
        F.when(F.col("status") == "bad_blank", "a blank tail that covers the rest of the file")
        .when(F.col("status") == "truncated", "a record that ends inside its file")
        .otherwise("records up to the blank tail, because the log goes on in the next file")
    )
    return findings(
        damage,
        CHECK,
        offset="physical_offset_min",
        expected=expected,
        actual=F.concat_ws(": ", F.col("status"), F.col("detail")),
        evidence=F.format_string("physical offset %d of file %s", F.col("physical_offset_min"), F.col("file")),
    )


def places(runs: DataFrame) -> DataFrame:
    """Findings of records that say they stand elsewhere."""
    own = F.col("offset") + F.col("shift")
    return findings(
        runs,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="offset",
        expected=F.format_string("a record that says it stands at %d", F.col("offset")),
        actual=F.format_string("%d records off by %d, the first says %d", F.col("records"), F.col("shift"), own),
        evidence=F.format_string("physical offset %d of file %s%s", F.col("offset"), F.col("file"), misnamed(own)),
    )


def misnamed(own: Column) -> Column:
    """What to say when it is the file's first record."""
    first = F.regexp_extract("file", r"(\d+)$", 1).cast("long") == F.col("offset")
    return F.when(first, F.format_string("; its first record belongs into a file called %020d", own)).otherwise("")


def gaps(ranges: DataFrame) -> DataFrame:
    """Findings of ranges that do not meet."""
    wanted = F.when(F.col("status") == "missing", F.lit("a file that can be read")).otherwise(
        F.format_string("a walk that comes to %d", F.col("after"))
    )
    return findings(
        ranges,
        CHECK,
        offset="physical_offset_end",
        expected=wanted,
        actual=F.concat_ws(" ", F.col("status"), F.lit("at"), F.col("physical_offset_end").cast("string"), "detail"),
        evidence=F.format_string("physical offset %d of file %s", F.col("physical_offset_end"), F.col("file")),
    )


def metrics(tables: Tables) -> DataFrame:
    """What was walked, and what was left out at the end."""
    rows = [
        row
        for one in facts(tables).values()
        for row in (
            (one.store, "log_begin", one.log_begin),
            (one.store, "log_end", one.log_end),
            (one.store, "bytes_behind_the_end", one.written_end - one.log_end),
        )
    ]
    return counted(tables.spark, CHECK, rows)


AUDIT: Final = Audit(
    CHECK, "the log is one walk of records and blank tails", check, metrics=metrics, tables=("scan", "checkpoint")
)
