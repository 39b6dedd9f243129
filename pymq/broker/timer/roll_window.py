"""Which slot a timer goes into now: its own, or one in between when that is too far away for the wheel."""

from __future__ import annotations

from pymq.broker.timer.log import MAGIC_ROLL
from pymq.broker.timer.slots import PendingSlots
from pymq.broker.timer.wheel import TimerWheel

BLANK_SLOTS = 60  # TIMER_BLANK_SLOTS: distance the window keeps from the wheel's length
LEAST_SLOTS = 2


class RollWindow:
    """The slots ahead that timers are put into directly."""

    def __init__(self, wheel: TimerWheel, pending: PendingSlots, asked_slots: int) -> None:
        """*asked_slots* is `timerRollWindowSlot`; one the wheel is too short for is as long as the wheel allows."""
        longest = wheel.slots_total - BLANK_SLOTS
        self._slots = asked_slots if LEAST_SLOTS <= asked_slots <= longest else longest
        self._precision_ms = wheel.precision_ms
        self._wheel = wheel
        self._pending = pending

    def place(self, time_ms: int, magic: int, now_ms: int) -> tuple[int, int]:
        """The slot for a timer due at *time_ms*, and *magic* with the mark ROLL if that is not its own."""
        write_ms = now_ms // self._precision_ms * self._precision_ms
        beyond_ms = time_ms - write_ms - self._slots * self._precision_ms
        if beyond_ms >= 0:
            magic |= MAGIC_ROLL
            # As Apache has it: not so close behind the last roll that there is no time for another.
            near = beyond_ms < self._slots // 3 * self._precision_ms
            time_ms = write_ms + (self._slots // 2 if near else self._slots) * self._precision_ms
        occupant_ms = self._wheel.occupant_ms(time_ms)
        while occupant_ms != time_ms and occupant_ms in self._pending:
            # Only after the clock has jumped by days: the slot is somebody else's. Come back when it may be free.
            magic |= MAGIC_ROLL
            write_ms += self._precision_ms
            time_ms = write_ms
            occupant_ms = self._wheel.occupant_ms(time_ms)
        return time_ms, magic
