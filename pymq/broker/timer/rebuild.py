"""Making the timers again from their topic, when the timer log or the checkpoint was lost.

The topic still has every pending timer, and many that were delivered. They are told from the others by their time: what
was due before the checkpoint's read time has been delivered, unless it is one that had been put off. Of a message that
was rolled the topic has a copy for each time, with a count; the highest is the one that was pending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pymq.broker.timer import properties as names
from pymq.broker.timer.log import NONE
from pymq.broker.timer.source import Timed, TimerSource

SCAN = 512  # messages read with one call


class RolledCopies:
    """Which messages of the timer topic have a later copy in it."""

    def __init__(self, source: TimerSource | None = None, first: int = 0, end: int = 0) -> None:
        """Of the queue from *first* to *end*; without a *source*, none is known to."""
        self._end = end
        self._highest: dict[tuple[str, ...], int] = {}
        for message in all_messages(source, first, end) if source is not None else ():
            times = names.roll_times(message.properties.get(names.ROLL_TIMES, ""))
            if times and names.UNIQUE_KEY in message.properties:
                key = key_of(message)
                self._highest[key] = max(self._highest.get(key, 0), times)

    def replaces(self, message: Timed) -> bool:
        """Whether a later copy of *message* was there."""
        if not self._highest or message.queue_offset >= self._end:
            return False
        times = names.roll_times(message.properties.get(names.ROLL_TIMES, ""))
        return times < self._highest.get(key_of(message), 0)


def key_of(message: Timed) -> tuple[str, ...]:
    """What copies have in common."""
    properties = message.properties
    return tuple(
        properties.get(name, "") for name in (names.UNIQUE_KEY, names.REAL_TOPIC, names.OUT_MS, names.DELETE_KEY)
    )


def all_messages(source: TimerSource, first: int, end: int) -> Iterator[Timed]:
    """The queue's messages from *first* to *end*."""
    while first < end:
        batch = source.read(first, min(SCAN, end - first))
        if not batch:
            return
        yield from batch
        first = batch[-1].queue_offset + 1


def still_pending(batch: Sequence[Timed], read_ms: int, precision_ms: int, retry_floor: int) -> list[Timed]:
    """Those of *batch* that were not delivered when slots before *read_ms* had been.

    What had been put off is due now; it may be any from *retry_floor* of the log on, so that some come twice.
    """
    kept = []
    for message in batch:
        try:
            time_ms = names.java_long(message.properties.get(names.OUT_MS, "")) // precision_ms * precision_ms
        except ValueError:
            kept.append(message)  # no time, or damaged: told as such when it is enqueued
            continue
        if time_ms >= read_ms:
            kept.append(message)
        elif retry_floor != NONE and message.offset >= retry_floor and names.DELETE_KEY not in message.properties:
            kept.append(message._replace(properties=message.properties | {names.OUT_MS: str(read_ms)}))
    return kept
