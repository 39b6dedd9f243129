"""The commit log as rows: every record, and every stretch that is none, in batches of Arrow columns.

A batch comes from one stretch of records that the native walk found; damage gets a batch of its own. Nothing raises for
what is in a file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pymq import _scan
from spark_jobs.rocketmq_store.schema import arrow_schema
from spark_jobs.rocketmq_store.walk import Damage, End, LogRange, Stretch, split_points, walk_range

__all__ = ["LogRange", "RowFilter", "read_records", "split_points"]

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class RowFilter(NamedTuple):
    """Which rows are wanted; None wants all. More may come (Spark filters again), never fewer."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    begin: int | None = None  # physical offsets, [begin, end)
    end: int | None = None
    store_timestamp_min: int | None = None  # both included
    store_timestamp_max: int | None = None


def file_of(path: str | Path, depth: int = 2) -> str:
    """The value of the `file` column: the path below the store."""
    return "/".join(Path(path).parts[-depth:])


NUMBERS: Final = {
    "size": "total_size",
    "magic": "magic",
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "own_offset": "physical_offset",
    "tags_code": "tags_code",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "born_timestamp": "born_timestamp_ms",
    "store_timestamp": "store_timestamp_ms",
    "reconsume_times": "reconsume_times",
    "prepared_transaction_offset": "prepared_transaction_offset",
    "body_size": "body_size",
    "body_crc": "body_crc",
}


def read_records(
    one: LogRange,
    *,
    body: str = "none",
    properties: str = "raw",
    row_filter: RowFilter | None = None,
    delay_levels: str = DELAY_LEVELS,
) -> Iterator[pa.RecordBatch]:
    """The rows of what starts in a range, as `arrow_schema("commitlog", …)` has them."""
    schema = arrow_schema("commitlog", body=body, properties=properties)
    wanted = row_filter or RowFilter()
    begin = one.begin if wanted.begin is None else max(one.begin, wanted.begin)
    end = one.end if wanted.end is None else min(one.end, wanted.end)
    if begin >= end:
        return
    for found in walk_range(one._replace(begin=begin, end=end), tuple(_scan.LOG_COLUMNS), delay_levels=delay_levels):
        if isinstance(found, End):
            return
        rows = damage_row(one, found) if isinstance(found, Damage) else stretch_rows(one, found, body, properties)
        batch = pa.RecordBatch.from_pydict(
            {name: rows.get(name, [None] * len(rows["size"])) for name in schema.names}, schema
        )
        if isinstance(found, Stretch):
            batch = filtered(batch, wanted)
        if batch.num_rows:
            yield batch


def filtered(batch: pa.RecordBatch, wanted: RowFilter) -> pa.RecordBatch:
    """The rows that may be wanted."""
    for name, values in (("topic", wanted.topics), ("queue_id", wanted.queue_ids)):
        if values is not None:
            column = batch.column(name)
            batch = batch.filter(pc.is_in(column, pa.array(sorted(values), column.type)))
    if wanted.store_timestamp_min is not None:
        batch = batch.filter(pc.greater_equal(batch.column("store_timestamp"), wanted.store_timestamp_min))
    if wanted.store_timestamp_max is not None:
        batch = batch.filter(pc.less_equal(batch.column("store_timestamp"), wanted.store_timestamp_max))
    return batch


def text_of(value: bytes | None) -> str | None:
    """Text, malformed bytes replaced."""
    return None if value is None else value.decode("utf-8", "replace")


def host_text(address: bytes, port: int) -> str:
    """An address and a port as people write them."""
    host = str(ipaddress.ip_address(address))
    return f"[{host}]:{port}" if len(address) == 16 else f"{host}:{port}"


def status_of(columns: Any, row: int, offset: int) -> str:
    """The status of a whole record."""
    if columns["physical_offset"][row] != offset:
        return "bad_offset"
    if not columns["body_crc_matches"][row] or (columns["body_size"][row] == 0 and columns["body_crc"][row] != 0):
        return "bad_crc"
    return "bad_record_crc" if columns["record_crc_state"][row] == _scan.RecordCrc.DIFFERS else "ok"


def stretch_rows(one: LogRange, found: Stretch, body: str, properties: str) -> dict[str, list[Any]]:
    """Columns of a stretch of records."""
    columns, count = found.columns, found.count

    def pieces(name: str) -> list[bytes]:
        places = zip(columns[f"{name}_position"], columns[f"{name}_size"], strict=True)
        return [bytes(found.source[at : at + size]) for at, size in places]

    rows: dict[str, list[Any]] = {name: columns[source].tolist() for name, source in NUMBERS.items()}
    rows["store"], rows["file"] = [one.store] * count, [file_of(one.path)] * count
    rows["physical_offset"] = [found.offset + at for at in columns["record_position"]]
    rows["status"] = [status_of(columns, row, offset) for row, offset in enumerate(rows["physical_offset"])]
    rows["topic"] = [text_of(topic) for topic in pieces("topic")]
    raw = pieces("properties")
    for name, key in (("uniq_key", b"UNIQ_KEY"), ("keys", b"KEYS"), ("tags", b"TAGS")):
        rows[name] = [text_of(_scan.find_property(source, key)) for source in raw]
    rows["properties"] = (
        [list(_scan.decode_properties(source).items()) for source in raw] if properties == "map" else raw
    )
    bodies = pieces("body") if body != "none" else []
    rows["body"] = bodies
    rows["body_digest"] = []
    if body == "digest":
        import xxhash

        digests = [xxhash.xxh3_64_intdigest(source) for source in bodies]
        rows["body_digest"] = [value - (1 << 64) if value >> 63 else value for value in digests]
    hosts = [
        record_hosts(found.source[at:], flag)
        for at, flag in zip(columns["record_position"], columns["sys_flag"], strict=True)
    ]
    rows["born_host"], rows["store_host"] = [born for born, _ in hosts], [store for _, store in hosts]
    return rows


def record_hosts(record: memoryview, sys_flag: int) -> tuple[str, str]:
    """The two hosts of a record."""
    born_size = 16 if sys_flag & 0x10 else 4
    store_size = 16 if sys_flag & 0x20 else 4
    store_at = 48 + born_size + 4 + 8
    born = host_text(bytes(record[48 : 48 + born_size]), int.from_bytes(record[48 + born_size : 52 + born_size], "big"))
    port = int.from_bytes(record[store_at + store_size : store_at + store_size + 4], "big")
    return born, host_text(bytes(record[store_at : store_at + store_size]), port)


def damage_row(one: LogRange, found: Damage) -> dict[str, list[Any]]:
    """Columns of one damage: where it is, and what can still be read."""
    rows: dict[str, list[Any]] = {
        "store": [one.store],
        "file": [file_of(one.path)],
        "physical_offset": [found.offset],
        "size": [found.size],
        "status": [found.status],
    }
    record = found.record
    if record is not None:
        rows |= {
            "magic": [record.magic],
            "topic": [text_of(record.topic)],
            "queue_id": [record.queue_id],
            "queue_offset": [record.queue_offset],
            "own_offset": [record.physical_offset],
            "sys_flag": [record.sys_flag],
            "born_timestamp": [record.born_timestamp_ms],
            "store_timestamp": [record.store_timestamp_ms],
            "body_size": [len(record.body)],
            "body_crc": [record.body_crc],
            "uniq_key": [text_of(_scan.find_property(record.properties, b"UNIQ_KEY"))],
        }
    return rows
