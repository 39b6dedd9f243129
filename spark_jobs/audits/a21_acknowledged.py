"""A21: what was acknowledged to a producer is in the log: the same message, at the place it was told.

Proved, of every acknowledged line of the ledgers:

1. a record begins at the physical offset the broker answered with;
2. it is that message: of the topic, queue and queue offset answered, or, where it had to wait (half messages, delayed
   and timed ones), one of the topics for that, which names the topic it is for and has the queue offset answered;
3. no two acknowledged sends share a record;
4. every line of a ledger can be read;
5. every line names a place in one of the stores (warning: a store may not have been given).

Legal: what was refused or never answered (it may be there or not), what has expired, what came behind a running
broker's dump. A stopped store's log is all there is: a line behind its end is a loss.

Cannot be proved: that the body is the one that was sent. Bodies have CRCs (A1), and a consumer's ledger says what came
of them (A22).

Measured: lines by outcome; latency, from the intended time where there is one; and the books of each minute of store
time, acknowledged beside stored, so that a loss shows in its window too.

Cost: one pass over the ledgers' topics with narrow columns, a shuffle of those and of the lines; with several stores a
pass over the records' hosts (shared). Messages that waited are looked up among the marked ones (shared).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import WARNING, Audit, findings, measured, union
from spark_jobs.audits.ledgers import JUDGED, beside, place_lines, records_of, unplaced
from spark_jobs.rocketmq_store.files import names
from spark_jobs.tables import Tables

CHECK = "A21"
LATENCY_US = (100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000)
MINUTE_MS = 60_000


def told() -> Column:
    """The line, in words."""
    who = F.concat(F.lit("sender "), F.col("sender"), F.lit(", sequence "), F.col("sequence"))
    return F.concat(
        F.coalesce(who, F.lit("a send")), F.lit(" in "), F.element_at(F.split("file", "/"), -1),
        F.lit(" was answered with physical offset "), F.col("physical_offset"),
    )  # fmt: skip


def place() -> dict[str, str]:
    """Where a finding stands: where the message was said to be."""
    return {"topic": "topic", "queue": "queue_id", "offset": "queue_offset"}


def lost(lines: DataFrame) -> DataFrame:
    """1: lines (`beside`) without a record."""
    return findings(
        lines.where((F.col("judged") == JUDGED) & F.col("record_status").isNull()),
        CHECK,
        expected=F.concat(F.lit("the acknowledged message "), F.col("message_id")),
        actual=F.lit("no record begins there"),
        evidence=told(),
        **place(),
    )


def another(lines: DataFrame, waiting: DataFrame) -> DataFrame:
    """2: lines (`beside`) whose record is another message; *waiting* are marked ones of the topics for that."""
    inner = F.col("record_topic").isin(*meaning.INNER_TOPICS)
    targets = waiting.select("store", "physical_offset", "real_topic")
    there = lines.where((F.col("judged") == JUDGED) & F.col("record_status").isNotNull())
    moved = there.where(inner & (F.col("topic") != F.col("record_topic")))
    wrong_target = moved.join(targets, ["store", "physical_offset"], "left").where(
        ~F.col("real_topic").eqNullSafe(F.col("topic")) | (F.col("record_queue_offset") != F.col("queue_offset"))
    )
    direct = there.where(~inner | (F.col("topic") == F.col("record_topic"))).where(
        (F.col("topic") != F.col("record_topic"))
        | (F.col("queue_id") != F.col("record_queue_id"))
        | (F.col("queue_offset") != F.col("record_queue_offset"))
    )
    wrong = direct.withColumn("real_topic", F.lit(None).cast("string")).unionByName(
        wrong_target.select(*direct.columns, "real_topic")
    )
    return findings(
        wrong,
        CHECK,
        expected=F.concat(
            F.col("topic"), F.lit(" queue "), F.col("queue_id"), F.lit(" queue offset "), F.col("queue_offset")
        ),
        actual=F.concat(
            F.col("record_topic"),
            F.coalesce(F.concat(F.lit(" for "), F.col("real_topic")), F.lit("")),
            F.lit(" queue "), F.col("record_queue_id"), F.lit(" queue offset "), F.col("record_queue_offset"),
        ),
        evidence=told(),
        **place(),
    )  # fmt: skip


def shared(lines: DataFrame) -> DataFrame:
    """3: records that two sends were answered with."""
    sends = F.struct("sender", "sequence", "file", "sent_ns")
    twice = (
        lines.where(F.col("judged") == JUDGED)
        .groupBy("store", "physical_offset")
        .agg(
            F.count_distinct(sends).alias("sends"),
            F.max(F.struct("topic", "queue_id", "queue_offset", "sender", "sequence", "file", "message_id")).alias(
                "last"
            ),
        )
        .where(F.col("sends") > 1)
        .select("store", "physical_offset", "sends", "last.*")
    )
    return findings(
        twice,
        CHECK,
        expected=F.lit("a record for each acknowledged send"),
        actual=F.concat(F.col("sends"), F.lit(" sends were answered with "), F.col("message_id")),
        evidence=told(),
        **place(),
    )


def unreadable(ledgers: DataFrame, store: str) -> DataFrame:
    """4: lines and files that are no ledger's; said of *store*, the first one."""
    bad = ledgers.where(F.col("status") != "ok").withColumn("store", F.lit(store))
    return findings(
        bad,
        CHECK,
        severity=WARNING,
        expected=F.when((F.col("status") == "bad_head") & F.col("line").isNull(), F.lit("'# pymq-ledger 1'"))
        .when(F.col("status") == "bad_head", F.lit("one '# group' a file"))
        .otherwise(F.lit("a line of ten columns, as docs/ledger.md says")),
        actual=F.coalesce("line", F.lit("a file without it")),
        evidence=F.concat(F.lit("ledger "), F.element_at(F.split("file", "/"), -1)),
    )


def lines(tables: Tables) -> DataFrame:
    """The acknowledged lines beside their records; kept."""
    return meaning.kept(tables, "acknowledged", lambda: beside(place_lines(tables, ("A",)), records_of(tables)))


def check(tables: Tables) -> DataFrame:
    """What clients were told and is not so."""
    found = lines(tables)
    waiting = meaning.marked(tables).where(F.col("topic").isin(*meaning.INNER_TOPICS))
    assert tables.ledgers is not None
    bad = unreadable(tables.ledgers, names(tables.paths)[0])
    elsewhere = unplaced(tables, ("A",), CHECK)
    return union([lost(found), another(found, waiting), shared(found), bad, elsewhere], tables.spark)


def metrics(tables: Tables) -> DataFrame:
    """Outcomes, latency, and the books by minute."""
    found = lines(tables)
    outcome = (
        F.when((F.col("judged") == JUDGED) & F.col("record_status").isNull(), "lost")
        .when(F.col("judged") == JUDGED, "found")
        .otherwise(F.col("judged"))
    )
    count = F.count("*").alias("value")
    took_us = (F.col("done_ns") - F.coalesce("intended_ns", "sent_ns")) / 1000
    timed = found.where(F.col("done_ns").isNotNull() & F.coalesce("intended_ns", "sent_ns").isNotNull())
    buckets = timed.groupBy("store", meaning.histogram(took_us, LATENCY_US).alias("bucket")).agg(count)
    minute = F.floor(F.col("record_store_timestamp") / MINUTE_MS) * MINUTE_MS
    books = found.where(F.col("record_status").isNotNull()).groupBy("store", "topic", minute.alias("at")).agg(count)
    return (
        measured(found.groupBy("store", outcome.alias("outcome")).agg(count), CHECK, "sends", "value", label="outcome")
        .unionByName(measured(buckets, CHECK, "latency_us", "value", label="bucket"))
        .unionByName(measured(books, CHECK, "acknowledged", "value", label="topic", at="at"))
    )


AUDIT = Audit(
    CHECK,
    "acknowledged sends: each is in the log, at the place it was told",
    check,
    needs=frozenset({"ledgers"}),
    metrics=metrics,
    group="meaning",
    tables=("commitlog", "checkpoint", "scan"),
)
