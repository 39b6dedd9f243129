"""The broker's store: the native store with the thread that looks after it, without the embedded library's offsets.

Consumer offsets belong to the native tables of the serving here; see `pymq.broker.offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from pymq._core._store import Store
from pymq.clock import Clock
from pymq.file_limit import raise_file_limit
from pymq.message import QueueOffset
from pymq.store.config import StoreConfig
from pymq.store.housekeeping import CleanResult, DiskProbe, Hold, Housekeeper, disk_ratio
from pymq.store.message_store import ProgressReport, durability_line
from pymq.store.retention import RetentionGuard
from pymq.store.stats import RateSampler, StoreStats

log = logging.getLogger("pymq.broker")

SavedOffsets = Callable[[], dict[tuple[str, str], dict[int, int]]]


class OffsetView:
    """What retention wants to know of offsets: whose unread messages go. Saving them is the control loop's."""

    def __init__(self, saved: SavedOffsets) -> None:
        """Look at *saved*, which is replaced and never changed, so any thread may."""
        self._saved = saved

    def entries(self) -> Iterator[tuple[str, str, int, QueueOffset]]:
        """(group, topic, queue_id, offset) as of the last save."""
        for (topic, group), queues in self._saved().items():
            for queue_id, offset in queues.items():
                yield group, topic, queue_id, QueueOffset(offset)

    def save(self) -> bool:
        """Nothing to do here."""
        return False


class BrokerStore:
    """An open store directory. `core` is what requests work on."""

    def __init__(
        self,
        path: Path,
        config: StoreConfig,
        clock: Clock,
        saved_offsets: SavedOffsets,
        *,
        progress: bool = False,
        disk_probe: DiskProbe = disk_ratio,
        guard: RetentionGuard | None = None,
        hold: Hold | None = None,
    ) -> None:
        """Open or create the store under *path*, recovering it if the last stop was not clean. Waits for the disk.

        Raises:
            StoreLockedError, StoreMismatchError, UnsupportedStoreError, StoreIOError: it cannot be opened so.
        """
        self.path = path
        self.config = config
        report = ProgressReport(path, terminal=progress)
        raise_file_limit(log)
        self.core = Store(path, config, report)
        report.finish()
        self.opened_at_ms = clock.now_ms()
        self._opened_at_s = clock.monotonic_s()
        rates = RateSampler(self._opened_at_s)
        self._housekeeper = Housekeeper(
            self.core, config, clock, OffsetView(saved_offsets), rates, disk_probe, guard, hold
        )
        self._housekeeper.start()
        log.info("store opened path=%s %s", path, durability_line(config))

    def close(self) -> None:
        """Flush, write the checkpoint, remove `abort`. Waits for the disk. Idempotent."""
        if not self.core.closed:
            self.core.shut()
            self._housekeeper.stop()
            self.core.close()
            log.info("store closed path=%s", self.path)

    def configure(self, config: StoreConfig) -> None:
        """Retain by *config* from now on; everything else of it must be as it was."""
        self.config = config
        self._housekeeper.configure(config)

    def stats(self) -> StoreStats:
        """Counters since the open, rates, latencies, watermarks and disks. Asks the disk."""
        return self._housekeeper.stats(self.opened_at_ms, self._opened_at_s)

    def delete_expired(self) -> CleanResult:
        """Remove expired log files now, at whatever hour. Waits for the disk."""
        total = CleanResult()
        while True:
            result = self._housekeeper.clean(manual=True)
            total = CleanResult(total.log_files + result.log_files, total.other_files + result.other_files)
            if not result.log_files:
                return total
