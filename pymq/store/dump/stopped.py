"""A store that nobody has open as the source of a dump: every file as it is, damage included.

While it is copied the store's own lock is held, so that neither pymq nor Apache's broker opens it. The log's end, which
nothing in the files says, is found by looking: behind the last record, or behind the last byte that is not zero.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from pymq.clock import SystemClock
from pymq.errors import StoreMismatchError
from pymq.store.dump.copier import FileJob
from pymq.store.dump.errors import DumpRefusedError
from pymq.store.dump.journal import Journal
from pymq.store.dump.log_reader import LogReader, stopped_log_end
from pymq.store.dump.manifest import MANIFEST, PARTIAL
from pymq.store.dump.origin import BROKER_SETTINGS, STOPPED, Position
from pymq.store.layout import OFFSET_NAME, find_sizes, regular_files

LOCK_NAME = "lock"
LOCK_TEXT = b"lock"
LEFT_OUT = BROKER_SETTINGS | {LOCK_NAME, MANIFEST, PARTIAL}  # they are not the store's
FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, process


class StoppedStore:
    """A store directory under its lock."""

    kind = STOPPED

    def __init__(self, directory: Path) -> None:
        """Take the lock of the store in *directory*.

        Raises:
            DumpRefusedError: it is no store, or is open.
        """
        self.store_path = directory.resolve()
        self.name = str(self.store_path)
        if (self.store_path / PARTIAL).exists() and not (self.store_path / MANIFEST).exists():
            raise DumpRefusedError(f"{directory}: a dump that is not finished; repeat the command that began it")
        if not (self.store_path / "commitlog").is_dir() and not (self.store_path / "checkpoint").is_file():
            raise DumpRefusedError(f"{directory}: no store: it has no commitlog/; give the directory that has one")
        self._lock = take_lock(self.store_path)

    def close(self) -> None:
        """Give the lock back. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def check(self) -> None:
        """Nothing can go away under the lock."""

    def finish(self) -> None:
        """Nothing to give back but the lock."""

    def early_jobs(self) -> Sequence[FileJob]:
        """Nothing moves: everything can wait."""
        return []

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Every regular file, by its path below the store.

        Raises:
            DumpRefusedError: a name that cannot be written into a manifest.
        """
        for path, status in regular_files(self.store_path):
            below_store = path.relative_to(self.store_path).as_posix()
            if below_store in LEFT_OUT:
                continue
            try:
                below_store.encode()
            except UnicodeEncodeError:
                raise DumpRefusedError(
                    f"{self.store_path}: {os.fsencode(below_store)!r} is no file of a store, its name is no UTF-8; "
                    "move it elsewhere"
                ) from None
            yield below_store, status

    def fix(self) -> Position:
        """The end of the log as it is found, and how every file looks."""
        begin, end = stopped_log_end(self.store_path)
        with LogReader(self.store_path) as log:
            tail_begin, tail_digest = log.tail(end)
        stamps = [[path, status.st_size, status.st_mtime_ns] for path, status in self._files()]
        now_ms = SystemClock().now_ms()
        return Position(begin, end, now_ms, tail_begin, tail_digest, None, found_settings(self.store_path), stamps)

    def recheck(self, position: Position) -> None:
        """Every file must look as it did."""
        now = {path: [path, status.st_size, status.st_mtime_ns] for path, status in self._files()}
        before = {stamp[0]: stamp for stamp in position.stamps}
        changed = sorted(path for path in {*now, *before} if now.get(path) != before.get(path))
        if changed:
            raise DumpRefusedError(
                f"{self.store_path} has changed since this dump was begun ({changed[0]} and {len(changed) - 1} more); "
                "remove the target and begin again"
            )

    def jobs(self, position: Position, journal: Journal, target: Path) -> Sequence[FileJob]:
        """Every file; of the log what lies below its end."""
        jobs = []
        for path, status in self._files():
            written = status.st_size
            directory, _, name = path.rpartition("/")
            if directory == "commitlog" and OFFSET_NAME.fullmatch(name):
                written = min(max(position.end - int(name), 0), status.st_size)
            jobs.append(
                FileJob(
                    path=path,
                    size=status.st_size,
                    written=written,
                    mtime_ms=status.st_mtime_ns // 1_000_000,
                    cost=min(written, status.st_blocks * 512),
                    origin=self.store_path / path,
                    stamp=(status.st_size, status.st_mtime_ns),
                )
            )
        return jobs

    def is_gone(self, job: FileJob) -> bool:
        """Nothing may go away under the lock."""
        return False

    def last_jobs(self, position: Position, journal: Journal, target: Path) -> Sequence[FileJob]:
        """Nothing became known meanwhile."""
        return []


def take_lock(store: Path) -> int:
    """Hold the lock that an open store holds; the descriptor that does.

    Raises:
        DumpRefusedError: the store is open, or its lock cannot be had.
    """
    path = store / LOCK_NAME
    way_out = "if a pymq broker runs on it, give its address (host:port) instead; otherwise stop it first"
    if is_open_here(path):
        raise DumpRefusedError(f"{store} is open in this process; close it first")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.EROFS:
            return -1  # nobody can open it for writing either
        raise DumpRefusedError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError:
        owner = lock_owner(descriptor)
        os.close(descriptor)
        who = f" (process {owner})" if owner else ""
        raise DumpRefusedError(f"{store} is open{who}; {way_out}") from None
    os.pwrite(descriptor, LOCK_TEXT, 0)
    return descriptor


def is_open_here(path: Path) -> bool:
    """Whether this process has the lock file open: to close another descriptor of it would drop its lock."""
    try:
        wanted = path.stat()
    except OSError:
        return False
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if os.path.samestat(entry.stat(), wanted):
                return True
        except OSError:
            continue
    return False


def lock_owner(descriptor: int) -> int:
    """The process that holds the lock; 0 when that cannot be told."""
    asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, process = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return int(process) if kind != fcntl.F_UNLCK else 0


def found_settings(store: Path) -> dict[str, str]:
    """The sizes a store was made with, by RocketMQ's names, as far as its files say them."""
    try:
        sizes = find_sizes(store)
    except StoreMismatchError:
        sizes = find_sizes(store, index=False)
    slots, items = sizes.index or (None, None)
    settings = {
        "mappedFileSizeCommitLog": sizes.commit_log,
        "mappedFileSizeConsumeQueue": sizes.consume_queue,
        "maxHashSlotNum": slots,
        "maxIndexNum": items,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}
