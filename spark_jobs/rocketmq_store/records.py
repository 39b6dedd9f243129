"""The commit log as rows: every record, and every stretch that is none, in batches of Arrow columns.

A batch comes from one stretch of records (`walk`): numbers are the walk's own buffers, texts are gathered by C into
Arrow's, and no record becomes a Python object. Only what is damaged costs Python: a stretch that is no record gets a
batch of its own, and text that is no UTF-8 is made presentable row by row. Nothing raises for what is in a file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pymq import _scan
from spark_jobs.rocketmq_store.files import as_text
from spark_jobs.rocketmq_store.schema import arrow_schema
from spark_jobs.rocketmq_store.walk import Damage, End, LogRange, Stretch, split_points, walk_range

__all__ = ["DELAY_LEVELS", "LogRange", "RowFilter", "file_of", "read_records", "split_points"]

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
ROWS_MAX: Final = 8192
STATUS_NAMES: Final = pa.array([status.name.lower() for status in _scan.RowStatus])

# Columns of the table that are numbers of the walk.
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
TEXTS: Final = {"topic": "topic", "uniq_key": "unique_key", "keys": "keys", "tags": "tags"}
ARROW_TYPES: Final = {"q": pa.int64(), "i": pa.int32(), "I": pa.uint32(), "B": pa.uint8()}

PLACES: Final = ("record_position", "body_position", "body_size", "properties_position", "properties_size")
COLUMNS: Final = tuple(
    dict.fromkeys(
        (
            "status",
            *NUMBERS.values(),
            *PLACES,
            *(f"{name}_{part}" for name in TEXTS.values() for part in ("position", "size")),
        )
    )
)


class RowFilter(NamedTuple):
    """Which rows are wanted; None wants all. More may come (Spark filters again), never fewer."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    begin: int | None = None  # physical offsets, [begin, end)
    end: int | None = None
    store_timestamp_min: int | None = None  # both included
    store_timestamp_max: int | None = None
    having: tuple[str, ...] | None = None  # names of properties: records that have one of them, or look as if


def file_of(path: str | Path, depth: int = 2) -> str:
    """The value of the `file` column: the path below the store."""
    return as_text("/".join(Path(path).parts[-depth:]))


def read_records(
    one: LogRange,
    *,
    body: str = "none",
    properties: str = "raw",
    row_filter: RowFilter | None = None,
    delay_levels: str = DELAY_LEVELS,
    columns: Iterable[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of what starts in a range, as `arrow_schema("commitlog", …)` has them; only *columns* where given."""
    schema = arrow_schema("commitlog", body=body, properties=properties)
    if columns is not None:
        chosen = set(columns)
        schema = pa.schema([field for field in schema if field.name in chosen])
    wanted = row_filter or RowFilter()
    begin = one.begin if wanted.begin is None else max(one.begin, wanted.begin)
    end = one.end if wanted.end is None else min(one.end, wanted.end)
    if begin >= end:
        return
    levels = _scan.delay_levels_of(delay_levels)
    clipped = one._replace(begin=begin, end=end)
    for found in walk_range(clipped, lambda: _scan.LogRows(COLUMNS, ROWS_MAX), levels=levels):
        if isinstance(found, End):
            return
        batch = damage_batch(one, found, schema) if isinstance(found, Damage) else batch_of(one, found, wanted, schema)
        if batch is not None:
            yield batch


# ---- records ---------------------------------------------------------------------------------------------------------


def column_of(rows: _scan.LogRows, name: str, first: int) -> pa.Array:
    """A column of the walk from row *first* on, without a copy."""
    kind = ARROW_TYPES[_scan.ROW_COLUMNS[name]]
    return pa.Array.from_buffers(kind, rows.count - first, [None, pa.py_buffer(rows.buffers[name])], offset=first)


class Picked:
    """The rows of a stretch that go into a batch: all from its first on, or those of a mask.

    Columns are the walk's own buffers, or copies of what the mask leaves, so that texts are gathered for no other rows.
    """

    def __init__(self, found: Stretch, mask: pa.Array | None) -> None:
        self.found, self.mask = found, mask
        self.length = found.rows.count - found.first if mask is None else pc.sum(mask).as_py() or 0

    def column(self, name: str) -> pa.Array:
        """A column of the walk."""
        values = column_of(self.found.rows, name, self.found.first)
        return values if self.mask is None else values.filter(self.mask)

    def places(self, *names: str) -> tuple[Any, ...]:
        """Columns for C, then the end and the begin of the rows in them."""
        if self.mask is None:
            rows = self.found.rows
            return *(rows.buffers[name] for name in names), rows.count, self.found.first
        return *(self.column(name).buffers()[1] for name in names), self.length, 0

    def gather(self, name: str) -> _scan.Pieces:
        """The pieces of topic, body, properties or of a property that the walk names."""
        return _scan.gather(self.found.source, *self.places(f"{name}_position", f"{name}_size"))


def batch_of(one: LogRange, found: Stretch, wanted: RowFilter, schema: pa.Schema) -> pa.RecordBatch | None:
    """A stretch of records as a batch, or None when none of them is wanted."""
    topics = text_array(Picked(found, None).gather("topic"))
    mask = mask_of(topics, found, wanted)
    picked = Picked(found, mask)
    if picked.length == 0:
        return None
    made = [made_column(one, picked, field, topics if mask is None else topics.filter(mask)) for field in schema]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def made_column(one: LogRange, picked: Picked, field: pa.Field, topics: pa.Array) -> pa.Array:
    """One column of a batch: only those that are asked for are made."""
    name, found = field.name, picked.found
    if name in ("store", "file"):
        return pa.repeat(pa.scalar(one.store if name == "store" else file_of(one.path), pa.string()), picked.length)
    if name == "physical_offset":
        return pc.add(picked.column("record_position"), found.offset)
    if name == "status":
        return STATUS_NAMES.take(picked.column("status"))
    if name == "topic":
        return topics
    if name == "properties":
        return properties_array(picked, field.type)
    if name in NUMBERS:
        return picked.column(NUMBERS[name]).cast(field.type)
    if name in TEXTS:
        return text_array(picked.gather(TEXTS[name]))
    if name in ("born_host", "store_host"):
        positions, flags, count, first = picked.places("record_position", "sys_flag")
        is_store = name == "store_host"
        return text_array(_scan.host_texts(found.source, positions, flags, count, store=is_store, first=first))
    if name == "body":
        return binary_array(picked.gather("body"))
    digests = pa.py_buffer(_scan.digest_pieces(found.source, *picked.places("body_position", "body_size")))
    return pa.Array.from_buffers(pa.int64(), picked.length, [None, digests])


def mask_of(topics: pa.Array, found: Stretch, wanted: RowFilter) -> pa.Array | None:
    """Which rows of a stretch may be wanted; None when all are."""
    masks = []
    if wanted.topics is not None:
        masks.append(pc.is_in(topics, pa.array(sorted(wanted.topics), pa.string())))
    if wanted.queue_ids is not None:
        queue_ids = column_of(found.rows, "queue_id", found.first)
        masks.append(pc.is_in(queue_ids, pa.array(sorted(wanted.queue_ids), pa.int32())))
    if wanted.store_timestamp_min is not None or wanted.store_timestamp_max is not None:
        times = column_of(found.rows, "store_timestamp_ms", found.first)
        if wanted.store_timestamp_min is not None:
            masks.append(pc.greater_equal(times, pa.scalar(wanted.store_timestamp_min, pa.int64())))
        if wanted.store_timestamp_max is not None:
            masks.append(pc.less_equal(times, pa.scalar(wanted.store_timestamp_max, pa.int64())))
    if wanted.having is not None:
        masks.append(having_mask(found, wanted.having))
    if not masks:
        return None
    mask = masks[0]
    for other in masks[1:]:
        mask = pc.and_(mask, other)
    return None if pc.all(mask).as_py() else mask


def having_mask(found: Stretch, names: tuple[str, ...]) -> pa.Array:
    """Rows whose properties have one of *names* in them. A longer name that ends like one, or a value, may too."""
    raw = binary_array(Picked(found, None).gather("properties"))
    masks = [pc.match_substring(raw, f"{name}\x01") for name in names]
    return functools.reduce(pc.or_, masks, pa.repeat(False, len(raw)))


def buffers_of(pieces: _scan.Pieces) -> tuple[int, list[pa.Buffer | None]]:
    """Rows, and the three buffers of a string or binary array."""
    validity = None if pieces.validity is None else pa.py_buffer(pieces.validity)
    return len(pieces.offsets) // 4 - 1, [validity, pa.py_buffer(pieces.offsets), pa.py_buffer(pieces.data)]


def binary_array(pieces: _scan.Pieces) -> pa.Array:
    """Bytes as they are."""
    rows, buffers = buffers_of(pieces)
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=pieces.absent)


def text_array(pieces: _scan.Pieces) -> pa.Array:
    """Text; what is no UTF-8 is shown with U+FFFD."""
    rows, buffers = buffers_of(pieces)
    if _scan.not_utf8(pieces):
        return pa.array([text_of(value) for value in binary_array(pieces).to_pylist()], pa.string())
    return pa.Array.from_buffers(pa.string(), rows, buffers, null_count=pieces.absent)


def text_of(value: bytes | None) -> str | None:
    """Text, malformed bytes replaced."""
    return None if value is None else value.decode("utf-8", "replace")


def properties_array(picked: Picked, kind: pa.DataType) -> pa.Array:
    """The properties as they stand, or as maps."""
    if pa.types.is_binary(kind):
        return binary_array(picked.gather("properties"))
    places = picked.places("properties_position", "properties_size")
    pairs = _scan.property_pairs(picked.found.source, *places)
    offsets = pa.Array.from_buffers(pa.int32(), picked.length + 1, [None, pa.py_buffer(pairs.row_offsets)])
    return pa.MapArray.from_arrays(offsets, text_array(pairs.names), text_array(pairs.values)).cast(kind)


# ---- damage ----------------------------------------------------------------------------------------------------------


def damage_batch(one: LogRange, found: Damage, schema: pa.Schema) -> pa.RecordBatch:
    """One damage as a batch: where it is, and what can still be read of it."""
    row: dict[str, Any] = {
        "store": one.store,
        "file": file_of(one.path),
        "physical_offset": found.offset,
        "size": found.size,
        "status": found.status,
    }
    record = found.record
    if record is not None:
        row |= {
            "magic": record.magic,
            "topic": text_of(record.topic),
            "queue_id": record.queue_id,
            "queue_offset": record.queue_offset,
            "own_offset": record.physical_offset,
            "flag": record.flag,
            "sys_flag": record.sys_flag,
            "born_timestamp": record.born_timestamp_ms,
            "store_timestamp": record.store_timestamp_ms,
            "reconsume_times": record.reconsume_times,
            "prepared_transaction_offset": record.prepared_transaction_offset,
            "body_size": len(record.body),
            "body_crc": record.body_crc,
        }
        for name, key in (("uniq_key", b"UNIQ_KEY"), ("keys", b"KEYS"), ("tags", b"TAGS")):
            row[name] = text_of(_scan.find_property(record.properties, key))
    return pa.RecordBatch.from_pylist([row], schema=schema)
