"""Two logs that should be one: where they differ, found by digests of 1 MiB first and by records only there.

Both logs are compared where both have bytes: from the later beginning (retention works on each by itself) to the
earlier end (one may lag behind the other). Digests are those of the bytes as they are now, not those a manifest states:
a dump may have been damaged since it was taken, and then the finding says so.

What counts are records. Leaves also differ where nothing is written or where a blank tail holds old bytes, and no
record does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.audits.base import findings
from spark_jobs.audits.facts import Facts, facts
from spark_jobs.audits.pairing import paired
from spark_jobs.relations import Pair
from spark_jobs.tables import ByteRange, Tables

LOG: Final = "commitlog/"
MIB: Final = 1 << 20
RECORD_SIZE_MAX: Final = 64 * MIB  # how far before a leaf a record may begin that reaches into it
LOOKED_AT_MAX: Final = 64 * MIB  # of each stretch of differing leaves: enough to name the first record
STRETCHES_MAX: Final = 256  # of each pair

# What two copies of a record have in common, besides where they stand.
COMPARED: Final = (
    "size",
    "status",
    "magic",
    "topic",
    "queue_id",
    "queue_offset",
    "own_offset",
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_size",
    "body_crc",
    "properties",
    "body_digest",
)


class Stretch(NamedTuple):
    """Neighbouring leaves that differ: physical offsets [begin, end), both below what is compared."""

    begin: int
    end: int
    leaves: int


@dataclass(frozen=True)
class Twins:
    """One pair: what was compared, and where leaves differ."""

    pair: Pair
    own: Facts
    other: Facts
    leaves: int
    stretches: tuple[Stretch, ...]

    @property
    def begin(self) -> int:
        """Where the comparison begins."""
        return max(self.own.log_begin, self.other.log_begin)

    @property
    def end(self) -> int:
        """Where it ends."""
        return min(self.own.log_end, self.other.log_end)


def twins(tables: Tables, couples: Iterable[Pair]) -> list[Twins]:
    """The pairs with their differing leaves; worked out once."""
    wanted = list(couples)
    if not wanted or tables.against is None:
        return []
    against = tables.against

    def make() -> dict[Pair, Twins]:
        compared = differing_leaves(tables, wanted)
        own, others = facts(tables), facts(against)
        return {pair: judge(pair, own[pair.store], others[pair.other], compared.get(pair.store, [])) for pair in wanted}

    known = tables.once("twins", make)
    return [known[pair] for pair in wanted]


class Leaf(NamedTuple):
    """A leaf that both have, or one of them has alone."""

    begin: int
    end: int
    agrees: bool


def differing_leaves(tables: Tables, couples: list[Pair]) -> Mapping[str, list[Leaf]]:
    """Of each store the leaves of its log that do not agree, and (with `agrees`) how many do."""
    assert tables.against is not None
    columns = ["store", "path", "position", "leaf_size", "digest"]
    own, theirs = (
        one.table("leaves").where(F.col("path").startswith(LOG)).select(*columns) for one in (tables, tables.against)
    )
    others = paired(tables, theirs, couples).withColumnsRenamed({"leaf_size": "other_size", "digest": "other_digest"})
    begin = F.regexp_extract("path", r"(\d+)$", 1).cast("long") + F.col("position")
    agrees = F.col("digest").eqNullSafe(F.col("other_digest")) & F.col("leaf_size").eqNullSafe(F.col("other_size"))
    rows = (
        own.join(others, ["store", "path", "position"], "full")
        .select(
            "store",
            begin.alias("begin"),
            (begin + F.greatest(F.coalesce("leaf_size", F.lit(0)), F.coalesce("other_size", F.lit(0)))).alias("end"),
            agrees.alias("agrees"),
        )
        .collect()
    )
    found: dict[str, list[Leaf]] = {}
    for row in rows:
        found.setdefault(row.store, []).append(Leaf(row.begin, row.end, row.agrees))
    return found


def judge(pair: Pair, own: Facts, other: Facts, leaves: list[Leaf]) -> Twins:
    """The stretches of differing leaves inside what both have."""
    begin, end = max(own.log_begin, other.log_begin), min(own.log_end, other.log_end)
    inside = sorted(leaf for leaf in leaves if leaf.begin < end and leaf.end > begin)
    stretches: list[Stretch] = []
    for leaf in inside:
        if leaf.agrees:
            continue
        first, last = max(leaf.begin, begin), min(leaf.end, end)
        if stretches and stretches[-1].end >= first:
            stretches[-1] = Stretch(stretches[-1].begin, last, stretches[-1].leaves + 1)
        else:
            stretches.append(Stretch(first, last, 1))
    return Twins(pair, own, other, len(inside), tuple(stretches))


def differences(tables: Tables, compared: Iterable[Twins]) -> DataFrame | None:
    """Runs of records that differ, one row each; None when no leaf does.

    Columns: store, other, offset (of the first), records (how many), and topic, queue_id, queue_offset, status of the
    first on either side (those of the other begin with `other_`).
    """
    assert tables.against is not None
    pairs = [one for one in compared if one.stretches]
    if not pairs:
        return None
    own_ranges, other_ranges, spans = [], [], []
    for one in pairs:
        for stretch in one.stretches[:STRETCHES_MAX]:
            begin = max(one.begin, stretch.begin - RECORD_SIZE_MAX)
            end = min(stretch.end, stretch.begin + LOOKED_AT_MAX)
            own_ranges.append(ByteRange(one.pair.store, begin, end))
            other_ranges.append(ByteRange(one.pair.other, begin, end))
            spans.append((one.pair.store, one.pair.other, begin, end))
    named = ["store", "physical_offset", "topic", "queue_id", "queue_offset", "status"]
    print_ = F.xxhash64(*COMPARED).alias("fingerprint")
    mine = tables.records(own_ranges, body="digest").select(*named, print_)
    theirs = tables.against.records(other_ranges, body="digest").select(*named, print_)
    theirs = paired(tables, theirs, [one.pair for one in pairs]).withColumnsRenamed(
        {name: f"other_{name}" for name in (*named[2:], "fingerprint")}
    )
    looked_at = tables.spark.createDataFrame(spans, "store string, other string, begin long, end long")
    # One store may be compared with many: each pair sees its own spans of it alone.
    inside = (F.col("store") == F.col("of")) & F.col("physical_offset").between(F.col("begin"), F.col("end") - 1)
    seen = F.broadcast(looked_at.select(F.col("store").alias("of"), "begin", "end"))
    joined = mine.join(theirs.join(seen, inside, "left_semi"), ["store", "physical_offset"], "full")
    return runs(joined, looked_at)


def runs(joined: DataFrame, looked_at: DataFrame) -> DataFrame:
    """Neighbouring records that differ as one row; *looked_at* says which other store belongs to which."""
    differs = ~F.col("fingerprint").eqNullSafe(F.col("other_fingerprint"))
    order = Window.partitionBy("store").orderBy("physical_offset")
    begins = F.when(F.col("differs") & ~F.coalesce(F.lag("differs").over(order), F.lit(False)), 1).otherwise(0)
    numbered = (
        joined.withColumn("differs", differs)
        .withColumn("begins", begins)
        .withColumn("run", F.sum("begins").over(order))
        .where("differs")
    )
    first = ["topic", "queue_id", "queue_offset", "status", "other_topic", "other_queue_id", "other_queue_offset"]
    first.append("other_status")
    grouped = numbered.groupBy("store", "run").agg(
        F.min("physical_offset").alias("offset"),
        F.count(F.lit(1)).alias("records"),
        *(F.min_by(name, "physical_offset").alias(name) for name in first),
    )
    return grouped.join(F.broadcast(looked_at.select("store", "other").distinct()), "store")


def said(found: DataFrame, check: str, whose: str) -> DataFrame:
    """Findings of runs; *whose* is what the other store is, in words."""

    def record(topic: str, queue: str, offset: str, status: str) -> Column:
        whole = F.format_string("a record of %s, queue %d, offset %d (%s)", topic, queue, offset, status)
        none = F.coalesce(F.col(status), F.lit("no record begins there"))
        return F.when(F.col(topic).isNotNull(), whole).otherwise(none)

    others = F.when(F.col("records") > 1, F.format_string("; %d records differ from there on", "records")).otherwise("")
    own = record("topic", "queue_id", "queue_offset", "status")
    theirs = record("other_topic", "other_queue_id", "other_queue_offset", "other_status")
    same = F.when(own == theirs, " with other bytes").otherwise("")
    return findings(
        found,
        check,
        topic=F.coalesce("topic", "other_topic"),
        queue=F.coalesce("queue_id", "other_queue_id"),
        offset="offset",
        expected=theirs,
        actual=F.concat(own, same, others),
        evidence=F.format_string(f"physical offset %d, compared with {whose} %s", F.col("offset"), F.col("other")),
    )
