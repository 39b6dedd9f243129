"""Runtime statistics: counters, rates, latency buckets, watermarks and disks, typed and under RocketMQ's names."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pymq.message import PhysicalOffset
from pymq.store.retention import DiskUse

if TYPE_CHECKING:
    from pymq._core._store import _Counters, _Watermarks

# The upper ends of the core's buckets, as StoreStatsService prints them.
LATENCY_LABELS = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
RATE_WINDOWS_S = (10, 60, 600)
SAMPLE_INTERVAL_S = 1.0


class Watermarks(NamedTuple):
    """How far the log has come, as physical offsets.

    Attributes:
        written: appended. committed: out of the transient pool. flushed: on stable storage.
        replica: on the in-sync replicas; None while nobody reports it.
        visible: readers stop here. dispatched: queues and index hold everything below. min: the first byte still there.
    """

    written: PhysicalOffset
    committed: PhysicalOffset
    flushed: PhysicalOffset
    replica: PhysicalOffset | None
    visible: PhysicalOffset
    dispatched: PhysicalOffset
    min: PhysicalOffset


class Rates(NamedTuple):
    """Per second, over the last 10 s, 60 s and 600 s (or as long as the store has been watched)."""

    put: tuple[float, float, float]
    get_found: tuple[float, float, float]
    get_missed: tuple[float, float, float]


class Sample(NamedTuple):
    """Counters at one moment."""

    at_s: float
    put: int
    get_found: int
    get_missed: int


class RateSampler:
    """Differences of counters over time; at most one sample a second for the longest window."""

    def __init__(self, start_s: float) -> None:
        """Count from zero at *start_s*."""
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque([Sample(start_s, 0, 0, 0)], maxlen=RATE_WINDOWS_S[-1] + 2)

    def sample(self, now_s: float, counters: _Counters) -> None:
        """Remember *counters* as of *now_s*, unless the last sample is younger than a second."""
        with self._lock:
            if now_s - self._samples[-1].at_s >= SAMPLE_INTERVAL_S:
                self._samples.append(take_sample(now_s, counters))

    def rates(self, now_s: float, counters: _Counters) -> Rates:
        """Rates up to now."""
        now = take_sample(now_s, counters)
        with self._lock:
            samples = list(self._samples)
        begins = [next((s for s in samples if s.at_s >= now_s - window), samples[-1]) for window in RATE_WINDOWS_S]

        def per_second(field: int) -> tuple[float, float, float]:
            values = [(now[field] - begin[field]) / max(now.at_s - begin.at_s, 1e-9) for begin in begins]
            ten, sixty, six_hundred = (
                value if now.at_s > begin.at_s else 0.0 for value, begin in zip(values, begins, strict=True)
            )
            return ten, sixty, six_hundred

        return Rates(put=per_second(1), get_found=per_second(2), get_missed=per_second(3))


def take_sample(now_s: float, counters: _Counters) -> Sample:
    """The counters that have rates."""
    return Sample(now_s, counters["put_count"], counters["get_count"], counters["get_missed"])


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store has done since it was opened, and how it stands now.

    Attributes:
        put_count, put_bytes, put_failed: messages and record bytes accepted, and puts refused.
        put_latency: messages by the time their caller waited; labels are `LATENCY_LABELS`.
        get_count, get_bytes, get_missed: messages delivered, and reads that found nothing.
        lock_hold_us_max: longest time the append lock was held; lock_contended: how often it was waited for.
        pool_free: free buffers of the transient pool, None without a pool.
        recovered_clean: whether the last stop was clean; recovered_records and recover_us: what the open cost.
        failed_status: "" or why nothing is acknowledged any more.
        disk: how full the disks are, None where unknown.
        housekeeping_failures: passes of retention or saving that failed; the log says why.
    """

    put_count: int
    put_bytes: int
    put_failed: int
    put_latency: tuple[int, ...]
    put_latency_us_max: int
    get_count: int
    get_bytes: int
    get_missed: int
    lock_hold_us_max: int
    lock_contended: int
    flush_rounds: int
    flush_us_total: int
    flush_us_max: int
    commit_rounds: int
    dispatch_records: int
    dispatch_batches: int
    log_files_created: int
    mapped_log_bytes: int
    mapped_queue_windows: int
    window_evictions: int
    pool_free: int | None
    pool_size: int | None
    recovered_from: int
    recovered_to: int
    recovered_records: int
    recover_us: int
    recovered_clean: bool
    memory_lock_refused: bool
    page_cache_busy: bool
    failed_status: str
    rates: Rates
    watermarks: Watermarks
    disk: DiskUse
    opened_at_ms: int
    running_s: float
    housekeeping_failures: int

    @property
    def dispatch_behind_bytes(self) -> int:
        """Visible log that queues and index do not hold yet."""
        return max(0, self.watermarks.visible - self.watermarks.dispatched)

    @property
    def latency_buckets(self) -> dict[str, int]:
        """Puts by latency, under the labels RocketMQ prints."""
        return dict(zip(LATENCY_LABELS, self.put_latency, strict=True))

    def runtime_info(self) -> dict[str, str]:
        """The same as a flat table of texts, under the names of RocketMQ's runtime information where it has one."""
        marks = self.watermarks
        average = self.put_bytes / self.put_count if self.put_count else 0.0
        return {
            "bootTimestamp": str(self.opened_at_ms),
            "runtime": format_runtime(self.running_s),
            "putMessageEntireTimeMax": str(self.put_latency_us_max // 1000),
            "putMessageTimesTotal": str(self.put_count),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(self.put_bytes),
            "putMessageAverageSize": f"{average:.1f}",
            "putMessageDistributeTime": " ".join(f"{label}:{n}" for label, n in self.latency_buckets.items()),
            "putTps": format_rates(self.rates.put),
            "getFoundTps": format_rates(self.rates.get_found),
            "getMissTps": format_rates(self.rates.get_missed),
            "getTransferredTps": format_rates(self.rates.get_found),
            "commitLogMinOffset": str(marks.min),
            "commitLogMaxOffset": str(marks.visible),
            "commitLogDiskRatio": format_ratio(self.disk.log_ratio),
            "consumeQueueDiskRatio": format_ratio(self.disk.queue_ratio),
            "dispatchBehindBytes": str(self.dispatch_behind_bytes),
            "pageCacheLockTimeMills": str(self.lock_hold_us_max // 1000),
            "remainTransientStoreBufferNumbs": "unknown" if self.pool_free is None else str(self.pool_free),
            "remainHowManyDataToCommit": str(max(0, marks.written - marks.committed)),
            "remainHowManyDataToFlush": str(max(0, marks.written - marks.flushed)),
        }


def make_stats(
    counters: _Counters,
    marks: _Watermarks,
    rates: Rates,
    disk: DiskUse,
    *,
    pool: bool,
    opened_at_ms: int,
    running_s: float,
    housekeeping_failures: int,
) -> StoreStats:
    """Put the pieces together."""
    fields = {**counters}
    if not pool:
        fields["pool_free"] = fields["pool_size"] = None
    return StoreStats(
        **fields,  # type: ignore[arg-type]
        rates=rates,
        watermarks=Watermarks(**marks),
        disk=disk,
        opened_at_ms=opened_at_ms,
        running_s=running_s,
        housekeeping_failures=housekeeping_failures,
    )


def format_rates(values: tuple[float, float, float]) -> str:
    """Three numbers, as RocketMQ prints a TPS."""
    return " ".join(f"{value:.2f}" for value in values)


def format_ratio(ratio: float | None) -> str:
    """A ratio, or "unknown": not 0 and not -1."""
    return "unknown" if ratio is None else f"{ratio:.4f}"


def format_runtime(seconds: float) -> str:
    """[ 0 days, 1 hours, 2 minutes, 3 seconds ]."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"[ {days} days, {hour} hours, {minute} minutes, {second} seconds ]"
