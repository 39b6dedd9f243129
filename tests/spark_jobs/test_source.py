"""The data source: every table as its columns say, through the readers and through Spark, whole and filtered.

Most is asked of the reader as Spark's workers would ask it, without Spark; what only Spark can answer has a mark.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import EqualTo, GreaterThan, InputPartition, Not
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.rocketmq_store import source
from spark_jobs.rocketmq_store.options import OptionError
from spark_jobs.rocketmq_store.schema import TABLES, arrow_schema, spark_schema
from spark_jobs.rocketmq_store.source import FilteringStoreReader, RocketMQStoreDataSource, StoreReader
from spark_jobs.tables import Tables
from tests.golden import golden_layout
from tests.spark_jobs.conftest import copy_golden
from tests.spark_jobs.dumps import write_manifest


def reader_of(table: str, *paths: Path, columns: StructType | None = None, **options: str) -> StoreReader:
    """The reader Spark would get."""
    given = {"table": table, "paths": json.dumps([str(path) for path in paths]), **options}
    found = RocketMQStoreDataSource(given)
    return found.reader(columns or found.schema())


def rows_of(reader: StoreReader) -> list[dict[str, Any]]:
    """All rows, reader and partitions pickled on the way as Spark does it."""
    sent = pickle.dumps(reader)
    partitions = [pickle.dumps(one) for one in reader.partitions()]
    there = pickle.loads(sent)
    return [row for one in partitions for batch in there.read(pickle.loads(one)) for row in batch.to_pylist()]


# ---- the tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_batches_of_every_table_have_the_declared_schema(table: str, golden: Path):
    """Goal: Spark demands equal types. Method: each batch of each table of a dump, and Spark's own conversion."""
    write_manifest(golden, log_end=98_000)
    schema = arrow_schema(table)
    assert to_arrow_schema(spark_schema(schema), timezone="UTC").equals(schema)
    reader = reader_of(table, golden)
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    assert batches or table in ("offset_resets", "removed_topics")
    assert all(batch.schema.equals(schema) for batch in batches)
    assert all(batch.num_rows for batch in batches)


@pytest.mark.parametrize("body", ["none", "digest", "bytes"])
@pytest.mark.parametrize("properties", ["raw", "map"])
def test_options_of_the_log_change_its_columns(golden_shared: Path, body: str, properties: str):
    """Goal: nothing is carried that nobody asked for. Method: every combination, rows and types."""
    schema = arrow_schema("commitlog", body=body, properties=properties)
    assert to_arrow_schema(spark_schema(schema), timezone="UTC").equals(schema)
    reader = reader_of("commitlog", golden_shared, body=body, properties=properties)
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    assert sum(batch.num_rows for batch in batches) == 325
    assert all(batch.schema.equals(schema) for batch in batches)


def golden_record(message: golden_layout.GoldenMessage) -> dict[str, Any]:
    """A row of commitlog as Apache's decoder would have it."""
    return {
        "physical_offset": message.physical_offset,
        "own_offset": message.physical_offset,
        "size": message.store_size,
        "status": "ok",
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp_ms,
        "born_host": message.born_host,
        "store_timestamp": message.store_timestamp_ms,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body": message.body,
        "body_size": len(message.body),
        "body_crc": message.body_crc,
        "uniq_key": message.properties.get("UNIQ_KEY"),
        "keys": message.properties.get("KEYS"),
        "tags": message.properties.get("TAGS"),
        "properties": message.properties,
    }


def golden_units() -> set[tuple[Any, ...]]:
    """Rows of consumequeue, from layout.json."""
    return {
        (topic, queue_id, number, *unit)
        for (topic, queue_id), units in golden_layout.queue_units().items()
        for number, unit in enumerate(units)
    }


UNIT_COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code")


@pytest.mark.spark
def test_every_record_of_the_golden_store_through_spark(spark, golden_shared: Path):
    """Goal: the log as Apache's own decoder saw it. Method: all 325 records, every field, through Spark."""
    frame = (
        spark.read.format("rocketmq_store")
        .option("table", "commitlog")
        .option("body", "bytes")
        .option("properties", "map")
        .load(str(golden_shared))
    )
    found = {row["physical_offset"]: row.asDict() for row in frame.collect()}
    expected = {message.physical_offset: golden_record(message) for message in golden_layout.messages()}
    assert found.keys() == expected.keys()
    for offset, message in expected.items():
        one = found[offset] | {"body": bytes(found[offset]["body"])}
        assert {name: one[name] for name in message} == message
        assert (one["store"], one["file"]) == ("golden", f"commitlog/{offset // 65536 * 65536:020d}")


@pytest.mark.spark
def test_every_unit_and_every_index_item_of_the_golden_store_through_spark(spark, golden_shared: Path):
    """Goal: as above, for queues and index. Method: layout.json's units; an item for each key of each record."""
    units = spark.read.format("rocketmq_store").option("table", "consumequeue").load(str(golden_shared)).collect()
    assert {tuple(row[name] for name in UNIT_COLUMNS) for row in units} == golden_units()
    assert len(units) == len(golden_units())
    assert {row["status"] for row in units} == {"ok"}
    items = spark.read.format("rocketmq_store").option("table", "index").load(str(golden_shared)).collect()
    keys = [message.physical_offset for message in golden_layout.messages() for _ in message.index_items]
    assert sorted(row["physical_offset"] for row in items) == sorted(keys)
    assert {row["status"] for row in items} == {"ok"}
    counts = {one["file"]: one["indexCount"] - 1 for one in golden_layout.layout()["index"]}
    for file, count in counts.items():
        assert sorted(row["item"] for row in items if row["file"] == f"index/{file}") == list(range(1, count + 1))


# ---- several stores ----------------------------------------------------------------------------------------------


def test_several_stores_are_told_apart(golden_shared: Path, tmp_path: Path):
    """Goal: master and slave in one query. Method: two copies of one name; rows of both, by the `store` column."""
    other = copy_golden(tmp_path / "slave" / "golden")
    found = rows_of(reader_of("consumequeue", golden_shared, other))
    names = {row["store"] for row in found}
    assert len(names) == 2
    assert "slave/golden" in names
    assert len(found) == 2 * len(golden_units())
    assert len({row["store"] for row in rows_of(reader_of("offsets", golden_shared, other))}) == 2


@pytest.mark.spark
def test_load_takes_one_path_or_a_list(spark, golden_shared: Path, tmp_path: Path):
    """Goal: Spark's own way of saying it. Method: load(path), load([path, path]) and Tables."""
    other = copy_golden(tmp_path / "other")
    reader = spark.read.format("rocketmq_store").option("table", "delay_offsets")
    assert reader.load(str(golden_shared)).count() == 4
    both = reader.load([str(golden_shared), str(other)])
    assert {row["store"]: row["count"] for row in both.groupBy("store").count().collect()} == {"golden": 4, "other": 4}
    tables = Tables(spark, [str(golden_shared), str(other)])
    assert tables.table("delay_offsets", columns=["level"]).distinct().count() == 4


# ---- less than everything ----------------------------------------------------------------------------------------


def test_user_schema_picks_columns(golden_shared: Path):
    """Goal: columns nobody wants are not carried. Method: two columns, in another order; wrong name, wrong type."""
    whole = spark_schema(arrow_schema("consumequeue"))
    chosen = StructType([whole["size"], whole["topic"]])
    found = rows_of(reader_of("consumequeue", golden_shared, columns=chosen))
    assert list(found[0]) == ["size", "topic"]
    assert len(found) == len(golden_units())
    with pytest.raises(OptionError, match="table consumequeue has no column colour; it has store, topic"):
        reader_of("consumequeue", golden_shared, columns=StructType([StructField("colour", StringType())]))
    with pytest.raises(OptionError, match="column size of consumequeue is int, not string"):
        reader_of("consumequeue", golden_shared, columns=StructType([StructField("size", StringType())]))


def test_ranges_restrict_the_log(golden_shared: Path):
    """Goal: a check looks where it has to. Method: two ranges, one of another store."""
    ranges = json.dumps([["golden", 0, 300], ["golden", 65_536, 65_900], ["other", 1000, 2000]])
    found = [row["physical_offset"] for row in rows_of(reader_of("commitlog", golden_shared, ranges=ranges))]
    expected = [message.physical_offset for message in golden_layout.messages()]
    assert found == [offset for offset in expected if offset < 300 or 65_536 <= offset < 65_900]


@pytest.mark.parametrize("table", ["commitlog", "consumequeue"])
def test_topics_restrict_log_and_queues_exactly(golden: Path, table: str):
    """Goal: only these, also where the log is damaged. Method: two topics, a damaged record of another one."""
    path = golden / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[4] ^= 0xFF
    path.write_bytes(data)
    found = rows_of(reader_of(table, golden, topics='["GoldenB", "GoldenTx"]'))
    assert {row["topic"] for row in found} == {"GoldenB", "GoldenTx"}
    assert len(found) == 45 + 3


def filtering(monkeypatch: pytest.MonkeyPatch, table: str, path: Path) -> FilteringStoreReader:
    """The reader as Spark's pushdown worker gets it."""
    monkeypatch.setitem(sys.modules, source.PUSHDOWN_WORKER, sys)
    reader = reader_of(table, path)
    assert isinstance(reader, FilteringStoreReader)
    return reader


def test_filters_are_given_back_unless_they_are_applied_exactly(monkeypatch: pytest.MonkeyPatch, golden_shared: Path):
    """Goal: Spark applies what was not applied. Method: queue directories are exact, everything else is not."""
    queue = EqualTo(("queue_id",), 1)
    topic = EqualTo(("topic",), "GoldenA")
    offset = GreaterThan(("queue_offset",), 25)
    other = Not(EqualTo(("status",), "ok"))
    units = filtering(monkeypatch, "consumequeue", golden_shared)
    assert list(units.pushFilters([topic, other, queue, offset])) == [other, offset]
    found = rows_of(units)
    assert {(row["topic"], row["queue_id"]) for row in found} == {("GoldenA", 1)}
    assert min(row["queue_offset"] for row in found) == 20  # where its file begins
    log = filtering(monkeypatch, "commitlog", golden_shared)
    assert list(log.pushFilters([topic, queue])) == [topic, queue]
    assert {(row["topic"], row["queue_id"]) for row in rows_of(log)} == {("GoldenA", 1)}


def test_the_same_filter_twice_is_applied_once_and_given_back(monkeypatch: pytest.MonkeyPatch, golden_shared: Path):
    """Goal: giving back too much is harmless, too little is not. Method: one filter in two copies."""
    units = filtering(monkeypatch, "consumequeue", golden_shared)
    twice = [EqualTo(("topic",), "GoldenA"), EqualTo(("topic",), "GoldenA")]
    assert list(units.pushFilters(twice)) == twice[1:]
    assert {row["topic"] for row in rows_of(units)} == {"GoldenA"}


def test_reader_takes_filters_only_from_the_pushdown_worker(monkeypatch: pytest.MonkeyPatch, golden_shared: Path):
    """Goal: no DATA_SOURCE_PUSHDOWN_DISABLED for anybody. Method: the reader in and out of that worker."""
    assert type(reader_of("commitlog", golden_shared)) is StoreReader
    assert type(filtering(monkeypatch, "commitlog", golden_shared)) is FilteringStoreReader


def test_part_without_value_has_no_rows(golden_shared: Path):
    """Goal: a plan without parts is an empty table. Method: what Spark makes up when there are none."""
    reader = reader_of("commitlog", golden_shared, ranges="[]")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.spark
@pytest.mark.parametrize("enabled", ["true", "false"])
def test_filtered_queries_are_right_with_and_without_pushdown(spark, golden_shared: Path, enabled: str):
    """Goal: correct where Spark allows pushdown and where it does not. Method: the same queries with both settings."""
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
    try:
        load = spark.read.format("rocketmq_store").option
        units = load("table", "consumequeue").load(str(golden_shared))
        chosen = units.where("topic = 'GoldenA' AND queue_id IN (1, 2) AND queue_offset >= 25").select(*UNIT_COLUMNS)
        assert {tuple(row) for row in chosen.collect()} == {
            unit for unit in golden_units() if unit[0] == "GoldenA" and unit[1] in (1, 2) and unit[2] >= 25
        }
        log = load("table", "commitlog").load(str(golden_shared))
        middle = golden_layout.messages()[200].store_timestamp_ms
        some = log.where(f"store_timestamp > {middle} AND physical_offset < 80000 AND topic LIKE 'Golden%'")
        assert sorted(row[0] for row in some.select("physical_offset").collect()) == [
            message.physical_offset
            for message in golden_layout.messages()
            if message.store_timestamp_ms > middle
            and message.physical_offset < 80_000
            and message.topic.startswith("Golden")
        ]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


@pytest.mark.spark
def test_pushdown_reads_fewer_files(spark, golden_shared: Path):
    """Goal: pushdown is worth its name. Method: the physical plan has no filter on what the directories answer."""
    units = spark.read.format("rocketmq_store").option("table", "consumequeue").load(str(golden_shared))
    plan = units.where("topic = 'GoldenA' AND size > 5")._jdf.queryExecution().executedPlan().toString()
    assert "topic" in plan
    assert "= GoldenA" not in plan
    assert "> 5" in plan


# ---- what a user sees --------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_refusals_reach_the_user_when_the_query_is_written(spark, tmp_path: Path):
    """Goal: the error says what is wrong, before anything runs. Method: no store, a wrong table, through Spark."""
    reader = spark.read.format("rocketmq_store")
    with pytest.raises(AnalysisException, match=r"NotAStoreError: .*: not a store, it has no commitlog/"):
        reader.load(str(tmp_path))
    with pytest.raises(AnalysisException, match="OptionError: table='queues': it is one of commitlog, consumequeue"):
        reader.option("table", "queues").load(str(tmp_path))
