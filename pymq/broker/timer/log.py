"""The timer log: files of 52-byte units, one for each timer that entered the wheel (TimerLog).

    unit  = | 4 size 52 | 8 previous position | 4 magic | 8 written at | 4 delay | 8 offset | 4 size | 4 hash | 8 zero |
    blank = | 4 bytes left in this file | 8 zero | 4 CBD43194 |                                        big-endian

Previous position: of the unit before it in its slot's chain, -1 for none. Written at + delay: the slot's time in ms.
Offset and size: of the message in the commit log. Hash: Java's of the real topic. A unit never crosses files; where the
next would leave less than a blank's 16 bytes, a blank ends the file. Files are made at full size, full of zeros.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pymq.durable_file import sync_directory
from pymq.errors import ConfigError

UNIT = struct.Struct(">iqiqiqiiq")
BLANK = struct.Struct(">iqi")
BLANK_MAGIC = 0xCBD43194 - (1 << 32)  # as Java computes 0xBBCCDDEE ^ (1880681586 + 8)
DIRECTORY = "timerlog"
MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE = 1, 1 << 1, 1 << 2
MAGIC_BITS = 0xF  # any of them; everything else is no unit
NONE = -1  # no position
SCAN_UNITS = 8192  # read at once: 416 KiB


class Unit(NamedTuple):
    """One timer."""

    previous: int
    magic: int
    written_ms: int
    delay_ms: int
    offset: int
    size: int
    topic_hash: int

    @property
    def time_ms(self) -> int:
        """The slot it is in."""
        return self.written_ms + self.delay_ms

    def encode(self) -> bytes:
        """As it stands in the file."""
        return UNIT.pack(
            UNIT.size, self.previous, self.magic, self.written_ms, self.delay_ms, self.offset, self.size,
            self.topic_hash, 0,
        )  # fmt: skip


class TimerLog:
    """The log of one store; one thread uses it.

    Attributes:
        end: where the next unit goes, or the file's end.
    """

    def __init__(self, directory: Path, file_size: int) -> None:
        """Open what is there; `end` is its last file's end until somebody who knows says otherwise (`cut`).

        Raises:
            ConfigError: a file of another size than *file_size*.
        """
        self._directory = directory
        self._file_size = file_size
        self._files: dict[int, tuple[int, mmap.mmap]] = {}
        self._dirty: set[int] = set()
        directory.mkdir(parents=True, exist_ok=True)
        bases = sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())
        for base in bases:
            path = self._path(base)
            size = path.stat().st_size
            if size == 0 and base == bases[-1]:
                path.unlink()  # a crash while it was made
            elif size != file_size:
                raise ConfigError(
                    f"{path} has {size} bytes, mappedFileSizeTimerLog is {file_size}; set it to what it was"
                )
            else:
                self._open(base)
        self.begin = min(self._files, default=0)
        self.end = max(self._files, default=-file_size) + file_size

    def _path(self, base: int) -> Path:
        return self._directory / f"{base:020d}"

    def _open(self, base: int) -> None:
        file = os.open(self._path(base), os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(file, self._file_size)
        self._files[base] = file, mmap.mmap(file, self._file_size, prot=mmap.PROT_READ)

    # ---- reading -------------------------------------------------------------------------------------------------

    def read(self, position: int) -> Unit | None:
        """The unit at *position*, None where there is none."""
        base = position - position % self._file_size
        found = self._files.get(base)
        if position < 0 or position >= self.end or found is None or position - base > self._file_size - UNIT.size:
            return None
        size, previous, magic, written_ms, delay_ms, offset, length, topic_hash, _ = UNIT.unpack_from(
            found[1], position - base
        )
        if size != UNIT.size or magic & ~MAGIC_BITS:
            return None
        return Unit(previous, magic, written_ms, delay_ms, offset, length, topic_hash)

    def covers(self, begin: int, end: int) -> bool:
        """Whether the files from *begin* to *end* are there, with a unit right before *end*."""
        if begin >= end:
            return end >= 0
        bases = range(begin - begin % self._file_size, end, self._file_size)
        return all(base in self._files for base in bases) and self.read(end - UNIT.size) is not None

    def scan(self, begin: int) -> Iterator[tuple[int, Unit]]:
        """Every (position, unit) from *begin* on, up to `end` or to the first bytes that are none."""
        for base in sorted(self._files):
            if base + self._file_size <= begin:
                continue
            at = max(begin, base)
            while at < self.end:
                limit = min(self.end, base + self._file_size, at + SCAN_UNITS * UNIT.size)
                limit -= (limit - at) % UNIT.size
                if limit <= at:
                    break
                for row in UNIT.iter_unpack(self._files[base][1][at - base : limit - base]):
                    if row[0] != UNIT.size or row[2] & ~MAGIC_BITS:
                        break
                    yield at, Unit(*row[1:8])
                    at += UNIT.size
                if at < limit:
                    break
            if not self._is_blank(at):
                return

    def _is_blank(self, position: int) -> bool:
        base = position - position % self._file_size
        found = self._files.get(base)
        if found is None or position >= self.end or position - base > self._file_size - BLANK.size:
            return False
        return bool(BLANK.unpack_from(found[1], position - base)[2] == BLANK_MAGIC)

    # ---- writing -------------------------------------------------------------------------------------------------

    def place(self, after: int) -> int:
        """Where the unit goes that follows *after*: there, or at the beginning of the next file."""
        left = self._file_size - after % self._file_size
        return after if left >= UNIT.size + BLANK.size else after + left

    def write(self, units: Sequence[tuple[int, Unit]]) -> None:
        """Write units at the positions `place` gave for them, in order from `end` on; all of them or none.

        Raises:
            OSError: the disk is full, for instance; `end` is as it was.
        """
        if not units:
            return
        runs: dict[int, bytearray] = {}
        at = self.end
        begins: dict[int, int] = {}
        for position, unit in units:
            if position != at and at % self._file_size:
                base = at - at % self._file_size
                left = self._file_size - at % self._file_size
                runs.setdefault(base, bytearray()).extend(BLANK.pack(left, 0, BLANK_MAGIC))
                begins.setdefault(base, at)
            base = position - position % self._file_size
            runs.setdefault(base, bytearray()).extend(unit.encode())
            begins.setdefault(base, position)
            at = position + UNIT.size
        for base, data in runs.items():
            if base not in self._files:
                self._open(base)
                sync_directory(self._directory)
            self._dirty.add(base)
            written = os.pwrite(self._files[base][0], data, begins[base] - base)
            if written != len(data):
                raise OSError(f"{self._path(base)}: {written} of {len(data)} bytes written")
        self.end = at

    def cut(self, end: int) -> None:
        """Let the log end at *end*: what follows is zeros, so that nobody takes it for units."""
        for base in sorted(self._files, reverse=True):
            file, mapping = self._files[base]
            if base >= end and base != self.begin:
                mapping.close()
                os.close(file)
                del self._files[base]
                self._dirty.discard(base)
                self._path(base).unlink()
                continue
            keep = max(end - base, 0)
            if keep < self._file_size:
                os.ftruncate(file, keep)
                os.ftruncate(file, self._file_size)
                self._dirty.add(base)
            break
        self.end = end

    def flush(self) -> None:
        """Put what was written on stable storage."""
        for base in sorted(self._dirty):
            os.fdatasync(self._files[base][0])
        self._dirty.clear()

    def remove_below(self, position: int) -> int:
        """Remove whole files before *position*, never the last one; how many."""
        removed = 0
        for base in sorted(self._files)[:-1]:
            if base + self._file_size > position:
                break
            file, mapping = self._files.pop(base)
            mapping.close()
            os.close(file)
            self._dirty.discard(base)
            self._path(base).unlink()
            removed += 1
        self.begin = min(self._files, default=0)
        return removed

    def close(self) -> None:
        """Let go of the files, as they are."""
        for file, mapping in self._files.values():
            mapping.close()
            os.close(file)
        self._files.clear()
