"""What an audit looks at: the tables of one or several stores, each read when it is first asked for.

`Tables` is all a check gets. It holds no result, only ways to data frames, so a check stays a pure function from tables
to findings; the one thing kept is the scan, which a dozen checks share and nobody wants to read twice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.rocketmq_store.schema import arrow_schema, spark_schema

FORMAT = "rocketmq_store"

T = TypeVar("T")


class ByteRange(NamedTuple):
    """Records of *store* that begin at a physical offset in [begin, end)."""

    store: str
    begin: int
    end: int


@dataclass
class Tables:
    """The stores at *paths* as data frames.

    Attributes:
        paths: dumps or plain store directories; each is a value of the `store` column (`rocketmq_store.files.names`).
        against: what the stores are compared with: earlier dumps, or the master's; None without one.
        relation: what *against* is: "earlier" (the same broker before), "replica" (another copy of the log, which may
            be ahead or behind), or "auto": what the manifests tell (`spark_jobs.relations`).
        ledgers: the client ledgers as a data frame (`spark_jobs.ledger.SCHEMA`); None without one.
        now_ms: the time "pending" and "overdue" are judged by: the dump's own, not the auditor's clock.
    """

    spark: SparkSession
    paths: Sequence[str]
    against: Tables | None = None
    ledgers: DataFrame | None = None
    options: dict[str, str] = field(default_factory=dict)
    relation: str = "auto"
    memo: dict[str, Any] = field(default_factory=dict, repr=False)  # what several checks work out from these tables
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)  # of the memo: checks run side by side

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What *make* makes, made once for these tables: the first check that asks makes it, others wait for it."""
        with self.lock:
            if name not in self.memo:
                self.memo[name] = make()
            made: T = self.memo[name]
            return made

    def table(self, name: str, *, columns: Sequence[str] | None = None, **options: str) -> DataFrame:
        """A table of `rocketmq_store.schema`, every store of it; with *columns* only those are carried to Spark."""
        reader = self.spark.read.format(FORMAT).option("table", name).option("paths", json.dumps(list(self.paths)))
        for key, value in {**self.options, **options}.items():
            reader = reader.option(key, value)
        if columns is not None:
            kinds = {key: options[key] for key in ("body", "properties") if key in options}
            whole = spark_schema(arrow_schema(name, **kinds))
            reader = reader.schema(StructType([whole[column] for column in columns]))
        return reader.load()

    def records(self, ranges: Iterable[ByteRange], **options: str) -> DataFrame:
        """The commit log's records in *ranges* alone: what a check asks for once it knows where to look."""
        wanted = json.dumps([[one.store, one.begin, one.end] for one in ranges])
        return self.table("commitlog", ranges=wanted, **options)

    @cached_property
    def scan(self) -> DataFrame:
        """The summaries of one pass over everything (see `rocketmq_store.scan`), kept for every check that asks."""
        return self.table("scan").persist(StorageLevel.MEMORY_AND_DISK)

    def kind(self, *kinds: str) -> DataFrame:
        """The scan's rows of some kinds."""
        return self.scan.where(self.scan.kind.isin(*kinds))
