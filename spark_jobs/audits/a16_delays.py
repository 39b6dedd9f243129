"""A16: delay levels: every message of a level is delivered, once it is due, and never before.

A delayed message waits in queue *level* - 1 of SCHEDULE_TOPIC_XXXX; its unit's tags code is when it is due. It is
delivered by being put again into the topic and queue it names, with all its properties. `config/delayOffset.json` says
how far each level has come. What names the origin of a delivered message: REAL_TOPIC and REAL_QID are kept, with
UNIQ_KEY, birth, body and the count of deliveries (which tells the levels of a message that failed again and again
apart); the physical offset it came from is kept nowhere.

Proved:

1. a message its level has passed, by the file or by a later message that was delivered, was delivered itself;
2. a delivered message was stored when it was due, or later;
3. a message that says it was delayed had waited (where the log still has its first byte);
4. a due message is delivered within three minutes of a broker at work (warning).

Legal: delivered twice (a kill between delivery and the file; counted), late after a stop, pending.

Cannot be proved: that a copy belongs to this waiting message and not to another one equal in all of the above, which a
client can make by sending one UNIQ_KEY twice within a millisecond. When the clock was set back by more than ten
seconds, both brokers deliver what waits at once: such a delivery is early by the clock of before, and is reported.

Cost: the marked messages (shared); one shuffle of delayed messages.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import WARNING, Audit, findings, measured, quoted, union
from spark_jobs.tables import Tables

CHECK = "A16"
LATENESS_MS = (10, 100, 500, 1000, 5000, 60_000, 600_000)
TARGET = (*meaning.IDENTITY, "reconsume_times", "real_topic", "real_queue_id")


class Delays(NamedTuple):
    """What delay levels left in a store."""

    waiting: DataFrame  # marked, of the schedule topic
    delivered: DataFrame  # marked, where it was sent to
    progress: DataFrame  # table "delay_offsets": store, level, queue_offset
    moments: DataFrame


def gather(tables: Tables) -> Delays:
    """The frames of these stores."""
    marked = meaning.marked(tables)
    topic = F.col("topic")
    is_delivered = (
        ~topic.isin(*meaning.INNER_TOPICS)
        & (topic == F.col("real_topic"))
        & (F.col("queue_id") == F.col("real_queue_id"))
        & (F.col("delay") > 0)
    )
    return Delays(
        marked.where(topic == meaning.SCHEDULE_TOPIC),
        marked.where(is_delivered),
        meaning.table(tables, "delay_offsets"),
        meaning.moments(tables),
    )


def judged(delays: Delays) -> DataFrame:
    """Every waiting message: when it is due, when it was first delivered (`stored`), whether its level passed it."""
    level = F.col("queue_id") + 1
    copies = delays.delivered.groupBy("store", *TARGET).agg(
        F.min("store_timestamp").alias("stored"), F.max("physical_offset").alias("copy"), F.count("*").alias("copies")
    )
    key = Window.partitionBy("store", "queue_id").orderBy("queue_offset")
    later = F.max(F.when(F.col("stored").isNotNull(), F.col("queue_offset"))).over(
        key.rowsBetween(1, Window.unboundedFollowing)
    )
    progress = delays.progress.select("store", "level", F.col("queue_offset").alias("progress"))
    waiting = delays.waiting.withColumn("level", level).withColumn("due", F.col("tags_code"))
    on = meaning.same("w", "c", TARGET) & (F.col("c.copy") > F.col("w.physical_offset"))
    return (
        waiting.alias("w")
        .join(copies.alias("c"), on, "left")
        .select("w.*", "c.stored", "c.copies")
        .join(F.broadcast(progress), ["store", "level"], "left")
        .withColumn("later", later)
        .withColumn("is_passed", F.coalesce(F.col("queue_offset") < F.col("progress"), F.lit(False)))
    )


def passed_over(waiting: DataFrame) -> DataFrame:
    """1: messages their level has left behind."""
    wrong = waiting.where(F.col("stored").isNull() & (F.col("is_passed") | F.col("later").isNotNull()))
    return findings(
        wrong,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("delivered to "), F.col("real_topic"), F.lit(" queue "), F.col("real_queue_id")),
        actual=F.when(
            F.col("is_passed"), F.concat(F.lit("not there, and its level has come to "), F.col("progress"))
        ).otherwise(F.concat(F.lit("not there, but the message of queue offset "), F.col("later"), F.lit(" is"))),
        evidence=F.concat(
            F.lit("waiting message of "), F.coalesce(quoted("uniq_key"), F.lit("no key")),
            F.lit(" at physical offset "), F.col("physical_offset"), F.lit(", due at "), F.col("due"),
        ),
    )  # fmt: skip


def early(delays: Delays) -> DataFrame:
    """2: messages stored before they were due."""
    due = delays.waiting.groupBy("store", *TARGET).agg(
        F.min("tags_code").alias("due"), F.min("physical_offset").alias("origin")
    )
    wrong = (
        delays.delivered.alias("d")
        .join(due.alias("w"), meaning.same("d", "w", TARGET) & (F.col("w.origin") < F.col("d.physical_offset")))
        .where(F.col("d.store_timestamp") < F.col("w.due"))
        .select("d.*", "w.due", "w.origin")
    )
    return findings(
        wrong,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("delivered from "), F.col("due"), F.lit(" on")),
        actual=F.concat(F.lit("stored at "), F.col("store_timestamp")),
        evidence=F.concat(
            F.lit("delivered message at physical offset "), F.col("physical_offset"),
            F.lit("; it waited at physical offset "), F.col("origin"),
        ),
    )  # fmt: skip


def never_waited(delays: Delays) -> DataFrame:
    """3: messages that say they were delayed and were not."""
    whole = delays.moments.where(F.coalesce("log_begin", F.lit(0)) == 0).select("store")
    waiting = delays.waiting.select("store", "physical_offset", *TARGET).alias("w")
    on = meaning.same("d", "w", TARGET) & (F.col("w.physical_offset") < F.col("d.physical_offset"))
    wrong = (
        delays.delivered.where(F.col("timer_dequeue_ms").isNull())
        .join(F.broadcast(whole), "store", "left_semi")
        .alias("d")
        .join(waiting, on, "left_anti")
    )
    return findings(
        wrong,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("a message that waited in level "), F.col("delay")),
        actual=F.lit("none that it could be a copy of"),
        evidence=F.concat(F.lit("physical offset "), F.col("physical_offset")),
    )


def overdue(delays: Delays, waiting: DataFrame) -> DataFrame:
    """4: due messages nobody has delivered."""
    wrong = (
        waiting.where(F.col("stored").isNull() & ~F.col("is_passed") & F.col("later").isNull())
        .join(F.broadcast(delays.moments), "store")
        .where(meaning.is_overdue(F.col("due")))
    )
    return findings(
        wrong,
        CHECK,
        severity=WARNING,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("delivered soon after "), F.col("due")),
        actual=F.concat(F.lit("still waiting at "), F.col("now_ms")),
        evidence=F.concat(F.lit("waiting message at physical offset "), F.col("physical_offset")),
    )


def judge(delays: Delays) -> list[DataFrame]:
    """All findings, one frame a rule."""
    waiting = judged(delays)
    return [passed_over(waiting), early(delays), never_waited(delays), overdue(delays, waiting)]


def check(tables: Tables) -> DataFrame:
    """What delay levels owe."""
    return union(judge(gather(tables)), tables.spark)


def metrics(tables: Tables) -> DataFrame:
    """How late messages were delivered, how many wait, how many came again."""
    waiting = judged(gather(tables))
    late = F.col("stored") - F.col("due")
    done = waiting.where(F.col("stored").isNotNull())
    buckets = done.groupBy("store", meaning.histogram(late, LATENESS_MS).alias("bucket"))
    pending = waiting.where(F.col("stored").isNull()).groupBy("store", F.concat(F.lit("level "), "level").alias("of"))
    again = done.where(F.col("copies") > 1).groupBy("store")
    return (
        measured(buckets.agg(F.count("*").alias("value")), CHECK, "lateness_ms", "value", label="bucket")
        .unionByName(measured(pending.agg(F.count("*").alias("value")), CHECK, "waiting", "value", label="of"))
        .unionByName(measured(again.agg(F.sum(F.col("copies") - 1).alias("value")), CHECK, "delivered again", "value"))
    )


AUDIT = Audit(
    CHECK,
    "delay levels: every due message delivered, none before its time",
    check,
    metrics=metrics,
    group="meaning",
    tables=("commitlog", "delay_offsets", "checkpoint", "scan"),
)
