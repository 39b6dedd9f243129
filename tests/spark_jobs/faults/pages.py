"""The store's pages with checksums, and the timers' files: read, changed and written back with the sums made right.

    pages.edit_checkpoint(store.root, physic_msg_timestamp=...)          the six longs of `checkpoint`, or pymq's own
    pages.edit_timer_check(store.root, read_ms=...)                      `config/timercheck`
    pages.timer_units(store.root), pages.put_timer_unit(...)             `timerlog/`
    pages.wheel_slots(store.root), pages.put_wheel_slot(...)             `timerwheel`

pymq knows by its sums whether it wrote a page last. A fault that is to be taken for pymq's word keeps them right; one
about the sum itself flips a bit with `patch.flip`.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pymq.broker.timer.checkpoint import CRC, OURS, OURS_AT, TimerCheckpoint
from pymq.store.layout import OFFSET_NAME, named_files
from tests.spark_jobs.faults.patch import NothingFitsError, put

CHECKPOINT_LONGS = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    "index_msg_timestamp",
    "master_flushed_offset",
    "confirm_phy_offset",
    "logics_physical_offset",
)
OWN_LONGS = ("safe_offset", "flushed_offset", "clean_end", "last_record", "unit_total", "index_end")
LONGS = struct.Struct(">6q")
OWN_AT = 2048  # "PYMQCKP1", CRC-32 of the 100 bytes behind it, version, the six, a copy of the first six longs
OWN_MAGIC = b"PYMQCKP1"
OWN_CRC_AT = OWN_AT + 8
OWN_BODY_AT = OWN_AT + 12
OWN_BODY_SIZE = 100
OWN_LONGS_AT = OWN_BODY_AT + 4
OWN_COPY_AT = OWN_LONGS_AT + LONGS.size

TIMER_UNIT = struct.Struct(">iqiqiqiiq")
TIMER_BLANK_MAGIC = -875286124  # cbd43194
WHEEL_SLOT = struct.Struct(">qqqii")


def read_checkpoint(root: Path) -> dict[str, int]:
    """The six longs, and pymq's own six where it has a block."""
    if not (root / "checkpoint").exists():
        raise NothingFitsError(f"{root}: no checkpoint yet")
    page = (root / "checkpoint").read_bytes()
    found = dict(zip(CHECKPOINT_LONGS, LONGS.unpack_from(page), strict=True))
    if page[OWN_AT : OWN_AT + 8] == OWN_MAGIC:
        found |= dict(zip(OWN_LONGS, LONGS.unpack_from(page, OWN_LONGS_AT), strict=True))
    return found


def edit_checkpoint(root: Path, **changes: int) -> None:
    """Other values on the page; pymq's block, where there is one, stays valid.

    Raises:
        NothingFitsError: one of pymq's own values, and the page has no block of it.
    """
    values = read_checkpoint(root)
    page = bytearray((root / "checkpoint").read_bytes())
    if missing := changes.keys() - values.keys():
        raise NothingFitsError(f"{root}: the checkpoint has no {', '.join(sorted(missing))}")
    values |= changes
    LONGS.pack_into(page, 0, *(values[name] for name in CHECKPOINT_LONGS))
    if "safe_offset" in values:
        LONGS.pack_into(page, OWN_LONGS_AT, *(values[name] for name in OWN_LONGS))
        page[OWN_COPY_AT : OWN_COPY_AT + LONGS.size] = page[: LONGS.size]
        body = page[OWN_BODY_AT : OWN_BODY_AT + OWN_BODY_SIZE]
        page[OWN_CRC_AT : OWN_CRC_AT + 4] = zlib.crc32(body).to_bytes(4, "big")
    put(root / "checkpoint", 0, bytes(page))


def read_timer_check(root: Path) -> TimerCheckpoint:
    """`config/timercheck`."""
    path = root / "config/timercheck"
    if not path.exists():
        raise NothingFitsError(f"{path}: not there")
    return TimerCheckpoint.decode(path.read_bytes())


def edit_timer_check(root: Path, **changes: object) -> None:
    """Other values of it; where pymq wrote it last, it still did."""
    found = read_timer_check(root)
    changed = replace(found, **changes)  # type: ignore[arg-type]
    data = changed.encode() if found.ours else changed.encode_apache()
    put(root / "config/timercheck", 0, data[: OURS_AT + OURS.size + CRC.size])


class TimerUnit(NamedTuple):
    """A unit of the timer log."""

    size: int
    previous: int
    magic: int
    written_ms: int
    delay_ms: int
    physical_offset: int
    record_size: int
    topic_hash: int
    reserved: int


def timer_units(root: Path) -> dict[int, TimerUnit]:
    """Position in the timer log to unit, in order, up to the first that was never written."""
    found = {}
    for path in named_files(root / "timerlog", OFFSET_NAME):
        for at, unit in units_of(path):
            found[int(path.name) + at] = unit
    return found


def units_of(path: Path) -> list[tuple[int, TimerUnit]]:
    """The units of one file: read only as far as it was written, for it is 100 MB of zeros."""
    found = []
    with path.open("rb") as stream:
        at, size = 0, os.fstat(stream.fileno()).st_size
        while at + TIMER_UNIT.size <= size:
            unit = TimerUnit(*TIMER_UNIT.unpack(stream.read(TIMER_UNIT.size)))
            if unit.size != TIMER_UNIT.size or unit.magic == TIMER_BLANK_MAGIC:
                break
            found.append((at, unit))
            at += TIMER_UNIT.size
    return found


def put_timer_unit(root: Path, position: int, unit: TimerUnit) -> None:
    """Write one unit."""
    path = max(file for file in named_files(root / "timerlog", OFFSET_NAME) if int(file.name) <= position)
    put(path, position - int(path.name), TIMER_UNIT.pack(*unit))


class WheelSlot(NamedTuple):
    """A slot of the wheel; its time is in units of the precision."""

    time: int
    first_position: int
    last_position: int
    count: int
    zero: int


def wheel_slots(root: Path) -> dict[int, WheelSlot]:
    """Slot number to slot, of those that were ever used; holes are not read."""
    path = root / "timerwheel"
    if not path.exists():
        raise NothingFitsError(f"{path}: not there")
    found = {}
    with path.open("rb") as stream:
        size, at = os.fstat(stream.fileno()).st_size, 0
        while at < size:
            try:
                begin = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole from here on
                break
            end = os.lseek(stream.fileno(), begin, os.SEEK_HOLE)
            begin -= begin % WHEEL_SLOT.size
            data = os.pread(stream.fileno(), end - begin, begin)
            data = data[: len(data) - len(data) % WHEEL_SLOT.size]
            for index, slot in enumerate(WHEEL_SLOT.iter_unpack(data)):
                if any(slot):
                    found[begin // WHEEL_SLOT.size + index] = WheelSlot(*slot)
            at = end
    return found


def put_wheel_slot(root: Path, number: int, slot: WheelSlot) -> None:
    """Write one slot."""
    put(root / "timerwheel", number * WHEEL_SLOT.size, WHEEL_SLOT.pack(*slot))
