"""A20: two copies of a log are the same log, as far as both have it.

Proved: from the later beginning of the two to the earlier end, every record of the store is at the same place, and the
same byte for byte, in the one it is compared with. The first record of each stretch that differs is named.

Legal: one of them is longer (the lag is a metric), or begins later (retention). Bytes that belong to no record: what
lies behind the end, and inside blank tails. Queues and index are each store's own and are checked by A3 to A7.

Cost: both logs are read once for digests of 1 MiB; records are read only where those differ.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.audits.base import Audit, counted, none_found
from spark_jobs.audits.pairing import pairs
from spark_jobs.audits.twins import differences, said, twins
from spark_jobs.tables import Tables

CHECK: Final = "A20"


def check(tables: Tables) -> DataFrame:
    """One finding for each run of records that differ."""
    found = differences(tables, twins(tables, pairs(tables)))
    return none_found(tables.spark) if found is None else said(found, CHECK, "the copy in")


def metrics(tables: Tables) -> DataFrame:
    """What was compared, and by how much the store lags behind the other (negative: it is ahead)."""
    rows = [
        row
        for one in twins(tables, pairs(tables))
        for row in (
            (one.pair.store, "bytes_compared", max(one.end - one.begin, 0)),
            (one.pair.store, "leaves_compared", one.leaves),
            (one.pair.store, "leaves_that_differ", sum(stretch.leaves for stretch in one.stretches)),
            (one.pair.store, "lag_bytes", one.other.log_end - one.own.log_end),
        )
    ]
    return counted(tables.spark, CHECK, rows)


AUDIT: Final = Audit(
    CHECK,
    "replicas have the same records",
    check,
    needs=frozenset({"against"}),
    metrics=metrics,
    tables=("leaves", "commitlog", "scan", "checkpoint"),
)
