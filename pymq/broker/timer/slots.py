"""The slots that have timers in them: wheel and log as one thing, in order of time.

A slot is a chain of units in the log, the last one first; the wheel says where a chain begins and ends. Which slots are
pending, and the lowest commit-log offset that each needs, is kept in memory.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Iterable
from typing import NamedTuple

from pymq.broker.timer.log import MAGIC_DELETE, NONE, UNIT, TimerLog, Unit
from pymq.broker.timer.wheel import Slot, TimerWheel

log = logging.getLogger("pymq.broker")


class Entry(NamedTuple):
    """A timer on its way into the wheel."""

    time_ms: int
    magic: int
    offset: int
    size: int
    topic_hash: int


class PendingSlots:
    """What is still to come. Not for two threads, except where a method says so."""

    def __init__(self, wheel: TimerWheel, timer_log: TimerLog, pending: dict[int, int]) -> None:
        """*pending*: the lowest commit-log offset of each slot, as recovery found them."""
        self._wheel = wheel
        self._log = timer_log
        self._lowest = pending
        self._times = list(pending)
        heapq.heapify(self._times)

    def __len__(self) -> int:
        """How many there are. Any thread."""
        return len(self._lowest)

    def __contains__(self, time_ms: int) -> bool:
        return time_ms in self._lowest

    @property
    def next_ms(self) -> int | None:
        """The time of the first one; None when there is none. Any thread."""
        return self._times[0] if self._times else None

    @property
    def oldest_offset(self) -> float:
        """The lowest commit-log offset that any of them needs; infinity when there is none. Any thread."""
        return min(list(self._lowest.values()), default=math.inf)

    @property
    def first_position(self) -> int:
        """Where the first unit that is still to come is in the log; nothing before it is ever read again."""
        slots = (self._wheel.get(time_ms) for time_ms in self._lowest)
        return min([self._log.end, *(slot.first for slot in slots if slot is not None)])

    def count_below(self, offset: int) -> int:
        """How many timers need something below *offset* of the commit log. Any thread."""
        return sum(
            sum(unit.offset < offset for unit in self.units(time_ms))
            for time_ms, lowest in list(self._lowest.items())
            if lowest < offset
        )

    def append(self, entries: Iterable[Entry], write_ms: int) -> None:
        """Write units and slots, in that order; *write_ms* is the slot of now.

        Raises:
            OSError: the log cannot be written; nothing of *entries* is in it then.
        """
        slots: dict[int, Slot] = {}
        lowest: dict[int, int] = {}
        units: list[tuple[int, Unit]] = []
        after = self._log.end
        for entry in entries:
            time_ms = entry.time_ms
            slot = slots.get(time_ms)
            if slot is None and time_ms in self._lowest:
                slot = self._wheel.get(time_ms)
            position = self._log.place(after)
            after = position + UNIT.size
            written_ms = min(write_ms, time_ms)
            previous = slot.last if slot is not None else NONE
            unit = Unit(
                previous, entry.magic, written_ms, time_ms - written_ms, entry.offset, entry.size, entry.topic_hash
            )
            units.append((position, unit))
            step = -1 if entry.magic & MAGIC_DELETE else 1
            first, count = (slot.first, slot.messages) if slot is not None else (position, 0)
            slots[time_ms] = Slot(first, position, count + step)
            lowest[time_ms] = min(lowest.get(time_ms, entry.offset), entry.offset)
        self._log.write(units)
        for time_ms, slot in slots.items():
            self._wheel.put(time_ms, slot)
            if time_ms not in self._lowest:
                heapq.heappush(self._times, time_ms)
                self._lowest[time_ms] = lowest[time_ms]
            else:
                self._lowest[time_ms] = min(self._lowest[time_ms], lowest[time_ms])

    def units(self, time_ms: int) -> list[Unit]:
        """A slot's units in the order they came."""
        slot = self._wheel.get(time_ms)
        position = slot.last if slot is not None else NONE
        units = []
        while position != NONE:
            unit = self._log.read(position)
            if unit is None or unit.previous >= position:
                log.error("timer log damaged position=%d slot_ms=%d; recovery will read it again", position, time_ms)
                break
            units.append(unit)
            position = unit.previous
        units.reverse()
        return units

    def pop(self) -> int:
        """Take the first one out; its time."""
        time_ms = heapq.heappop(self._times)
        self._lowest.pop(time_ms, None)
        return time_ms
