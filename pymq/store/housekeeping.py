"""The thread that keeps an open store in order: retention, saved offsets, samples for the rates.

One thread per open store, owned by it: started when it is opened, stopped and joined before it is closed. It holds
the parts it works on, never the object the user holds, so that a store dropped open can still be noticed. A pass that
fails is logged and counted, and the next one runs; what it could not do is visible in the statistics.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from pymq._core._store import Store
from pymq.clock import Clock
from pymq.errors import StoreClosedError, StoreError
from pymq.message import QueueOffset
from pymq.store.config import StoreConfig
from pymq.store.offsets import held_here
from pymq.store.retention import DiskUse, LogFile, RetentionGuard, decide, is_refusing, is_short, lost_by
from pymq.store.stats import RateSampler, StoreStats, make_stats

DiskProbe = Callable[[Path], float]
"""How full the disk under a directory is, 0 to 1; raises OSError when that cannot be told."""

Hold = Callable[[], bool]
"""Whether somebody copies the files just now, so that none may go without need. Asked from the housekeeping thread."""

log = logging.getLogger("pymq.store")


def disk_ratio(path: Path) -> float:
    """How full the disk under *path* is, counting what only root may still use as used."""
    usage = psutil.disk_usage(str(path))
    reachable = usage.used + usage.free
    return usage.used / reachable if reachable else 1.0


def existing(path: Path) -> Path:
    """*path*, or the nearest directory above it that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What one retention pass removed."""

    log_files: tuple[LogFile, ...] = ()
    other_files: int = 0


class SavedOffsets(Protocol):
    """The consumer offsets of a store, wherever they are kept."""

    def entries(self) -> Iterator[tuple[str, str, int, QueueOffset]]:
        """(group, topic, queue_id, offset) of everything committed."""
        ...

    def save(self) -> bool:
        """Write what is not yet on disk; whether there was anything."""
        ...


class Housekeeper:
    """Retention and periodic saving for one core store. `_pass_lock` keeps passes apart."""

    def __init__(
        self,
        core: Store,
        config: StoreConfig,
        clock: Clock,
        offsets: SavedOffsets,
        rates: RateSampler,
        probe: DiskProbe = disk_ratio,
        guard: RetentionGuard | None = None,
        hold: Hold | None = None,
    ) -> None:
        """Work on *core*; *probe* and *clock* are asked instead of the machine, *guard* who needs old messages."""
        self._core = core
        self._config = config
        self._clock = clock
        self._offsets = offsets
        self._rates = rates
        self._probe = probe
        self._guard = guard
        self._hold = hold
        self._root = Path(core.path)
        self._pass_lock = threading.RLock()  # a signal handler runs on its owner's thread; see busy_here
        self._stop = threading.Event()
        self._refusing = False
        self._probe_failed: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="pymq-housekeeping", daemon=True)
        self.failures = 0

    def start(self) -> None:
        """Begin to look after the store."""
        self._thread.start()

    def configure(self, config: StoreConfig) -> None:
        """Decide by *config* from the next pass on; only what retention looks at may differ from before."""
        self._config = config

    def stop(self) -> None:
        """Stop and wait for the pass in progress. Idempotent."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def stats(self, opened_at_ms: int, opened_at_s: float) -> StoreStats:
        """Everything there is to say of the store now. Asks the disk."""
        now_s = self._clock.monotonic_s()
        counters = self._core.stats()
        self._rates.sample(now_s, counters)
        return make_stats(
            counters,
            self._core.watermarks(),
            self._rates.rates(now_s, counters),
            self.disk_use(),
            pool=self._config.transient_store_pool_enable,
            opened_at_ms=opened_at_ms,
            running_s=now_s - opened_at_s,
            housekeeping_failures=self.failures,
        )

    def busy_here(self) -> bool:
        """Whether the calling thread is in the middle of a pass already."""
        return held_here(self._pass_lock)

    def _run(self) -> None:
        clean_s = self._config.clean_resource_interval_ms / 1000
        save_s = self._config.flush_consumer_offset_interval_ms / 1000
        next_clean = self._clock.monotonic_s() + clean_s
        next_save = self._clock.monotonic_s() + save_s
        while not self._stop.wait(min(clean_s, save_s, 1.0)):
            now = self._clock.monotonic_s()
            if now >= next_save:
                next_save = now + save_s
                self._attempt("saving offsets", self._offsets.save)
            if now >= next_clean:
                next_clean = now + clean_s
                self._attempt("retention", self.clean)
            self._attempt("sampling", self._sample)

    def _attempt(self, what: str, work: Callable[[], object]) -> None:
        """Run *work*; the store and the system may refuse, and the next pass tries again."""
        try:
            work()
        except StoreClosedError:
            self._stop.set()
        except (StoreError, OSError) as error:
            self.failures += 1
            log.error("housekeeping failed store=%s task=%s error=%s", self._root, what, error)

    def _sample(self) -> None:
        self._rates.sample(self._clock.monotonic_s(), self._core.stats())

    def disk_use(self) -> DiskUse:
        """How full the disks are; says once per directory when it cannot be told."""
        ratios: list[float | None] = []
        for name in ("commitlog", "consumequeue"):
            try:
                ratios.append(self._probe(existing(self._root / name)))
                self._probe_failed.discard(name)
            except OSError as error:
                if name not in self._probe_failed:
                    log.warning("disk use unknown store=%s directory=%s error=%s", self._root, name, error)
                self._probe_failed.add(name)
                ratios.append(None)
        return DiskUse(*ratios)

    def clean(self, *, manual: bool = False) -> CleanResult:
        """One retention pass: decide, accept or refuse sends, remove, let queues and index follow."""
        with self._pass_lock:
            use = self.disk_use()
            files = [LogFile(*row) for row in self._core.log_files()]
            plan = decide(self._clock.local_time(), files, use, self._config, manual=manual)
            self._set_writable(plan.writable, use)
            if not plan.expired and not plan.forced:
                return CleanResult()
            before = self._queue_minimums()
            removed: list[LogFile] = []
            for number, file in enumerate((*plan.expired, *plan.forced)):
                if number and self._stop.wait(self._config.delete_commit_log_files_interval_ms / 1000):
                    break
                needed = self._needed(file)
                copied = self._hold is not None and self._hold()
                if file in plan.forced or needed or copied:
                    use = self.disk_use()  # what has gone so far may be enough
                held = copied and not is_refusing(use, self._config)
                if (file in plan.forced or needed or held) and not is_short(use, self._config):
                    if needed or held:
                        why = "pending deliveries" if needed else "a dump is being taken"
                        log.info("log file kept store=%s file=%s because=%s", self._root, file.name, why)
                    break
                if self._core.remove_oldest() != file.base_offset:
                    # Not flushed or not dispatched yet, which a later pass will find done.
                    log.info("log file kept store=%s file=%s because=in use", self._root, file.name)
                    break
                removed.append(file)
                log.info("log file removed store=%s file=%s reason=%r", self._root, file.name, plan.reason)
                if copied:
                    log.warning("log file removed under a dump store=%s file=%s because=disk", self._root, file.name)
                if needed:
                    log.error(
                        "pending deliveries lost store=%s file=%s messages=%d because=%r",
                        self._root, file.name, needed, plan.reason,
                    )  # fmt: skip
            other = self._core.clean_queues() if removed else 0
            self._report_losses(before, removed)
            return CleanResult(tuple(removed), other)

    def _needed(self, file: LogFile) -> int:
        """How many messages of *file* somebody is still waiting for."""
        if self._guard is None:
            return 0
        end = int(file.base_offset) + file.size
        needed_from = self._guard.needed_from()
        if needed_from is None or needed_from >= end:
            return 0
        return max(self._guard.count_below(end), 1)

    def _set_writable(self, writable: bool, use: DiskUse) -> None:
        """Refuse or accept sends, only when this thread's own mind changes: a role may have refused them as well."""
        if writable == (not self._refusing):
            return
        self._refusing = not writable
        self._core.set_writable(writable)
        fullest = max(use.known(), default=0.0)
        level = self._config.disk_space_warning_level_ratio
        if writable:
            log.warning("sends accepted again store=%s disk=%.2f warning_level=%.2f", self._root, fullest, level)
        else:
            log.error("sends refused store=%s disk=%.2f warning_level=%.2f", self._root, fullest, level)

    def _queue_minimums(self) -> dict[tuple[str, int], int]:
        return {(topic, queue_id): low for topic, queue_id, low, _ in self._core.queues(settle=False)}

    def _report_losses(self, before: dict[tuple[str, int], int], removed: list[LogFile]) -> None:
        """Say whose unread messages went; retention does not wait for slow readers."""
        if not removed:
            return
        for lag in lost_by(list(self._offsets.entries()), before, self._queue_minimums()):
            log.warning(
                "unread messages removed store=%s group=%s topic=%s queue=%d messages=%d",
                self._root, lag.group, lag.topic, lag.queue_id, lag.messages,
            )  # fmt: skip
