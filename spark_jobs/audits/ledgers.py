"""Ledger lines beside the records they speak of, for A21 and A22.

A line's message id is a place: store host and physical offset. It speaks of a store whose records carry that host; of
one store alone, and with hosts of IPv6, every line does. Lines below the log's first byte have expired, and those
behind a running broker's dump came later: neither is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.ledger import message_host, message_offset
from spark_jobs.tables import Tables

COLUMNS = (
    "store", "physical_offset", "status", "topic", "queue_id", "queue_offset", "sys_flag", "store_host",
    "store_timestamp", "tags",
)  # fmt: skip
JUDGED, EXPIRED, LATER, NAMELESS = "judged", "expired", "later", "nameless"


def lines_of(tables: Tables, kinds: Sequence[str]) -> DataFrame:
    """The whole lines of some kinds."""
    if tables.ledgers is None:
        raise ValueError("this audit needs ledgers")
    return tables.ledgers.where((F.col("status") == "ok") & F.col("kind").isin(*kinds))


def records_of(tables: Tables) -> DataFrame:
    """The records that lines may speak of: of their topics, and of those in which messages wait."""

    def topics() -> str:
        rows = lines_of(tables, ("A", "R", "C")).select("topic").distinct().collect()
        return meaning.text({*(row.topic for row in rows), *meaning.INNER_TOPICS})

    records = tables.table("commitlog", columns=COLUMNS, topics=tables.once("ledger_topics", topics))
    return records.where(F.col("status").isin("ok", "bad_crc", "bad_record_crc"))


def placed(lines: DataFrame, stores: DataFrame, hosts: DataFrame | None) -> DataFrame:
    """Every line with every store it speaks of: `store`, `physical_offset`, and `judged` (one of the words above).

    *stores* is `meaning.moments`; *hosts* (store, host) is needed when there are several.
    """
    named = lines.withColumn("physical_offset", message_offset(F.col("message_id"))).withColumn(
        "host", message_host(F.col("message_id"))
    )
    bounds = F.broadcast(stores.select("store", "log_begin", "log_end", "dump"))
    each = named.crossJoin(bounds)
    if hosts is not None:
        known = F.broadcast(hosts).alias("k")
        each = (
            each.alias("l")
            .join(known, (F.col("l.store") == F.col("k.store")) & (F.col("l.host") == F.col("k.host")), "left")
            .where(F.col("k.store").isNotNull() | F.col("l.host").isNull())
            .select("l.*")
        )
    offset = F.col("physical_offset")
    judged = (
        F.when(offset.isNull(), NAMELESS)
        .when(offset < F.coalesce("log_begin", F.lit(0)), EXPIRED)
        .when((F.col("dump") == "running") & (offset >= F.col("log_end")), LATER)
        .otherwise(JUDGED)
    )
    return each.withColumn("judged", judged).drop("log_begin", "log_end", "dump")


def place_lines(tables: Tables, kinds: Sequence[str]) -> DataFrame:
    """`placed`, of these tables."""
    several = len(tables.paths) > 1
    hosts = records_of(tables).select("store", F.col("store_host").alias("host")).distinct() if several else None
    return placed(lines_of(tables, kinds), meaning.moments(tables), hosts)


def beside(lines: DataFrame, records: DataFrame) -> DataFrame:
    """Lines of `placed` with the record at their place, its columns called `record_…`; null where there is none."""
    found = records.select(
        "store",
        "physical_offset",
        *(F.col(name).alias(f"record_{name}") for name in COLUMNS if name not in ("store", "physical_offset")),
    )
    return lines.join(found, ["store", "physical_offset"], "left")
