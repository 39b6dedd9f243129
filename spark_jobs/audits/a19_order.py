"""A19: order: messages of one sharding key lie in their queue in the order in which they were born.

A producer that wants order sends the messages of a key (`__SHARDINGKEY`) to one queue, each when the one before it was
acknowledged. So in a queue, of one key and one producer (born host), births never decrease. With ledgers more is known:
when a send began and when its answer was read.

Proved:

1. of one key, producer and queue, no message was born before one that lies in front of it (warning: a producer that
   sends without waiting for answers may race with itself, and nothing in the store tells);
2. of two acknowledged sends to one queue, where the second began after the first was answered, the second has the
   higher queue offset (error; needs ledgers, of one machine's clock).

Legal: equal births, a key that moves to another queue (the number of queues changed), messages that waited (delayed,
timed) or came back: they are stored out of order by design.

Cannot be proved: order between producers, and of sends in flight together.

Cost: one pass over the log that carries the messages with a sharding key, and a sort of those; of ledgers, a sort of
the acknowledged lines of each queue.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import WARNING, Audit, findings, measured, quoted, union
from spark_jobs.ledger import message_host, message_offset
from spark_jobs.tables import Tables

CHECK = "A19"
KEY = "__SHARDINGKEY"
COLUMNS = (
    "store", "status", "topic", "queue_id", "queue_offset", "physical_offset", "born_timestamp", "born_host",
    "sys_flag", "reconsume_times", "properties",
)  # fmt: skip
WAITED = ("REAL_TOPIC", "ORIGIN_MESSAGE_ID", "1ST_POP_TIME", "TRAN_MSG")  # it was put into its queue by the broker


def keyed(records: DataFrame) -> DataFrame:
    """Those of *records* (COLUMNS, properties as a map) that were sent in order, with their `key`."""

    def prop(name: str) -> Column:
        return F.try_element_at(F.col("properties"), F.lit(name))

    key = prop(KEY)
    return (
        records.where(F.col("status").isin("ok", "bad_crc") & key.isNotNull())
        .where(~F.col("topic").startswith("%") & ~F.col("topic").isin(*meaning.INNER_TOPICS))
        .where(F.coalesce(*(prop(name) for name in WAITED)).isNull())
        .select(key.alias("key"), *(name for name in COLUMNS if name not in ("status", "properties")))
    )


def inverted(messages: DataFrame) -> DataFrame:
    """1: messages born before the one in front of them."""
    line = Window.partitionBy("store", "topic", "queue_id", "key", "born_host").orderBy("queue_offset")
    before = F.lag(F.struct("born_timestamp", "queue_offset")).over(line)
    wrong = messages.withColumn("before", before).where(F.col("born_timestamp") < F.col("before.born_timestamp"))
    return findings(
        wrong,
        CHECK,
        severity=WARNING,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("born at "), F.col("before.born_timestamp"), F.lit(" or later")),
        actual=F.concat(F.lit("born at "), F.col("born_timestamp")),
        evidence=F.concat(
            F.lit("key "), quoted("key"), F.lit(" of "), F.col("born_host"), F.lit(" at physical offset "),
            F.col("physical_offset"), F.lit("; in front of it queue offset "), F.col("before.queue_offset"),
        ),
    )  # fmt: skip


def overtaken(ledgers: DataFrame, records: DataFrame) -> DataFrame:
    """2: acknowledged sends that lie in front of one that was answered before they began.

    *records* (store, physical_offset, topic, queue_id, queue_offset, store_host) are those of the ledgers' topics: the
    log says where a message lies, the ledger when it was sent.
    """
    lines = ledgers.where((F.col("kind") == "A") & F.col("sent_ns").isNotNull() & F.col("done_ns").isNotNull()).select(
        message_offset(F.col("message_id")).alias("physical_offset"),
        message_host(F.col("message_id")).alias("host"),
        "sent_ns",
        "done_ns",
        F.col("topic").alias("sent_to"),
    )
    placed = records.join(lines, "physical_offset").where(
        (F.col("topic") == F.col("sent_to")) & (F.col("host").isNull() | (F.col("host") == F.col("store_host")))
    )
    behind = Window.partitionBy("store", "topic", "queue_id").orderBy("queue_offset")
    later = F.min(F.struct("done_ns", "queue_offset")).over(behind.rowsBetween(1, Window.unboundedFollowing))
    wrong = placed.withColumn("later", later).where(F.col("later.done_ns") < F.col("sent_ns"))
    return findings(
        wrong,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(
            F.lit("behind queue offset "), F.col("later.queue_offset"), F.lit(", which was answered first")
        ),
        actual=F.concat(F.lit("queue offset "), F.col("queue_offset")),
        evidence=F.concat(
            F.lit("sent "), F.col("sent_ns") - F.col("later.done_ns"), F.lit(" ns after that answer; physical offset "),
            F.col("physical_offset"),
        ),
    )  # fmt: skip


def messages_of(tables: Tables) -> DataFrame:
    """The messages with a sharding key; kept."""
    having = meaning.text([KEY])
    return meaning.kept(
        tables, "keyed", lambda: keyed(tables.table("commitlog", columns=COLUMNS, properties="map", having=having))
    )


def check(tables: Tables) -> DataFrame:
    """What is out of order."""
    frames = [inverted(messages_of(tables))]
    if tables.ledgers is not None:
        topics = [row.topic for row in tables.ledgers.where(F.col("kind") == "A").select("topic").distinct().collect()]
        columns = ("store", "physical_offset", "topic", "queue_id", "queue_offset", "store_host")
        frames.append(
            overtaken(tables.ledgers, tables.table("commitlog", columns=columns, topics=meaning.text(topics)))
        )
    return union(frames, tables.spark)


def metrics(tables: Tables) -> DataFrame:
    """How many messages and keys there are."""
    counts = messages_of(tables).groupBy("store", "topic")
    keys = counts.agg(F.approx_count_distinct("key").alias("value"))
    return measured(
        counts.agg(F.count("*").alias("value")), CHECK, "ordered messages", "value", label="topic"
    ).unionByName(measured(keys, CHECK, "sharding keys", "value", label="topic"))


AUDIT = Audit(
    CHECK,
    "order: per sharding key and queue, store order is born order",
    check,
    metrics=metrics,
    group="meaning",
    tables=("commitlog",),
)
