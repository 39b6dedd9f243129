"""What every audit is: a name, a sentence, and a pure function from tables to findings of one schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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

# `evidence` is a sentence for people. Where it holds "physical offset N", "queue offset N" or "file PATH at N" (PATH
# below the store, N a byte), the report offers the command that shows those bytes; without one of them it takes
# `offset` as the queue offset when `topic` and `queue` are set, and as the physical offset otherwise. What clients
# call things (keys, groups, topics) goes through `quoted`: whatever it says is not taken for a place.

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


# What the report draws. Other names are shown as a table.
#   lag            label: the group, one row a topic or queue of it; value: messages not yet consumed
#   lateness_ms    label: upper bound of a bucket in ms ("100", "1000", "inf"); value: deliveries that late
#   transactions   label: committed, rolled back, pending, …; value: half messages
#   duplicates     label: where the second copy comes from; value: copies
# Traffic over time and the file map come from the scan itself.


@dataclass(frozen=True)
class Audit:
    """One check.

    Attributes:
        name: "A1" to "A24".
        title: one line for people.
        check: findings of some tables.
        needs: what has to be given besides stores: "against", "ledgers".
        earlier: ALONE or ALSO (`spark_jobs.relations`), if only an earlier dump of the same broker proves something.
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
    earlier: str = ""


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


def quoted(text: Column | str) -> Column:
    """What a client called something, for `evidence`: in quotes that it cannot close itself."""
    column = F.col(text) if isinstance(text, str) else text
    return F.concat(F.lit('"'), F.regexp_replace(column, r'(["\\])', r"\\$1"), F.lit('"'))


def none_found(spark: SparkSession) -> DataFrame:
    """No findings."""
    return spark.createDataFrame([], FINDINGS)


def union(frames: Iterable[DataFrame], spark: SparkSession) -> DataFrame:
    """All findings of several frames."""
    whole: DataFrame | None = None
    for frame in frames:
        whole = frame if whole is None else whole.unionByName(frame)
    return none_found(spark) if whole is None else whole


def found(spark: SparkSession, check: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Findings worked out on the driver: each row has `store` and whichever other columns it knows."""
    defaults: dict[str, Any] = dict.fromkeys(FINDINGS.names) | {"check": check, "severity": ERROR}
    made = [defaults | dict(row) for row in rows]
    unknown = {name for row in made for name in row} - set(FINDINGS.names)
    if unknown:
        raise ValueError(f"{check}: findings have no {', '.join(sorted(unknown))}")
    return spark.createDataFrame([tuple(row[name] for name in FINDINGS.names) for row in made], FINDINGS)


def measured(
    frame: DataFrame,
    check: str,
    name: str,
    value: Column | str,
    *,
    label: Column | str | None = None,
    at: Column | str | None = None,
) -> DataFrame:
    """*frame* (which has a `store` column), one metric a row."""

    def column(value: Column | str | None, kind: str) -> Column:
        named = F.col(value) if isinstance(value, str) else value
        return (F.lit(None) if named is None else named).cast(kind)

    return frame.select(
        F.lit(check).alias("check"),
        F.col("store").cast("string").alias("store"),
        F.lit(name).alias("name"),
        column(label, "string").alias("label"),
        column(at, "long").alias("at"),
        column(value, "long").alias("value"),
    )


def counted(spark: SparkSession, check: str, rows: Iterable[tuple[str, str, int | None]]) -> DataFrame:
    """Metrics worked out on the driver: store, name, value."""
    return spark.createDataFrame([(check, store, name, None, None, value) for store, name, value in rows], METRICS)


def wrapped_sum(digest: Column | str) -> tuple[Column, Column]:
    """The sum of 64-bit digests, upper and lower half apart: Spark's own sum refuses to wrap around.

    Two such pairs are equal exactly if the wrapping sums are, once `settled` has carried the lower half over.
    """
    column = F.col(digest) if isinstance(digest, str) else digest
    return F.sum(F.shiftrightunsigned(column, 32)), F.sum(column.bitwiseAND(F.lit(0xFFFFFFFF)))


def settled(upper: Column, lower: Column) -> Column:
    """The two sums of `wrapped_sum` as one comparable value."""
    half = F.lit(0xFFFFFFFF)
    carried = (upper + F.shiftrightunsigned(lower, 32)).bitwiseAND(half)
    return F.struct(carried.alias("upper"), lower.bitwiseAND(half).alias("lower"))
