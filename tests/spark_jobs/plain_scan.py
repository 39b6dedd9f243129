"""The scan's sums by plain Python: what the C folds are held against."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.reference import java_hash, properties
from tests.reference import record as reference

MASK = (1 << 64) - 1


def mix(*words: int) -> int:
    """The mixer of csrc/include/pymq/scan_digest.h."""
    state = 0x9E3779B97F4A7C15
    for word in words:
        state = (state ^ (word & MASK)) * 0xBF58476D1CE4E5B9 & MASK
        state ^= state >> 32
    state = state * 0x94D049BB133111EB & MASK
    return state ^ (state >> 29)


def key_hashes(topic: bytes, pairs: dict[bytes, bytes]) -> list[int]:
    """The hashes that dispatch puts into the index."""
    keys = [pairs[b"UNIQ_KEY"]] if b"UNIQ_KEY" in pairs else []
    keys += [word for word in pairs.get(b"KEYS", b"").split(b" ") if word]
    keys += [b"T#" + pairs[b"TAGS"]] if pairs.get(b"TAGS") else []
    return [java_hash.index_key_hash(topic, key) for key in keys]


def log_sums(records: Iterable[reference.Record]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Count and digest by kind and group, of records that lie where they say."""
    sums: dict[tuple[Any, ...], tuple[int, int]] = {}

    def add(key: tuple[Any, ...], digest: int) -> None:
        count, total = sums.get(key, (0, 0))
        sums[key] = (count + 1, (total + digest) & MASK)

    for record in records:
        topic = record.topic.decode("utf-8", "replace")
        pairs = properties.decode_properties(record.properties)
        add(("traffic", topic, None, record.store_timestamp_ms // 60_000), 0)
        transaction = record.sys_flag & 12
        offset = record.physical_offset
        if transaction in (0, 8):
            tags = java_hash.java_hash(pairs.get(b"TAGS", b""))
            digest = mix(record.queue_offset, offset, record.total_size, tags)
            add(("records", topic, record.queue_id, record.queue_offset >> 12), digest)
        if transaction != 12:
            for key_hash in key_hashes(record.topic, pairs):
                add(("keys", None, None, offset >> 24), mix(key_hash, offset))
    return sums


def sums_of(rows: Iterable[dict[str, Any]], *kinds: str) -> dict[tuple[Any, ...], tuple[int, int]]:
    """The same from rows of the scan, parts added up."""
    sums: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in rows:
        if row["kind"] in kinds and row["status"] == "ok":
            key = (row["kind"], row["topic"], row["queue_id"], row["bucket"])
            count, total = sums.get(key, (0, 0))
            digest = 0 if row["digest"] is None else row["digest"]
            sums[key] = (count + row["count"], (total + digest) & MASK)
    return sums
