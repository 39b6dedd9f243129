"""Consume queues as rows: one unit each, with what a unit can be besides a pointer to a record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from pymq import _scan
from spark_jobs.rocketmq_store.records import file_of
from spark_jobs.rocketmq_store.schema import arrow_schema

UNIT_SIZE: Final = 20
ROWS_MAX: Final = 8192
FILLER_SIZE: Final = 0x7FFFFFFF


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


def read_units(
    store: str, topic: str, queue_id: int, path: str | os.PathLike[str], base_bytes: int, file_size: int, is_last: bool
) -> Iterator[pa.RecordBatch]:
    """The units of one file, `arrow_schema("consumequeue")`; zeros at the end of a queue's last file are no rows.

    *base_bytes* is the file's name, *file_size* how much of it there is, *is_last* that no later file of the queue has
    units.
    """
    schema = arrow_schema("consumequeue")
    source = Path(path).read_bytes()[:file_size]
    if is_last:
        source = source[: -(-len(source.rstrip(b"\0")) // UNIT_SIZE) * UNIT_SIZE]
    for start in range(0, len(source) - UNIT_SIZE + 1, ROWS_MAX * UNIT_SIZE):
        columns = _scan.decode_queue(source[start : start + ROWS_MAX * UNIT_SIZE])
        count = len(columns["size"])
        first = (base_bytes + start) // UNIT_SIZE
        statuses = [
            "hole" if size <= 0 else "filler" if size == FILLER_SIZE and offset == 0 else "ok"
            for offset, size in zip(columns["physical_offset"], columns["size"], strict=True)
        ]
        yield pa.RecordBatch.from_pydict(
            {
                "store": [store] * count,
                "topic": [topic] * count,
                "queue_id": [queue_id] * count,
                "queue_offset": list(range(first, first + count)),
                "physical_offset": columns["physical_offset"].tolist(),
                "size": columns["size"].tolist(),
                "tags_code": columns["tags_code"].tolist(),
                "file": [file_of(path, 4)] * count,
                "position": list(range(start, start + count * UNIT_SIZE, UNIT_SIZE)),
                "status": statuses,
            },
            schema,
        )
