"""How many messages came and went by yesterday's and today's midnight; RocketMQ's BrokerStats."""

from __future__ import annotations

from datetime import date

from pymq.clock import Clock


class DailyTotals:
    """Totals as of the last two midnights this broker has seen."""

    def __init__(self, clock: Clock) -> None:
        """Begin today, with nothing."""
        self._clock = clock
        self._day: date = clock.local_time().date()
        self.put_yesterday = self.put_morning = self.get_yesterday = self.get_morning = 0

    def sample(self, put: int, got: int) -> None:
        """Totals now; remembered when a new day has begun since the last call."""
        today = self._clock.local_time().date()
        if today != self._day:
            self._day = today
            self.put_yesterday, self.put_morning = self.put_morning, put
            self.get_yesterday, self.get_morning = self.get_morning, got
