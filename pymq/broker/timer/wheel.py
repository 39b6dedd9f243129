"""The timer wheel: one file of slots, each the end of a chain of units in the timer log (TimerWheel, Slot).

    timerwheel = slot[2 * slots_total]        slot number = time / precision mod (2 * slots_total)

    slot = | 8 time / precision | 8 first position | 8 last position | 4 messages | 4 unused |      big-endian, 32 bytes

A slot of another time than the one asked for is empty. Written with pwrite, so that a full disk is an error and not a
signal, and read through a mapping; holes of the file stay holes. Nothing here is relied on after an unclean stop: the
wheel follows from the log (`pymq.broker.timer.recovery`).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pymq.errors import ConfigError

SLOT = struct.Struct(">qqqii")
FILE_NAME = "timerwheel"
SLOTS_TOTAL = 7 * 24 * 3600  # seven days of seconds, whatever the precision


class Slot(NamedTuple):
    """The chain of one time: positions in the timer log of its first and last unit, and how many messages it is."""

    first: int
    last: int
    messages: int


class TimerWheel:
    """The wheel of one store. One thread writes; any may ask `count`."""

    def __init__(self, path: Path, precision_ms: int, slots_total: int = SLOTS_TOTAL) -> None:
        """Open or make *path*.

        Raises:
            ConfigError: it is of another size.
        """
        self._path = path
        self.precision_ms = precision_ms
        self.slots_total = slots_total
        self._slots = 2 * slots_total
        self._size = self._slots * SLOT.size
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        size = os.fstat(self._file).st_size
        if size not in (0, self._size):
            os.close(self._file)
            raise ConfigError(f"{path} has {size} bytes, a timer wheel has {self._size}; it is not one of this store's")
        os.ftruncate(self._file, self._size)
        self._map = mmap.mmap(self._file, self._size, prot=mmap.PROT_READ)

    @property
    def span_ms(self) -> int:
        """How much time lies between two times that share a slot."""
        return self._slots * self.precision_ms

    def _position(self, time_ms: int) -> int:
        return time_ms // self.precision_ms % self._slots * SLOT.size

    def occupant_ms(self, time_ms: int) -> int:
        """The time whose chain is in the slot of *time_ms*; 0 when there never was one."""
        (unit,) = struct.unpack_from(">q", self._map, self._position(time_ms))
        return int(unit) * self.precision_ms

    def get(self, time_ms: int) -> Slot | None:
        """The chain of *time_ms*."""
        unit, first, last, count, _ = SLOT.unpack_from(self._map, self._position(time_ms))
        return Slot(first, last, count) if unit == time_ms // self.precision_ms and unit else None

    def count(self, time_ms: int) -> int:
        """How many messages are due at *time_ms*."""
        slot = self.get(time_ms)
        return slot.messages if slot is not None else 0

    def put(self, time_ms: int, slot: Slot) -> None:
        """Let *slot* be the chain of *time_ms*, whosever the slot was."""
        data = SLOT.pack(time_ms // self.precision_ms, slot.first, slot.last, slot.messages, 0)
        os.pwrite(self._file, data, self._position(time_ms))

    def clear(self, time_ms: int) -> None:
        """Forget the chain of *time_ms*."""
        if self.get(time_ms) is not None:
            os.pwrite(self._file, bytes(SLOT.size), self._position(time_ms))

    def clear_all(self) -> None:
        """Forget every chain."""
        self._map.close()
        os.ftruncate(self._file, 0)
        os.ftruncate(self._file, self._size)
        self._map = mmap.mmap(self._file, self._size, prot=mmap.PROT_READ)

    def slots(self) -> Iterator[tuple[int, Slot]]:
        """Every (time, chain) there is, in no order; holes of the file are not read."""
        at = 0
        while at < self._size:
            try:
                begin = os.lseek(self._file, at, os.SEEK_DATA)
            except OSError:  # ENXIO: only holes follow
                return
            end = os.lseek(self._file, begin, os.SEEK_HOLE)
            begin, at = begin - begin % SLOT.size, end + -end % SLOT.size
            for unit, first, last, count, _ in SLOT.iter_unpack(self._map[begin : min(at, self._size)]):
                if unit > 0:
                    yield unit * self.precision_ms, Slot(first, last, count)

    def flush(self) -> None:
        """Put it on stable storage."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Let go of the file, as it is."""
        self._map.close()
        os.close(self._file)
