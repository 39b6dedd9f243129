"""The door to a store: opening it, what belongs to it while it is open, and closing it in order.

Opening raises RLIMIT_NOFILE to the hard limit, says what an acknowledgement will mean, shows recovery's progress,
and starts one thread (`housekeeping`). Closing: readers and loops that wait are woken and raise, housekeeping stops,
offsets are saved, the core flushes and writes its checkpoint.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import resource
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import Self

from pymq._core._store import Store
from pymq.clock import Clock, SystemClock
from pymq.errors import StoreError
from pymq.file_limit import raise_file_limit
from pymq.store.config import MIB, SYNC_FLUSH, SYNC_MASTER, StoreConfig
from pymq.store.housekeeping import CleanResult, DiskProbe, Housekeeper, disk_ratio
from pymq.store.offsets import OffsetStore, held_here
from pymq.store.signals import ArrivalSignal, LoopSignals
from pymq.store.stats import RateSampler, StoreStats, Watermarks

log = logging.getLogger("pymq.store")

CONSUMER_OFFSETS = "config/consumerOffset.json"
OPEN_STORES: weakref.WeakSet[MessageStore] = weakref.WeakSet()


class MessageStore:
    """An open store directory with everything that looks after it. `pymq.embedded` adds the pleasant methods."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: StoreConfig,
        *,
        progress: bool = False,
        clock: Clock | None = None,
        disk_probe: DiskProbe = disk_ratio,
    ) -> None:
        """Open or create the store under *path* and recover it if the last stop was not clean.

        Args:
            path: the store directory; made when it does not exist.
            config: its settings; sizes must be the ones it was written with.
            progress: show recovery's progress as one line on stderr, if that is a terminal.
            clock: the time, for tests.
            disk_probe: how full a disk is, for tests.

        Raises:
            StoreLockedError: another process, or another handle here, has it open.
            StoreMismatchError: its files have other sizes than *config* says.
            UnsupportedStoreError: it uses what pymq does not read.
        """
        self.path = Path(path).absolute()
        self.config = config
        self._clock: Clock = clock or SystemClock()
        self._close_lock = threading.RLock()
        report = ProgressReport(self.path, terminal=progress)
        raise_file_limit(log)
        self._store = Store(self.path, config, report)
        report.finish()
        self._opened_at_ms = self._clock.now_ms()
        self._opened_at_s = self._clock.monotonic_s()
        complete = False
        try:
            self._offsets = OffsetStore(self.path / CONSUMER_OFFSETS, self._clock)
            self._clamp_offsets()
            complete = True
        finally:
            if not complete:
                self._store.close()
        self._arrivals = ArrivalSignal(self._store)
        self._loops = LoopSignals(self._store)
        rates = RateSampler(self._opened_at_s)
        self._housekeeper = Housekeeper(self._store, config, self._clock, self._offsets, rates, disk_probe)
        self._housekeeper.start()
        self._log_open()
        OPEN_STORES.add(self)

    def __del__(self) -> None:
        # Without a housekeeper the open failed, and nothing of it is left.
        if hasattr(self, "_housekeeper") and not self._store.forked and not self._store.closed:
            warnings.warn(
                f"store {self.path} was dropped open; use `with` or close()", ResourceWarning, stacklevel=2, source=self
            )
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # In a child after fork() nothing here is the child's to close, and an exception on its way must not be masked.
        if not self._store.forked:
            self.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._store.closed

    def close(self) -> None:
        """Save, flush, write the checkpoint, stop. Calls in other threads finish or raise StoreClosedError. Idempotent.

        Raises:
            StoreError: the stop was not clean, and the next open will recover; or this is a forked child; or this
                thread is inside another call of this store: a signal handler runs on the thread it interrupts.
        """
        if self._store.forked:
            self._store.close()  # raises, and says why
        self._refuse_reentry("close()")
        with self._close_lock:
            if self._store.closed:
                return
            self._store.shut()
            self._loops.close()
            self._arrivals.close()
            self._housekeeper.stop()
            try:
                self._offsets.save()
            finally:
                self._offsets.close()
                self._store.close()
            log.info("store closed path=%s", self.path)

    def abandon(self) -> None:
        """Stop as a crash of this process would: nothing is flushed or saved. For tests of recovery."""
        self._refuse_reentry("abandon()")
        with self._close_lock:
            self._loops.close()
            self._arrivals.close()
            self._housekeeper.stop()
            self._offsets.close()
            self._store.abandon()

    def _refuse_reentry(self, call: str) -> None:
        """Raise instead of waiting for the call that this thread is in the middle of."""
        if (
            self._store.inside
            or self._arrivals.leads_here()
            or self._offsets.busy_here()
            or self._housekeeper.busy_here()
            or held_here(self._close_lock)
        ):
            raise StoreError(
                f"{self.path}: {call} was called inside another call of this store on the same thread (a signal "
                "handler?); set a flag, or raise, and close after that call has returned",
                errno=errno.EDEADLK,
            )

    def _clamp_offsets(self) -> None:
        """Bring groups back to the ends of their queues, in case the log lost its tail and the offsets did not.

        Behind a replica's gate the queues still end where the replica does, so there nothing can be told yet.
        """
        if self.config.broker_role != SYNC_MASTER:
            self._offsets.clamp({(topic, queue_id): int(end) for topic, queue_id, _, end in self._store.queues()})

    def watermarks(self) -> Watermarks:
        """How far the log has come."""
        return Watermarks(**self._store.watermarks())

    def stats(self) -> StoreStats:
        """Counters since the open, rates, latencies, watermarks and disks."""
        return self._housekeeper.stats(self._opened_at_ms, self._opened_at_s)

    def flush(self) -> None:
        """Put everything sent so far on stable storage, whatever the flush mode. Waits for the disk.

        Raises:
            StoreFailedError: a flush failed; the store acknowledges nothing any more.
        """
        self._store.flush()

    def checkpoint(self) -> None:
        """Flush queues and index too and write the checkpoint: the next recovery starts from here."""
        self._store.checkpoint()

    def delete_expired(self) -> CleanResult:
        """Remove every log file older than `file_reserved_time_hours` now, at whatever hour; queues and index follow.

        Returns what was removed. Unread messages go too; whose they were is logged.
        """
        total = CleanResult()
        while True:
            result = self._housekeeper.clean(manual=True)
            total = CleanResult(total.log_files + result.log_files, total.other_files + result.other_files)
            if not result.log_files:
                return total

    def _log_open(self) -> None:
        counters = self._store.stats()
        log.info(
            "store opened path=%s last_stop=%s recovered_records=%d recovered_bytes=%d recover_ms=%.1f",
            self.path, "clean" if counters["recovered_clean"] else "unclean", counters["recovered_records"],
            counters["recovered_to"] - counters["recovered_from"], counters["recover_us"] / 1000,
        )  # fmt: skip
        # Losing acknowledged messages to a mere kill is a choice that must not go unseen: a warning shows by default.
        lossy = self.config.transient_store_pool_enable and self.config.flush_disk_type != SYNC_FLUSH
        log.log(
            logging.WARNING if lossy else logging.INFO, "durability path=%s %s", self.path, durability_line(self.config)
        )
        log.info("budget path=%s %s", self.path, budget_line(self.config))
        if counters["memory_lock_refused"]:
            log.warning(
                "memory not locked path=%s: mlock was refused; raise RLIMIT_MEMLOCK (ulimit -l) or turn off "
                "lock_log_memory and the transient pool",
                self.path,
            )


@atexit.register
def close_open_stores() -> None:
    """Close what was forgotten while the interpreter is still whole; the next open then needs no recovery."""
    for store in list(OPEN_STORES):
        if not store._store.forked and not store.closed:
            log.warning("store closed at exit path=%s; use `with` or close()", store.path)
            try:
                store.close()
            except (StoreError, OSError) as error:
                log.error("close at exit failed path=%s error=%s", store.path, error)


class ProgressReport:
    """Recovery's progress: to the log at each new phase, and as one line on a terminal when asked for."""

    def __init__(self, path: Path, *, terminal: bool) -> None:
        """Report about *path*."""
        self._path = path
        self._terminal = terminal and sys.stderr.isatty()
        self._phase = ""
        self._shown = False

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Called by the core at most every 100 ms."""
        if phase != self._phase:
            self._phase = phase
            log.info("recovering path=%s phase=%s total_mib=%.1f", self._path, phase, total / MIB)
        if self._terminal:
            percent = 100.0 * done / total if total > 0 else 100.0
            sys.stderr.write(f"\rrecovering {self._path}: {phase} {percent:5.1f}% of {total / MIB:,.0f} MiB\x1b[K")
            sys.stderr.flush()
            self._shown = True

    def finish(self) -> None:
        """Leave the line clean."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def durability_line(config: StoreConfig) -> str:
    """What an acknowledgement means with these settings, and what a stop can take."""
    pool = config.transient_store_pool_enable
    if config.flush_disk_type == SYNC_FLUSH:
        way = (
            " with the transient pool: acknowledged messages are committed and synced"
            if pool
            else (": acknowledged messages are on stable storage")
        )
        text = f"SYNC_FLUSH{way}; neither a kill nor a power failure loses one"
    elif pool:
        text = (
            "ASYNC_FLUSH with the transient pool: a kill of this process may lose what only the pool held "
            f"({config.commit_interval_commit_log_ms} ms of messages), a power failure what was not flushed"
        )
    else:
        text = (
            "ASYNC_FLUSH: acknowledged messages are in the page cache; a kill of this process loses none, a power "
            f"failure may lose the last {config.flush_interval_commit_log_ms} ms"
        )
    if config.broker_role == SYNC_MASTER:
        text += "; SYNC_MASTER: and they are on a replica"
    return text


def budget_line(config: StoreConfig) -> str:
    """Limits this store runs within."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pool = (
        config.transient_store_pool_size * config.mapped_file_size_commit_log
        if config.transient_store_pool_enable
        else 0
    )
    return (
        f"open_files={soft} open_files_hard={hard} log_mapped_max_mib={config.log_map_bytes_max // MIB} "
        f"log_window_mib={config.log_window_bytes // MIB} queue_windows_max={config.queue_map_count_max} "
        f"transient_pool_mib={pool // MIB}"
    )
