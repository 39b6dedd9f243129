"""What is known of each store as a whole: where its log begins and ends, how it was left, how far it can be judged.

Queues and index are computed from the log, and after a stop that was not clean they are computed again: whatever
recovery will rebuild is not judged now. `judged_end` is where that begins:

    how the store was left                       judged below
    stopped cleanly, or dumped while it ran      the end of the log: the dump cuts queues and index there
    `abort` there, pymq wrote last               pymq's safe offset: log, queues and index are durable below it
    `abort` there, Apache wrote last             logicsPhysicalOffset: the queues were flushed below it
    stopped before dispatch had caught up        pymq's safe offset (its page says so: no clean end)

The log itself is cut where it is torn, if that is behind what was durable: `torn_from` is where damage stops being
damage. A clean stop of Apache's may leave bytes of a torn record behind the end, because its recovery does not wipe
them; nothing points there. pymq wipes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from spark_jobs.tables import Tables

LONG_MAX: Final = 2**63 - 1

# Damage that is no record at all, as against a record with something wrong in it: only that can be a torn tail.
STRUCTURAL: Final = ("bad_magic", "bad_size", "bad_structure", "bad_blank", "truncated")

FRAME: Final = StructType(
    [
        StructField("store", StringType()),
        StructField("log_begin", LongType()),
        StructField("log_end", LongType()),
        StructField("judged_end", LongType()),
        StructField("rebuilds", BooleanType()),
        StructField("torn_from", LongType()),
        StructField("is_pymq", BooleanType()),
    ]
)


@dataclass(frozen=True)
class Facts:
    """One store.

    Attributes:
        log_begin: first physical offset of the files.
        log_end: behind the last whole record; a blank tail is not counted.
        padded_end: the same with a blank tail behind it, if the next file is there and has no record yet.
        written_end: behind the last byte that is not zero: more than log_end when the tail is torn.
        stated_end: a dump's position; None for a plain directory.
        front: behind the last record any queue has a unit of; 0 without units.
        records, bytes, last_store_timestamp: of the log.
        abort: not stopped cleanly.
        is_pymq: pymq wrote the checkpoint last.
        dump: a dump's kind, None for a plain directory.
        page: the row of the table `checkpoint`.
    """

    store: str
    log_begin: int
    log_end: int
    padded_end: int
    written_end: int
    stated_end: int | None
    front: int
    records: int
    bytes: int
    last_store_timestamp: int | None
    abort: bool
    is_pymq: bool
    dump: str | None
    page: Mapping[str, Any]

    @property
    def rebuilds(self) -> bool:
        """Whether queues and index are still to be made right: by recovery, or by the next open."""
        if self.dump == "running":
            return False
        return self.abort or (self.is_pymq and self.page["pymq_clean_end"] < 0)

    @property
    def judged_end(self) -> int:
        """Queues and index are whole below it."""
        if not self.rebuilds:
            return self.log_end
        safe = self.page["pymq_safe_offset"] if self.is_pymq else self.page["logics_physical_offset"]
        return max(self.log_begin, min(safe or 0, self.log_end))

    @property
    def torn_from(self) -> int:
        """Damage at or behind it is what recovery cuts off, or what an earlier one left behind the end."""
        if self.rebuilds:
            durable = self.page["pymq_flushed_offset"] if self.is_pymq else self.page["logics_physical_offset"]
            return max(self.log_begin, durable or 0)
        stale = not self.is_pymq and self.dump != "running" and self.front <= self.log_end < self.written_end
        return self.log_end if stale else LONG_MAX

    def row(self) -> tuple[Any, ...]:
        """As FRAME has it."""
        return (
            self.store,
            self.log_begin,
            self.log_end,
            self.judged_end,
            self.rebuilds,
            self.torn_from,
            self.is_pymq,
        )


def behind_last(last: Column) -> Column:
    """Where a queue ends whose last offset is *last*; a damaged record may say that there is none behind it."""
    return F.when(last == LONG_MAX, last).otherwise(last + 1)


def facts(tables: Tables) -> dict[str, Facts]:
    """The facts of every store, by name; worked out once."""

    def make() -> dict[str, Facts]:
        measured = {row.store: row for row in measure(tables.kind("range", "damage", "units")).collect()}
        return {
            page.store: facts_of(page.asDict(), measured.get(page.store))
            for page in small(tables, "checkpoint").collect()
        }

    return tables.once("facts", make)


def measure(scan: DataFrame) -> DataFrame:
    """One row a store: where its log ends, and what it holds."""
    is_range = F.col("kind") == "range"
    walked = is_range & ((F.col("count") > 0) | (F.col("physical_offset_end") > F.col("physical_offset_min")))
    structural = (F.col("kind") == "damage") & F.col("status").isin(*STRUCTURAL)
    unit = (F.col("kind") == "units") & (F.col("status") == "ok")
    end, begin = F.col("physical_offset_end"), F.col("physical_offset_min")
    return scan.groupBy("store").agg(
        F.max(F.when(walked, end)).alias("walk_end"),
        F.max(F.when(is_range & (F.col("status") == "blank"), end)).alias("blank_at"),
        F.max(F.when(is_range, begin)).alias("last_begin"),
        F.max(F.when(structural, F.struct(end.alias("end"), begin.alias("begin")))).alias("tail"),
        F.max(F.when(unit, end)).alias("front"),
        F.sum(F.when(is_range, F.col("count"))).alias("records"),
        F.sum(F.when(is_range, F.col("bytes"))).alias("bytes"),
        F.max(F.when(is_range, F.col("store_timestamp_max"))).alias("last_store_timestamp"),
    )


def facts_of(page: Mapping[str, Any], measured: Row | None) -> Facts:
    """The facts of one store from its checkpoint's row and its measures (None: there is nothing in it)."""
    begin = page["log_begin"] or 0
    walk_end = begin if measured is None or measured.walk_end is None else measured.walk_end
    tail = None if measured is None else measured.tail
    torn = tail is not None and tail.end >= walk_end
    log_end = tail.begin if torn else walk_end
    padded = measured is not None and not torn and measured.blank_at == walk_end
    return Facts(
        store=page["store"],
        log_begin=begin,
        log_end=log_end,
        padded_end=max(log_end, measured.last_begin) if padded else log_end,
        written_end=max(walk_end, tail.end) if torn else walk_end,
        stated_end=None if page["dump"] is None else page["log_end"],
        front=(measured.front if measured else None) or 0,
        records=(measured.records if measured else None) or 0,
        bytes=(measured.bytes if measured else None) or 0,
        last_store_timestamp=measured.last_store_timestamp if measured else None,
        abort=bool(page["abort"]),
        is_pymq=page["pymq_safe_offset"] is not None,
        dump=page["dump"],
        page=page,
    )


def facts_frame(tables: Tables) -> DataFrame:
    """What joins need of them, a row a store."""
    return tables.once(
        "facts_frame", lambda: tables.spark.createDataFrame([one.row() for one in facts(tables).values()], FRAME)
    )


def small(tables: Tables, name: str) -> DataFrame:
    """A table of the broker's small files, read once: each look at such a table starts processes anew otherwise."""

    def make() -> DataFrame:
        frame = tables.table(name)
        return tables.spark.createDataFrame(frame.collect(), frame.schema)

    return tables.once(f"small {name}", make)
