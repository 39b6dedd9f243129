"""What every audit is: a name, a sentence, and a pure function from tables to findings of one schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark_jobs.tables import Tables

FINDINGS = StructType(
    [
        StructField("check", StringType()),
        StructField("severity", StringType()),
        StructField("store", StringType()),
        StructField("topic", StringType()),
        StructField("queue", IntegerType()),
        StructField("offset", LongType()),  # of the kind the check is about; `evidence` says which
        StructField("expected", StringType()),
        StructField("actual", StringType()),
        StructField("evidence", StringType()),
    ]
)

ERROR = "error"  # data is wrong, lost, doubled or unreachable
WARNING = "warning"  # nothing is lost yet, and somebody should look

METRICS = StructType(
    [
        StructField("check", StringType()),
        StructField("store", StringType()),
        StructField("name", StringType()),  # what was counted: "records", "lag", "lateness_ms"
        StructField("label", StringType()),  # of what: a topic, a group, a bucket; null for the whole store
        StructField("at", LongType()),  # when, in ms, for a series; null otherwise
        StructField("value", LongType()),
    ]
)


@dataclass(frozen=True)
class Audit:
    """One check.

    Attributes:
        name: "A1" to "A24".
        title: one line for people.
        check: findings of some tables.
        needs: what has to be given besides stores: "against", "ledgers".
        metrics: what was looked at and measured, for the report; None without any.
        group: "store" (A1 to A12, from the shared scan) or "meaning".
    """

    name: str
    title: str
    check: Callable[[Tables], DataFrame]
    needs: frozenset[str] = frozenset()
    metrics: Callable[[Tables], DataFrame] | None = None
    group: str = "store"
    tables: tuple[str, ...] = field(default=())


def findings(
    frame: DataFrame,
    check: str,
    *,
    severity: str = ERROR,
    topic: Column | str | None = None,
    queue: Column | str | None = None,
    offset: Column | str | None = None,
    expected: Column | None = None,
    actual: Column | None = None,
    evidence: Column | None = None,
) -> DataFrame:
    """*frame* (which has a `store` column), one finding a row."""

    def column(value: Column | str | None, kind: str) -> Column:
        named = F.col(value) if isinstance(value, str) else value
        return (F.lit(None) if named is None else named).cast(kind)

    return frame.select(
        F.lit(check).alias("check"),
        F.lit(severity).alias("severity"),
        F.col("store").cast("string").alias("store"),
        column(topic, "string").alias("topic"),
        column(queue, "int").alias("queue"),
        column(offset, "long").alias("offset"),
        column(expected, "string").alias("expected"),
        column(actual, "string").alias("actual"),
        column(evidence, "string").alias("evidence"),
    )


def none_found(spark: SparkSession) -> DataFrame:
    """No findings."""
    return spark.createDataFrame([], FINDINGS)


def union(frames: Iterable[DataFrame], spark: SparkSession) -> DataFrame:
    """All findings of several frames."""
    whole: DataFrame | None = None
    for frame in frames:
        whole = frame if whole is None else whole.unionByName(frame)
    return none_found(spark) if whole is None else whole
