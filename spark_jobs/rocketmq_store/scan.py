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
    queue       queue file (ok, short, odd_size, missing)
    keys        16 MiB of log: keys that dispatch gives an item
    items       16 MiB of log: index items; physical_offset_end is one behind the last record's begin
    index       index file (ok, bad_header, bad_chain)
    item_fault  index item, or slot, that breaks its chain
    traffic     topic, minute: records

Records that say another offset than theirs are damage and are counted nowhere else; records with a wrong checksum are
damage and are counted, as dispatch files them too. The sums are made in C; Python sees a row for each group, and single
records only when something is to be said about them: damage, or a compressed body that has to be tried.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pymq import _scan
from spark_jobs.rocketmq_store.bodies import compression_trouble
from spark_jobs.rocketmq_store.index import IndexFile
from spark_jobs.rocketmq_store.queues import UNIT_SIZE, QueueRange, queue_bytes
from spark_jobs.rocketmq_store.records import DELAY_LEVELS, file_of, text_array, text_of
from spark_jobs.rocketmq_store.schema import arrow_schema
from spark_jobs.rocketmq_store.walk import Damage, LogRange, Stretch, walk_range

CHUNK_SIZE: Final = 1 << 20  # a piece of log that stays in the cache from walk to sum
ROWS_MAX: Final = 8192
QUEUE_BUCKET_BITS: Final = 12
COMPRESSED: Final = 1
SCHEMA: Final = arrow_schema("scan")
COLUMNS: Final = (
    *_scan.FOLD_COLUMNS,
    "record_position",
    "body_position",
    "body_size",
    "body_crc",
    "properties_position",
    "properties_size",
    "text_state",
)

PLACES: Final = ("physical_offset_min", "physical_offset_end")
QUEUE_OFFSETS: Final = ("queue_offset_min", "queue_offset_max")
TIMES: Final = ("store_timestamp_min", "store_timestamp_max")
# What a group of each kind has besides bucket and count.
GROUP_COLUMNS: Final = {
    "records": ("topic", "queue_id", "digest", *QUEUE_OFFSETS, *PLACES, *TIMES, "bytes"),
    "traffic": ("topic", *TIMES, "bytes"),
    "keys": ("digest", *PLACES),
    "units": ("digest", *QUEUE_OFFSETS, *PLACES, "bytes"),
    "fillers": ("digest", *QUEUE_OFFSETS),
    "holes": ("digest", *QUEUE_OFFSETS),
    "items": ("digest", *PLACES),
}
UNIT_KINDS: Final = {"units": "ok", "fillers": "filler", "holes": "hole"}


def batch_of(rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Some rows as a batch; none without any."""
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def groups_batch(groups: _scan.Groups, kind: str, fixed: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The groups of one kind as a batch; columns that the kind does not have are null, or as *fixed* says."""
    count, columns = groups.columns(kind)
    if not count:
        return
    made = {}
    for name in ("bucket", "count", *GROUP_COLUMNS[kind]):
        width = pa.int64() if name in _scan.GROUP_LONGS else pa.int32()
        made[name] = pa.Array.from_buffers(width, count, [None, pa.py_buffer(columns[name])])
    if "topic" in made:
        made["topic"] = text_array(groups.topic_names()).take(made["topic"])
    for field in SCHEMA:
        if field.name not in made:
            made[field.name] = pa.repeat(pa.scalar(fixed.get(field.name), field.type), count)
    yield pa.RecordBatch.from_arrays([made[name] for name in SCHEMA.names], schema=SCHEMA)


# ---- the log ---------------------------------------------------------------------------------------------------------


def scan_log(one: LogRange, delay_levels: str = DELAY_LEVELS) -> Iterator[pa.RecordBatch]:
    """Kinds range, damage, records, keys and traffic of one range of the log."""
    groups = _scan.Groups()
    rows = _scan.LogRows(COLUMNS, ROWS_MAX)
    levels = _scan.delay_levels_of(delay_levels)
    whole: dict[str, Any] = {"count": 0, "bytes": 0}
    for found in walk_range(one, lambda: rows, levels=levels, chunk_size=CHUNK_SIZE):
        if isinstance(found, Stretch):
            whole["count"] += rows.count - found.first
            whole["bytes"] += rows.position - rows.view("record_position")[found.first]
            if rows.notable_count:
                yield from batch_of(list(notable_rows(one, found)))
            row = found.first
            while (row := groups.fold(found.source, rows, row)) < rows.count:
                yield from drained_log(one, groups, whole)
        elif isinstance(found, Damage):
            yield from batch_of([damage_row(one, found)])
        else:
            yield from drained_log(one, groups, whole)
            yield from batch_of(
                [
                    {
                        "store": one.store,
                        "kind": "range",
                        "file": file_of(one.path),
                        "physical_offset_min": one.begin,
                        "physical_offset_end": found.offset,
                        "status": found.status,
                        "detail": found.detail or None,
                        **whole,
                    }
                ]
            )


def drained_log(one: LogRange, groups: _scan.Groups, whole: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """What was summed up so far, and start again; *whole* learns the times."""
    for kind in ("records", "keys", "traffic"):
        for batch in groups_batch(groups, kind, {"store": one.store, "kind": kind, "status": "ok"}):
            if kind == "traffic":
                for name, choose in zip(TIMES, (min, max), strict=True):
                    values = batch.column(name).to_pylist()
                    whole[name] = choose([*values, *([whole[name]] if name in whole else [])])
            yield batch
    groups.clear()


def notable_rows(one: LogRange, found: Stretch) -> Iterator[dict[str, Any]]:
    """A damage row for everything that is wrong with single records of a stretch."""
    rows = found.rows
    statuses, texts, flags = rows.view("status"), rows.view("text_state"), rows.view("sys_flag")
    for row in range(found.first, rows.count):
        if statuses[row] or texts[row] or flags[row] & COMPRESSED:
            for status, detail in troubles(found, row):
                yield record_row(one, found, row, status, detail)


def piece(found: Stretch, name: str, row: int) -> memoryview:
    """Body, topic or properties of a record."""
    at = found.rows.view(f"{name}_position")[row]
    return found.source[at : at + found.rows.view(f"{name}_size")[row]]


def record_row(one: LogRange, found: Stretch, row: int, status: str, detail: str) -> dict[str, Any]:
    """A record that is whole and has something wrong with it."""
    rows = found.rows
    offset, size = found.offset + rows.view("record_position")[row], rows.view("total_size")[row]
    stored = rows.view("store_timestamp_ms")[row]
    return {
        "store": one.store,
        "kind": "damage",
        "file": file_of(one.path),
        "topic": text_of(bytes(piece(found, "topic", row))),
        "queue_id": rows.view("queue_id")[row],
        "count": 1,
        "queue_offset_min": rows.view("queue_offset")[row],
        "physical_offset_min": offset,
        "physical_offset_end": offset + size,
        "store_timestamp_min": stored,
        "store_timestamp_max": stored,
        "bytes": size,
        "status": status,
        "detail": detail,
    }


def troubles(found: Stretch, row: int) -> Iterator[tuple[str, str]]:
    """What is wrong with a record that is whole: its status, then its text, then its compressed body."""
    rows = found.rows
    status, text = _scan.RowStatus(rows.view("status")[row]), rows.view("text_state")[row]
    if status is _scan.RowStatus.BAD_OFFSET:
        own, stands = rows.view("physical_offset")[row], found.offset + rows.view("record_position")[row]
        yield "bad_offset", f"says it stands at {own}, stands at {stands}"
    elif status is _scan.RowStatus.BAD_CRC:
        computed = _scan.crc32(piece(found, "body", row)) & 0x7FFFFFFF
        yield "bad_crc", f"body CRC {rows.view('body_crc')[row]}, expected {computed}"
    elif status is _scan.RowStatus.BAD_RECORD_CRC:
        yield "bad_record_crc", "the record has another CRC than its last property says"
    if text & _scan.TEXT_BAD_UTF8:
        yield "bad_text", text_trouble(found, row)
    if text & _scan.TEXT_BAD_PROPERTIES:
        wrong = bad_pair(bytes(piece(found, "properties", row)))
        yield "bad_properties", f"{wrong[:80]!r} is no name and value"
    flags = rows.view("sys_flag")[row]
    if flags & COMPRESSED and rows.view("body_size")[row] and status is _scan.RowStatus.OK:
        trouble = compression_trouble(piece(found, "body", row), flags)
        if trouble is not None:
            yield "bad_compression", trouble


def text_trouble(found: Stretch, row: int) -> str:
    """Which text of a record is no UTF-8, and where."""
    for name in ("topic", "properties"):
        try:
            bytes(piece(found, name, row)).decode("utf-8")
        except UnicodeDecodeError as error:
            return f"{name}: {error.reason} at byte {error.start}"
    return "no UTF-8"


def bad_pair(properties: bytes) -> bytes:
    """The first piece of *properties* that is not a name, one separator and a value, which may be empty."""
    for part in properties.removesuffix(b"\x02").split(b"\x02"):
        if part.find(b"\x01") <= 0 or part.count(b"\x01") != 1:
            return part
    return b""


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
            "store_timestamp_min": found.record.store_timestamp_ms,
            "store_timestamp_max": found.record.store_timestamp_ms,
        }
    return row


# ---- queues ----------------------------------------------------------------------------------------------------------


def scan_queue_files(files: Iterable[QueueRange]) -> Iterator[pa.RecordBatch]:
    """Kinds queue, units and unit_fault of some queue files; files of one queue in their order."""
    groups = _scan.Groups(1 << 10)
    before: QueueRange | None = None
    held: list[dict[str, Any]] = []
    for one in files:
        if before is None or before[:3] != one[:3] or before.base + before.size != one.base:
            start_queue(groups, one)
        before = one
        yield from scan_queue_file(groups, one, held)
        if len(held) >= ROWS_MAX:
            yield from batch_of(held)
            held = []
    yield from batch_of(held)


def start_queue(groups: _scan.Groups, one: QueueRange) -> None:
    """Begin with a file's queue: its order goes on from the last units of the file before, where there is one."""
    groups.start_queue()
    earlier = Path(one.path).with_name(f"{one.base - (one.made_size or one.size):020d}")
    if one.base <= 0 or not earlier.exists():
        return
    source = queue_bytes(earlier, earlier.stat().st_size, is_last=False)
    if source is not None and len(source):
        last = source[-2 * UNIT_SIZE :]
        groups.fold_units(last, one.base // UNIT_SIZE - len(last) // UNIT_SIZE)
        groups.clear()


def scan_queue_file(groups: _scan.Groups, one: QueueRange, held: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Batches of the units of one file; its other rows go to *held*."""
    file = file_of(one.path, 4)
    fixed = {"store": one.store, "topic": one.topic, "queue_id": one.queue_id}
    source = queue_bytes(one.path, one.size, one.is_last)
    count, bounds, descents = 0, [], Counter[int]()
    at, first = 0, one.base // UNIT_SIZE
    total = 0 if source is None else len(source) // UNIT_SIZE
    while source is not None and at < total:
        taken, faults = groups.fold_units(source[at * UNIT_SIZE :], first + at)
        at += taken
        for fault in faults:
            held.append(unit_fault_row(fixed, file, fault))
            if fault.kind == "descent":
                descents[fault.queue_offset >> QUEUE_BUCKET_BITS] += 1
        for kind, status in UNIT_KINDS.items():
            for batch in groups_batch(groups, kind, {**fixed, "kind": "units", "file": file, "status": status}):
                if status == "ok":
                    count += pc.sum(batch.column("count")).as_py()
                    bounds += (
                        batch.column("queue_offset_min").to_pylist() + batch.column("queue_offset_max").to_pylist()
                    )
                yield with_descents(batch, descents) if status == "ok" else batch
        groups.clear()
        descents.clear()
    whole = one.is_last or not one.made_size or one.size == one.made_size
    status = "missing" if source is None else "odd_size" if one.size % UNIT_SIZE else "ok" if whole else "short"
    held.append(
        {
            **fixed,
            "kind": "queue",
            "file": file,
            "count": count,
            "queue_offset_min": min(bounds, default=None),
            "queue_offset_max": max(bounds, default=None),
            "bytes": one.size,
            "status": status,
        }
    )


def with_descents(batch: pa.RecordBatch, descents: Counter[int]) -> pa.RecordBatch:
    """The batch with how many units of each bucket are out of order."""
    if not descents:
        return batch
    details = [f"descents={descents[one]}" if one in descents else None for one in batch.column("bucket").to_pylist()]
    return batch.set_column(SCHEMA.get_field_index("detail"), SCHEMA.field("detail"), pa.array(details, pa.string()))


def unit_fault_row(fixed: dict[str, Any], file: str, fault: _scan.UnitFault) -> dict[str, Any]:
    """One unit that breaks its queue."""
    if fault.kind == "hole":
        detail = f"size {fault.size}: never written, and there are units behind it"
    else:
        detail = f"physical offset {fault.physical_offset} is out of order beside {fault.before}"
    return {
        **fixed,
        "kind": "unit_fault",
        "file": file,
        "count": 1,
        "queue_offset_min": fault.queue_offset,
        "queue_offset_max": fault.queue_offset,
        "physical_offset_min": fault.physical_offset,
        "status": fault.kind,
        "detail": detail,
    }


# ---- index -----------------------------------------------------------------------------------------------------------


def scan_index(store: str, path: str, slots: int, items: int) -> Iterator[pa.RecordBatch]:
    """Kinds index, items and item_fault of one index file."""
    file = file_of(path)
    fixed = {"store": store, "file": file}
    try:
        opened = IndexFile(path, slots, items)
    except OSError as error:
        yield from batch_of([{**fixed, "kind": "index", "count": 0, "status": "bad_header", "detail": str(error)}])
        return
    try:
        groups = _scan.Groups(1 << 10)
        for _, columns in opened.pieces():
            row, count = 0, len(columns["key_hash"])
            while (row := groups.fold_items(columns["key_hash"], columns["physical_offset"], count, row)) < count:
                yield from groups_batch(groups, "items", {**fixed, "kind": "items", "status": "ok"})
                groups.clear()
        yield from groups_batch(groups, "items", {**fixed, "kind": "items", "status": "ok"})
        faults = opened.faults()
        header = {} if opened.header is None else opened.header._asdict()
        trouble = {} if opened.header_trouble is None else {"trouble": opened.header_trouble}
        rows: list[dict[str, Any]] = [
            {
                **fixed,
                "kind": "item_fault",
                "count": 1,
                "physical_offset_min": opened.item(fault.item).get("physical_offset") if fault.item else None,
                "status": "bad_chain",
                "detail": f"item {fault.item}: {fault.detail}",
            }
            for fault in faults
        ]
        rows.append(
            {
                **fixed,
                "kind": "index",
                "count": opened.count,
                "physical_offset_min": header.get("begin_offset"),
                "physical_offset_end": header.get("end_offset"),
                "store_timestamp_min": header.get("begin_timestamp_ms"),
                "store_timestamp_max": header.get("end_timestamp_ms"),
                "bytes": opened.size,
                "status": "bad_header" if trouble else "bad_chain" if faults else "ok",
                "detail": json.dumps({**header, **trouble}),
            }
        )
        yield from batch_of(rows)
    finally:
        opened.close()
