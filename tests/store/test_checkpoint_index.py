"""The checkpoint's time of the index, over runs with and without one."""

from __future__ import annotations

import struct
from pathlib import Path

import pymq
from pymq.store.config import StoreConfig

INDEX_TIME_AT = 16  # the third long of the file
SMALL = {"max_hash_slot_num": 53, "max_index_num": 61, "flush_disk_type": "ASYNC_FLUSH"}


def live(path: Path, *, index: bool) -> int:
    """Write more keys than an index file takes, close, and give what the checkpoint says of the index."""
    with pymq.open(path, config=StoreConfig(message_index_enable=index, **SMALL)) as store:
        for number in range(200):
            store.send("T", b"x", keys=f"key{number}")
    time_ms: int = struct.unpack_from(">q", (path / "checkpoint").read_bytes(), INDEX_TIME_AT)[0]
    return time_ms


def test_what_was_indexed_is_still_vouched_for_after_a_run_without_an_index(tmp_path):
    """Goal: keys of earlier runs are not dropped at the next recovery. Method: the time in the file, twice."""
    indexed = live(tmp_path, index=True)
    assert indexed > 0
    assert live(tmp_path, index=False) == indexed
