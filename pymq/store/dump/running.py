"""A running broker as the source of a dump; the order of things is what makes it consistent.

1. The broker writes its tables and gives a lease: no file is removed from now on.
2. Files that say how far somebody has come are copied: consumer and delay offsets, timer and store checkpoints.
3. The position is asked for: at least as far as the log was written after step 2, and dispatched up to it. So nothing
   of step 2 is ahead of it.
4. Index, queues, timer log and commit log are copied up to the position. All of them only grow, so it does not
   matter when. Topics and groups are copied now: whoever has a message below the position is in them.
5. What was removed meanwhile (a topic, by an operator) is removed from the dump, and the lease is given back.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pymq.broker.timer.log import DIRECTORY as TIMER_DIRECTORY
from pymq.store.dump.copier import FileJob
from pymq.store.dump.cuts import index_jobs, queue_directories, queue_jobs
from pymq.store.dump.errors import DumpError, DumpRefusedError
from pymq.store.dump.journal import Journal
from pymq.store.dump.lease import Lease
from pymq.store.dump.leaves import write_full
from pymq.store.dump.log_reader import LogReader
from pymq.store.dump.origin import BROKER_SETTINGS, RUNNING, Position
from pymq.store.dump.removed import FILE_NAME as REMOVED_NAME
from pymq.store.dump.removed import read_removed, render_removed
from pymq.store.dump.timers import CHECKPOINT_PATH as TIMER_CHECKPOINT
from pymq.store.dump.timers import timer_jobs
from pymq.store.layout import INDEX_NAME, OFFSET_NAME, named_files

LATE_TABLES = ("config/topics.json", "config/subscriptionGroup.json")  # what has messages must be in them
TEMPORARY = ".tmp"
READ_TRIES, READ_WAIT_S = 50, 0.01  # of a page that may be in the middle of being written
LIST_TRIES = 100  # of a directory; each time retention may have taken a file that was listed

CHECKPOINT_BLOCK_AT, CHECKPOINT_BLOCK = 2048, struct.Struct(">8sI")
CHECKPOINT_MAGIC, CHECKPOINT_BODY_SIZE = b"PYMQCKP1", 100
TIMER_BODY_SIZE, TIMER_CRC_AT = 112, 112


class RunningBroker:
    """The store of a broker that goes on serving."""

    kind = RUNNING

    def __init__(self, address: str, lease_ms: int, *, tls: bool = False) -> None:
        """Ask the broker at *address* to let its store be copied.

        Raises:
            DumpRefusedError: it is not there, refuses, or is on another machine.
        """
        self.name = address
        self._lease = Lease(address, lease_ms, tls=tls)
        answer = self._lease.answer
        self._gone: set[str] = set()  # topics whose queues were not found
        self._log: LogReader | None = None
        complete = False
        try:
            self.store_path = Path(answer["storePath"])
            self._check_here(answer)
            complete = True
        finally:
            if not complete:
                self._lease.close()

    def _check_here(self, answer: dict[str, Any]) -> None:
        try:
            found = self.store_path.stat()
        except OSError as error:
            raise DumpRefusedError(
                f"the broker at {self.name} keeps its store in {self.store_path}, which cannot be read here "
                f"({error.strerror}); run the dump on the broker's machine, as a user who may read it"
            ) from error
        if (found.st_dev, found.st_ino) != (answer["device"], answer["inode"]):
            raise DumpRefusedError(
                f"{self.store_path} is not the store of the broker at {self.name}, which has the same path elsewhere; "
                "run the dump on the broker's machine"
            )

    def close(self) -> None:
        """Let go of the broker, and give the lease back if nobody has. Idempotent."""
        if self._log is not None:
            self._log.close()
            self._log = None
        self._lease.close()

    def check(self) -> None:
        """Whether the lease is in force."""
        self._lease.check()

    def finish(self) -> None:
        """Give the lease back."""
        self._lease.end()

    # ---- where it ends -------------------------------------------------------------------------------------------

    def early_jobs(self) -> Sequence[FileJob]:
        """Tables and checkpoints; those that are written in place are read until they are whole."""
        jobs = [self._content_job("abort"), self._content_job("checkpoint", checkpoint_is_whole)]
        for directory, _, names in os.walk(self.store_path / "config"):
            for name in sorted(names):
                path = (Path(directory) / name).relative_to(self.store_path).as_posix()
                if not name.endswith(TEMPORARY) and path not in LATE_TABLES and path not in BROKER_SETTINGS:
                    jobs.append(
                        self._content_job(path, timer_checkpoint_is_whole if path == TIMER_CHECKPOINT else None)
                    )
        return [job for job in jobs if job is not None]

    def _content_job(self, path: str, is_whole: Callable[[bytes], bool] | None = None) -> FileJob | None:
        """A small file, as it is now; None when there is none."""
        origin = self.store_path / path
        for _ in range(READ_TRIES):
            try:
                data, mtime_ns = origin.read_bytes(), origin.stat().st_mtime_ns
            except FileNotFoundError:
                return None
            if is_whole is None or is_whole(data):
                break
            time.sleep(READ_WAIT_S)
        return bytes_job(path, data, mtime_ns // 1_000_000)

    def fix(self) -> Position:
        """Ask the broker how far its log goes."""
        answer = self._lease.call("position")
        begin, end = int(answer["begin"]), int(answer["end"])
        with LogReader(self.store_path) as log:
            tail_begin, tail_digest = log.tail(end)
        about = self._lease.answer
        return Position(
            begin, end, int(answer["atMs"]), tail_begin, tail_digest, about["broker"], about["configuration"]
        )

    def recheck(self, position: Position) -> None:
        """The log below the position must be the one it was."""
        answer = self._lease.call("renew")
        with LogReader(self.store_path) as log:
            same = log.tail(position.end) == (position.tail_begin, position.tail_digest)
        if int(answer["dispatched"]) < position.end or not same:
            raise DumpRefusedError(
                f"the log of the broker at {self.name} is not the one this dump was begun with: its bytes below "
                f"{position.end} are others; remove the target and begin again"
            )

    # ---- what is in it -------------------------------------------------------------------------------------------

    def jobs(self, position: Position, journal: Journal, target: Path) -> Sequence[FileJob]:
        """Index first: the less it has grown since, the less there is to cut."""
        self._log = LogReader(self.store_path)
        jobs = list_again(self.store_path / "index", lambda: self._index_jobs(position, journal))
        jobs += [job for path in LATE_TABLES if (job := self._content_job(path)) is not None]
        timer_log = self.store_path / TIMER_DIRECTORY
        jobs += list_again(timer_log, lambda: timer_jobs(self.store_path, target, journal.finished))
        jobs += self._queue_jobs(position)
        jobs += self._log_jobs(position, journal)
        return jobs

    def _index_jobs(self, position: Position, journal: Journal) -> Iterator[FileJob]:
        assert self._log is not None
        names = [path.name for path in named_files(self.store_path / "index", INDEX_NAME)]
        for path in journal.finished:
            name = path.removeprefix("index/")
            if name != path and name not in names and names and name > names[0]:
                raise DumpRefusedError(
                    f"{self.store_path}/index was built again since this dump was begun: {name} is gone; remove the "
                    "target and begin again"
                )
        settings = position.configuration
        slots, items = int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"])
        yield from index_jobs(self.store_path, slots, items, self._log, position.end)

    def _queue_jobs(self, position: Position) -> Iterator[FileJob]:
        log = self._log
        assert log is not None
        for directory in queue_directories(self.store_path):
            self.check()

            def jobs(directory: Path = directory) -> Iterator[FileJob]:
                return queue_jobs(self.store_path, directory, log, position.begin, position.end)

            yield from list_again(directory, jobs)
            if not directory.exists():
                self._gone.add(directory.parent.name)

    def _log_jobs(self, position: Position, journal: Journal) -> Iterator[FileJob]:
        assert self._log is not None
        size = self._log.file_size
        for base in range(position.begin, position.end, size) if size else ():
            origin = self._log.files.get(base)
            path = f"commitlog/{base:020d}"
            try:
                mtime_ms = origin.stat().st_mtime_ns // 1_000_000 if origin is not None else None
            except FileNotFoundError:
                mtime_ms = None
            if mtime_ms is None:
                if path in journal.finished:
                    continue
                raise DumpRefusedError(
                    f"{self.store_path}/{path} is gone: retention removed it; remove the target and begin again"
                )
            written = min(size, position.end - base)
            yield FileJob(path, size, written, mtime_ms, cost=written, origin=origin)

    def is_gone(self, job: FileJob) -> bool:
        """A queue of a topic that was removed, or an oldest file that retention took before there was a lease."""
        kind, *parts = job.path.split("/")
        if kind == "consumequeue":
            self._gone.add(parts[0])
            return True
        if kind == "index":
            names = [path.name for path in named_files(self.store_path / "index", INDEX_NAME)]
            return not names or parts[-1] < names[0]
        return False

    # ---- what became of it ---------------------------------------------------------------------------------------

    def last_jobs(self, position: Position, journal: Journal, target: Path) -> Sequence[FileJob]:
        """Topics that were removed meanwhile are removed in the dump."""
        removed = read_removed(self.store_path / REMOVED_NAME)
        late = {topic for topic, offset in removed.items() if offset >= position.end}
        for topic in sorted(self._gone - removed.keys()):
            if not self._has_expired(topic):
                raise DumpError(f"{self.store_path}/consumequeue/{topic} has lost files; begin a new dump")
        for path in list(journal.finished):
            parts = path.split("/")
            if parts[0] == "consumequeue" and parts[1] in late:
                journal.forget(path)
        for topic in late:
            shutil.rmtree(target / "consumequeue" / topic, ignore_errors=True)
        if REMOVED_NAME in journal.finished:  # an earlier attempt's may lack what was removed since
            journal.forget(REMOVED_NAME)
        if not removed:
            return []
        return [bytes_job(REMOVED_NAME, render_removed(removed, position.end), position.at_ms)]

    def _has_expired(self, topic: str) -> bool:
        """Whether a queue of *topic* still has files: then only its oldest have gone, by retention."""
        directory = self.store_path / "consumequeue" / topic
        return directory.is_dir() and any(named_files(queue, OFFSET_NAME) for queue in directory.iterdir())


def list_again(directory: Path, make: Callable[[], Iterator[FileJob]]) -> list[FileJob]:
    """What *make* finds in *directory*; all of it anew when a file goes while it looks.

    Before there was a lease retention may have begun to take the oldest files, and on a full disk it does so later.

    Raises:
        DumpError: files go all the time.
    """
    for _ in range(LIST_TRIES):
        try:
            return list(make())
        except FileNotFoundError:
            continue
    raise DumpError(f"{directory}: files are removed faster than they are listed; repeat the command to continue")


def bytes_job(path: str, data: bytes, mtime_ms: int) -> FileJob:
    """A file with this content."""
    return FileJob(path, -1, -1, mtime_ms, cost=len(data), make=lambda target: write_full(target, data, 0))


def checkpoint_is_whole(data: bytes) -> bool:
    """Whether pymq's block in a store checkpoint is as it was written; one without a block is Apache's."""
    if len(data) < CHECKPOINT_BLOCK_AT + CHECKPOINT_BLOCK.size + CHECKPOINT_BODY_SIZE:
        return True
    magic, crc = CHECKPOINT_BLOCK.unpack_from(data, CHECKPOINT_BLOCK_AT)
    body_at = CHECKPOINT_BLOCK_AT + CHECKPOINT_BLOCK.size
    body = data[body_at : body_at + CHECKPOINT_BODY_SIZE]
    return bool(magic != CHECKPOINT_MAGIC or crc == zlib.crc32(body))


def timer_checkpoint_is_whole(data: bytes) -> bool:
    """Whether the CRC of a timer checkpoint is right; the broker writes no other."""
    return len(data) >= TIMER_CRC_AT + 4 and zlib.crc32(data[:TIMER_BODY_SIZE]) == int.from_bytes(
        data[TIMER_CRC_AT : TIMER_CRC_AT + 4], "big"
    )
