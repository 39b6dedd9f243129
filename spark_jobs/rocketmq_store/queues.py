"""Consume queues as rows: one unit each, with what a unit can be besides a pointer to a record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pymq import _scan
from spark_jobs.rocketmq_store.records import file_of
from spark_jobs.rocketmq_store.schema import arrow_schema

UNIT_SIZE: Final = 20
ROWS_MAX: Final = 8192
STATUS_NAMES: Final = pa.array(["ok", "filler", "hole"])  # by the numbers of enum pymq_unit_status


class QueueRange(NamedTuple):
    """One queue file.

    Attributes:
        base: its name: 20 times the queue offset of its first unit.
        size: bytes of it that are there.
        is_last: no later file of the queue has units.
        made_size: what the store's queue files were made with, 0 when not known.
    """

    store: str
    topic: str
    queue_id: int
    path: str
    base: int
    size: int
    is_last: bool
    made_size: int = 0


def queue_bytes(path: str | os.PathLike[str], size: int, is_last: bool) -> memoryview | None:
    """The whole units of a queue file, without the zeros at the end of a queue's last; None when it cannot be read."""
    try:
        with open(path, "rb") as file:
            source = memoryview(file.read(size))
    except OSError:
        return None
    if is_last:
        source = source[: -(-_scan.written_size(source) // UNIT_SIZE) * UNIT_SIZE]
    return source[: len(source) // UNIT_SIZE * UNIT_SIZE]


def read_units(
    store: str, topic: str, queue_id: int, path: str | os.PathLike[str], base_bytes: int, file_size: int, is_last: bool
) -> Iterator[pa.RecordBatch]:
    """The units of one file, `arrow_schema("consumequeue")`; zeros at the end of a queue's last file are no rows.

    *base_bytes* is the file's name, *file_size* how much of it there is, *is_last* that no later file of the queue has
    units. A file that cannot be read has no rows.
    """
    schema, file = arrow_schema("consumequeue"), file_of(path, 4)
    source = queue_bytes(path, file_size, is_last)
    if source is None:
        return
    for start in range(0, len(source), ROWS_MAX * UNIT_SIZE):
        columns = _scan.decode_queue(source[start : start + ROWS_MAX * UNIT_SIZE])
        count = len(columns["size"])
        statuses = pa.py_buffer(_scan.unit_statuses(columns["physical_offset"], columns["size"], count))
        positions = pa.array(range(start, start + count * UNIT_SIZE, UNIT_SIZE), pa.int64())
        made = {
            "store": pa.repeat(pa.scalar(store, pa.string()), count),
            "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
            "queue_id": pa.repeat(pa.scalar(queue_id, pa.int32()), count),
            "queue_offset": pc.divide(pc.add(positions, base_bytes), UNIT_SIZE),
            "physical_offset": numbers(columns["physical_offset"], pa.int64()),
            "size": numbers(columns["size"], pa.int32()),
            "tags_code": numbers(columns["tags_code"], pa.int64()),
            "file": pa.repeat(pa.scalar(file, pa.string()), count),
            "position": positions,
            "status": STATUS_NAMES.take(pa.Array.from_buffers(pa.uint8(), count, [None, statuses])),
        }
        yield pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def numbers(values: object, kind: pa.DataType) -> pa.Array:
    """An `array.array` as a column, without a copy."""
    buffer = pa.py_buffer(values)
    return pa.Array.from_buffers(kind, buffer.size * 8 // kind.bit_width, [None, buffer])
