"""A17: retries and dead letters: each leads back to a message there was, and counts its deliveries.

A message that a consumer sends back is put again for `%RETRY%group` (by way of a delay level) or `%DLQ%group`, with
ORIGIN_MESSAGE_ID (where the first message of the line lies) and RETRY_TOPIC (the topic it was sent to), and one more in
its count of deliveries.

Proved, of every message with ORIGIN_MESSAGE_ID in a retry or dead-letter topic, or on its way there:

1. the id can be read, names an earlier place, and there, if the log reaches back so far, a message of RETRY_TOPIC with
   the same UNIQ_KEY, birth and body begins;
2. it counts at least one delivery, and more than its origin;
3. it counts no more than the group allows (retryMaxTimes, or MAX_RECONSUME_TIMES where a client says so, at least the
   default of 16; one more for a dead letter). Clients bring a maximum of their own that is not stored, so this is a
   warning.

That a delivered retry had waited in the level it names, so that no copy came from nowhere, is A16's third rule.

Legal: one delivery sent back more than once (a consumer that crashed before it committed), gaps in the count (ordered
consumers count on their own), origins that have expired, origins on another broker (the id's host is none of this
store's), dead letters without any retry before them, and retries behind a dead letter (after a crash of the consumer
that had given the message up).

Cannot be proved: that a consumer had reason to send a message back, or that every failure was sent back (A22).

Cost: the marked messages (shared), and the records at the origins: read by place, if there are few (below 20,000), or
by one more pass.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import WARNING, Audit, findings, measured, quoted, union
from spark_jobs.ledger import is_offset_id, message_host, message_offset
from spark_jobs.tables import ByteRange, Tables

CHECK = "A17"
RECONSUME_MAX = 16
RANGES_MAX = 20_000
ORIGIN_COLUMNS = (
    "store", "physical_offset", "topic", "queue_id", "queue_offset", "reconsume_times", "store_host", "status",
    *meaning.IDENTITY,
)  # fmt: skip


class Lines(NamedTuple):
    """What consumers sent back."""

    returned: DataFrame  # marked, with `target` (the retry or dead-letter topic), `group`, `origin` (physical offset)
    origins: DataFrame  # records that begin at the origins, ORIGIN_COLUMNS
    hosts: DataFrame  # store, host
    groups: DataFrame  # store, group, retry_max_times
    moments: DataFrame


def returned(marked: DataFrame) -> DataFrame:
    """Messages of *marked* that were sent back, also those that wait to be delivered again."""
    topic = F.col("topic")
    target = F.when(topic == meaning.SCHEDULE_TOPIC, F.col("real_topic")).otherwise(topic)
    prefix = f"^({meaning.RETRY_PREFIX}|{meaning.DLQ_PREFIX})"
    return (
        marked.where(F.col("origin_message_id").isNotNull())
        .withColumn("target", target)
        .where(F.col("target").rlike(prefix))
        .withColumn("group", F.regexp_replace("target", prefix, ""))
        .withColumn("origin", message_offset(F.col("origin_message_id")))
        .withColumn("host", message_host(F.col("origin_message_id")))
    )


def gather(tables: Tables) -> Lines:
    """The frames of these stores."""
    marked = meaning.marked(tables)
    lines = returned(marked)
    begins = meaning.moments(tables).select("store", "log_begin")
    there = (
        lines.join(F.broadcast(begins), "store")
        .where(F.col("origin") >= F.coalesce("log_begin", F.lit(0)))
        .select("store", "origin")
        .distinct()
    )
    places = there.limit(RANGES_MAX + 1).collect()
    if len(places) <= RANGES_MAX:
        ranges = [ByteRange(place.store, place.origin, place.origin + 1) for place in places]
        origins = tables.records(ranges).select(*ORIGIN_COLUMNS)
    else:
        wanted = there.withColumnRenamed("origin", "physical_offset")
        origins = tables.table("commitlog", columns=ORIGIN_COLUMNS).join(wanted, ["store", "physical_offset"])
    groups = meaning.table(tables, "groups").select("store", F.col("consumer_group").alias("group"), "retry_max_times")
    hosts = lines.select("store", F.col("store_host").alias("host")).distinct()
    return Lines(lines, meaning.kept(tables, "origins", lambda: origins), hosts, groups, meaning.moments(tables))


def place() -> dict[str, Column | str]:
    """Where a finding stands: at the message that was sent back."""
    return {"topic": "topic", "queue": "queue_id", "offset": "queue_offset"}


def evidence() -> Column:
    """Which message it is about."""
    return F.concat(F.lit("message for "), quoted("target"), F.lit(" at physical offset "), F.col("physical_offset"))


def without_origin(lines: Lines) -> DataFrame:
    """1: messages whose origin is not there, or is another message."""
    origins = lines.origins.where(F.col("status").isin("ok", "bad_crc")).alias("o")
    known = F.broadcast(lines.hosts).alias("k")
    here = (
        lines.returned.join(F.broadcast(lines.moments.select("store", "log_begin")), "store")
        .alias("r")
        .join(known, (F.col("r.store") == F.col("k.store")) & F.col("r.host").eqNullSafe(F.col("k.host")), "left")
        .withColumn("is_here", F.col("k.store").isNotNull() | F.col("r.host").isNull())
        .select("r.*", "is_here")
        .alias("r")
    )
    joined = here.join(
        origins, (F.col("r.store") == F.col("o.store")) & (F.col("r.origin") == F.col("o.physical_offset")), "left"
    )
    is_origin = meaning.same("r", "o") & F.coalesce(F.col("r.retry_topic") == F.col("o.topic"), F.lit(True))
    unreadable = ~is_offset_id(F.col("r.origin_message_id"))
    later = F.col("r.origin") >= F.col("r.physical_offset")
    absent = (F.col("r.origin") >= F.coalesce("r.log_begin", F.lit(0))) & (F.col("o.store").isNull() | ~is_origin)
    wrong = joined.where(unreadable | (F.col("r.is_here") & (later | absent)))
    other = F.concat(
        F.lit("a message of "), F.col("found_topic"), F.lit(", key "), F.coalesce("found_key", F.lit("none"))
    )
    return findings(
        wrong.select(
            "r.*",
            unreadable.alias("is_unreadable"),
            F.col("o.topic").alias("found_topic"),
            F.col("o.uniq_key").alias("found_key"),
        ),
        CHECK,
        expected=F.concat(
            F.lit("ORIGIN_MESSAGE_ID of a message of "), F.coalesce("retry_topic", F.lit("its topic")),
            F.lit(", key "), F.coalesce("uniq_key", F.lit("none")),
        ),
        actual=F.concat(
            F.col("origin_message_id"),
            F.lit(": "),
            F.when(F.col("is_unreadable"), F.lit("no message id"))
            .when(F.col("origin") >= F.col("physical_offset"), F.lit("a later place"))
            .otherwise(F.coalesce(other, F.lit("no message begins there"))),
        ),
        evidence=evidence(),
        **place(),
    )  # fmt: skip


def miscounted(lines: Lines) -> DataFrame:
    """2: messages that count no delivery, or not more than their origin."""
    origins = lines.origins.select(
        "store", F.col("physical_offset").alias("origin"), F.col("reconsume_times").alias("before")
    )
    wrong = lines.returned.join(origins, ["store", "origin"], "left").where(
        (F.col("reconsume_times") < 1)
        | ((F.col("origin") < F.col("physical_offset")) & (F.col("reconsume_times") <= F.col("before")))
    )
    return findings(
        wrong,
        CHECK,
        expected=F.concat(F.lit("more than "), F.coalesce("before", F.lit(0)), F.lit(" deliveries")),
        actual=F.col("reconsume_times"),
        evidence=evidence(),
        **place(),
    )


def too_often(lines: Lines) -> DataFrame:
    """3: messages that came back more often than their group allows."""
    limit = F.greatest(
        F.coalesce("retry_max_times", F.lit(0)), F.coalesce("reconsume_max", F.lit(0)), F.lit(RECONSUME_MAX)
    )
    dead = F.when(F.col("target").startswith(meaning.DLQ_PREFIX), 1).otherwise(0)
    wrong = (
        lines.returned.join(F.broadcast(lines.groups), ["store", "group"], "left")
        .withColumn("limit", limit + dead)
        .where(F.col("reconsume_times") > F.col("limit"))
    )
    return findings(
        wrong,
        CHECK,
        severity=WARNING,
        expected=F.concat(F.lit("at most "), F.col("limit"), F.lit(" deliveries")),
        actual=F.col("reconsume_times"),
        evidence=evidence(),
        **place(),
    )


def judge(lines: Lines) -> list[DataFrame]:
    """All findings, one frame a rule."""
    return [without_origin(lines), miscounted(lines), too_often(lines)]


def check(tables: Tables) -> DataFrame:
    """What retries owe."""
    return union(judge(gather(tables)), tables.spark)


def metrics(tables: Tables) -> DataFrame:
    """How many messages were sent back, by group, and how often."""
    lines = returned(meaning.marked(tables)).where(F.col("topic") == F.col("target"))
    counts = lines.groupBy("store", "target").agg(F.count("*").alias("value"))
    times = lines.groupBy("store", F.concat(F.lit("delivery "), "reconsume_times").alias("of"))
    return measured(counts, CHECK, "sent back", "value", label="target").unionByName(
        measured(times.agg(F.count("*").alias("value")), CHECK, "reconsume times", "value", label="of")
    )


AUDIT = Audit(
    CHECK,
    "retries and dead letters: each leads back to its message and counts its deliveries",
    check,
    metrics=metrics,
    group="meaning",
    tables=("commitlog", "groups", "checkpoint"),
)
