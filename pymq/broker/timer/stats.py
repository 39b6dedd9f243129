"""What the timers have done: counts, lateness, rates."""

from __future__ import annotations

from dataclasses import dataclass, field

LATE_BOUNDS_MS = (100, 1000, 10_000, 60_000, 3_600_000)
RATE_S = 1.0


class Rate:
    """Events a second, over the last whole second or more."""

    def __init__(self) -> None:
        self._counted = 0
        self._since_s: float | None = None
        self._value = 0.0

    def sample(self, count: int, now_s: float) -> None:
        """*count* in all, so far."""
        if self._since_s is None:
            self._counted, self._since_s = count, now_s
        elif now_s - self._since_s >= RATE_S:
            self._value = (count - self._counted) / (now_s - self._since_s)
            self._counted, self._since_s = count, now_s

    @property
    def value(self) -> float:
        """As of the last sample."""
        return self._value


@dataclass(slots=True)
class TimerStats:
    """Since the start. Lateness is counted from the end of a message's slot, which is never before its time.

    Attributes:
        enqueued: timers that entered the wheel; delivered, rolled, recalled: what became of them.
        late_recalls: recalls of messages that were delivered already.
        put_off: attempts to deliver a message that failed and were put off, for that message alone.
        illegal: messages of the timer topic that carry no time or no topic of their own.
        lost: timers whose message was gone from the log: retention had to take it.
        late_counts: how many were late by at most each of LATE_BOUNDS_MS, and by more.
    """

    enqueued: int = 0
    delivered: int = 0
    rolled: int = 0
    recalled: int = 0
    late_recalls: int = 0
    put_off: int = 0
    illegal: int = 0
    lost: int = 0
    moved_back: int = 0
    late_ms_max: int = 0
    late_ms_total: int = 0
    late_counts: list[int] = field(default_factory=lambda: [0] * (len(LATE_BOUNDS_MS) + 1))

    def deliver(self, late_ms: int) -> None:
        """One message was delivered, *late_ms* after the end of its slot."""
        self.delivered += 1
        late_ms = max(late_ms, 0)
        self.late_ms_total += late_ms
        self.late_ms_max = max(self.late_ms_max, late_ms)
        at = next((number for number, bound in enumerate(LATE_BOUNDS_MS) if late_ms <= bound), len(LATE_BOUNDS_MS))
        self.late_counts[at] += 1

    def rows(self) -> dict[str, str]:
        """For GET_BROKER_RUNTIME_INFO."""
        names = ("enqueued", "delivered", "rolled", "recalled", "late_recalls", "put_off", "illegal", "lost",
                 "moved_back", "late_ms_max")  # fmt: skip
        rows = {f"pymq.timer.{name}": str(getattr(self, name)) for name in names}
        rows["pymq.timer.late_ms_mean"] = f"{self.late_ms_total / self.delivered if self.delivered else 0.0:.1f}"
        bounds = [*(f"le_{bound}_ms" for bound in LATE_BOUNDS_MS), "more"]
        return rows | {f"pymq.timer.late.{name}": str(n) for name, n in zip(bounds, self.late_counts, strict=True)}
