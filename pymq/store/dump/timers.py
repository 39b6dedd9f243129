"""The timer files of a running broker: the timer log up to what `config/timercheck` vouches for, and its wheel.

The checkpoint was copied before the position was fixed, and is written only when the commit log is on disk as far as
what it says; so it never speaks of messages that the dump has not. Units behind its `log_end` are left out: whoever
opens the dump reads their messages from the timer topic again. The wheel changes all the time, so it is not copied
but made from the timer log, as after a crash.

Between two attempts the broker goes on with its timers and removes files of the timer log that it needs no more. The
dump needs them still, because its checkpoint is of the first attempt: what it has not copied must be there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pymq.broker.timer.checkpoint import FILE_NAME as CHECKPOINT_NAME
from pymq.broker.timer.checkpoint import TimerCheckpoint, load_checkpoint
from pymq.broker.timer.log import DIRECTORY, TimerLog
from pymq.broker.timer.recovery import read_log
from pymq.broker.timer.wheel import FILE_NAME as WHEEL_NAME
from pymq.broker.timer.wheel import SLOTS_TOTAL, Slot, TimerWheel
from pymq.store.dump.copier import FileJob
from pymq.store.dump.errors import DumpError, DumpRefusedError
from pymq.store.dump.manifest import FileEntry
from pymq.store.layout import OFFSET_NAME, named_files

CHECKPOINT_PATH = f"config/{CHECKPOINT_NAME}"


def timer_jobs(store: Path, target: Path, copied: Mapping[str, FileEntry]) -> Iterator[FileJob]:
    """The files of *store*'s timers as the checkpoint that is in *target* already says; *copied* are there by path.

    Raises:
        DumpRefusedError: the timer log does not have what the checkpoint vouches for any more.
    """
    checkpoint = load_checkpoint(target / CHECKPOINT_PATH)
    if checkpoint is None or (checkpoint.ours and checkpoint.log_end < 0):
        return  # nothing is vouched for: whoever opens it begins with the timer topic
    if not checkpoint.ours:  # Apache's, and timers are switched off here: nobody writes them
        yield from (plain_job(store, path) for path in timer_files(store))
        return
    found = {path: path.stat() for path in named_files(store / DIRECTORY, OFFSET_NAME)}
    sizes = {int(entry.path.rpartition("/")[2]): entry.size for entry in copied.values() if is_log_file(entry.path)}
    sizes |= {int(path.name): status.st_size for path, status in found.items()}
    check_covered(store, sizes, checkpoint)
    file_size = max(sizes.values(), default=0)
    for path, status in found.items():
        base = int(path.name)
        if base >= checkpoint.log_end or base + status.st_size <= checkpoint.pending_from:
            continue
        written = min(checkpoint.log_end - base, status.st_size)
        yield FileJob(
            path=path.relative_to(store).as_posix(),
            size=status.st_size,
            written=written,
            mtime_ms=status.st_mtime_ns // 1_000_000,
            cost=written,
            origin=path,
        )
    wheel = store / WHEEL_NAME
    if file_size and wheel.exists():
        yield FileJob(
            path=WHEEL_NAME,
            size=-1,
            written=-1,
            mtime_ms=wheel.stat().st_mtime_ns // 1_000_000,
            cost=wheel.stat().st_blocks * 512,
            make=lambda descriptor: make_wheel(descriptor, target, file_size, checkpoint),
        )


def is_log_file(path: str) -> bool:
    """Whether *path* of a dump is of its timer log."""
    return path.startswith(f"{DIRECTORY}/")


def check_covered(store: Path, sizes: Mapping[int, int], checkpoint: TimerCheckpoint) -> None:
    """Hold the files of the timer log, *sizes* by where they begin, against what *checkpoint* vouches for.

    Raises:
        DumpRefusedError: one is missing.
    """
    reached = checkpoint.pending_from
    for base in sorted(sizes):
        if base <= reached:
            reached = max(reached, base + sizes[base])
    if reached < checkpoint.log_end:
        raise DumpRefusedError(
            f"{store}/{DIRECTORY} has no units at {reached} any more, which are pending in this dump: its broker was "
            "done with them before they were copied; remove the target and begin again"
        )


def timer_files(store: Path) -> list[Path]:
    """The timer log's files, and the wheel."""
    wheel = store / WHEEL_NAME
    return named_files(store / DIRECTORY, OFFSET_NAME) + ([wheel] if wheel.exists() else [])


def plain_job(store: Path, path: Path) -> FileJob:
    """All of a file."""
    status = path.stat()
    mtime_ms = status.st_mtime_ns // 1_000_000
    cost = status.st_blocks * 512
    return FileJob(path.relative_to(store).as_posix(), status.st_size, status.st_size, mtime_ms, cost, path)


def make_wheel(descriptor: int, target: Path, file_size: int, checkpoint: TimerCheckpoint) -> None:
    """Write the wheel that goes with the timer log in *target*.

    Raises:
        DumpError: the log does not reach as far as *checkpoint* says: it was made again, shorter, since.
    """
    timer_log = TimerLog(target / DIRECTORY, file_size)
    try:
        timer_log.end = checkpoint.log_end
        if not timer_log.covers(checkpoint.pending_from, checkpoint.log_end):
            raise DumpError(
                f"the timer log does not reach {checkpoint.log_end}, as {CHECKPOINT_PATH} of this dump says; remove "
                "the target and begin again"
            )
        chains, _, _ = read_log(timer_log, max(checkpoint.pending_from, timer_log.begin), checkpoint.read_ms)
    finally:
        timer_log.close()
    # By its name under /proc: the same open file, whatever it is called.
    wheel = TimerWheel(Path(f"/proc/self/fd/{descriptor}"), checkpoint.precision_ms, SLOTS_TOTAL)
    try:
        for time_ms, chain in chains.items():
            wheel.put(time_ms, Slot(chain.first, chain.last, chain.count))
    finally:
        wheel.close()
    os.fsync(descriptor)
