"""The timer log and the timer wheel as rows. Layouts: `pymq.broker.timer.log` and `.wheel`, docs/formats.md section 9.

The log is walked unit by unit. Where no unit stands, a blank ends the file; zeros to the end of the last file were
never written; anything else is one row `bad_unit` that covers the bytes up to the next unit, which is found again
because units stand at multiples of their size from where the file's first one stood.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spark_jobs.rocketmq_store.files import StoreFiles, open_store
from spark_jobs.rocketmq_store.schema import arrow_schema

UNIT: Final = struct.Struct(">iqiqiqiiq")  # size, previous, magic, written at, delay, offset, size, hash, zero
BLANK: Final = struct.Struct(">iqi")  # bytes left, zero, magic
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
MAGIC_BITS: Final = 0xF
SLOT: Final = struct.Struct(">qqqii")  # time / precision, first, last, count, zero
SLOTS_READ: Final = 1024  # at once; most of a wheel is zeros, which are passed over
ROWS_MAX: Final = 8192
PRECISION_MS: Final = 1000
LONG_LIMIT: Final = 1 << 63

Row = tuple[Any, ...]


def read_timer_log(store: str, path: str, base: int, is_last: bool) -> Iterator[pa.RecordBatch]:
    """The units of one file, `arrow_schema("timerlog")`."""
    return batches("timerlog", timer_log_rows(store, path, base, is_last))


def timer_log_rows(store: str, path: str, base: int, is_last: bool) -> Iterator[Row]:
    """The rows of one file of the timer log."""
    data = Path(path).read_bytes()
    file = f"timerlog/{Path(path).name}"
    at = 0
    while at < len(data):
        if is_unit(data, at):
            _, previous, magic, written_ms, delay_ms, offset, size, topic_hash, _ = UNIT.unpack_from(data, at)
            slot_ms = written_ms + delay_ms
            slot = slot_ms if -LONG_LIMIT <= slot_ms < LONG_LIMIT else None
            yield store, file, base + at, previous, magic, slot, written_ms, offset, size, topic_hash, "ok"
            at += UNIT.size
            continue
        if is_blank(data, at) or (is_last and not any(data[at:])):
            return
        end = next((place for place in range(at + UNIT.size, len(data), UNIT.size) if is_unit(data, place)), len(data))
        if end == len(data) and is_last:  # nothing behind it but what was never written
            end = at + len(data[at:].rstrip(b"\0"))
        yield store, file, base + at, None, None, None, None, None, end - at, None, "bad_unit"
        at = end
        if not is_unit(data, at):
            return


def is_unit(data: bytes, at: int) -> bool:
    """Whether a unit stands at *at*."""
    if at + UNIT.size > len(data):
        return False
    size, _, magic = BLANK.unpack_from(data, at)  # the first three fields are as wide
    return bool(size == UNIT.size and not magic & ~MAGIC_BITS)


def is_blank(data: bytes, at: int) -> bool:
    """Whether the rest of the file is blank."""
    if at + BLANK.size > len(data):
        return False
    left, _, magic = BLANK.unpack_from(data, at)
    return bool(magic == BLANK_MAGIC and left == len(data) - at)


def read_timer_wheel(stores: Iterable[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """The slots in use of every store (name, directory), `arrow_schema("timerwheel")`."""
    return batches("timerwheel", (row for name, root in stores for row in wheel_rows(open_store(Path(root), name))))


def wheel_rows(store: StoreFiles) -> Iterator[Row]:
    """The slots of one wheel that ever held a time; none when the store has no wheel."""
    path = store.root / "timerwheel"
    if not path.is_file() or path.stat().st_size < SLOT.size:
        return
    precision_ms = find_precision_ms(store)
    for number, (time, first, last, count, _) in slots_of(path):
        slot_ms = time * precision_ms
        fits = -LONG_LIMIT <= slot_ms < LONG_LIMIT
        yield store.name, number, slot_ms if fits else None, first, last, count, precision_ms


def slots_of(path: Path) -> Iterator[tuple[int, tuple[int, int, int, int, int]]]:
    """(number, fields) of every slot that is not all zeros."""
    zeros = bytes(SLOTS_READ * SLOT.size)
    with path.open("rb") as file:
        number = 0
        while block := file.read(len(zeros)):
            block = block[: len(block) - len(block) % SLOT.size]
            if block != zeros[: len(block)]:
                for place, fields in enumerate(SLOT.iter_unpack(block)):
                    if any(fields):
                        yield number + place, fields
            number += SLOTS_READ


def find_precision_ms(store: StoreFiles) -> int:
    """How many milliseconds a slot stands for.

    The wheel does not say. A slot's time and the time of the unit its chain ends with do; where no slot leads to a
    unit, what a dump's configuration says, or Apache's default.
    """
    log = {file.base: file for file in store.timer_log_files()}
    for _, (time, _, last, count, _) in slots_of(store.root / "timerwheel"):
        base = max((base for base in log if base <= last), default=None)
        if count <= 0 or time <= 0 or base is None or last - base + UNIT.size > log[base].size:
            continue
        with log[base].path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            size, _, magic, written_ms, delay_ms, *_ = UNIT.unpack_from(data, last - base)
        if size == UNIT.size and not magic & ~MAGIC_BITS and (written_ms + delay_ms) % time == 0:
            return max(int(written_ms + delay_ms) // time, 1)
    configured = (store.manifest or {}).get("configuration")
    text = str(configured.get("timerPrecisionMs", "")) if isinstance(configured, dict) else ""
    return int(text) if text.isdecimal() and 0 < int(text) < 1 << 31 else PRECISION_MS


def batches(table: str, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """*rows* in batches of *table*'s schema."""
    schema = arrow_schema(table)
    held: list[Row] = []

    def batch() -> pa.RecordBatch:
        columns = zip(*held, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    for row in rows:
        held.append(row)
        if len(held) >= ROWS_MAX:
            yield batch()
            held = []
    if held:
        yield batch()
