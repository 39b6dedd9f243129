"""Time, as something that is handed in.

Everything in the control plane that looks at a clock takes one of these, so that a test can say what time it is
and retention at four in the morning can be tested at noon.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """What code may ask about time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, as RocketMQ stamps it."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    def local_time(self) -> datetime:
        """Wall-clock time in the machine's zone: what `delete_when` is written in."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def local_time(self) -> datetime:
        """Now, in the machine's zone."""
        return datetime.now().astimezone()


class ManualClock:
    """A clock that stands still until it is moved; for tests and simulations."""

    def __init__(self, start: datetime) -> None:
        """Begin at *start*, which must know its zone."""
        if start.tzinfo is None:
            raise ValueError("a ManualClock starts at a time with a zone")
        self._now = start
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        """The set time, in milliseconds."""
        return int(self._now.timestamp() * 1000)

    def monotonic_s(self) -> float:
        """Seconds moved forward so far."""
        return self._monotonic_s

    def local_time(self) -> datetime:
        """The set time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward by *seconds*."""
        if seconds < 0:
            raise ValueError(f"time moves forward, not by {seconds} s")
        self._monotonic_s += seconds
        self._now = datetime.fromtimestamp(self._now.timestamp() + seconds, self._now.tzinfo)
