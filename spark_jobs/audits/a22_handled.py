"""A22: at least once: a group whose offset is beyond a message has handled it.

A consumer that commits an offset says that everything below it is done with. Its ledger says what it has handled; a
message in between, of a queue the group reads, that no line of the group's ledgers names was skipped.

Proved:

1. from the first message a group has handled in a queue up to its committed offset, every message it asked for has a
   line. What it asked for is in the ledger (`# subscription`): everything, or tags; with an SQL expression nothing is
   judged. Neighbouring skipped messages are one finding;
2. a handled message is in the log, at the place its line says;
3. of one record, producer and consumer tell the same sender and sequence: it has the body that was sent;
4. every line of a consumer names a place in one of the stores (warning: a store may not have been given).

Legal: handled more than once (counted), handled beyond the committed offset (it will come again), groups of whom no
ledger tells, groups that pop (their offset runs ahead of what was handled; A14 judges), topics that were removed and
made again, what has expired.

Cannot be proved: that the ledgers of a group are complete. One that is missing makes its messages look skipped. An
operator who moves a group's offset forward skips messages on purpose, and is reported.

Cost: one pass over the ledgers' topics with narrow columns, shuffles of those and of the lines; with several stores a
pass over the records' hosts (shared).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import Audit, findings, measured, union
from spark_jobs.audits.ledgers import JUDGED, beside, place_lines, records_of, unplaced
from spark_jobs.tables import Tables

CHECK = "A22"
QUEUE = ["store", "topic", "queue_id"]
EVERYTHING = "*"
SQL = "sql:"


def trimmed(word: Column) -> Column:
    """*word* without blanks. `F.trim` itself would get the element's index as what to trim."""
    return F.trim(word)


def asked_for(subscription: Column, tags: Column) -> Column:
    """Whether a message was subscribed to; null where that cannot be told."""
    expression = F.coalesce(subscription, F.lit(EVERYTHING))
    words = F.split(expression, r"\|\|")
    wanted = F.transform(words, trimmed)
    return (
        F.when(F.trim(expression).isin(EVERYTHING, ""), F.lit(True))
        .when(expression.startswith(SQL), F.lit(None).cast("boolean"))
        .otherwise(F.coalesce(F.array_contains(wanted, tags), F.lit(False)))
    )


def skipped(handled: DataFrame, offsets: DataFrame, records: DataFrame) -> DataFrame:
    """1: messages below a group's offset that it has not handled.

    *handled* are lines with `store` and `consumer_group`; *offsets* is the table; *records* have COLUMNS of `ledgers`.
    """
    spans = (
        handled.where(F.col("consumer_group").isNotNull())
        .groupBy(*QUEUE, "consumer_group")
        .agg(F.min("queue_offset").alias("begin"), F.first("subscription", ignorenulls=True).alias("subscription"))
        .join(offsets.withColumnRenamed("queue_offset", "committed"), [*QUEUE, "consumer_group"])
        .where(F.col("begin") < F.col("committed"))
    )
    done = handled.select(*QUEUE, "consumer_group", "queue_offset").distinct()
    dispatched = F.col("sys_flag").bitwiseAND(F.lit(meaning.TRANSACTION_BITS)).isin(0, meaning.COMMIT_FLAG)
    due = (
        records.where(dispatched)
        .join(F.broadcast(spans), QUEUE)
        .where((F.col("queue_offset") >= F.col("begin")) & (F.col("queue_offset") < F.col("committed")))
        .where(asked_for(F.col("subscription"), F.col("tags")))
        .join(done, [*QUEUE, "consumer_group", "queue_offset"], "left_anti")
    )
    line = Window.partitionBy(*QUEUE, "consumer_group").orderBy("queue_offset")
    runs = (
        due.withColumn("run", F.col("queue_offset") - F.row_number().over(line))
        .groupBy(*QUEUE, "consumer_group", "committed", "run")
        .agg(
            F.min("queue_offset").alias("first"),
            F.max("queue_offset").alias("last"),
            F.min("physical_offset").alias("physical_offset"),
        )
    )
    return findings(
        runs,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="first",
        expected=F.concat(
            F.lit("handled by "), F.col("consumer_group"), F.lit(", which has committed "), F.col("committed")
        ),
        actual=F.concat(F.col("last") - F.col("first") + 1, F.lit(" without a line, up to "), F.col("last")),
        evidence=F.concat(F.lit("the first at physical offset "), F.col("physical_offset")),
    )


def phantom(lines: DataFrame) -> DataFrame:
    """2: handled messages (`beside`) that the log has not, or has elsewhere."""
    # A client calls a message by its own topic when it comes back through a retry topic.
    is_topic = (F.col("topic") == F.col("record_topic")) | F.col("record_topic").startswith(meaning.RETRY_PREFIX)
    is_place = (
        is_topic
        & (F.col("queue_id") == F.col("record_queue_id"))
        & (F.col("queue_offset") == F.col("record_queue_offset"))
    )
    wrong = lines.where((F.col("judged") == JUDGED) & (F.col("record_status").isNull() | ~is_place)).dropDuplicates(
        ["store", "physical_offset"]
    )
    found = F.concat(
        F.col("record_topic"), F.lit(" queue "), F.col("record_queue_id"), F.lit(" queue offset "),
        F.col("record_queue_offset"),
    )  # fmt: skip
    return findings(
        wrong,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("the message that was handled, "), F.col("message_id")),
        actual=F.coalesce(found, F.lit("no record begins there")),
        evidence=F.concat(
            F.lit("a line of "), F.element_at(F.split("file", "/"), -1), F.lit("; physical offset "),
            F.col("physical_offset"),
        ),
    )  # fmt: skip


def changed(lines: DataFrame, acknowledged: DataFrame) -> DataFrame:
    """3: records whose producer and consumer tell different messages."""
    sent = acknowledged.select(
        "store", "physical_offset", F.col("sender").alias("sent_by"), F.col("sequence").alias("sent_as")
    )
    wrong = (
        lines.where(F.col("sender").isNotNull() & F.col("sequence").isNotNull())
        .join(sent, ["store", "physical_offset"])
        .where((F.col("sender") != F.col("sent_by")) | (F.col("sequence") != F.col("sent_as")))
        .dropDuplicates(["store", "physical_offset"])
    )
    return findings(
        wrong,
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("the body of sender "), F.col("sent_by"), F.lit(", sequence "), F.col("sent_as")),
        actual=F.concat(F.lit("sender "), F.col("sender"), F.lit(", sequence "), F.col("sequence")),
        evidence=F.concat(F.lit("physical offset "), F.col("physical_offset")),
    )


def handled(tables: Tables) -> DataFrame:
    """The lines of consumers beside their records; kept."""
    return meaning.kept(tables, "handled", lambda: beside(place_lines(tables, ("R", "C")), records_of(tables)))


def check(tables: Tables) -> DataFrame:
    """What groups passed over, and what they handled that is not there."""
    lines = handled(tables)
    popping = (
        meaning.table(tables, "popck").where(F.col("consumer_group").isNotNull()).select("store", "consumer_group")
    )
    removed = meaning.table(tables, "removed_topics").select("store", "topic")
    judged = lines.join(popping.distinct(), ["store", "consumer_group"], "left_anti").join(
        F.broadcast(removed.distinct()), ["store", "topic"], "left_anti"
    )
    acknowledged = place_lines(tables, ("A",))
    return union(
        [
            skipped(judged, meaning.table(tables, "offsets"), records_of(tables)),
            phantom(lines),
            changed(lines.where(F.col("judged") == JUDGED), acknowledged),
            unplaced(tables, ("R", "C"), CHECK),
        ],
        tables.spark,
    )


def metrics(tables: Tables) -> DataFrame:
    """What was handled, and how often again, by group."""
    lines = handled(tables)
    group = F.coalesce("consumer_group", F.lit("no group")).alias("of")
    place = F.struct("topic", "queue_id", "queue_offset")
    counts = lines.groupBy("store", group).agg(F.count("*").alias("lines"), F.count_distinct(place).alias("messages"))
    return measured(counts, CHECK, "handled", "messages", label="of").unionByName(
        measured(counts, CHECK, "handled again", F.col("lines") - F.col("messages"), label="of")
    )


AUDIT = Audit(
    CHECK,
    "consumption: what lies below a group's offset was handled, and what was handled is there",
    check,
    needs=frozenset({"ledgers"}),
    metrics=metrics,
    group="meaning",
    tables=("commitlog", "offsets", "popck", "removed_topics", "checkpoint", "scan"),
)
