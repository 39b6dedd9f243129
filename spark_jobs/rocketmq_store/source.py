"""`spark.read.format("rocketmq_store")`: a store as tables, by PySpark's Python data source API.

    spark.dataSource.register(RocketMQStoreDataSource)
    spark.read.format("rocketmq_store").option("table", "consumequeue").load("/dump").where("topic = 'orders'")

Options: `spark_jobs.rocketmq_store.options`. Tables and columns: `.schema`. A schema given by the user picks columns,
which saves what Spark would carry and drop.

Spark calls this from several short-lived processes: one asks for the schema, one plans (`partitions`), and executors
read. What is planned travels in the partitions: the reader is pickled before it plans. Rows travel as Arrow batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_jobs.rocketmq_store import decoded, planner, small_tables, timers
from spark_jobs.rocketmq_store.files import open_stores
from spark_jobs.rocketmq_store.options import OptionError, Request, parse_options
from spark_jobs.rocketmq_store.planner import IndexPart, LeafPart, LogPart, Part, QueuePart, TimerLogPart
from spark_jobs.rocketmq_store.pushdown import ALL_ROWS, LONG_MAX, LONG_MIN, Wanted, narrow
from spark_jobs.rocketmq_store.records import LogRange, RowFilter, read_records
from spark_jobs.rocketmq_store.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

NAME: Final = "rocketmq_store"
PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"

# Columns a WHERE clause may be about to read less; those of the second table are applied exactly.
PUSHED: Final = {
    "commitlog": ("store", "topic", "queue_id", "physical_offset", "store_timestamp"),
    "consumequeue": ("store", "topic", "queue_id", "queue_offset"),
    **dict.fromkeys(decoded.DECODERS, ("store", "physical_offset", "store_timestamp")),
}
PUSHED_ALWAYS: Final = ("store",)
EXACT: Final = {"consumequeue": ("store", "topic", "queue_id")}
EXACT_KINDS: Final = ("EqualTo", "In")


class RocketMQStoreDataSource(DataSource):
    """One table of one or several stores."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(…)`."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the table; what cannot be read is refused here, before a query is built on it."""
        request = parse_options(self.options)
        open_stores(request.paths)
        return spark_schema(request.arrow_schema())

    def reader(self, schema: StructType) -> StoreReader:
        """A reader that takes filters when it is Spark's pushdown that asks, and one that does not otherwise.

        Spark refuses a reader that could take filters while spark.sql.python.filterPushdown.enabled is off (which is
        the default), and does not tell a reader about the setting. It does plan pushdown in a worker of its own.
        """
        request = parse_options(self.options)
        kind = FilteringStoreReader if is_pushdown_worker() else StoreReader
        return kind(request, chosen_columns(request, schema))


def is_pushdown_worker() -> bool:
    """Whether this process was started by Spark to push filters down."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(spec, "name", "") == PUSHDOWN_WORKER


def chosen_columns(request: Request, schema: StructType) -> tuple[str, ...]:
    """The columns of *schema*, which are some or all of the table's.

    Raises:
        OptionError: one that is not, or has another type.
    """
    whole = {field.name: field.dataType for field in spark_schema(request.arrow_schema())}
    for field in schema:
        if field.name not in whole:
            raise OptionError(f"table {request.table} has no column {field.name}; it has {', '.join(whole)}")
        if field.dataType != whole[field.name]:
            expected = whole[field.name].simpleString()
            raise OptionError(
                f"column {field.name} of {request.table} is {expected}, not {field.dataType.simpleString()}"
            )
    return tuple(field.name for field in schema)


class StoreReader(DataSourceReader):
    """Reads a table, all rows of it."""

    def __init__(self, request: Request, columns: tuple[str, ...]) -> None:
        self.request = request
        self.columns = columns
        self.wanted = ALL_ROWS if request.topics is None else Wanted(topics=request.topics)

    def partitions(self) -> list[InputPartition]:
        """What the tasks get; none at all when nothing can match."""
        request = self.request
        stores = open_stores(request.paths)
        small_tables.check_readable(request.table, stores)
        parts = planner.plan(request.table, stores, self.wanted, request.ranges, request.delay_levels)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part; Spark makes up a part without value when there is none."""
        if partition.value is None:
            return
        for batch in read_part(self.request, partition.value, self.wanted, self.columns):
            if batch.num_rows:
                yield batch.select(list(self.columns)) if tuple(batch.schema.names) != self.columns else batch


class FilteringStoreReader(StoreReader):
    """The same, reading less where a WHERE clause allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take note of what is understood; give back all that Spark still has to apply: nearly everything."""
        table = self.request.table
        for one in filters:
            columns = PUSHED.get(table, PUSHED_ALWAYS)
            before, self.wanted = self.wanted, narrow(self.wanted, one, columns)
            exact = type(one).__name__ in EXACT_KINDS and getattr(one, "attribute", ("",))[0] in EXACT.get(table, ())
            if not exact or self.wanted == before:
                yield one


def read_part(request: Request, part: Part, wanted: Wanted, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The rows of one part, with *columns* and perhaps others."""
    if isinstance(part, LogPart):
        for one in part.ranges:
            yield from read_log(request, one, wanted, part, columns)
    elif isinstance(part, QueuePart):
        yield from read_queues(request, part)
    elif isinstance(part, IndexPart):
        yield from read_index(request, part)
    elif isinstance(part, LeafPart):
        from spark_jobs.rocketmq_store.leaves import read_leaves

        for file in part.files:
            yield read_leaves(*file)
    elif isinstance(part, TimerLogPart):
        yield from timers.read_timer_log(*part)
    elif request.table == "timerwheel":
        yield from timers.read_timer_wheel(part.stores)
    else:
        yield from small_tables.read_small(request.table, part.stores)


def read_log(
    request: Request, one: LogRange, wanted: Wanted, part: LogPart, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """A range of the log: its records, what is decoded from them, or their summaries."""
    if request.table == "scan":
        from spark_jobs.rocketmq_store.scan import scan_log

        yield from scan_log(one, part.delay_levels)
    elif request.table in decoded.DECODERS:
        yield from decoded.read_decoded(request.table, one, part.topics, row_filter(wanted), part.delay_levels)
    else:
        found = read_records(
            one,
            body=request.body,
            properties=request.properties,
            row_filter=row_filter(wanted)._replace(having=request.having),
            delay_levels=part.delay_levels,
            columns={*columns, "topic"},
        )
        topics = None if request.topics is None else pa.array(sorted(request.topics), pa.string())
        for batch in found:
            yield batch if topics is None else batch.filter(pc.is_in(batch.column("topic"), topics))


def row_filter(wanted: Wanted) -> RowFilter:
    """What is wanted, as the reader of the log wants it said."""
    return RowFilter(
        topics=wanted.topics,
        queue_ids=wanted.queue_ids,
        begin=None if wanted.begin == LONG_MIN else wanted.begin,
        end=None if wanted.end == LONG_MAX else wanted.end,
        store_timestamp_min=None if wanted.time_begin == LONG_MIN else wanted.time_begin,
        store_timestamp_max=None if wanted.time_end == LONG_MAX else wanted.time_end - 1,
    )


def read_queues(request: Request, part: QueuePart) -> Iterator[pa.RecordBatch]:
    """Queue files: their units or their summaries."""
    if request.table == "scan":
        from spark_jobs.rocketmq_store.scan import scan_queue_files

        yield from scan_queue_files(part.files)
        return
    from spark_jobs.rocketmq_store.queues import read_units

    for units in part.files:
        yield from read_units(*units[:7])


def read_index(request: Request, part: IndexPart) -> Iterator[pa.RecordBatch]:
    """Index files: their items or their summaries."""
    if request.table == "scan":
        from spark_jobs.rocketmq_store.scan import scan_index as read
    else:
        from spark_jobs.rocketmq_store.index import read_items as read

    for file in part.files:
        yield from read(*file)
