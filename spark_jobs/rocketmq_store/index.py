"""Index files as rows: one item each, checked against the chain its slot begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pymq import _scan
from pymq.errors import StoreError
from spark_jobs.rocketmq_store.records import file_of
from spark_jobs.rocketmq_store.schema import arrow_schema

ROWS_MAX = 8192


def read_items(store: str, path: str | os.PathLike[str], slots: int, items: int) -> Iterator[pa.RecordBatch]:
    """The items of one file, `arrow_schema("index")`; *slots* and *items* are what the files were made with."""
    schema = arrow_schema("index")
    file = file_of(path)
    source = Path(path).read_bytes()
    try:
        index = _scan.decode_index(source, slots)
    except StoreError:
        yield pa.RecordBatch.from_pylist(
            [{"store": store, "file": file, "item": 0, "status": "bad_header"}], schema=schema
        )
        return
    hashes, previous = index.items["key_hash"], index.items["previous"]
    newest: dict[int, int] = {}
    rows = []
    for row, key_hash in enumerate(hashes):
        slot = key_hash % slots
        rows.append(
            {
                "store": store,
                "file": file,
                "item": row + 1,
                "key_hash": key_hash,
                "physical_offset": index.items["physical_offset"][row],
                "store_timestamp": index.header.begin_timestamp_ms + 1000 * index.items["seconds"][row],
                "seconds": index.items["seconds"][row],
                "previous": previous[row],
                "slot": slot,
                "status": "ok" if previous[row] == newest.get(slot, 0) else "bad_chain",
            }
        )
        newest[slot] = row + 1
    for slot, item in newest.items():
        if index.slots[slot] != item:
            rows[item - 1]["status"] = "bad_chain"
    for start in range(0, len(rows), ROWS_MAX):
        yield pa.RecordBatch.from_pylist(rows[start : start + ROWS_MAX], schema=schema)
