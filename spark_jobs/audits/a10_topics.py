"""A10: the topics as configured fit the queues on disk.

Proved: `topics.json` and `subscriptionGroup.json` can be read; every topic with messages in a queue is configured, with
numbers of queues that are none below zero and permission bits that exist; no queue with messages that somebody has yet
to read lies beyond the topic's read queues; a group's dead letters can be read, and its retry topic read and written.

Legal: a store without any configured topic (no broker ran over it); topics without messages; RocketMQ's own topics,
which come and go by themselves (`rmq_sys_`, `%RETRY%`, `%DLQ%`, the half, schedule and trace topics, `%LMQ%`); topics
in `removedTopics`; queues beyond the read queues that every group has read to their end, as after a topic was made
smaller.

Cost: two small files, and sums of the scan.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from pymq.broker.names import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from spark_jobs.audits.base import ERROR, WARNING, Audit, findings, measured, quoted, union
from spark_jobs.audits.books import QUEUE
from spark_jobs.audits.facts import facts_frame, small
from spark_jobs.tables import Tables

CHECK: Final = "A10"
TOPICS_FILE: Final = "config/topics.json"
FILES: Final = (TOPICS_FILE, "config/subscriptionGroup.json")
LIGHT_PREFIX: Final = "%LMQ%"
READ, WRITE, PERM_BITS = 4, 2, 15


def is_own(topic: Column) -> Column:
    """Whether RocketMQ makes the topic by itself."""
    prefixes = (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX, LIGHT_PREFIX)
    found = topic.isin(*sorted(SYSTEM_TOPICS)) | topic.endswith(REPLY_TOPIC_SUFFIX)
    for prefix in prefixes:
        found = found | topic.startswith(prefix)
    return found


def filled(units: DataFrame, stores: DataFrame) -> DataFrame:
    """Queues that hold a message the log still has, with where they end (`queue_end`)."""
    return (
        units.where("status = 'ok'")
        .join(F.broadcast(stores.select("store", "log_begin")), "store")
        .where(F.col("physical_offset_end") > F.col("log_begin"))
        .groupBy(*QUEUE)
        .agg((F.max("queue_offset_max") + 1).alias("queue_end"), F.sum("count").alias("units"))
    )


def unconfigured(queues: DataFrame, topics: DataFrame, removed: DataFrame) -> DataFrame:
    """Topics with messages that are not configured, in stores that have a configuration."""
    one = ["store", "topic"]
    return (
        queues.where(~is_own(F.col("topic")))
        .join(topics.select("store").distinct(), "store", "left_semi")
        .join(topics, one, "left_anti")
        .join(removed, one, "left_anti")
        .groupBy(*one)
        .agg(F.count(F.lit(1)).alias("queues"), F.sum("units").alias("units"))
    )


def odd(topics: DataFrame) -> DataFrame:
    """Topics whose settings no broker writes, one row each, with what is wrong in words."""
    numbers = F.least(F.coalesce("read_queue_nums", F.lit(-1)), F.coalesce("write_queue_nums", F.lit(-1))) < 0
    bits = F.coalesce("perm", F.lit(-1)).bitwiseAND(F.lit(~PERM_BITS)) != 0
    shown = F.format_string("readQueueNums %s, writeQueueNums %s", *texts("read_queue_nums", "write_queue_nums"))
    return topics.where(numbers | bits).select(
        "store",
        "topic",
        F.when(numbers, "numbers of queues from 0 on").otherwise("a permission of bits 1, 2, 4 and 8").alias("should"),
        F.when(numbers, shown).otherwise(F.format_string("perm %s", *texts("perm"))).alias("is"),
    )


def texts(*names: str) -> list[Column]:
    """Columns as text, null included."""
    return [F.coalesce(F.col(name).cast("string"), F.lit("none")) for name in names]


def closed(topics: DataFrame) -> DataFrame:
    """Dead-letter topics nobody can read, retry topics nobody can read or write."""
    dead = F.col("topic").startswith(DLQ_PREFIX)
    needed = F.when(dead, READ).when(F.col("topic").startswith(RETRY_PREFIX), READ | WRITE)
    perm = F.col("perm").bitwiseAND(F.lit(PERM_BITS))
    return (
        topics.withColumn("needed", needed)
        .where(F.col("perm").bitwiseAND(F.lit(~PERM_BITS)) == 0)
        .where(perm.bitwiseAND(F.col("needed")) != F.col("needed"))
    )


def out_of_reach(queues: DataFrame, topics: DataFrame, offsets: DataFrame) -> DataFrame:
    """Queues beyond their topic's read queues that some group, or anybody, has not read to the end."""
    beyond = (
        queues.where(~is_own(F.col("topic")))
        .join(topics.select("store", "topic", "read_queue_nums"), ["store", "topic"])
        .where((F.col("read_queue_nums") >= 0) & (F.col("queue_id") >= F.col("read_queue_nums")))
    )
    groups = offsets.select("store", "topic", "consumer_group").distinct()
    committed = offsets.select(*QUEUE, "consumer_group", F.col("queue_offset").alias("committed"))
    joined = beyond.join(groups, ["store", "topic"], "left").join(committed, [*QUEUE, "consumer_group"], "left")
    return (
        joined.where(F.col("consumer_group").isNull() | (F.coalesce("committed", F.lit(0)) < F.col("queue_end")))
        .groupBy(*QUEUE, "read_queue_nums", "queue_end")
        .agg(F.min("consumer_group").alias("consumer_group"), F.coalesce(F.min("committed"), F.lit(0)).alias("from"))
    )


def check(tables: Tables) -> DataFrame:
    """One finding for each topic, queue or file that does not fit."""
    topics, queues = small(tables, "topics").cache(), filled(tables.kind("units"), facts_frame(tables))
    damaged = small(tables, "config").where(F.col("path").isin(*FILES)).where("status not in ('ok', 'missing')")
    parts = [
        findings(
            damaged,
            CHECK,
            severity=ERROR,
            expected=F.lit("a table as a broker writes it"),
            actual=F.concat_ws(": ", F.col("status"), F.col("detail")),
            evidence=F.format_string("file %s at 0; its .bak was read instead", F.col("path")),
        ),
        findings(
            unconfigured(queues, topics, small(tables, "removed_topics")),
            CHECK,
            severity=WARNING,
            topic="topic",
            expected=F.lit("a configured topic"),
            actual=F.format_string("%d queues with %d messages, and no configuration", F.col("queues"), F.col("units")),
            evidence=F.format_string("%s has no such topic", F.lit(TOPICS_FILE)),
        ),
        findings(
            odd(topics),
            CHECK,
            topic="topic",
            expected=F.col("should"),
            actual=F.col("is"),
            evidence=F.lit(TOPICS_FILE),
        ),
        findings(
            closed(topics),
            CHECK,
            severity=WARNING,
            topic="topic",
            expected=F.when(F.col("needed") == READ, "a topic that can be read").otherwise(
                "a topic that can be read and written"
            ),
            actual=F.format_string("perm %d", F.col("perm")),
            evidence=F.lit(TOPICS_FILE),
        ),
        unreached(out_of_reach(queues, topics, small(tables, "offsets"))),
    ]
    return union(parts, tables.spark)


def unreached(queues: DataFrame) -> DataFrame:
    """Findings of queues nobody is offered."""
    unread = F.when(F.col("consumer_group").isNull(), F.lit("no group has read it")).otherwise(
        F.format_string("group %s has read it up to %d", quoted("consumer_group"), F.col("from"))
    )
    return findings(
        queues,
        CHECK,
        severity=WARNING,
        topic="topic",
        queue="queue_id",
        offset="from",
        expected=F.format_string("queues below %d, the topic's read queues", F.col("read_queue_nums")),
        actual=F.format_string("a queue with messages up to %d", F.col("queue_end")),
        evidence=unread,
    )


def metrics(tables: Tables) -> DataFrame:
    """Configured topics, and queues with messages."""
    topics = small(tables, "topics").groupBy("store").agg(F.count(F.lit(1)).alias("value"))
    queues = filled(tables.kind("units"), facts_frame(tables)).groupBy("store").agg(F.count(F.lit(1)).alias("value"))
    return measured(topics, CHECK, "topics", "value").unionByName(
        measured(queues, CHECK, "queues_with_messages", "value")
    )


AUDIT: Final = Audit(
    CHECK,
    "configured topics fit the queues on disk",
    check,
    metrics=metrics,
    tables=("topics", "removed_topics", "offsets", "config", "scan", "checkpoint"),
)
