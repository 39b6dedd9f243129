"""What the shared scan says about a store besides its faults: traffic, the log's files, how many of what.

The only module of the report that asks Spark. Everything is added up there, so that what comes to the driver does not
grow with the store: one row a log file, DAMAGE_MAX damaged ranges, TRAFFIC_ROWS_MAX sums of traffic.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.report.model import Extent, Metric
from spark_jobs.report.svg import MINUTE_MS
from spark_jobs.tables import Tables

TRAFFIC_BUCKETS_MAX = 2_000  # over the time where 99% of the messages are; a plot draws 120
TRAFFIC_ROWS_MAX = 50_000  # the largest sums
DAMAGE_MAX = 5_000
SCAN = "scan"  # what metrics of no check are filed under


class Overview(NamedTuple):
    """What the page shows besides findings."""

    facts: dict[str, int]
    traffic: tuple[Metric, ...]
    extents: tuple[Extent, ...]


def overview(tables: Tables) -> Overview:
    """Read it off the scan, which is in memory by then."""
    return Overview(facts(tables), traffic(tables.kind("traffic")), extents(tables))


def facts(tables: Tables) -> dict[str, int]:
    """Records, topics and queues there are."""
    records = tables.kind("range").agg(F.coalesce(F.sum("count"), F.lit(0))).first()
    queues = (
        tables.kind("records", "units", "queue")
        .agg(F.countDistinct("topic"), F.countDistinct("store", "topic", "queue_id"))
        .first()
    )
    return {"records": int(records[0]), "topics": int(queues[0]), "queues": int(queues[1])}


def traffic(minutes: DataFrame) -> tuple[Metric, ...]:
    """Messages and bytes by topic and time, a time being at least a minute and at most a 2,000th of the whole."""
    low, high = minutes.agg(
        F.percentile_approx("bucket", 0.005),
        F.percentile_approx("bucket", 0.995),
    ).first()
    if low is None:
        return ()
    step = max(1, (high - low) // TRAFFIC_BUCKETS_MAX)
    start = F.floor(F.col("bucket") / step) * step * MINUTE_MS
    sums = (
        minutes.groupBy("store", "topic", start.cast("long").alias("at"))
        .agg(F.sum("count").alias("records"), F.sum("bytes").alias("bytes"))
        .orderBy(F.desc("records"), "store", "topic", "at")
        .limit(TRAFFIC_ROWS_MAX)
    )
    metrics = []
    for row in sums.collect():
        metrics.append(Metric(SCAN, row.store, "records", row.topic, row["at"], row["records"]))
        metrics.append(Metric(SCAN, row.store, "bytes", row.topic, row["at"], row["bytes"]))
    return tuple(metrics)


def extents(tables: Tables) -> tuple[Extent, ...]:
    """Each log file as far as it was walked, and the damage in it."""
    files = (
        tables.kind("range")
        .groupBy("store", "file")
        .agg(F.min("physical_offset_min").alias("begin"), F.max("physical_offset_end").alias("end"))
    )
    damage = (
        tables.kind("damage")
        .select("store", "file", "physical_offset_min", "physical_offset_end", "status", "detail")
        .orderBy("store", "physical_offset_min")
        .limit(DAMAGE_MAX)
    )
    return tuple(
        [Extent(row.store, row.file, row.begin, max(row.end, row.begin)) for row in files.collect()]
        + [
            Extent(row.store, row.file, row[2], max(row[3], row[2]), row.status, row.detail)
            for row in damage.collect()
            if row[2] is not None and row[3] is not None
        ]
    )
