"""A12: how the store says it was left is how it was left.

Proved: after a clean stop the log ends where pymq's checkpoint says, with nothing behind it; the queues end where it
says (the sum of their ends), and the index with the record it says; every queue file with units has the size of the
others, without which Apache would not load it. After a stop that was not clean (`abort` is there) the log still reaches
as far as the last clean stop before it.

Legal: `abort` in a store that was killed or copied while it ran; a checkpoint that lags behind then; no clean end after
a stop that dispatch had not caught up with; an empty file, or one cut short, where a crash interrupted making it; stale
bytes behind the end that Apache's recovery left. Of a store that Apache wrote last only the files' sizes are known.

Cost: the checkpoint, and sums of the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import Audit, counted, found
from spark_jobs.audits.books import QUEUE
from spark_jobs.audits.facts import Facts, facts
from spark_jobs.tables import Tables

CHECK: Final = "A12"
UNIT_SIZE: Final = 20
CLEAN_END_AT: Final = 2080
UNIT_TOTAL_AT: Final = 2096
INDEX_END_AT: Final = 2104

Finding = dict[str, Any]


class Tails(NamedTuple):
    """Where a store's queues and index end."""

    unit_total: int = 0
    index_end: int = -1


def queue_totals(queues: DataFrame, units: DataFrame) -> DataFrame:
    """The sum of all queues' ends, a row a store: behind the last unit or filler, or where the first file begins."""
    base = F.regexp_extract("file", r"(\d+)$", 1).cast("long")
    begins = queues.groupBy(*QUEUE).agg(F.min(base).alias("base"))
    ends = units.where("status in ('ok', 'filler')").groupBy(*QUEUE).agg((F.max("queue_offset_max") + 1).alias("end"))
    end = F.coalesce(F.col("end"), F.expr(f"base div {UNIT_SIZE}"))
    return begins.join(ends, list(QUEUE), "left").groupBy("store").agg(F.sum(end).alias("unit_total"))


def tails(tables: Tables) -> dict[str, Tails]:
    """The tails of every store."""
    totals = queue_totals(tables.kind("queue"), tables.kind("units"))
    index = (
        tables.kind("index")
        .where("count > 0")
        .groupBy("store")
        .agg(F.max_by("physical_offset_end", "file").alias("index_end"))
    )
    rows = totals.join(index, "store", "full").collect()
    return {row.store: Tails(row.unit_total or 0, -1 if row.index_end is None else row.index_end) for row in rows}


def short_files(queues: DataFrame) -> DataFrame:
    """Queue files with units that are shorter than their store's others."""
    made = queues.groupBy("store").agg(F.max("bytes").alias("made"))
    return queues.where("count > 0").join(F.broadcast(made), "store").where(F.col("bytes") < F.col("made"))


def stated(one: Facts, at: int, expected: str, actual: str, offset: int | None) -> Finding:
    """A finding about a field of the checkpoint."""
    return {
        "store": one.store,
        "offset": offset,
        "expected": expected,
        "actual": actual,
        "evidence": f"file checkpoint at {at}",
    }


def log_trouble(one: Facts) -> Iterator[Finding]:
    """A log that ends elsewhere than the checkpoint says."""
    clean_end = one.page["pymq_clean_end"]
    if one.abort:
        if clean_end > max(one.padded_end, one.stated_end or 0):
            expected = f"a log that reaches at least {clean_end}, where it ended at the last clean stop"
            yield stated(one, CLEAN_END_AT, expected, f"it ends at {one.log_end}", one.log_end)
        return
    if clean_end >= 0 and clean_end not in (one.log_end, one.padded_end):
        expected = f"a log that ends at {clean_end}, because the store was stopped cleanly"
        yield stated(one, CLEAN_END_AT, expected, f"it ends at {one.log_end}", one.log_end)
    elif one.written_end > one.log_end:
        yield {
            "store": one.store,
            "offset": one.log_end,
            "expected": "zeros behind the end of the log, because the store was stopped cleanly",
            "actual": f"{one.written_end - one.log_end} bytes that are no record",
            "evidence": f"physical offset {one.log_end}",
        }


def tail_trouble(one: Facts, ends: Tails) -> Iterator[Finding]:
    """Queues or index that end elsewhere than the checkpoint of a clean stop says."""
    if one.abort or one.rebuilds or one.dump == "running":
        return
    unit_total, index_end = one.page["pymq_unit_total"], one.page["pymq_index_end"]
    if unit_total >= 0 and unit_total != ends.unit_total:
        expected = f"queues whose ends add up to {unit_total}"
        yield stated(one, UNIT_TOTAL_AT, expected, f"they add up to {ends.unit_total}", None)
    if index_end >= -1 and index_end != ends.index_end:
        expected = f"an index that ends with the record at {index_end}"
        yield stated(one, INDEX_END_AT, expected, f"it ends with the record at {ends.index_end}", ends.index_end)


def check(tables: Tables) -> DataFrame:
    """One finding for each tail that is not as stated."""
    known, ends = facts(tables), tails(tables)
    rows: list[Finding] = []
    for one in known.values():
        if one.is_pymq:
            rows += log_trouble(one)
            rows += tail_trouble(one, ends.get(one.store, Tails()))
    stopped = {name for name, one in known.items() if not one.abort}
    for row in short_files(tables.kind("queue")).collect():
        if row.store in stopped:
            rows.append(
                {
                    "store": row.store,
                    "topic": row.topic,
                    "queue": row.queue_id,
                    "offset": row.queue_offset_max,
                    "expected": f"a queue file of {row.made} bytes",
                    "actual": f"{row.bytes} bytes",
                    "evidence": f"file {row.file} at {row.bytes}",
                }
            )
    return found(tables.spark, CHECK, rows)


def metrics(tables: Tables) -> DataFrame:
    """How each store was left."""
    rows = [
        row
        for one in facts(tables).values()
        for row in (
            (one.store, "abort", int(one.abort)),
            (one.store, "bytes_recovery_will_judge", one.log_end - one.judged_end),
        )
    ]
    return counted(tables.spark, CHECK, rows)


AUDIT: Final = Audit(CHECK, "the store was left as it says", check, metrics=metrics, tables=("checkpoint", "scan"))
