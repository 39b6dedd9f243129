"""What retention asks the timers: which part of the log they still need."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymq.broker.controller import Broker


class TimerGuard:
    """Keeps log files with messages whose time has not come. Everything is needed until the timers are open."""

    def __init__(self, broker: Broker) -> None:
        """For *broker*, whose timers may be opened later, or never."""
        self._broker = broker

    def needed_from(self) -> int | None:
        """The lowest physical offset that a timer needs."""
        if not self._broker.config.timer_wheel_enable:
            return None
        timer = self._broker.timer
        return 0 if timer is None else timer.store.needed_from()

    def count_below(self, offset: int) -> int:
        """How many timers need something below *offset*."""
        timer = self._broker.timer
        return 0 if timer is None else timer.store.count_below(offset)
