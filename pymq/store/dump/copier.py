"""Files of a dump, one after the other: copied or made, compared with what an earlier attempt left, noted, synced."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pymq.store.dump.errors import DumpError
from pymq.store.dump.journal import Journal
from pymq.store.dump.leaves import LeafWriter, digests_of, leaf_digest, read_full
from pymq.store.dump.manifest import LEAF_SIZE, FileEntry, leaf_count

NOTE_LEAVES = 64  # leaves between two notes: what a kill makes us compare with the source again
SYNC_LEAVES = 32  # leaves between two syncs: one large sync at the end would hold up whoever else uses the disk


@dataclass(frozen=True, slots=True)
class FileJob:
    """One file to be in the dump.

    Attributes:
        path: below the dump's directory.
        size: of the file; -1 for as many bytes as are made.
        written: how many of them belong to the dump.
        origin: whose bytes are copied; None for one that is made.
        make: writes it to a descriptor of an empty file.
        stamp: size and mtime (ns) the origin must still have when it is copied; None when it may grow meanwhile.
    """

    path: str
    size: int
    written: int
    mtime_ms: int
    cost: int = 0
    origin: Path | None = None
    make: Callable[[int], None] | None = None
    stamp: tuple[int, int] | None = None


class Report(Protocol):
    """Who is told how far it is."""

    def begin(self, what: str, files: int, total: int) -> None:
        """So much is to be done."""
        ...

    def advance(self, path: str, count: int) -> None:
        """*count* more bytes of *path* are done."""
        ...

    def file_done(self, path: str) -> None:
        """All of *path* is."""
        ...

    def end(self) -> None:
        """Nothing is left to do."""
        ...


class Silent:
    """Tells nobody."""

    def begin(self, what: str, files: int, total: int) -> None:
        """Nothing."""

    def advance(self, path: str, count: int) -> None:
        """Nothing."""

    def file_done(self, path: str) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


class Copier:
    """Brings files into the dump under *directory*."""

    def __init__(
        self,
        directory: Path,
        journal: Journal,
        report: Report,
        *,
        check: Callable[[], None] = lambda: None,
        rate: int = 0,
    ) -> None:
        """*check* is called before each leaf and may raise; *rate* bounds the bytes per second, 0 does not."""
        self._directory = directory
        self._journal = journal
        self._report = report
        self._check = check
        self._rate = rate
        self._begun_s = time.monotonic()
        self._done = 0
        self._writer = LeafWriter()
        self.copied = 0  # bytes that came from the source
        self.reused = 0  # bytes that an earlier attempt had copied

    def run(self, job: FileJob) -> FileEntry:
        """Bring one file in; on return it is on stable storage, its name perhaps not yet.

        Raises:
            FileNotFoundError: its origin is gone.
            DumpError: its origin is shorter than it was, or is being changed.
            OSError: it cannot be read or written.
        """
        target = self._directory / job.path
        target.parent.mkdir(parents=True, exist_ok=True)
        found = self._finished(job, target)
        entry = found or (self._make(job, target) if job.origin is None else self._copy(job, target, job.origin))
        if found is None:
            self._journal.note_file(entry)
        self._report.file_done(job.path)
        return entry

    def matches(self, entry: FileEntry) -> bool:
        """Whether the copy of a finished file is whole."""
        try:
            descriptor = os.open(self._directory / entry.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if os.fstat(descriptor).st_size != entry.size or len(entry.leaves) != leaf_count(entry.written):
                return False
            return all(
                found == known for found, known in zip(digests_of(descriptor, entry.written), entry.leaves, strict=True)
            )
        finally:
            os.close(descriptor)

    def _finished(self, job: FileJob, target: Path) -> FileEntry | None:
        """What an earlier attempt made; a copied file is rather compared leaf by leaf."""
        entry = self._journal.finished.get(job.path)
        if entry is None or (job.origin is not None and (job.size, job.written) != (entry.size, entry.written)):
            return None
        if not target.exists() or not self.matches(entry):
            return None
        self.reused += entry.written
        self._report.advance(job.path, entry.written)
        return entry

    # ---- made ----------------------------------------------------------------------------------------------------

    def _make(self, job: FileJob, target: Path) -> FileEntry:
        assert job.make is not None
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            job.make(descriptor)
            size = os.fstat(descriptor).st_size if job.size < 0 else job.size
            written = size if job.size < 0 else job.written
            os.ftruncate(descriptor, size)
            leaves = list(digests_of(descriptor, written))
            self._settle(descriptor, job.mtime_ms)
        finally:
            os.close(descriptor)
        self.copied += written
        self._report.advance(job.path, written)
        self._journal.note_leaves(job.path, 0, leaves)
        return FileEntry(job.path, size, written, job.mtime_ms, leaves)

    # ---- copied --------------------------------------------------------------------------------------------------

    def _copy(self, job: FileJob, target: Path, origin: Path) -> FileEntry:
        source = os.open(origin, os.O_RDONLY | os.O_CLOEXEC)
        try:
            descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                leaves = self._copy_leaves(job, source, descriptor)
                check_unchanged(job, source)
                self._settle(descriptor, job.mtime_ms)
            finally:
                os.close(descriptor)
        finally:
            os.close(source)
        return FileEntry(job.path, job.size, job.written, job.mtime_ms, leaves)

    def _copy_leaves(self, job: FileJob, source: int, target: int) -> list[str]:
        known = self._journal.known_leaves(job.path)[: leaf_count(job.written)]
        # What lies behind the leaves that are known is not: begin it with zeros.
        os.ftruncate(target, min(len(known) * LEAF_SIZE, job.written))
        os.ftruncate(target, job.size)
        leaves: list[str] = []
        noted = len(known)
        for number in range(leaf_count(job.written)):
            self._check()
            at = number * LEAF_SIZE
            count = min(LEAF_SIZE, job.written - at)
            if number < len(known) and leaf_digest(read_full(target, count, at)) == known[number]:
                leaves.append(known[number])
                self.reused += count
            else:
                leaves.append(self._copy_leaf(job, source, target, at, count, fresh=number >= len(known)))
                noted = min(noted, number)
            self._report.advance(job.path, count)
            if len(leaves) - noted >= NOTE_LEAVES:
                self._journal.note_leaves(job.path, noted, leaves[noted:])
                noted = len(leaves)
            if len(leaves) % SYNC_LEAVES == 0:
                os.fdatasync(target)
                os.posix_fadvise(target, 0, at + count, os.POSIX_FADV_DONTNEED)
        if len(leaves) > noted:
            self._journal.note_leaves(job.path, noted, leaves[noted:])
        return leaves

    def _copy_leaf(self, job: FileJob, source: int, target: int, at: int, count: int, *, fresh: bool) -> str:
        data = read_full(source, count, at)
        if len(data) != count:
            raise DumpError(f"{job.origin}: it has become shorter than {at + count} bytes; begin a new dump")
        self._writer.write(source, target, data, at, fresh=fresh)
        self.copied += count
        self._slow_down(count)
        return leaf_digest(data)

    def _slow_down(self, count: int) -> None:
        self._done += count
        if self._rate:
            ahead_s = self._begun_s + self._done / self._rate - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)

    @staticmethod
    def _settle(descriptor: int, mtime_ms: int) -> None:
        """As old as the original, and on stable storage."""
        os.utime(descriptor, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
        os.fsync(descriptor)


def check_unchanged(job: FileJob, source: int) -> None:
    """Refuse a file of a stopped store that somebody has written to meanwhile.

    Raises:
        DumpError: it is not as it was.
    """
    now = os.fstat(source)
    if job.stamp is not None and job.stamp != (now.st_size, now.st_mtime_ns):
        raise DumpError(f"{job.origin}: it was changed while it was copied; begin a new dump")
