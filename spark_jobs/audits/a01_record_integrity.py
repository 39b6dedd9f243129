"""A1: every record is what it says it is.

Proved: at every place of the log where a record begins, magic, total size and the sizes inside agree, the body has the
CRC the record states (31 bits: the highest is always clear), and a record that carries a CRC over itself has that one.

Legal: what recovery will cut off, which is damage behind the durable end of a store that was not stopped cleanly; and
what Apache's recovery leaves behind the end of the log, where nothing points. Where a record stands is A2's business,
what its text and its compressed body hold is A11's.

Cost: nothing beyond the scan; one row for each damage.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import Audit, counted, findings
from spark_jobs.audits.facts import facts, facts_frame
from spark_jobs.tables import Tables

CHECK: Final = "A1"

# Status of a damage to what was expected of those bytes. Zeros in place of the rest of a file are A2's.
EXPECTED: Final = {
    "bad_crc": "a body with the CRC the record states",
    "bad_record_crc": "a record with the CRC it carries",
    "bad_magic": "a record",
    "bad_size": "a record whose total size is the sum of its parts",
    "bad_structure": "a record whose parts add up to its total size",
}
ZEROS: Final = "zeros"


def damaged(damage: DataFrame, stores: DataFrame) -> DataFrame:
    """The scan's rows of damaged records that nothing excuses."""
    wanted = F.col("status").isin(*EXPECTED) & ~F.coalesce(F.col("detail"), F.lit("")).startswith(ZEROS)
    return (
        damage.where(wanted)
        .join(F.broadcast(stores.select("store", "torn_from")), "store")
        .where(F.col("physical_offset_min") < F.col("torn_from"))
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each damaged record or stretch."""
    expected = F.create_map(*(F.lit(word) for pair in EXPECTED.items() for word in pair))
    return findings(
        damaged(tables.kind("damage"), facts_frame(tables)),
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="physical_offset_min",
        expected=expected[F.col("status")],
        actual=F.concat_ws(": ", F.col("status"), F.col("detail")),
        evidence=F.format_string(
            "physical offset %d, %d bytes of file %s",
            F.col("physical_offset_min"),
            F.col("physical_offset_end") - F.col("physical_offset_min"),
            F.col("file"),
        ),
    )


def metrics(tables: Tables) -> DataFrame:
    """Records and bytes whose checksums were computed."""
    rows = [
        row
        for one in facts(tables).values()
        for row in ((one.store, "records", one.records), (one.store, "bytes", one.bytes))
    ]
    return counted(tables.spark, CHECK, rows)


AUDIT: Final = Audit(
    CHECK, "every record's size, magic and checksums are right", check, metrics=metrics, tables=("scan", "checkpoint")
)
