"""A14: POP: every check-point is acked, revived or in flight, and what was acked never comes again.

A check-point in the revive topic covers the messages of one pop. Acks of it name the same pop (topic, group, queue,
start offset, pop time, broker). When its time has come and the revive offset of its queue passes it, whatever is not
acked is put into the group's retry topic (`%RETRY%group_topic`, since 5.x also `%RETRY%group+topic`; a message that was
popped from there goes back to it), with one more in its count of deliveries. The consumer offset of
CID_RMQ_SYS_REVIVE_GROUP is the last check-point that was dealt with, not the next one.

Proved:

1. a check-point that was passed has each of its messages acked, revived, or handed on to another check-point;
2. a message in a retry topic has a check-point that explains it: one over the message it is a copy of, whose time had
   come, and not acked by then. An ack counts when it reached the revive topic a second before the copy was stored;
3. revive gets on: no check-point has been waiting for more than three minutes of a broker at work (warning).

Legal: check-points that were kept in memory alone and acked there (no row at all), acks whose check-point is not there,
messages that retention removed before they could be revived, check-points of topics or groups that were deleted since,
a message revived twice (a crash between), an ack that came too late.

Cannot be proved: what a broker with its POP state in RocksDB did, and that a message nobody popped was delivered (A22).

Cost: the revive topics and the marked messages (shared); only if something was popped, a pass over the popped topics
for the messages that are not plainly acked. Those are broadcast, not the topics.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import WARNING, Audit, findings, measured, none_found, quoted, union
from spark_jobs.tables import Tables

CHECK = "A14"
GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
POP = ("store", "topic", "consumer_group", "queue_id", "start_offset", "pop_timestamp", "broker_name")
ACK_MARGIN_MS = 1000  # revive reads, then puts: an ack in between is seen by neither
ORIGINAL_COLUMNS = (
    "store", "topic", "queue_id", "queue_offset", "reconsume_times", "status", *meaning.IDENTITY,
)  # fmt: skip


class Pops(NamedTuple):
    """What POP left in a store."""

    rows: DataFrame  # table "popck"
    copies: DataFrame  # marked: messages that were revived
    originals: DataFrame  # records of the popped topics, ORIGINAL_COLUMNS
    progress: DataFrame  # store, revive_queue_id, progress
    topics: DataFrame  # store, topic
    groups: DataFrame  # store, consumer_group
    moments: DataFrame


def gather(tables: Tables, rows: DataFrame, popped: list[str]) -> Pops:
    """The frames of these stores; *popped* are the topics with check-points."""
    offsets = meaning.table(tables, "offsets").where(
        (F.col("consumer_group") == GROUP) & F.col("topic").startswith(meaning.REVIVE_PREFIX)
    )
    return Pops(
        rows,
        meaning.marked(tables).where(
            F.col("first_pop_time").isNotNull() & F.col("topic").startswith(meaning.RETRY_PREFIX)
        ),
        tables.table("commitlog", columns=ORIGINAL_COLUMNS, topics=meaning.text(popped)).where(
            F.col("status").isin("ok", "bad_crc")
        ),
        offsets.select("store", F.col("queue_id").alias("revive_queue_id"), F.col("queue_offset").alias("progress")),
        meaning.table(tables, "topics").select("store", "topic").distinct(),
        meaning.table(tables, "groups").select("store", "consumer_group").distinct(),
        meaning.moments(tables),
    )


def revive_time() -> Column:
    """When a check-point's messages become visible again."""
    return F.col("pop_timestamp") + F.col("invisible_ms")


def covered(pops: Pops) -> DataFrame:
    """One row for each message a check-point covers: where it is, whether and when it was acked, whether it was passed.

    `acked_at` is the store time of the ack, 0 where the check-point itself says so, null without one.
    """
    points = pops.rows.where((F.col("kind") == "ck") & F.col("offsets").isNotNull())
    acks = (
        pops.rows.where(F.col("kind").isin("ack", "batch_ack") & F.col("offsets").isNotNull())
        .select(*POP, F.explode("offsets").alias("queue_offset"), "store_timestamp")
        .groupBy(*POP, "queue_offset")
        .agg(F.min("store_timestamp").alias("ack_stored"))
    )
    each = points.select(
        *POP,
        F.posexplode("offsets").alias("at", "queue_offset"),
        F.col("queue_offset").alias("point_offset"),
        F.col("physical_offset").alias("point_physical"),
        F.col("store_timestamp").alias("point_stored"),
        "revive_queue_id",
        "count",
        F.coalesce("bit_map", F.lit(0)).alias("bit_map"),
        revive_time().alias("revive_ms"),
    )
    in_map = (F.col("at") < 32) & F.expr("(shiftright(bit_map, at) & 1) = 1")
    return (
        each.join(acks, [*POP, "queue_offset"], "left")
        .join(F.broadcast(pops.progress), ["store", "revive_queue_id"], "left")
        .withColumn("acked_at", F.when(in_map, F.lit(0)).otherwise(F.col("ack_stored")))
        .withColumn("is_passed", F.coalesce(F.col("progress") >= F.col("point_offset"), F.lit(False)))
    )


def retry_topics(topic: str, group: str) -> Column:
    """The topics a message of *topic* is put into for *group*."""
    prefix = F.concat(F.lit(meaning.RETRY_PREFIX), F.col(group))
    return F.when(F.col(topic).startswith(meaning.RETRY_PREFIX), F.array(F.col(topic))).otherwise(
        F.array(F.concat(prefix, F.lit("_"), F.col(topic)), F.concat(prefix, F.lit("+"), F.col(topic)))
    )


def is_copy_of() -> Column:
    """Whether `c` is what `o` was revived to."""
    return (
        meaning.same("c", "o")
        & (F.col("c.reconsume_times") == F.col("o.reconsume_times") + 1)
        & F.array_contains(F.col("o.retry_topics"), F.col("c.topic"))
    )


def lost(pops: Pops, each: DataFrame) -> DataFrame:
    """1: messages of a check-point that was passed, neither acked nor revived."""
    handed_on = each.where(F.col("count") == 1).select(
        *(name for name in POP if name != "start_offset"),
        F.col("start_offset").alias("queue_offset"),
        F.col("point_physical").alias("later"),
    )
    open_ = each.where(F.col("is_passed") & F.col("acked_at").isNull())
    on = [name for name in POP if name != "start_offset"] + ["queue_offset"]
    still_open = (
        open_.join(handed_on, on, "left")
        .withColumn("is_later", F.coalesce(F.col("later") > F.col("point_physical"), F.lit(False)))
        .groupBy(*each.columns)
        .agg(F.max("is_later").alias("is_handed_on"))
        .where(~F.col("is_handed_on"))
    )
    known = still_open.join(F.broadcast(pops.groups), ["store", "consumer_group"], "left_semi").join(
        F.broadcast(pops.topics), ["store", "topic"], "left_semi"
    )
    of = known.withColumn("retry_topics", retry_topics("topic", "consumer_group"))
    originals = pops.originals.join(F.broadcast(of), ["store", "topic", "queue_id", "queue_offset"])
    missing = originals.alias("o").join(pops.copies.alias("c"), is_copy_of(), "left_anti")
    return findings(
        missing,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("acked by "), F.col("consumer_group"), F.lit(", or put into its retry topic")),
        actual=F.concat(
            F.lit("neither, and revive queue "), F.col("revive_queue_id"), F.lit(" has come to "), F.col("progress")
        ),
        evidence=F.concat(
            F.lit("message at queue offset "), F.col("queue_offset"), F.lit("; its check-point at physical offset "),
            F.col("point_physical"), F.lit(" was due at "), F.col("revive_ms"),
        ),
    )  # fmt: skip


def unexplained(pops: Pops, each: DataFrame) -> DataFrame:
    """2: revived messages that no check-point explains, though there are some over them."""
    copies = pops.copies.select(
        "store", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "reconsume_times",
        *meaning.IDENTITY,
    )  # fmt: skip
    named = each.select("store", "topic", "consumer_group").distinct()
    groups = F.broadcast(named.withColumn("retry_topics", retry_topics("topic", "consumer_group")))
    originals = pops.originals.join(groups, ["store", "topic"]).alias("o")
    pairs = originals.join(F.broadcast(copies.alias("c")), is_copy_of()).select(
        F.col("o.store").alias("store"),
        F.col("o.topic").alias("topic"),
        F.col("o.consumer_group").alias("consumer_group"),
        F.col("o.queue_id").alias("queue_id"),
        F.col("o.queue_offset").alias("queue_offset"),
        F.struct("c.*").alias("copy"),
    )
    stored = F.col("copy.store_timestamp")
    in_time = F.col("acked_at") + ACK_MARGIN_MS < stored
    explains = (F.col("revive_ms") <= stored) & ~F.coalesce(in_time, F.lit(False))
    judged = (
        pairs.join(each, ["store", "topic", "consumer_group", "queue_id", "queue_offset"])
        .groupBy("store", "topic", "consumer_group", "queue_id", "queue_offset", "copy")
        .agg(F.max(explains).alias("explained"), F.max("acked_at").alias("acked_at"))
        .where(~F.col("explained"))
    )
    return findings(
        judged,
        CHECK,
        topic="copy.topic",
        queue="copy.queue_id",
        offset="copy.queue_offset",
        expected=F.lit("a message that comes again only if it was not acked within its invisible time"),
        actual=F.when(F.col("acked_at").isNull(), F.lit("it came again before its time")).otherwise(
            F.concat(F.lit("it came again at "), stored, F.lit(", acked by "), F.col("acked_at"))
        ),
        evidence=F.concat(
            F.lit("copy at physical offset "), F.col("copy.physical_offset"), F.lit(" of "), quoted("topic"),
            F.lit(" queue "), F.col("queue_id"), F.lit(" offset "), F.col("queue_offset"),
        ),
    )  # fmt: skip


def stuck(pops: Pops, each: DataFrame) -> DataFrame:
    """3: the first check-point of a revive queue that waits too long."""
    due = F.greatest("revive_ms", "point_stored")
    waiting = each.where(~F.col("is_passed")).join(F.broadcast(pops.moments), "store").where(meaning.is_overdue(due))
    first = waiting.groupBy("store", "revive_queue_id").agg(
        F.min(F.struct("point_offset", "point_physical", "revive_ms", "now_ms", "progress")).alias("first")
    )
    return findings(
        first,
        CHECK,
        severity=WARNING,
        topic=F.lit(meaning.REVIVE_PREFIX),
        queue="revive_queue_id",
        offset="first.point_offset",
        expected=F.lit(f"dealt with within {meaning.OVERDUE_MS // 1000} s of its time"),
        actual=F.concat(
            F.lit("waiting for "), F.floor((F.col("first.now_ms") - F.col("first.revive_ms")) / 1000), F.lit(" s")
        ),
        evidence=F.concat(F.lit("check-point at physical offset "), F.col("first.point_physical")),
    )


def unread(rows: DataFrame) -> DataFrame:
    """Rows of the revive topic that cannot be read: a check-point or an ack that revive does not see either."""
    return findings(
        rows.where(F.col("status") == "bad_body"),
        CHECK,
        topic=F.lit(meaning.REVIVE_PREFIX),
        queue="revive_queue_id",
        offset="queue_offset",
        expected=F.lit("a check-point or an ack"),
        actual=F.lit("a body that is neither"),
        evidence=F.concat(F.lit("physical offset "), F.col("physical_offset")),
    )


def judge(pops: Pops) -> list[DataFrame]:
    """All findings, one frame a rule."""
    each = covered(pops).persist()
    return [lost(pops, each), unexplained(pops, each), stuck(pops, each), unread(pops.rows)]


def popck(tables: Tables) -> DataFrame:
    """The revive topics, decoded; kept."""
    return meaning.table(tables, "popck")


def check(tables: Tables) -> DataFrame:
    """What POP owes."""
    rows = popck(tables)
    popped = [row.topic for row in rows.where(F.col("kind") == "ck").select("topic").distinct().collect()]
    if not popped:
        return unread(rows) if rows.take(1) else none_found(tables.spark)
    return union(judge(gather(tables, rows, popped)), tables.spark)


def metrics(tables: Tables) -> DataFrame:
    """How many check-points and acks there are, and messages that were revived."""
    counts = popck(tables).groupBy("store", F.coalesce("kind", F.lit("unread")).alias("kind"))
    copies = meaning.marked(tables).where(F.col("first_pop_time").isNotNull()).groupBy("store", "topic")
    return measured(counts.agg(F.count("*").alias("value")), CHECK, "pop", "value", label="kind").unionByName(
        measured(copies.agg(F.count("*").alias("value")), CHECK, "revived", "value", label="topic")
    )


AUDIT = Audit(
    CHECK,
    "POP: every check-point acked, revived or in flight; acked messages never come again",
    check,
    metrics=metrics,
    group="meaning",
    tables=("popck", "commitlog", "offsets", "topics", "groups", "checkpoint", "scan"),
)
