"""The one pass over log, queues and index: summaries that a dozen checks share, and every fault by itself.

Both sides of a pair are summed up the same way, so that a check compares sums and looks at rows only where they differ:
a record and its queue unit give the same digest, a record's keys and their index items too. A digest is the wrapping
sum of its members' mixes (`pymq._scan.mix`), so equal sets have equal digests in any order. A bucket may come in
several rows, one for each range, file or batch that had a part in it: whoever compares adds them up first.

    kind        one row for each
    range       range of the log: how far the walk came and how it ended (done, blank, unwritten, missing)
    damage      stretch of the log that is no record, record with a wrong checksum or offset, record with bad text
    records     topic, queue, 4,096 queue offsets: records that dispatch gives a unit
    units       topic, queue, 4,096 queue offsets, status (ok, filler, hole): units
    unit_fault  unit that is a hole or a descent
    queue       queue file
    keys        16 MiB of log: keys that dispatch gives an item
    items       16 MiB of log: index items
    index       index file
    item_fault  index item, or slot, that breaks its chain
    traffic     topic, minute: records
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from pymq import _scan
from spark_jobs.rocketmq_store.index import read_items
from spark_jobs.rocketmq_store.queues import QueueRange, read_units
from spark_jobs.rocketmq_store.records import DELAY_LEVELS, file_of, status_of, text_of
from spark_jobs.rocketmq_store.schema import arrow_schema
from spark_jobs.rocketmq_store.walk import Damage, End, LogRange, Stretch, walk_range

QUEUE_BUCKET_BITS: Final = 12
LOG_BUCKET_BITS: Final = 24
MINUTE_MS: Final = 60_000
ROWS_MAX: Final = 8192

TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK = 12, 4, 12
COMPRESSED: Final = 1
MASK_64: Final = (1 << 64) - 1
MIX_START, MIX_STEP, MIX_LAST = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(*words: int) -> int:
    """The digest of one member: see csrc/include/pymq/scan_digest.h."""
    state = MIX_START
    for word in words:
        state = (state ^ (word & MASK_64)) * MIX_STEP & MASK_64
        state ^= state >> 32
    state = state * MIX_LAST & MASK_64
    return state ^ (state >> 29)


def signed(value: int) -> int:
    """Sixty-four bits as a signed long."""
    value &= MASK_64
    return value - (1 << 64) if value >> 63 else value


class Totals:
    """Groups of one kind on their way to rows."""

    def __init__(self) -> None:
        self.groups: dict[tuple[Any, ...], dict[str, Any]] = {}

    def add(self, key: tuple[Any, ...], fixed: dict[str, Any], *, digest: int, **bounds: int) -> None:
        """Count one member."""
        row = self.groups.get(key)
        if row is None:
            row = self.groups[key] = {**fixed, "count": 0, "digest": 0, "bytes": 0}
        row["count"] += 1
        row["digest"] = (row["digest"] + digest) & MASK_64
        row["bytes"] += bounds.pop("bytes", 0)
        for name, value in bounds.items():
            low = name.endswith("_min")
            row[name] = value if name not in row else min(row[name], value) if low else max(row[name], value)

    def rows(self, store: str) -> Iterator[dict[str, Any]]:
        """One row a group."""
        for row in self.groups.values():
            yield {**row, "store": store, "digest": signed(row["digest"])}


def batches(rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Rows of the scan as batches."""
    schema, held = arrow_schema("scan"), []
    for row in rows:
        held.append(row)
        if len(held) == ROWS_MAX:
            yield pa.RecordBatch.from_pylist(held, schema=schema)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=schema)


# ---- the log ---------------------------------------------------------------------------------------------------------


def scan_log(one: LogRange, delay_levels: str = DELAY_LEVELS) -> Iterator[pa.RecordBatch]:
    """Kinds range, damage, records, keys and traffic of one range of the log."""
    yield from batches(log_rows(one, delay_levels))


def log_rows(one: LogRange, delay_levels: str) -> Iterator[dict[str, Any]]:
    """The same as rows."""
    totals = Totals()
    whole: dict[str, Any] = {"count": 0, "bytes": 0}
    file = file_of(one.path)
    for found in walk_range(one, tuple(_scan.LOG_COLUMNS), delay_levels=delay_levels):
        if isinstance(found, Stretch):
            yield from stretch_rows(one, found, totals, whole)
        elif isinstance(found, Damage):
            yield damage_row(one, found)
        elif isinstance(found, End):
            yield {
                "store": one.store,
                "kind": "range",
                "file": file,
                "physical_offset_min": one.begin,
                "physical_offset_end": found.offset,
                "status": found.status,
                "detail": found.detail or None,
                **whole,
            }
    yield from totals.rows(one.store)


def stretch_rows(one: LogRange, found: Stretch, totals: Totals, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Count a stretch of records; the rows are what is wrong with single ones."""
    columns = found.columns
    for row in range(found.count):
        offset = found.offset + columns["record_position"][row]
        size, stored, sys_flag = (
            columns["total_size"][row],
            columns["store_timestamp_ms"][row],
            columns["sys_flag"][row],
        )
        queue_id, queue_offset = columns["queue_id"][row], columns["queue_offset"][row]
        topic = bytes(piece(found, "topic", row))
        properties = bytes(piece(found, "properties", row))
        name = text_of(topic)
        status = status_of(columns, row, offset)
        whole["count"] += 1
        whole["bytes"] += size
        whole["store_timestamp_min"] = min(whole.get("store_timestamp_min", stored), stored)
        whole["store_timestamp_max"] = max(whole.get("store_timestamp_max", stored), stored)
        for trouble, detail in troubles(found, row, status, topic, properties):
            yield {
                "store": one.store,
                "kind": "damage",
                "file": file_of(one.path),
                "topic": name,
                "queue_id": queue_id,
                "count": 1,
                "queue_offset_min": queue_offset,
                "physical_offset_min": offset,
                "physical_offset_end": offset + size,
                "store_timestamp_min": stored,
                "store_timestamp_max": stored,
                "bytes": size,
                "status": trouble,
                "detail": detail,
            }
        if status == "bad_offset":
            continue
        times = {"store_timestamp_min": stored, "store_timestamp_max": stored}
        places = {"physical_offset_min": offset, "physical_offset_end": offset + size}
        minute = stored // MINUTE_MS
        totals.add(
            ("traffic", topic, minute),
            {"kind": "traffic", "topic": name, "bucket": minute},
            digest=0,
            bytes=size,
            **times,
        )
        transaction = sys_flag & TRANSACTION_MASK
        if transaction not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            bucket = queue_offset >> QUEUE_BUCKET_BITS
            totals.add(
                ("records", topic, queue_id, bucket),
                {"kind": "records", "topic": name, "queue_id": queue_id, "bucket": bucket},
                digest=mix(queue_offset, offset, size, columns["tags_code"][row]),
                queue_offset_min=queue_offset,
                queue_offset_max=queue_offset,
                bytes=size,
                **places,
                **times,
            )
        if transaction != TRANSACTION_ROLLBACK:
            bucket = offset >> LOG_BUCKET_BITS
            for key_hash in key_hashes(topic, properties):
                totals.add(("keys", bucket), {"kind": "keys", "bucket": bucket}, digest=mix(key_hash, offset), **places)


def piece(found: Stretch, name: str, row: int) -> memoryview:
    """Body, topic or properties of a record."""
    at = found.columns[f"{name}_position"][row]
    return found.source[at : at + found.columns[f"{name}_size"][row]]


def key_hashes(topic: bytes, properties: bytes) -> Iterator[int]:
    """The hashes dispatch puts into the index for a record."""
    unique = _scan.find_property(properties, b"UNIQ_KEY")
    if unique is not None:
        yield _scan.index_key_hash(topic, unique)
    for word in (_scan.find_property(properties, b"KEYS") or b"").split(b" "):
        if word:
            yield _scan.index_key_hash(topic, word)
    tags = _scan.find_property(properties, b"TAGS")
    if tags:
        yield _scan.index_key_hash(topic, b"T#" + tags)


def troubles(found: Stretch, row: int, status: str, topic: bytes, properties: bytes) -> Iterator[tuple[str, str]]:
    """What is wrong with a record that is whole: its status, then its text, then its compressed body."""
    columns = found.columns
    if status == "bad_offset":
        own = columns["physical_offset"][row]
        yield status, f"says it stands at {own}, stands at {found.offset + columns['record_position'][row]}"
    elif status == "bad_crc":
        body = piece(found, "body", row)
        yield status, f"body CRC {columns['body_crc'][row]}, computed {_scan.crc32(bytes(body)) & 0x7FFFFFFF}"
    elif status == "bad_record_crc":
        yield status, "the record has another CRC than its last property says"
    for name, text in (("topic", topic), ("properties", properties)):
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            yield "bad_text", f"{name}: {error.reason} at byte {error.start}"
            break
    wrong = bad_piece(properties)
    if wrong is not None:
        yield "bad_properties", f"{wrong[:80]!r} is no name and value"
    if columns["sys_flag"][row] & COMPRESSED and columns["body_size"][row] and status == "ok":
        trouble = compression_trouble(piece(found, "body", row), columns["sys_flag"][row])
        if trouble:
            yield "bad_compression", trouble


def bad_piece(properties: bytes) -> bytes | None:
    """The first piece of *properties* that is not a name, one separator and a value; values may be empty."""
    for part in properties.removesuffix(b"\x02").split(b"\x02") if properties else ():
        if part.find(b"\x01") <= 0 or part.count(b"\x01") != 1:
            return part
    return None


def compression_trouble(body: memoryview, sys_flag: int) -> str | None:
    """Why *body* cannot be decompressed as its flag says, or None when it can."""
    kind = sys_flag >> 8 & 7
    if kind in (0, 3):
        return zlib_trouble(body)
    if kind == 1:
        return lz4_trouble(body)
    if kind == 2:
        return zstd_trouble(body)
    return f"compression type {kind} is none of 1 (LZ4), 2 (zstd), 3 (zlib)"


def zlib_trouble(body: memoryview) -> str | None:
    """The same for zlib; output is thrown away piece by piece."""
    stream = zlib.decompressobj()
    pending: bytes | memoryview = body
    try:
        while pending and not stream.eof:
            stream.decompress(pending, 1 << 20)
            pending = stream.unconsumed_tail
    except zlib.error as error:
        return f"zlib: {error}"
    return None if stream.eof else "zlib: the stream ends early"


def lz4_trouble(body: memoryview) -> str | None:
    """The same for an LZ4 frame."""
    try:
        import lz4.frame
    except ImportError:
        return "not checked: the package lz4 is not installed"
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        stream.decompress(bytes(body), max_length=1 << 20)
        while not stream.eof and not stream.needs_input:
            stream.decompress(b"", max_length=1 << 20)
    except RuntimeError as error:
        return f"lz4: {error}"
    return None if stream.eof else "lz4: the frame ends early"


def zstd_trouble(body: memoryview) -> str | None:
    """The same for zstd."""
    try:
        import zstandard
    except ImportError:
        return "not checked: the package zstandard is not installed"
    try:
        stream = zstandard.ZstdDecompressor().decompressobj()
        stream.decompress(bytes(body))
    except zstandard.ZstdError as error:
        return f"zstd: {error}"
    return None if stream.eof else "zstd: the frame ends early"


def damage_row(one: LogRange, found: Damage) -> dict[str, Any]:
    """A stretch that is no record."""
    row: dict[str, Any] = {
        "store": one.store,
        "kind": "damage",
        "file": file_of(one.path),
        "count": 1,
        "physical_offset_min": found.offset,
        "physical_offset_end": found.offset + found.size,
        "bytes": found.size,
        "status": found.status,
        "detail": found.detail,
    }
    if found.record is not None:
        row |= {
            "topic": text_of(found.record.topic),
            "queue_id": found.record.queue_id,
            "queue_offset_min": found.record.queue_offset,
        }
    return row


# ---- queues ----------------------------------------------------------------------------------------------------------


def scan_queue_files(files: Iterable[QueueRange]) -> Iterator[pa.RecordBatch]:
    """Kinds queue, units and unit_fault of some queue files; files of one queue in their order."""
    yield from batches(row for one in files for row in queue_rows(one))


def queue_rows(one: QueueRange) -> Iterator[dict[str, Any]]:
    """The same as rows, of one file."""
    totals = Totals()
    file = file_of(one.path, 4)
    common = {"store": one.store, "topic": one.topic, "queue_id": one.queue_id}
    count, first, last = 0, None, None
    units: list[dict[str, Any]] = []
    for batch in read_units(one.store, one.topic, one.queue_id, one.path, one.base, one.size, one.is_last):
        for unit in batch.to_pylist():
            bucket, offset = unit["queue_offset"] >> QUEUE_BUCKET_BITS, unit["queue_offset"]
            totals.add(
                (bucket, unit["status"]),
                {"kind": "units", "bucket": bucket, "status": unit["status"], **common},
                digest=mix(offset, unit["physical_offset"], unit["size"], unit["tags_code"]),
                queue_offset_min=offset,
                queue_offset_max=offset,
                physical_offset_min=unit["physical_offset"],
                physical_offset_end=unit["physical_offset"] + unit["size"],
                bytes=max(unit["size"], 0) if unit["status"] == "ok" else 0,
            )
            if unit["status"] == "ok":
                units.append(unit)
                count += 1
                first, last = offset if first is None else first, offset
            elif unit["status"] == "hole":
                yield unit_fault(common, file, unit, "hole", "no unit, and units behind it")
    for unit, detail in descents(units):
        yield unit_fault(common, file, unit, "descent", detail)
    status = (
        "odd_size" if one.size % 20 else "ok" if one.is_last or one.size == (one.made_size or one.size) else "short"
    )
    yield {
        **common,
        "kind": "queue",
        "file": file,
        "count": count,
        "queue_offset_min": first,
        "queue_offset_max": last,
        "bytes": one.size,
        "status": status,
    }
    yield from totals.rows(one.store)


def descents(units: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Units out of order: of two that do not increase, the one that does not fit what stands before both."""
    before: list[dict[str, Any]] = []
    for unit in units:
        if before and unit["physical_offset"] <= before[-1]["physical_offset"]:
            spike = len(before) > 1 and unit["physical_offset"] > before[-2]["physical_offset"]
            culprit = before.pop() if spike else unit
            yield culprit, f"physical offset {culprit['physical_offset']} is out of order"
            if not spike:
                continue
        before = [*before[-1:], unit]


def unit_fault(common: dict[str, Any], file: str, unit: dict[str, Any], status: str, detail: str) -> dict[str, Any]:
    """One unit by itself."""
    return {
        **common,
        "kind": "unit_fault",
        "file": file,
        "count": 1,
        "queue_offset_min": unit["queue_offset"],
        "physical_offset_min": unit["physical_offset"],
        "status": status,
        "detail": detail,
    }


# ---- index -----------------------------------------------------------------------------------------------------------


def scan_index(store: str, path: str, slots: int, items: int) -> Iterator[pa.RecordBatch]:
    """Kinds index, items and item_fault of one index file."""
    yield from batches(index_rows(store, path, slots, items))


def index_rows(store: str, path: str, slots: int, items: int) -> Iterator[dict[str, Any]]:
    """The same as rows."""
    totals = Totals()
    file, faults, count, low, end = file_of(path), 0, 0, None, None
    for batch in read_items(store, path, slots, items):
        for item in batch.to_pylist():
            if item["status"] == "bad_header":
                yield {"store": store, "kind": "index", "file": file, "count": 0, "status": "bad_header"}
                return
            offset = item["physical_offset"]
            count += 1
            low, end = offset if low is None else low, offset
            bucket = offset >> LOG_BUCKET_BITS
            totals.add(
                (bucket,),
                {"kind": "items", "file": file, "bucket": bucket},
                digest=mix(item["key_hash"], offset),
                physical_offset_min=offset,
                physical_offset_end=offset + 1,
            )
            if item["status"] != "ok":
                faults += 1
                yield {
                    "store": store,
                    "kind": "item_fault",
                    "file": file,
                    "count": 1,
                    "physical_offset_min": offset,
                    "status": "bad_chain",
                    "detail": f"item {item['item']}: slot {item['slot']}, previous {item['previous']}",
                }
    with open(path, "rb") as opened:
        header = dict(zip(_scan.IndexHeader._fields, _scan.decode_index(opened.read(), slots).header, strict=True))
    yield {
        "store": store,
        "kind": "index",
        "file": file,
        "count": count,
        "physical_offset_min": low,
        "physical_offset_end": end,
        "status": "bad_chain" if faults else "ok",
        "detail": json.dumps(header),
    }
    yield from totals.rows(store)
