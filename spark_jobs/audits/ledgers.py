"""Ledger lines beside the records they speak of, for A21 and A22.

A line's message id is a place: store host and physical offset. It speaks of a store whose records carry that host,
records of any topic: one that has lost all of the ledger's topics is still the one that is spoken of. Of one store
alone, and with hosts of IPv6, every line speaks. Lines below the log's first byte have expired, and those behind a
running broker's dump came later: neither is judged. Lines that speak of no store cannot be judged, and are findings
(`unplaced`): an audit that could not look must not look like one that found nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import WARNING, findings
from spark_jobs.ledger import message_host, message_offset
from spark_jobs.rocketmq_store.files import names
from spark_jobs.tables import Tables

COLUMNS = (
    "store", "physical_offset", "status", "topic", "queue_id", "queue_offset", "sys_flag", "store_host",
    "store_timestamp", "tags",
)  # fmt: skip
WHOLE = ("ok", "bad_crc", "bad_record_crc")
HOSTS = "store string, host string"
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
    return records.where(F.col("status").isin(*WHOLE))


def hosts_of(tables: Tables) -> DataFrame | None:
    """Which hosts the records of each store carry (HOSTS), looked up once; None of one store alone: nobody asks."""
    if len(tables.paths) == 1:
        return None

    def make() -> DataFrame:
        records = tables.table("commitlog", columns=("store", "status", "store_host"))
        rows = records.where(F.col("status").isin(*WHOLE)).select("store", "store_host").distinct().collect()
        return tables.spark.createDataFrame([tuple(row) for row in rows], HOSTS)

    return tables.once("hosts", make)


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
    return placed(lines_of(tables, kinds), meaning.moments(tables), hosts_of(tables))


def unplaced(tables: Tables, kinds: Sequence[str], check: str) -> DataFrame:
    """Findings of *check*: lines that speak of no store; said of the first one."""
    return nowhere(lines_of(tables, kinds), hosts_of(tables), check, names(tables.paths)[0])


def nowhere(lines: DataFrame, hosts: DataFrame | None, check: str, store: str) -> DataFrame:
    """Lines whose id is no place, or one of a host that none of *hosts* is: a finding for each file and host."""
    named = lines.withColumn("host", message_host(F.col("message_id")))
    odd = named.where(message_offset(F.col("message_id")).isNull())
    if hosts is not None:
        known = F.broadcast(hosts.select("host").distinct())
        odd = odd.unionByName(named.where(F.col("host").isNotNull()).join(known, "host", "left_anti"))
    counts = odd.groupBy("file", "host").agg(F.count("*").alias("lines"), F.min("message_id").alias("message_id"))
    return findings(
        counts.withColumn("store", F.lit(store)),
        check,
        severity=WARNING,
        expected=F.when(F.col("host").isNull(), F.lit("lines whose msgId is a store host and a physical offset"))
        .otherwise(F.lit("lines of a host whose store is given")),
        actual=F.concat(
            F.col("lines"), F.coalesce(F.concat(F.lit(" of "), F.col("host")), F.lit(" with another id")),
            F.lit(", not judged"),
        ),
        evidence=F.concat(
            F.lit("ledger "), F.element_at(F.split("file", "/"), -1), F.lit(", for one "), F.col("message_id")
        ),
    )  # fmt: skip


def beside(lines: DataFrame, records: DataFrame) -> DataFrame:
    """Lines of `placed` with the record at their place, its columns called `record_…`; null where there is none."""
    found = records.select(
        "store",
        "physical_offset",
        *(F.col(name).alias(f"record_{name}") for name in COLUMNS if name not in ("store", "physical_offset")),
    )
    return lines.join(found, ["store", "physical_offset"], "left")
