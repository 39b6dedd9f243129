"""A13: half message, op message and real message tell one story: decided once, rolled back never visible.

A transaction is the half messages of one UNIQ_KEY: the first, and the copies that checks put again. pymq's copies name
the first one's queue offset; Apache's do so only within a half's own immunity time, and are known by their count of
checks. A half message that a client *sent* twice is two transactions of one key, so a key may have as many ends as it
has first halves.

Proved:

1. a committed message names, in PREPAREDTRANSACTIONOFFSET, a half message of its own key and topic;
2. a transaction is committed at most once;
3. nothing is committed after the transaction had ended: the op message of a commit comes behind the message, so an op
   message before it was a rollback's, or an earlier end's;
4. no half message lies in a topic consumers read;
5. below the progress (consumer offset of CID_RMQ_SYS_TRANS) every half was ended, put again or given up;
6. a half without an end is younger than retention allows (72 hours; warning): it is in danger of being removed;
7. an op message can be read, and names half messages there were.

Legal: op messages that come late or never (a kill; the committed message is looked for then), copies without an op
message, half messages in TRANS_CHECK_MAX_TIME_TOPIC (twice after a kill), committed messages that wait in a delay level
or the timer's topic, halves that retention has removed, whatever lies at or above the progress.

Cannot be proved: that a half which ended without a committed message was rolled back by its producer and not by a
broker that lost the commit (an op message does not say which; the client's ledger does, A22), and anything about halves
below the log's first byte.

Cost: the marked messages (shared) and the op topic; shuffles of transactions, not of messages.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import ERROR, WARNING, Audit, findings, measured, quoted, union
from spark_jobs.tables import Tables

CHECK = "A13"
GROUP = "CID_RMQ_SYS_TRANS"
HALF_QUEUE = 0
RESERVED_MS = 72 * 3_600_000  # fileReservedTime's default


class Story(NamedTuple):
    """What transactions left in a store."""

    halves: DataFrame  # marked, of the half topic
    committed: DataFrame  # marked
    given_up: DataFrame  # marked
    visible: DataFrame  # marked: half messages among other topics' messages
    ops: DataFrame  # table "op"
    progress: DataFrame  # store, progress
    moments: DataFrame


def gather(tables: Tables) -> Story:
    """The story of these stores."""
    marked = meaning.marked(tables)
    topic = F.col("topic")
    outside = ~topic.isin(*meaning.INNER_TOPICS, meaning.CHECK_MAX_TIME_TOPIC)
    prepared = (F.col("is_half") == "true") & (F.col("sys_flag").bitwiseAND(F.lit(12)) != meaning.COMMIT_FLAG)
    offsets = meaning.table(tables, "offsets").where(
        (F.col("consumer_group") == GROUP) & (topic == meaning.HALF_TOPIC) & (F.col("queue_id") == HALF_QUEUE)
    )
    return Story(
        marked.where(topic == meaning.HALF_TOPIC),
        marked.where(meaning.is_committed()),
        marked.where(topic == meaning.CHECK_MAX_TIME_TOPIC),
        marked.where(outside & prepared & meaning.is_first_copy()),
        meaning.table(tables, "op"),
        offsets.select("store", F.col("queue_offset").alias("progress")),
        meaning.moments(tables),
    )


def decided(story: Story) -> DataFrame:
    """One row a half message, with what became of it and of its transaction.

    `key`, `firsts` (how many half messages of the key are no copies), `is_last` (of its key), `op` and `commit` (the
    first physical offset of each that is about this half), `key_op`, `key_commit`, `key_given_up` (about any of them).
    """
    by_key = Window.partitionBy("store", "key")
    is_first = (F.coalesce("check_times", F.lit(0)) == 0) & F.col("first_queue_offset").isNull()
    ops = (
        story.ops.where(F.col("half_queue_offset").isNotNull())
        .groupBy("store", F.col("half_queue_offset").alias("queue_offset"))
        .agg(F.min("physical_offset").alias("op"))
    )
    commits = story.committed.groupBy("store", F.col("prepared_transaction_offset").alias("physical_offset")).agg(
        F.min(F.col("physical_offset")).alias("commit")
    )
    given_up = story.given_up.groupBy("store", key().alias("key")).agg(F.min("physical_offset").alias("key_given_up"))
    halves = story.halves.select(
        "store", "physical_offset", "queue_offset", "store_timestamp", "real_topic", "uniq_key", key().alias("key"),
        is_first.alias("is_first"),
    )  # fmt: skip
    return (
        halves.join(ops, ["store", "queue_offset"], "left")
        .join(commits, ["store", "physical_offset"], "left")
        .join(given_up, ["store", "key"], "left")
        .withColumn("firsts", F.sum(F.col("is_first").cast("int")).over(by_key))
        .withColumn("is_last", F.col("queue_offset") == F.max("queue_offset").over(by_key))
        .withColumn("key_op", F.min("op").over(by_key))
        .withColumn("key_commit", F.min("commit").over(by_key))
    )


def key() -> Column:
    """What names a transaction; a half without a key is one of its own."""
    return F.coalesce("uniq_key", F.concat(F.lit("#"), F.col("queue_offset")))


def is_ended() -> Column:
    """Whether a half of `decided` has an end: its own, or its key's where that is one transaction's."""
    own = F.col("op").isNotNull() | F.col("commit").isNotNull() | F.col("key_given_up").isNotNull()
    any_copy = F.col("key_op").isNotNull() | F.col("key_commit").isNotNull()
    return own | ((F.col("firsts") <= 1) & any_copy)


# ---- committed messages ------------------------------------------------------------------------------------------


def without_half(story: Story) -> DataFrame:
    """1: committed messages whose half is not there, or is another's."""
    commits = story.committed.alias("c")
    halves = story.halves.alias("h")
    meant = F.when(F.col("c.topic").isin(*meaning.INNER_TOPICS), F.col("c.real_topic")).otherwise(F.col("c.topic"))
    joined = commits.join(
        halves,
        (F.col("c.store") == F.col("h.store")) & (F.col("c.prepared_transaction_offset") == F.col("h.physical_offset")),
        "left",
    ).join(F.broadcast(story.moments.select(F.col("store").alias("s"), "log_begin")), F.col("c.store") == F.col("s"))
    told = (F.col("c.uniq_key").eqNullSafe(F.col("h.uniq_key"))) & meant.eqNullSafe(F.col("h.real_topic"))
    wrong = joined.where(
        (F.col("c.prepared_transaction_offset") >= F.coalesce("log_begin", F.lit(0)))
        & (F.col("h.physical_offset").isNull() | ~told)
    )
    return findings(
        wrong.select("c.*", F.col("h.uniq_key").alias("half_key"), F.col("h.real_topic").alias("half_topic")),
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(
            F.lit("a half message of "), F.coalesce("uniq_key", F.lit("no key")), F.lit(" at physical offset "),
            F.col("prepared_transaction_offset"),
        ),
        actual=F.when(
            F.col("half_topic").isNotNull(), F.concat(F.lit("one of "), "half_key", F.lit(" for "), "half_topic")
        ).otherwise(F.lit("no half message there")),
        evidence=F.concat(F.lit("committed message at physical offset "), F.col("physical_offset")),
    )  # fmt: skip


def committed_twice(story: Story, halves: DataFrame) -> DataFrame:
    """2: the last message of a transaction that has more of them than it may."""
    allowed = halves.groupBy("store", "key").agg(F.max("firsts").alias("firsts"))
    place = F.struct("physical_offset", "topic", "queue_id", "queue_offset")
    made = (
        story.committed.where(F.col("uniq_key").isNotNull())
        .groupBy("store", F.col("uniq_key").alias("key"))
        .agg(F.count("*").alias("made"), F.min("physical_offset").alias("before"), F.max(place).alias("last"))
    )
    doubled = made.join(allowed, ["store", "key"], "left").where(
        F.col("made") > F.greatest(F.coalesce("firsts", F.lit(1)), F.lit(1))
    )
    return findings(
        doubled,
        CHECK,
        topic="last.topic",
        queue="last.queue_id",
        offset="last.queue_offset",
        expected=F.concat(F.lit("one message of transaction "), F.col("key")),
        actual=F.concat(F.col("made"), F.lit(" committed messages")),
        evidence=F.concat(
            F.lit("the last at physical offset "), F.col("last.physical_offset"),
            F.lit(", the first at physical offset "), F.col("before"),
        ),
    )  # fmt: skip


def committed_after_end(story: Story, halves: DataFrame) -> DataFrame:
    """3: messages that came behind the op message of their transaction, where there is but one message."""
    ends = halves.select(
        "store",
        F.col("physical_offset").alias("prepared_transaction_offset"),
        F.when(F.col("firsts") <= 1, F.col("key_op")).otherwise(F.col("op")).alias("ended_at"),
    )
    alone = Window.partitionBy("store", "uniq_key")
    late = (
        story.committed.withColumn("made", F.count("*").over(alone))
        .where(F.col("made") == 1)
        .join(ends, ["store", "prepared_transaction_offset"])
        .where(F.col("ended_at") < F.col("physical_offset"))
    )
    return findings(
        late,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.lit("no message of a transaction that has ended"),
        actual=F.concat(F.lit("a message behind the op message that ended "), F.col("uniq_key")),
        evidence=F.concat(
            F.lit("message at physical offset "), F.col("physical_offset"),
            F.lit(", op message at physical offset "), F.col("ended_at"),
        ),
    )  # fmt: skip


def half_visible(story: Story) -> DataFrame:
    """4: half messages where consumers read."""
    return findings(
        story.visible,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.lit(f"half messages in {meaning.HALF_TOPIC} alone"),
        actual=F.concat(F.lit("a half message of "), F.coalesce("uniq_key", F.lit("no key"))),
        evidence=F.concat(F.lit("physical offset "), F.col("physical_offset")),
    )


# ---- half messages -----------------------------------------------------------------------------------------------


def forgotten(story: Story, halves: DataFrame) -> DataFrame:
    """5: half messages behind which the checks have gone on without an end."""
    left = halves.join(F.broadcast(story.progress), "store").where(
        (F.col("queue_offset") < F.col("progress")) & F.col("is_last") & ~is_ended()
    )
    return findings(
        left,
        CHECK,
        topic=F.lit(meaning.HALF_TOPIC),
        queue=F.lit(HALF_QUEUE),
        offset="queue_offset",
        expected=F.lit("an op message, a committed message, a later copy, or the half given up"),
        actual=F.concat(F.lit("none of them, and the checks have come to "), F.col("progress")),
        evidence=F.concat(
            F.lit("half message of "), quoted("key"), F.lit(" for "),
            F.coalesce(quoted("real_topic"), F.lit("no topic")),
            F.lit(" at physical offset "), F.col("physical_offset"),
        ),
    )  # fmt: skip


def too_old(story: Story, halves: DataFrame) -> DataFrame:
    """6: half messages without an end that retention may take."""
    progress = story.progress.withColumnRenamed("progress", "reached")
    pending = (
        halves.where(F.col("is_last") & ~is_ended())
        .join(F.broadcast(story.moments), "store")
        .join(F.broadcast(progress), "store", "left")
        .where(F.col("reached").isNull() | (F.col("queue_offset") >= F.col("reached")))
        .where(F.col("now_ms") - F.col("store_timestamp") > RESERVED_MS)
    )
    return findings(
        pending,
        CHECK,
        severity=WARNING,
        topic=F.lit(meaning.HALF_TOPIC),
        queue=F.lit(HALF_QUEUE),
        offset="queue_offset",
        expected=F.lit(f"a half message decided, or put again, within {RESERVED_MS // 3_600_000} h"),
        actual=F.concat(
            F.lit("pending for "), F.floor((F.col("now_ms") - F.col("store_timestamp")) / 3_600_000), F.lit(" h")
        ),
        evidence=F.concat(F.lit("physical offset "), F.col("physical_offset")),
    )


def ops_astray(story: Story) -> DataFrame:
    """7: op messages that cannot be read, or name half messages there never were."""
    bounds = story.halves.groupBy("store").agg(F.min("queue_offset").alias("first"))
    there = story.halves.select("store", F.col("queue_offset").alias("half_queue_offset"), F.lit(True).alias("there"))
    named = story.ops.where(F.col("half_queue_offset").isNotNull())
    astray = (
        named.join(F.broadcast(bounds), "store")
        .join(there, ["store", "half_queue_offset"], "left")
        .where((F.col("half_queue_offset") >= F.col("first")) & F.col("there").isNull())
    )
    place = {"topic": F.lit(meaning.OP_HALF_TOPIC), "queue": F.lit(HALF_QUEUE), "offset": "queue_offset"}
    evidence = F.concat(F.lit("op message at physical offset "), F.col("physical_offset"))
    strange = findings(
        astray,
        CHECK,
        severity=ERROR,
        expected=F.lit("the offset of a half message"),
        actual=F.concat(F.col("half_queue_offset"), F.lit(", where there is none")),
        evidence=evidence,
        **place,
    )
    unread = findings(
        story.ops.where(F.col("status") != "ok").dropDuplicates(["store", "physical_offset"]),
        CHECK,
        expected=F.lit("half queue offsets, each followed by a comma"),
        actual=F.col("status"),
        evidence=evidence,
        **place,
    )
    return strange.unionByName(unread)


# ---- the audit ---------------------------------------------------------------------------------------------------


def judge(story: Story) -> list[DataFrame]:
    """All findings, one frame a rule."""
    halves = decided(story).persist()
    return [
        without_half(story),
        committed_twice(story, halves),
        committed_after_end(story, halves),
        half_visible(story),
        forgotten(story, halves),
        too_old(story, halves),
        ops_astray(story),
    ]


def check(tables: Tables) -> DataFrame:
    """What contradicts the story above."""
    return union(judge(gather(tables)), tables.spark)


def outcomes(story: Story) -> DataFrame:
    """How many transactions ended which way, and how many half messages were put again."""
    halves = decided(story)
    outcome = (
        F.when(F.col("key_commit").isNotNull(), "committed")
        .when(F.col("key_given_up").isNotNull(), "given up")
        .when(F.col("key_op").isNotNull(), "rolled back")
        .otherwise("pending")
    )
    ended = halves.where(F.col("is_last")).groupBy("store", outcome.alias("outcome")).agg(F.count("*").alias("value"))
    copies = halves.where(~F.col("is_first")).groupBy("store").agg(F.count("*").alias("value"))
    return measured(ended, CHECK, "transactions", "value", label="outcome").unionByName(
        measured(copies, CHECK, "half messages put again", "value")
    )


AUDIT = Audit(
    CHECK,
    "transactions: committed once, rolled back never visible, none forgotten",
    check,
    metrics=lambda tables: outcomes(gather(tables)),
    group="meaning",
    tables=("commitlog", "op", "offsets", "checkpoint", "scan"),
)
