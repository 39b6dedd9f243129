"""`config/timercheck`: how far the timers have come (TimerCheckpoint), and what makes pymq's own recovery exact.

    0   | 8 read time | 8 log flushed | 8 queue offset | 8 master's queue offset | 8 state | 8 time | 8 counter |
    64  | 8 "PYMQTIMR" | 4 precision | 4 clean | 8 log end | 8 pending from | 8 retry floor | 8 slots | 4 CRC-32 |

The first part is Apache's, the second ours; all big-endian.

The file is one page, zeros behind it. Apache's broker leaves our part alone while it changes its own; the CRC covers
both, so that a file Apache wrote last is known by it. All of it lies in one sector, which a disk writes whole.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pymq.broker.data_version import DataVersion

APACHE = struct.Struct(">qqqqqqq")
OURS = struct.Struct(">8siiqqqq")
OURS_AT = 64
CRC = struct.Struct(">I")
MAGIC = b"PYMQTIMR"
FILE_NAME = "timercheck"
FILE_SIZE = 4096


@dataclass(slots=True)
class TimerCheckpoint:
    """What is vouched for.

    Attributes:
        read_ms: slots before this time have been delivered, and what was delivered of them is in the log.
        log_flushed: the timer log is on disk up to here.
        queue_offset: messages of the timer topic before this one are in the timer log, or delivered.
        ours: whether pymq wrote it last; only then the rest means something.
        clean: whether the stop was clean: the wheel is as the log says.
        log_end: the units before this position are exactly those of messages before `queue_offset`; -1
            while the log is being made again from the topic.
        pending_from: no unit before this position is pending.
        retry_floor: the lowest commit-log offset of messages put off because they could not be delivered; -1 for none.
    """

    read_ms: int = 0
    log_flushed: int = 0
    queue_offset: int = 0
    version: DataVersion = field(default_factory=DataVersion)
    ours: bool = False
    precision_ms: int = 0
    clean: bool = False
    log_end: int = 0
    pending_from: int = 0
    retry_floor: int = -1
    slots: int = 0

    def encode_apache(self) -> bytes:
        """The part Apache has: also the body of GET_TIMER_CHECK_POINT."""
        return APACHE.pack(
            self.read_ms, self.log_flushed, self.queue_offset, self.queue_offset,
            self.version.state_version, self.version.timestamp_ms, self.version.counter,
        )  # fmt: skip

    def encode(self) -> bytes:
        """The file's content."""
        data = self.encode_apache().ljust(OURS_AT, b"\0") + OURS.pack(
            MAGIC, self.precision_ms, self.clean, self.log_end, self.pending_from, self.retry_floor, self.slots
        )
        return (data + CRC.pack(zlib.crc32(data))).ljust(FILE_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """What a file says; one that is too short says nothing."""
        if len(data) < APACHE.size:
            return cls()
        read_ms, flushed, offset, master, state, timestamp_ms, counter = APACHE.unpack_from(data)
        found = cls(read_ms, flushed, min(offset, master), DataVersion(state, timestamp_ms, counter))
        end = OURS_AT + OURS.size
        if len(data) < end + CRC.size or CRC.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
            return found
        magic, precision_ms, clean, log_end, pending_from, retry_floor, slots = OURS.unpack_from(data, OURS_AT)
        if magic == MAGIC:
            found.ours = True
            found.precision_ms, found.clean, found.log_end = precision_ms, bool(clean), log_end
            found.pending_from, found.retry_floor, found.slots = pending_from, retry_floor, slots
        return found


class Progress(NamedTuple):
    """A state of the timers that may be written once the commit log is on disk up to `end_offset`."""

    end_offset: int
    read_ms: int
    queue_offset: int
    log_end: int
    retry_floor: int
    slots: int
    oldest: float

    def checkpoint(self, version: DataVersion, precision_ms: int, pending_from: int, *, clean: bool) -> TimerCheckpoint:
        """What is written of it."""
        return TimerCheckpoint(
            read_ms=self.read_ms, log_flushed=self.log_end, queue_offset=self.queue_offset, version=version, ours=True,
            precision_ms=precision_ms, clean=clean, log_end=self.log_end,
            pending_from=min(pending_from, self.log_end), retry_floor=self.retry_floor, slots=self.slots,
        )  # fmt: skip


def load_checkpoint(path: Path) -> TimerCheckpoint | None:
    """What is in the file, None when there is none."""
    try:
        return TimerCheckpoint.decode(path.read_bytes())
    except FileNotFoundError:
        return None


def save_checkpoint(path: Path, checkpoint: TimerCheckpoint) -> None:
    """Write it in place, in one sector, and put it on stable storage.

    Raises:
        OSError: it could not be.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        data = checkpoint.encode()
        if os.fstat(file).st_size == FILE_SIZE:
            data = data[:512]
        os.pwrite(file, data, 0)
        os.fdatasync(file)
    finally:
        os.close(file)
