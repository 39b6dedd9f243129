"""Stores made by hand, as tables: a test says which records and units there are, and the scan's sums follow from them.

All cases of a test are stores of one story, so that Spark is asked once:

    story = Story()
    story.store("fine").record(0, "T", 0, 0).unit("T", 0, 0, 0)
    story.store("no unit").record(0, "T", 0, 0)
    tables = story.tables(spark)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from spark_jobs.rocketmq_store.schema import TABLES, arrow_schema, spark_schema
from spark_jobs.tables import ByteRange, Tables

SIZE = 100
UNIT_SIZE = 20
Row = dict[str, Any]


class HandMade(Tables):
    """Tables that are rows of a story; options that restrict are honoured, others are not."""

    def __init__(self, spark: SparkSession, rows: Mapping[str, list[Row]], paths: Iterable[str], **how: Any) -> None:
        super().__init__(spark, list(paths), **how)
        self.rows = rows

    def table(self, name: str, **options: str) -> DataFrame:
        """The story's rows of a table."""
        schema = spark_schema(arrow_schema(name, **{key: options[key] for key in options if key in ("properties",)}))
        schema = schema.add("body_digest", "long") if options.get("body") == "digest" else schema
        is_map = options.get("properties") == "map"
        made = [
            tuple(None if column == "properties" and not is_map else row.get(column) for column in schema.names)
            for row in self.rows[name]
        ]
        return self.spark.createDataFrame(made, schema)

    def records(self, ranges: Iterable[ByteRange], **options: str) -> DataFrame:
        """Records that begin in *ranges*."""
        frame = self.table("commitlog", **options)
        wanted = F.lit(False)
        for one in ranges:
            inside = F.col("physical_offset").between(one.begin, one.end - 1)
            wanted = wanted | ((F.col("store") == one.store) & inside)
        return frame.where(wanted)


class Told:
    """One store of a story; every method gives it back."""

    def __init__(self, name: str, rows: defaultdict[str, list[Row]], page: Row) -> None:
        self.name, self.rows, self.page = name, rows, page
        rows["checkpoint"].append(page)
        self.ends = [page["log_begin"]]

    def put(self, table: str, **row: Any) -> Told:
        """Any row of any table."""
        unknown = row.keys() - {name for name, _ in TABLES[table]} - {"properties", "body_digest"}
        assert not unknown, unknown
        self.rows[table].append({"store": self.name, **row})
        return self

    def scan(self, kind: str, **row: Any) -> Told:
        """A row of the scan."""
        return self.put("scan", kind=kind, **({"count": 1} | row))

    def record(self, physical: int, topic: str, queue: int, offset: int, tags: int = 0, **more: Any) -> Told:
        """A record."""
        row = {
            "physical_offset": physical, "own_offset": physical, "topic": topic, "queue_id": queue,
            "queue_offset": offset, "tags_code": tags, "size": SIZE, "status": "ok", "sys_flag": 0,
        } | more  # fmt: skip
        self.ends.append(physical + row["size"])
        self.put("commitlog", **row)
        if row["sys_flag"] & 12 in (0, 8) and row["status"] != "bad_offset":
            self.sums("records", topic, queue, offset, physical, row["size"], tags)
        return self

    def unit(self, topic: str, queue: int, offset: int, physical: int, tags: int = 0, size: int = SIZE) -> Told:
        """A unit."""
        file = f"consumequeue/{topic}/{queue}/0"
        place = {"topic": topic, "queue_id": queue, "queue_offset": offset}
        row = {"physical_offset": physical, "size": size, "tags_code": tags, "file": file, "status": "ok"}
        self.put("consumequeue", position=offset * UNIT_SIZE, **place, **row)
        return self.sums("units", topic, queue, offset, physical, size, tags, status="ok")

    def both(self, physical: int, topic: str, queue: int, offset: int) -> Told:
        """A record and its unit."""
        return self.record(physical, topic, queue, offset).unit(topic, queue, offset, physical)

    def queue(self, topic: str, queue: int, first: int, last: int, base: int = 0, size: int = 400) -> Told:
        """A queue file."""
        file = f"consumequeue/{topic}/{queue}/{base:020d}"
        bounds = {"queue_offset_min": first, "queue_offset_max": last, "count": last - first + 1}
        return self.scan("queue", topic=topic, queue_id=queue, file=file, bytes=size, status="ok", **bounds)

    def sums(self, kind: str, topic: str, queue: int, offset: int, physical: int, size: int, tags: int, **more: Any):
        """A bucket of one member: whoever compares adds buckets up."""
        digest = hash((offset, physical, size, tags)) * 0x9E3779B97F4A7C15 & (2**64 - 1)
        return self.scan(
            kind,
            topic=topic,
            queue_id=queue,
            bucket=offset >> 12,
            digest=digest - (1 << 64) if digest >> 63 else digest,
            queue_offset_min=offset,
            queue_offset_max=offset,
            physical_offset_min=physical,
            physical_offset_end=physical + size,
            **more,
        )


class Story:
    """Stores and their rows."""

    def __init__(self) -> None:
        self.rows: defaultdict[str, list[Row]] = defaultdict(list)
        self.told: list[Told] = []

    def store(self, name: str, **page: Any) -> Told:
        """A store; *page* are columns of its checkpoint's row."""
        known = {
            "store": name, "abort": False, "log_begin": 0, "log_end": 1 << 20, "status": "ok",
            "physic_msg_timestamp": 0, "logics_msg_timestamp": 0, "index_msg_timestamp": 0, "master_flushed_offset": 0,
            "confirm_phy_offset": 0, "logics_physical_offset": 0,
        }  # fmt: skip
        self.told.append(Told(name, self.rows, known | page))
        return self.told[-1]

    def tables(self, spark: SparkSession, **how: Any) -> HandMade:
        """The tables, with the log's ranges."""
        for one in self.told:
            begin, end = one.page["log_begin"], max(one.ends)
            records = [row for row in self.rows["commitlog"] if row["store"] == one.name]
            one.scan(
                "range",
                file="commitlog/0",
                physical_offset_min=begin,
                physical_offset_end=end,
                status="unwritten",
                count=len(records),
                bytes=end - begin,
                store_timestamp_max=max((row.get("store_timestamp") or 0 for row in records), default=None),
            )
        return HandMade(spark, self.rows, [one.name for one in self.told], **how)


def pymq_page(end: int, **more: Any) -> Row:
    """The checkpoint of a store that pymq stopped cleanly at *end*."""
    return {
        "pymq_safe_offset": end, "pymq_flushed_offset": end, "pymq_clean_end": end, "pymq_last_record": -1,
        "pymq_unit_total": -1, "pymq_index_end": -2,
    } | more  # fmt: skip


def found(frame: DataFrame) -> list[tuple[str, str | None, int | None, int | None]]:
    """Where findings stand."""
    return sorted((row.store, row.topic, row.queue, row.offset) for row in frame.collect())
