"""A11: what records hold can be read: bodies decompress, properties parse, text is text.

Proved: a body whose flag says that it is compressed is one whole stream of that kind (zlib, LZ4, zstd; 0 is zlib);
properties are names and values between their separators; topic and properties are UTF-8.

Legal: an empty body, whatever its flag; properties without their last separator, with empty values, or with one name
twice. What recovery cuts off is not judged (see A1), and a body whose CRC is wrong is A1's. Where the package for LZ4
or zstd is not installed, such bodies are not judged; the metric `not_checked` says how many.

Cost: nothing beyond the scan, which decompresses piece by piece and keeps nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import Audit, findings, measured
from spark_jobs.audits.facts import facts_frame
from spark_jobs.tables import Tables

CHECK: Final = "A11"
EXPECTED: Final = {
    "bad_compression": "a body that can be decompressed as its flag says",
    "bad_properties": "names and values between their separators",
    "bad_text": "text in UTF-8",
}
NOT_CHECKED: Final = "not checked"


def unreadable(damage: DataFrame, stores: DataFrame) -> DataFrame:
    """The scan's rows of records with something in them that cannot be read, one a record."""
    judged = (
        damage.where(F.col("status").isin(*EXPECTED) & ~skipped())
        .join(F.broadcast(stores.select("store", "torn_from")), "store")
        .where(F.col("physical_offset_min") < F.col("torn_from"))
    )
    trouble = F.concat_ws(": ", F.col("status"), F.col("detail"))
    return judged.groupBy("store", "physical_offset_min").agg(
        *(F.first(name).alias(name) for name in ("file", "topic", "queue_id", "queue_offset_min")),
        F.min("status").alias("status"),
        F.array_join(F.array_sort(F.collect_set(trouble)), "; ").alias("trouble"),
    )


def skipped() -> Column:
    """Whether a body was not looked into for want of a package."""
    return F.coalesce("detail", F.lit("")).startswith(NOT_CHECKED)


def check(tables: Tables) -> DataFrame:
    """One finding for each record that holds something unreadable."""
    expected = F.create_map(*(F.lit(word) for pair in EXPECTED.items() for word in pair))
    return findings(
        unreadable(tables.kind("damage"), facts_frame(tables)),
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="physical_offset_min",
        expected=expected[F.col("status")],
        actual=F.col("trouble"),
        evidence=F.format_string(
            "record at physical offset %d, queue offset %d", F.col("physical_offset_min"), F.col("queue_offset_min")
        ),
    )


def metrics(tables: Tables) -> DataFrame:
    """Bodies that were not looked into."""
    left = tables.kind("damage").where(skipped()).groupBy("store").agg(F.count(F.lit(1)).alias("value"))
    return measured(left, CHECK, "not_checked", "value")


AUDIT: Final = Audit(
    CHECK, "bodies decompress, properties parse, text is UTF-8", check, metrics=metrics, tables=("scan", "checkpoint")
)
