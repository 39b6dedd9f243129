"""A15: timers: log and wheel agree, nothing is missing from them, nothing due is undelivered, nothing came early.

A timed message waits in the timer topic. Its unit in the timer log names it; the units of one slot are a chain, whose
end is in the wheel. `config/timercheck` says which slots are over (before the read time) and how far the topic has been
brought into the log (queue offset). Chains matter while their slot is still to come: what is over is never read again.

Proved, of what is still to come:

1. a unit's `previous` is the unit before it of its slot, or none: so a chain has no cycle, no stranger, no orphan;
2. after a clean stop the wheel's slot has the chain's first and last position and its count (a recall counts -1);
3. a unit names a message of the timer topic, of the size it says, if the log reaches back so far;
4. a message brought into the log has a unit.

And of what is over:

5. a message was delivered, rolled (a copy of it waits again), recalled, or put off (a later unit names it);
6. a delivered message was not stored before the time it asked for (TIMER_DELIVER_MS, or the beginning of its slot).

Legal: wheels of stores that were not stopped (made again from the log), units beyond what the checkpoint vouches for,
messages delivered twice (a crash between), units of messages that retention removed, slots beyond the log's last record
(a running broker's dump copies the timers a moment later), a timer log that is not there at all (it is made again).

Cannot be proved: that a recall came in time, and anything about a store without `config/timercheck`.

Cost: the timer files and the marked messages (shared); shuffles of timers, not of messages.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits import meaning
from spark_jobs.audits.base import Audit, findings, measured, quoted, union
from spark_jobs.tables import Tables

CHECK = "A15"
DELETE, ROLL = 4, 2  # bits of a unit's magic
PRECISION_MS = 1000  # where no wheel says another
LATENESS_MS = (100, 500, 1000, 2000, 5000, 10_000, 60_000)
TARGET = ("real_topic", "timer_out_ms")
SLACK_MS = 2000


class Timers(NamedTuple):
    """What timers left in a store."""

    units: DataFrame  # table "timerlog", units alone
    slots: DataFrame  # table "timerwheel"
    state: DataFrame  # one row a store: read_timestamp, vouched, topic_end, precision_ms, log_begin, now_ms, is_clean
    waiting: DataFrame  # marked, of the timer topic
    delivered: DataFrame  # marked


def gather(tables: Tables) -> Timers:
    """The frames of these stores. A store without a checkpoint of timers is left out."""
    marked = meaning.marked(tables)
    topic = F.col("topic")
    slots = meaning.table(tables, "timerwheel")
    check_points = meaning.table(tables, "timercheck").where((F.col("status") == "ok") & (F.col("read_timestamp") > 0))
    precision = slots.groupBy("store").agg(F.max("precision_ms").alias("precision_ms"))
    state = (
        check_points.join(meaning.moments(tables), "store")
        .join(precision, "store", "left")
        .select(
            "store", "read_timestamp", F.col("log_flushed").alias("vouched"), F.col("queue_offset").alias("topic_end"),
            F.coalesce("precision_ms", F.lit(PRECISION_MS)).alias("precision_ms"), "log_begin", "now_ms",
            (~F.coalesce("abort", F.lit(True))).alias("is_clean"),
        )
    )  # fmt: skip
    return Timers(
        meaning.table(tables, "timerlog").where(F.col("status") == "ok"),
        slots,
        F.broadcast(meaning.kept(tables, "timer_state", lambda: state)),
        marked.where(topic == meaning.TIMER_TOPIC),
        marked.where(
            (topic != meaning.TIMER_TOPIC) & (topic == F.col("real_topic")) & F.col("timer_out_ms").isNotNull()
        ),
    )


def slot_of(time: Column) -> Column:
    """The slot of a time that is one already, or nearly."""
    return F.floor(time / F.col("precision_ms")) * F.col("precision_ms")


def step(magic: str = "magic") -> Column:
    """What a unit adds to its slot's count."""
    return F.when(F.col(magic).bitwiseAND(F.lit(DELETE)) != 0, -1).otherwise(1)


# ---- chains ------------------------------------------------------------------------------------------------------


def pending(timers: Timers) -> DataFrame:
    """The units of slots still to come, each with the position of the one before it in its slot (`before`)."""
    in_slot = Window.partitionBy("store", "slot_timestamp").orderBy("log_position")
    begins = timers.units.groupBy("store").agg(F.min("log_position").alias("log_first"))
    return (
        timers.units.join(timers.state, "store")
        .join(F.broadcast(begins), "store")
        .where(F.col("slot_timestamp") >= F.col("read_timestamp"))
        .withColumn("before", F.lag("log_position").over(in_slot))
    )


def broken_chains(units: DataFrame) -> DataFrame:
    """1: units that lead elsewhere than to the one before them."""
    # Where the log's first files are gone, a chain may begin before what is left.
    wrong = units.where(
        (F.col("log_position") < F.col("vouched"))
        & (F.col("previous") != -1)
        & ~F.col("previous").eqNullSafe(F.col("before"))
        & ~(F.col("before").isNull() & (F.col("previous") < F.col("log_first")) & (F.col("log_first") > 0))
    )
    return findings(
        wrong,
        CHECK,
        topic=F.lit(meaning.TIMER_TOPIC),
        offset="log_position",
        expected=F.concat(F.lit("previous "), F.coalesce(F.col("before").cast("string"), F.lit("-1"))),
        actual=F.concat(
            F.col("previous"),
            F.when(F.col("previous") >= F.col("log_position"), F.lit(": the chain comes back to itself")).otherwise(""),
        ),
        evidence=F.concat(
            F.lit("position "), F.col("log_position"), F.lit(" of the timer log, slot "), F.col("slot_timestamp"),
            F.lit(", message at physical offset "), F.col("physical_offset"),
        ),
    )  # fmt: skip


def wrong_slots(timers: Timers, units: DataFrame) -> DataFrame:
    """2: slots that are not what their chain is."""
    # A chain begins anew where a unit has no previous: what was before it is over.
    begins = F.max(F.when(F.col("previous") == -1, F.col("log_position"))).over(
        Window.partitionBy("store", "slot_timestamp")
    )
    chains = (
        units.where(F.col("is_clean"))
        .withColumn("begin", F.coalesce(begins, F.col("log_position")))
        .where(F.col("log_position") >= F.col("begin"))
        .groupBy("store", "slot_timestamp")
        .agg(
            F.min("log_position").alias("chain_first"),
            F.max("log_position").alias("chain_last"),
            F.sum(step()).alias("chain_count"),
        )
    )
    slots = (
        timers.slots.join(timers.state.drop("precision_ms"), "store")
        .where(F.col("is_clean") & (F.col("slot_timestamp") >= F.col("read_timestamp")))
        .select("store", "slot_timestamp", "first_position", "last_position", F.col("count").alias("slot_count"))
    )
    both = chains.join(slots, ["store", "slot_timestamp"], "full").where(
        ~(
            F.col("chain_first").eqNullSafe(F.col("first_position"))
            & F.col("chain_last").eqNullSafe(F.col("last_position"))
            & F.col("chain_count").eqNullSafe(F.col("slot_count"))
        )
    )

    def told(first: str, last: str, count: str) -> Column:
        words = F.concat(
            F.col(count), F.lit(" from "), F.col(first), F.lit(" to "), F.col(last), F.lit(" of the timer log")
        )
        return F.coalesce(words, F.lit("nothing"))

    return findings(
        both,
        CHECK,
        topic=F.lit(meaning.TIMER_TOPIC),
        offset="slot_timestamp",
        expected=told("chain_first", "chain_last", "chain_count"),
        actual=told("first_position", "last_position", "slot_count"),
        evidence=F.concat(F.lit("slot "), F.col("slot_timestamp"), F.lit(" of the timer wheel")),
    )


# ---- messages ----------------------------------------------------------------------------------------------------


def unit_without_message(timers: Timers, units: DataFrame) -> DataFrame:
    """3: units that name no message of the timer topic."""
    messages = timers.waiting.select(
        "store", "physical_offset", F.col("size").alias("record_size"), F.lit(True).alias("there")
    )
    wrong = (
        units.where(F.col("log_position") < F.col("vouched"))
        .where(F.col("physical_offset") >= F.coalesce("log_begin", F.lit(0)))
        .join(messages, ["store", "physical_offset"], "left")
        .where(F.col("there").isNull() | (F.col("record_size") != F.col("size")))
    )
    return findings(
        wrong,
        CHECK,
        topic=F.lit(meaning.TIMER_TOPIC),
        offset="log_position",
        expected=F.concat(F.lit("a timed message of "), F.col("size"), F.lit(" bytes")),
        actual=F.coalesce(F.concat(F.lit("one of "), F.col("record_size"), F.lit(" bytes")), F.lit("none")),
        evidence=F.concat(
            F.lit("position "), F.col("log_position"), F.lit(" of the timer log names physical offset "),
            F.col("physical_offset"),
        ),
    )  # fmt: skip


def message_without_unit(timers: Timers, units: DataFrame) -> DataFrame:
    """4 and 5: messages of the timer topic that are neither in the wheel nor done with."""
    state = timers.state
    waiting = (
        timers.waiting.where(F.col("timer_out_ms").isNotNull())
        .join(state, "store")
        .where(F.col("queue_offset") < F.col("topic_end"))
        .withColumn("slot", slot_of(F.col("timer_out_ms")))
        .join(units.select("store", "physical_offset").distinct(), ["store", "physical_offset"], "left_anti")
    )
    # A store without any timer log (a copy of the commit log and the tables) has its timers made again from the topic.
    has_log = timers.units.select("store").distinct()
    to_come = waiting.where(F.col("slot") >= F.col("read_timestamp")).join(has_log, "store", "left_semi")
    # A running broker's dump has the timers as they were a moment after the log: what fell due then is not judged.
    over = waiting.where(
        (F.col("slot") < F.col("read_timestamp"))
        & (F.col("slot") + F.col("precision_ms") + SLACK_MS < F.col("now_ms"))
        & F.col("timer_delete_key").isNull()
    )
    rolled = timers.waiting.where(F.col("timer_roll_times") > 0)
    is_later = F.coalesce(F.col("r.timer_roll_times"), F.lit(0)) > F.coalesce(F.col("w.timer_roll_times"), F.lit(0))
    recalls = timers.waiting.where(F.col("timer_delete_key").isNotNull())
    names = F.col("r.timer_delete_key").isin(
        F.col("w.uniq_key"), F.concat(F.col("w.real_topic"), F.lit("+"), F.col("w.uniq_key"))
    )

    def not_rolled(frame: DataFrame) -> DataFrame:
        same = meaning.same("w", "r", (*meaning.IDENTITY, *TARGET))
        return frame.alias("w").join(rolled.alias("r"), same & is_later, "left_anti")

    delivered = (
        not_rolled(over)
        .alias("w")
        .join(timers.delivered.alias("r"), meaning.same("w", "r", (*meaning.IDENTITY, *TARGET)), "left_anti")
    )
    # A slot is delivered with its own recalls: one that waits for another time reaches no message of this one.
    in_slot = slot_of(F.col("r.timer_out_ms")) == F.col("w.slot")
    undelivered = delivered.alias("w").join(
        recalls.select("store", "timer_delete_key", "timer_out_ms").alias("r"),
        (F.col("w.store") == F.col("r.store")) & names & in_slot,
        "left_anti",
    )
    place = {"topic": F.lit(meaning.TIMER_TOPIC), "queue": "queue_id", "offset": "queue_offset"}
    evidence = F.concat(
        F.lit("message for "), F.coalesce(quoted("real_topic"), F.lit("no topic")), F.lit(" at physical offset "),
        F.col("physical_offset"), F.lit(", slot "), F.col("slot"),
    )  # fmt: skip
    missing = findings(
        not_rolled(to_come),
        CHECK,
        expected=F.lit("a unit in the timer log"),
        actual=F.concat(F.lit("none, and the timer topic has been read to "), F.col("topic_end")),
        evidence=evidence,
        **place,
    )
    overdue = findings(
        undelivered,
        CHECK,
        expected=F.lit("delivered, rolled, recalled or put off"),
        actual=F.concat(F.lit("none of them, and slots before "), F.col("read_timestamp"), F.lit(" are over")),
        evidence=evidence,
        **place,
    )
    return missing.unionByName(overdue)


def deliveries(timers: Timers) -> DataFrame:
    """Every delivered message that the timer topic still has, with the time it was `asked` for."""
    first = timers.waiting.where(F.coalesce("timer_roll_times", F.lit(0)) == 0).where(
        F.col("timer_delete_key").isNull()
    )
    target = (*meaning.IDENTITY, *TARGET)
    waiting = first.select("store", *target, "timer_deliver_ms").dropDuplicates(["store", *target])
    # TIMER_DELIVER_MS is the exact time, unless a delay was given too and won: its slot tells.
    out_ms, deliver_ms = F.col("timer_out_ms"), F.col("deliver_ms")
    is_exact = deliver_ms.between(out_ms + 1, out_ms + F.col("precision_ms"))
    return (
        timers.delivered.where(F.col("timer_dequeue_ms").isNotNull())
        .alias("w")
        .join(waiting.alias("r"), meaning.same("w", "r", target))
        .select("w.*", F.col("r.timer_deliver_ms").alias("deliver_ms"))
        .join(timers.state.select("store", "precision_ms"), "store")
        .withColumn("asked", F.when(is_exact, deliver_ms).otherwise(out_ms + 1))
    )


def early(delivered: DataFrame) -> DataFrame:
    """6: messages stored before their time."""
    return findings(
        delivered.where(F.col("store_timestamp") < F.col("asked")),
        CHECK,
        topic="topic",
        queue="queue_id",
        offset="queue_offset",
        expected=F.concat(F.lit("delivered from "), F.col("asked"), F.lit(" on")),
        actual=F.concat(F.lit("stored at "), F.col("store_timestamp")),
        evidence=F.concat(F.lit("physical offset "), F.col("physical_offset")),
    )


# ---- the audit ---------------------------------------------------------------------------------------------------


def judge(timers: Timers) -> list[DataFrame]:
    """All findings, one frame a rule."""
    units = pending(timers)
    return [
        broken_chains(units),
        wrong_slots(timers, units),
        unit_without_message(timers, units),
        message_without_unit(timers, units),
        early(deliveries(timers)),
    ]


def check(tables: Tables) -> DataFrame:
    """What timers owe."""
    return union(judge(gather(tables)), tables.spark)


def metrics(tables: Tables) -> DataFrame:
    """How late timers came, counted from the end of their slot, and how many are pending."""
    timers = gather(tables)
    late = F.col("store_timestamp") - F.col("timer_out_ms") - F.col("precision_ms")
    buckets = deliveries(timers).groupBy("store", meaning.histogram(late, LATENESS_MS).alias("bucket"))
    waiting = pending(timers).groupBy("store").agg(F.sum(step()).alias("value"))
    return measured(
        buckets.agg(F.count("*").alias("value")), CHECK, "lateness_ms", "value", label="bucket"
    ).unionByName(measured(waiting, CHECK, "pending timers", "value"))


AUDIT = Audit(
    CHECK,
    "timers: log and wheel agree, nothing due is undelivered, nothing came early",
    check,
    metrics=metrics,
    group="meaning",
    tables=("timerlog", "timerwheel", "timercheck", "commitlog", "checkpoint", "scan"),
)
