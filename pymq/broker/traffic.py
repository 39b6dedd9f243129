"""Rates of topics and groups: samples of the native counters, over a minute, an hour and a day.

As RocketMQ's StatsItem does it: every 10 s for the minute, every 10 min for the hour, every hour for the day, and the
rate is what came between the oldest and the newest sample. Rows that no longer move are as cheap as those that do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pymq.clock import Clock

SAMPLE_S = 10.0
SAMPLES_PER_HOUR_STEP = 60  # ten minutes
SAMPLES_PER_DAY_STEP = 360  # an hour
Key = tuple[str, str]  # topic, group; the group is "" for what was put


class Counted(NamedTuple):
    """Messages and bytes since the start."""

    messages: int
    bytes: int


class Snapshot(NamedTuple):
    """Every counter at one moment."""

    at_s: float
    rows: dict[Key, Counted]


class Rate(NamedTuple):
    """What came within a window: RocketMQ's BrokerStatsItem."""

    sum: int
    tps: float
    average: float  # per sample of the window

    def to_json(self) -> dict[str, float | int]:
        """As VIEW_BROKER_STATS_DATA answers it."""
        return {"avgpt": self.average, "sum": self.sum, "tps": self.tps}


class Traffic:
    """Samples of one broker's traffic."""

    def __init__(self, clock: Clock) -> None:
        """Nothing has happened yet."""
        self._clock = clock
        start = Snapshot(clock.monotonic_s(), {})
        self._minute: deque[Snapshot] = deque([start], maxlen=7)
        self._hour: deque[Snapshot] = deque([start], maxlen=7)
        self._day: deque[Snapshot] = deque([start], maxlen=25)
        self._count = 0

    def sample(self, rows: Iterable[tuple[str, str, int, int]]) -> None:
        """Remember (topic, group, messages, bytes) as of now; call every SAMPLE_S."""
        snapshot = Snapshot(
            self._clock.monotonic_s(),
            {(topic, group): Counted(messages, size) for topic, group, messages, size in rows},
        )
        self._count += 1
        self._minute.append(snapshot)
        if self._count % SAMPLES_PER_HOUR_STEP == 0:
            self._hour.append(snapshot)
        if self._count % SAMPLES_PER_DAY_STEP == 0:
            self._day.append(snapshot)

    def tps(self, topic: str, group: str = "") -> float:
        """Messages a second over the last minute."""
        return self._rate(self._minute, (topic, group), "messages").tps

    def windows(self, topic: str, group: str, field: str) -> tuple[Rate, Rate, Rate]:
        """Minute, hour and day of "messages" or "bytes"."""
        key = (topic, group)
        return (
            self._rate(self._minute, key, field),
            self._rate(self._hour, key, field),
            self._rate(self._day, key, field),
        )

    def _rate(self, samples: deque[Snapshot], key: Key, field: str) -> Rate:
        first, last = samples[0], samples[-1]
        nothing = Counted(0, 0)
        total = getattr(last.rows.get(key, nothing), field) - getattr(first.rows.get(key, nothing), field)
        seconds = last.at_s - first.at_s
        steps = max(1, len(samples) - 1)
        return Rate(total, total / seconds if seconds > 0 else 0.0, total / steps)
