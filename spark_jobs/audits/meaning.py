"""What the audits of meaning (A13 to A19, A21 to A23) share: marked messages, moments, and how copies are known.

**Marked messages.** A broker that lets a message wait, fail or be decided about says so in its properties, and every
copy it makes keeps them. So one pass over the log finds all there is to know about transactions, delays, timers,
retries and POP: `marked` reads it once for all of these checks, with the properties they ask about as columns.

**The moment.** Whether something is overdue is judged by the store's own time, never by the auditor's clock: `moments`
says when the last record was stored, and since when the broker is known to have run without a break. Minutes of the log
with at least one record in them, one after the other, leave gaps below two minutes; a longer silence may have been a
stop. What is overdue by more than OVERDUE_MS of such time had a minute at least in which a running broker should have
seen to it.

**Copies.** Whatever puts a message again (delay levels, timers, check rounds, retries) keeps its UNIQ_KEY, its birth
and its body. `IDENTITY` is these; two messages that agree in all of them are taken for one. Clients make UNIQ_KEYs that
differ, and brokers add one where there is none, so this errs only where a client breaks its own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from pymq.broker.names import (
    CHECK_MAX_TIME_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_GROUP_PREFIX,
    TIMER_TOPIC,
)
from spark_jobs.audits.facts import behind_last, facts
from spark_jobs.tables import Tables

__all__ = [
    "CHECK_MAX_TIME_TOPIC",
    "DLQ_PREFIX",
    "HALF_TOPIC",
    "IDENTITY",
    "INNER_TOPICS",
    "OP_HALF_TOPIC",
    "OVERDUE_MS",
    "RETRY_PREFIX",
    "REVIVE_PREFIX",
    "SCHEDULE_TOPIC",
    "SYSTEM_GROUP_PREFIX",
    "TIMER_TOPIC",
    "histogram",
    "kept",
    "marked",
    "moments",
    "queue_bounds",
    "same",
    "table",
    "text",
]

OVERDUE_MS = 180_000
# log_end is a dump's position, null for a plain directory; now_ms is null where there is no record.
MOMENTS = "store string, log_begin long, log_end long, abort boolean, dump string, now_ms long, running_since long"
MINUTE_MS = 60_000
INNER_TOPICS = (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)  # where messages wait for something
COMMIT_FLAG, TRANSACTION_BITS = 8, 12
IDENTITY = ("uniq_key", "born_timestamp", "body_crc", "body_size")

# Columns of `marked`, and the property each is made of.
PROPERTIES = {
    "real_topic": "REAL_TOPIC",
    "real_queue_id": "REAL_QID",
    "delay": "DELAY",
    "is_half": "TRAN_MSG",
    "check_times": "TRANSACTION_CHECK_TIMES",
    "first_queue_offset": "TRAN_PREPARED_QUEUE_OFFSET",
    "origin_message_id": "ORIGIN_MESSAGE_ID",
    "retry_topic": "RETRY_TOPIC",
    "first_pop_time": "1ST_POP_TIME",
    "reconsume_max": "MAX_RECONSUME_TIMES",
    "timer_out_ms": "TIMER_OUT_MS",
    "timer_deliver_ms": "TIMER_DELIVER_MS",
    "timer_dequeue_ms": "TIMER_DEQUEUE_MS",
    "timer_roll_times": "TIMER_ROLL_TIMES",
    "timer_delete_key": "TIMER_DEL_UNIQKEY",
}
NUMBERS = {
    "real_queue_id", "delay", "check_times", "first_queue_offset", "first_pop_time", "reconsume_max", "timer_out_ms",
    "timer_deliver_ms", "timer_dequeue_ms", "timer_roll_times",
}  # fmt: skip
# A record that has none of these is of no interest here.
MARKS = ("real_topic", "is_half", "origin_message_id", "first_pop_time", "timer_out_ms")
FIELDS = (
    "store", "physical_offset", "size", "topic", "queue_id", "queue_offset", "sys_flag", "born_timestamp",
    "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "body_size", "body_crc",
    "uniq_key", "tags_code",
)  # fmt: skip


def kept(tables: Tables, name: str, make: Callable[[], DataFrame]) -> DataFrame:
    """What *make* makes, made once for these tables and kept until the run is over."""
    return tables.once(name, lambda: make().persist(StorageLevel.MEMORY_AND_DISK))


def marked(tables: Tables) -> DataFrame:
    """The log's records that say they wait, were decided about, came back or are copies; kept."""
    columns, names = (*FIELDS, "status", "properties"), text(PROPERTIES[mark] for mark in MARKS)
    return kept(
        tables, "marked", lambda: marks(tables.table("commitlog", columns=columns, properties="map", having=names))
    )


def marks(records: DataFrame) -> DataFrame:
    """The marked ones of *records* (`commitlog` with properties=map), properties as columns."""
    columns = [number(name) if name in NUMBERS else prop(name) for name in PROPERTIES]
    is_read = F.col("status").isin("ok", "bad_crc") & F.col("topic").isNotNull()
    return (
        records.where(is_read)
        .select(*FIELDS, *(column.alias(name) for name, column in zip(PROPERTIES, columns, strict=True)))
        .where(F.coalesce(*(F.col(mark).cast("string") for mark in MARKS)).isNotNull())
    )


def prop(name: str) -> Column:
    """The property behind a column of `marked`; null where there is none."""
    return F.try_element_at(F.col("properties"), F.lit(PROPERTIES[name]))


def number(name: str) -> Column:
    """The same as a number; null where it is none."""
    return F.when(prop(name).rlike("^[+-]?[0-9]{1,18}$"), prop(name)).cast("long")


def text(values: Iterable[str]) -> str:
    """Values as an option of the data source: a JSON list."""
    import json

    return json.dumps(sorted(values))


def table(tables: Tables, name: str) -> DataFrame:
    """A table that is small, or asked for by several rules; kept: each use of one that is not is planned anew."""
    return kept(tables, f"table {name}", lambda: tables.table(name))


def moments(tables: Tables) -> DataFrame:
    """One row a store, as MOMENTS says; worked out once."""

    def make() -> DataFrame:
        since = runs_of((row.store, row.bucket) for row in minutes(tables))
        rows = [
            (name, one.log_begin, one.stated_end, one.abort, one.dump, one.last_store_timestamp, since.get(name))
            for name, one in facts(tables).items()
        ]
        return tables.spark.createDataFrame(rows, MOMENTS)

    return tables.once("moments", make)


def minutes(tables: Tables) -> list[Row]:
    """The minutes in which each store was written to."""
    return tables.kind("traffic").select("store", "bucket").distinct().collect()


def runs_of(written: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Since when each store was written to without a gap, in ms: where its last stretch of minutes begins."""
    found: dict[str, set[int]] = {}
    for store, minute in written:
        found.setdefault(store, set()).add(minute)
    since = {}
    for store, minutes_ in found.items():
        first = max(minutes_)
        while first - 1 in minutes_:
            first -= 1
        since[store] = first * MINUTE_MS
    return since


def is_overdue(due: Column) -> Column:
    """Whether what was due at *due* should long be done, by `moments`."""
    return F.greatest(due, F.col("running_since")) + OVERDUE_MS < F.col("now_ms")


def is_committed() -> Column:
    """Whether a record is what a transaction was committed to, and no later copy of that."""
    waits = F.col("topic").isin(SCHEDULE_TOPIC, TIMER_TOPIC) & F.col("timer_roll_times").isNull()
    return (
        (F.col("sys_flag").bitwiseAND(F.lit(TRANSACTION_BITS)) == COMMIT_FLAG)
        & is_first_copy()
        & (waits | F.col("real_topic").isNull())
    )


def is_first_copy() -> Column:
    """Whether a record has not come back from a consumer."""
    topic = F.col("topic")
    returned = topic.startswith(RETRY_PREFIX) | topic.startswith(DLQ_PREFIX)
    return ~returned & F.col("origin_message_id").isNull() & F.col("first_pop_time").isNull()


def same(left: str, right: str, columns: Iterable[str] = IDENTITY) -> Column:
    """Whether the rows of two aliased frames agree in *columns*, nulls included, within one store."""
    pairs = [F.col(f"{left}.{name}").eqNullSafe(F.col(f"{right}.{name}")) for name in columns]
    return reduce(and_, pairs, F.col(f"{left}.store") == F.col(f"{right}.store"))


def queue_bounds(tables: Tables) -> DataFrame:
    """One row a queue: `first`, the first message that can still be read, and `end`, behind the last one; kept.

    A message is read by its unit and from the log, so the younger of the two beginnings counts; both are dense.
    """

    def make() -> DataFrame:
        queue = ("store", "topic", "queue_id")
        low, high = F.min("queue_offset_min"), F.max("queue_offset_max")
        units = tables.kind("units").where(F.col("status") == "ok")
        on_disk = units.groupBy(*queue).agg(low.alias("first_unit"), high.alias("last_unit"))
        logged = tables.kind("records").groupBy(*queue).agg(low.alias("first_record"), high.alias("last_record"))
        end = behind_last(F.greatest("last_unit", "last_record"))
        first = F.greatest("first_unit", F.coalesce("first_record", behind_last(F.col("last_unit"))))
        return on_disk.join(logged, list(queue), "full").select(
            *queue, first.alias("first"), end.alias("end")
        )  # fmt: skip

    return kept(tables, "queue_bounds", make)


def histogram(value: Column, bounds: Iterable[int]) -> Column:
    """The label of the first bound *value* does not exceed: "100", "1000", …, "inf"."""
    label: Column = F.lit("inf")
    for bound in sorted(bounds, reverse=True):
        label = F.when(value <= bound, str(bound)).otherwise(label)
    return label
