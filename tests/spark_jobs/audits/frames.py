"""Small tables made by hand: a test puts all its cases into one frame, a case a `store`, and asks Spark once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audits import ledgers, meaning
from spark_jobs.rocketmq_store.schema import TABLES, arrow_schema, spark_schema

INTS = {"queue_id", "sys_flag", "reconsume_times", "body_size", "body_crc"}
TEXTS = {"store", "topic", "store_host", "uniq_key", "status", "tags", "born_host"}
MARKED = {
    **{name: "string" if name in TEXTS else "int" if name in INTS else "long" for name in meaning.FIELDS},
    **{name: "long" if name in meaning.NUMBERS else "string" for name in meaning.PROPERTIES},
}
RECORD = {name: "string" if name in TEXTS else "int" if name in INTS else "long" for name in ledgers.COLUMNS}
DEFAULTS = {
    "sys_flag": 0, "reconsume_times": 0, "prepared_transaction_offset": 0, "body_size": 1, "body_crc": 7, "size": 100,
    "born_timestamp": 1000, "store_timestamp": 1000, "queue_id": 0, "queue_offset": 0, "physical_offset": 0,
    "store_host": "127.0.0.1:10911", "status": "ok",
}  # fmt: skip

Place = tuple[str, str | None, int | None, int | None]


def frame(spark: SparkSession, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows of *columns*, what a row does not say is DEFAULTS' or null."""
    made = [tuple(row.get(name, DEFAULTS.get(name)) for name in columns) for row in rows]
    return spark.createDataFrame(made, ", ".join(f"`{name}` {kind}" for name, kind in columns.items()))


def table(spark: SparkSession, name: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows of a table of the store."""
    names = [column for column, _ in TABLES[name]]
    made = [
        tuple(row.get(column, DEFAULTS.get(column) if column == "status" else None) for column in names) for row in rows
    ]
    return spark.createDataFrame(made, spark_schema(arrow_schema(name)))


def marked(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Marked messages (`meaning.marks`)."""
    return frame(spark, MARKED, rows)


def moments(spark: SparkSession, stores: Iterable[str], **values: Any) -> DataFrame:
    """The moments of *stores*, all alike."""
    known = {
        "log_begin": 0,
        "log_end": None,
        "abort": False,
        "dump": None,
        "now_ms": 10_000,
        "running_since": 0,
    } | values
    names = [part.split()[0] for part in meaning.MOMENTS.split(", ")]
    rows = [tuple(known.get(name, store) for name in names) for store in stores]
    return spark.createDataFrame(rows, meaning.MOMENTS)


def places(findings: Iterable[DataFrame]) -> list[Place]:
    """Where the findings of some frames stand."""
    whole = None
    for one in findings:
        whole = one if whole is None else whole.unionByName(one)
    assert whole is not None
    return sorted((row.store, row.topic, row.queue, row.offset) for row in whole.collect())
