"""A24: of two dumps of one broker the later extends the earlier.

Proved: the log was only ever appended to. It reaches at least as far as in the earlier dump, and every record that both
have is at the same place and the same byte for byte; no file is back that had been removed.

Legal: retention has removed the earlier dump's oldest files, or all of them. An earlier store that was killed: what was
not durable may be gone. A replica is not compared here, because it may lag behind (see A20).

Cost: as A20.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

from spark_jobs.audits.base import Audit, counted, found, union
from spark_jobs.audits.pairing import earlier_pairs, pairs
from spark_jobs.audits.twins import Twins, differences, said, twins
from spark_jobs.relations import ALONE
from spark_jobs.tables import Tables

CHECK: Final = "A24"


def earlier(tables: Tables) -> list[Twins]:
    """The pairs of one broker."""
    wanted = earlier_pairs(tables)
    return [one for one in twins(tables, pairs(tables)) if one.pair in wanted]


def ends(one: Twins) -> Iterator[dict[str, Any]]:
    """A log that became shorter, at either end."""
    before = one.other
    promised = min(before.log_end, before.torn_from) if before.rebuilds else before.log_end
    if one.own.log_end < promised:
        yield {
            "store": one.pair.store,
            "offset": one.own.log_end,
            "expected": f"a log that reaches at least {promised}, as in the earlier dump",
            "actual": f"it ends at {one.own.log_end}",
            "evidence": f"physical offset {one.own.log_end}, compared with the earlier dump {one.pair.other}",
        }
    if one.own.log_begin < before.log_begin:
        yield {
            "store": one.pair.store,
            "offset": one.own.log_begin,
            "expected": f"a log that begins at {before.log_begin} or later, as in the earlier dump",
            "actual": f"it begins at {one.own.log_begin}: removed files are back",
            "evidence": f"physical offset {one.own.log_begin}, compared with the earlier dump {one.pair.other}",
        }


def check(tables: Tables) -> DataFrame:
    """One finding for each record that was changed, and for a log that lost something."""
    compared = earlier(tables)
    parts = [found(tables.spark, CHECK, [row for one in compared for row in ends(one)])]
    changed = differences(tables, compared)
    if changed is not None:
        parts.append(said(changed, CHECK, "the earlier dump"))
    return union(parts, tables.spark)


def metrics(tables: Tables) -> DataFrame:
    """What was compared, removed and appended."""
    rows = [
        row
        for one in earlier(tables)
        for row in (
            (one.pair.store, "bytes_compared", max(one.end - one.begin, 0)),
            (one.pair.store, "bytes_appended", one.own.log_end - one.other.log_end),
            (one.pair.store, "bytes_removed", one.own.log_begin - one.other.log_begin),
        )
    ]
    return counted(tables.spark, CHECK, rows)


AUDIT: Final = Audit(
    CHECK,
    "the later dump extends the earlier",
    check,
    needs=frozenset({"against"}),
    earlier=ALONE,
    metrics=metrics,
    tables=("leaves", "commitlog", "scan", "checkpoint"),
)
