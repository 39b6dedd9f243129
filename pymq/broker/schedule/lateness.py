"""How late messages were delivered: a count, a maximum and buckets, since the broker's start."""

from __future__ import annotations

from bisect import bisect_left

BUCKETS_MS = (10, 20, 50, 100, 1_000, 10_000)


class Lateness:
    """Statistics of deliveries. Messages of one batch count as late as the latest of them."""

    def __init__(self) -> None:
        """Nothing was delivered yet."""
        self.count = 0
        self.max_ms = 0
        self._buckets = [0] * (len(BUCKETS_MS) + 1)

    def add(self, count: int, late_ms: int) -> None:
        """*count* messages were delivered, at most *late_ms* after they were due."""
        self.count += count
        self.max_ms = max(self.max_ms, late_ms)
        self._buckets[bisect_left(BUCKETS_MS, late_ms)] += count

    def table(self, prefix: str) -> dict[str, str]:
        """For GET_BROKER_RUNTIME_INFO: how many were at most so many milliseconds late."""
        table = {f"{prefix}.delivered": str(self.count), f"{prefix}.lateness_ms_max": str(self.max_ms)}
        total = 0
        for bound, count in zip(BUCKETS_MS, self._buckets, strict=False):
            total += count
            table[f"{prefix}.lateness_ms_le.{bound}"] = str(total)
        return table
