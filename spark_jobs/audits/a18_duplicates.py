"""A18: one UNIQ_KEY, one message of a topic: what a client sent once is there once.

A client gives every message a UNIQ_KEY of its own, and every copy a broker makes keeps it. So two records of one topic
with one key are one message twice. Where the second copy comes from:

| source | how it is known | |
|---|---|---|
| producer | nothing says otherwise: the send was repeated, or the store holds it twice | a finding (warning) |
| delay, timer | both were put into the topic by a level or a timer | legal across a crash (A15, A16) |
| transaction | both were committed | A13 judges |
| retry, dead letter | in `%RETRY%…`, `%DLQ%…`: one copy a failure | legal (A17) |

Topics in which messages wait or which brokers keep for themselves hold copies by design and are not looked at.

Proved: no two records of an ordinary topic have one key, but for the legal sources above.

Cannot be proved: that a duplicate is the broker's fault (a producer repeats a send it had no answer to), or that two
messages without any UNIQ_KEY are one. Keys are compared by a 64-bit hash first: two of 20 million different ones share
one with a probability of 1 in 90,000, and are then told apart by reading both.

Cost: one pass over the log with four narrow columns, one shuffle of 16 bytes a message. Records are read again only
where a key repeats: the first and the last of each.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from pymq.broker.names import REPLY_TOPIC_SUFFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from spark_jobs.audits import meaning
from spark_jobs.audits.base import WARNING, Audit, findings, measured
from spark_jobs.tables import ByteRange, Tables

CHECK = "A18"
RANGES_MAX = 10_000
COLUMNS = ("store", "physical_offset", "status", "topic", "uniq_key")
PLACE_COLUMNS = ("store", "physical_offset", "topic", "queue_id", "queue_offset", "sys_flag", "uniq_key")
PLAIN, RETRY, DEAD = "plain", "retry", "dead letter"


def is_inner(topic: Column) -> Column:
    """Whether copies are what a topic is for."""
    return (
        topic.isin(*SYSTEM_TOPICS, *meaning.INNER_TOPICS, meaning.CHECK_MAX_TIME_TOPIC)
        | topic.startswith(SYSTEM_TOPIC_PREFIX)
        | topic.endswith(REPLY_TOPIC_SUFFIX)
    )


def repeated(records: DataFrame) -> DataFrame:
    """Keys of *records* (COLUMNS) that a topic has more than once: `copies`, `first` and `last` physical offset."""
    topic = F.col("topic")
    kind = (
        F.when(topic.startswith(meaning.RETRY_PREFIX), RETRY)
        .when(topic.startswith(meaning.DLQ_PREFIX), DEAD)
        .otherwise(PLAIN)
    )
    looked_at = F.col("status").isin("ok", "bad_crc") & F.col("uniq_key").isNotNull() & ~is_inner(topic)
    return (
        records.where(looked_at)
        .select("store", kind.alias("kind"), F.xxhash64("topic", "uniq_key").alias("hash"), "physical_offset")
        .groupBy("store", "kind", "hash")
        .agg(
            F.count("*").alias("copies"),
            F.min("physical_offset").alias("first"),
            F.max("physical_offset").alias("last"),
        )
        .where(F.col("copies") > 1)
    )


def sources(repeats: DataFrame, places: DataFrame) -> DataFrame:
    """Plain *repeats* with their first and last record (of *places*, PLACE_COLUMNS and a map `properties`).

    `source` says where the last comes from; pairs that only share a hash are left out.
    """
    first, last = places.alias("f"), places.alias("l")
    pairs = (
        repeats.where(F.col("kind") == PLAIN)
        .alias("r")
        .join(first, (F.col("r.store") == F.col("f.store")) & (F.col("r.first") == F.col("f.physical_offset")))
        .join(last, (F.col("r.store") == F.col("l.store")) & (F.col("r.last") == F.col("l.physical_offset")))
        .where((F.col("f.topic") == F.col("l.topic")) & (F.col("f.uniq_key") == F.col("l.uniq_key")))
    )

    def has(name: str, side: str) -> Column:
        return F.try_element_at(F.col(f"{side}.properties"), F.lit(name)).isNotNull()

    def both(test: Column, other: Column) -> Column:
        return test & other

    waited = [both(has(name, "f"), has(name, "l")) for name in ("TIMER_DEQUEUE_MS", "REAL_TOPIC")]
    bits = F.lit(meaning.TRANSACTION_BITS)
    committed = [F.col(f"{side}.sys_flag").bitwiseAND(bits) == meaning.COMMIT_FLAG for side in "fl"]
    source = (
        F.when(waited[0], "timer").when(waited[1], "delay").when(both(*committed), "transaction").otherwise("producer")
    )
    return pairs.select("l.*", F.col("r.copies"), F.col("r.first"), source.alias("source"))


def found(tables: Tables) -> tuple[DataFrame, DataFrame]:
    """Repeats of all kinds, and the plain ones with their source; kept."""
    repeats = meaning.kept(tables, "repeated", lambda: repeated(tables.table("commitlog", columns=COLUMNS)))
    columns = (*PLACE_COLUMNS, "properties")
    plain = repeats.where(F.col("kind") == PLAIN).limit(RANGES_MAX + 1).collect()
    if len(plain) <= RANGES_MAX:
        ranges = [ByteRange(row.store, at, at + 1) for row in plain for at in (row.first, row.last)]
        places = tables.records(ranges, properties="map").select(*columns)
    else:
        places = tables.table("commitlog", columns=columns, properties="map")
    return repeats, meaning.kept(tables, "duplicates", lambda: sources(repeats, places))


def check(tables: Tables) -> DataFrame:
    """Messages that are there more than once, and nothing excuses it."""
    _, plain = found(tables)
    return doubled(plain)


def doubled(plain: DataFrame) -> DataFrame:
    """Those of `sources` that are findings, each at its last copy."""
    return findings(
        plain.where(F.col("source") == "producer"),
        CHECK,
        severity=WARNING,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("one message with UNIQ_KEY "), F.col("uniq_key")),
        actual=F.concat(F.col("copies"), F.lit(" of them")),
        evidence=F.concat(
            F.lit("the last at physical offset "), F.col("physical_offset"), F.lit(", the first at physical offset "),
            F.col("first"),
        ),
    )  # fmt: skip


def metrics(tables: Tables) -> DataFrame:
    """Second copies, by where they come from."""
    repeats, plain = found(tables)
    returned = repeats.where(F.col("kind") != PLAIN).groupBy("store", F.col("kind").alias("source"))
    copies = F.sum(F.col("copies") - 1).alias("value")
    whole = returned.agg(copies).unionByName(plain.groupBy("store", "source").agg(copies))
    return measured(whole, CHECK, "duplicates", "value", label="source")


AUDIT = Audit(
    CHECK,
    "duplicates: one UNIQ_KEY, one message of a topic",
    check,
    metrics=metrics,
    group="meaning",
    tables=("commitlog",),
)
