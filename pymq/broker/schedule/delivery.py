"""One delay level: what to look at next, what became of it, when to look again. Decisions only; nothing waits here.

A look is one call of `Serve.deliver_due`, which puts what is due back to its own topic, in one append. When it says
that a message failed, what is wrong is either the store, which then refuses every message (the level waits and tries
again), or that message (it is set aside, see `progress`). Nothing is dropped but what retention removed from the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pymq.broker import names
from pymq.broker.schedule.lateness import Lateness
from pymq.broker.schedule.progress import RETRY_MS_MIN, LevelProgress

if TYPE_CHECKING:
    from pymq._core._serve import Due

OK = "PYMQ_OK"
# What says something about the message, and not about a store that would refuse the next one as well.
OF_THE_MESSAGE = frozenset(
    {
        "PYMQ_ENOTFOUND",
        "PYMQ_ECORRUPT",
        "PYMQ_ETRUNCATED",
        "PYMQ_ETOPIC",
        "PYMQ_EINVAL",
        "PYMQ_EPROPERTIES",
        "PYMQ_ETOOBIG",
        "PYMQ_EREMOVED",
    }
)
LOOK_COUNT = 512  # messages of one look: the append lock is held for them
REFUSED_MS_MAX = 10_000  # DELAY-11: a store that refuses is asked again at least so often
DISPATCH_MS_MIN, DISPATCH_MS_MAX = 2, 50  # a message that was stored and is not in its queue yet is looked for so often
# A delivery time later than a level can have given is taken for now (DELAY-9), but not when it is only a little later:
# store times never decrease, so after the clock was set back by less than this, messages wait for it to catch up.
CLOCK_STEP_MS = 10_000
# Compat: nothing. 5.5.0 means to remove DELAY (messageTimeUp), but has written the properties down before it does, and
# consumers have seen DELAY in what was delayed or retried ever since.
REMOVED_PROPERTIES = b""

log = logging.getLogger("pymq.broker.schedule")


class Look(NamedTuple):
    """What to deliver: all that is due from *offset* on, or (`again`) the one message there that was set aside."""

    queue_id: int
    offset: int
    correct_max_ms: int
    again: bool = False


class LevelDelivery:
    """Delivers one level's messages.

    Attributes:
        stored_end: one behind the last message known to be stored; dispatch may not have put it into the queue yet.
        failures: how often a message, or the store, refused.
    """

    def __init__(self, level: int, delay_ms: int | None, progress: LevelProgress, lateness: Lateness) -> None:
        """Deliver *level*, whose messages wait *delay_ms*; None for a level that is not configured any more."""
        self.level = level
        self.queue_id = level - 1
        self.progress = progress
        self.stored_end = 0
        self.failures = 0
        self._correct_max_ms = 0 if delay_ms is None else delay_ms + CLOCK_STEP_MS
        self._lateness = lateness
        self._next_due_ms: int | None = 0  # None: nothing waits; 0: not looked yet
        self._refused = 0  # by the store, in a row
        self._missed = 0  # looks in a row that did not find what was stored
        self._search_ms = 0  # when to look for it again

    # ---- looking -------------------------------------------------------------------------------------------------

    def look(self, now_ms: int) -> Look:
        """What to ask now: for one that was set aside and whose time has come, otherwise for all that is due."""
        progress = self.progress
        again = next((failed for failed in progress.aside.values() if failed.again_ms <= now_ms), None)
        if again is not None:
            return Look(self.queue_id, again.offset, self._correct_max_ms, again=True)
        return Look(self.queue_id, progress.offset, self._correct_max_ms)

    def took(self, look: Look, due: Due, now_ms: int) -> None:
        """What came of *look*."""
        if due.delivered:
            self._lateness.add(due.delivered, due.lateness_max_ms)
        if look.again:
            self._took_aside(look.offset, due, now_ms)
        else:
            self._took_next(due, now_ms)

    def _took_next(self, due: Due, now_ms: int) -> None:
        progress = self.progress
        passed = due.next_offset - progress.offset
        if passed != due.delivered:
            # Filler of a gap, or the queue begins later by now: retention has removed the log below.
            log.error(
                "delay offset corrected level=%d from=%d to=%d delivered=%d",
                self.level, progress.offset, due.next_offset, due.delivered,
            )  # fmt: skip
        if passed:
            progress.advance(due.next_offset, due.last_end_offset)
        if due.status == OK:
            self._refused = 0
            self._next_due_ms = None if due.next_due_ms < 0 else due.next_due_ms
            progress.is_used |= self._next_due_ms is not None
            found = self._next_due_ms is not None or progress.offset >= self.stored_end
            self._missed = 0 if found else self._missed + 1
            self._search_ms = now_ms + min(DISPATCH_MS_MIN << min(self._missed, 16), DISPATCH_MS_MAX)
            return
        self.failures += 1
        if due.status in OF_THE_MESSAGE and not progress.is_full:
            self._complain("set aside", due.next_offset, due.status, 1)
            progress.set_aside(due.next_offset, now_ms)
            self._next_due_ms = now_ms
            return
        self._refused += 1
        self._complain("waiting", due.next_offset, due.status, self._refused)
        self._next_due_ms = now_ms + min(RETRY_MS_MIN << min(self._refused - 1, 16), REFUSED_MS_MAX)

    def _took_aside(self, offset: int, due: Due, now_ms: int) -> None:
        failed = self.progress.aside[offset]
        if due.next_offset > offset:
            if not due.delivered:
                self._complain("removed by retention before it could be delivered", offset, due.status, failed.tries)
            self.progress.delivered_aside(offset, due.last_end_offset)
            return
        self.failures += 1
        failed.failed_again(now_ms)
        self._complain("tried again", offset, due.status, failed.tries)

    def _complain(self, what: str, offset: int, status: str, tries: int) -> None:
        log.error(
            "delayed message not delivered: %s topic=%s queue=%d offset=%d level=%d status=%s tries=%d",
            what, names.SCHEDULE_TOPIC, self.queue_id, offset, self.level, status, tries,
        )  # fmt: skip

    # ---- waiting -------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to wait for but a new message."""
        return self._next_due_ms is None and not self.progress.aside and self.progress.offset >= self.stored_end

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until the next look; None until somebody says that there is a message."""
        moments = [failed.again_ms for failed in self.progress.aside.values()]
        if self._next_due_ms is not None:
            if 0 < self._correct_max_ms < self._next_due_ms - now_ms:
                return 0  # the clock was set back since: the next look takes that time for now
            moments.append(self._next_due_ms)
        elif self.progress.offset < self.stored_end:
            moments.append(self._search_ms)
        if not moments:
            return None
        return max(min(moments) - now_ms, 0)

    def stored(self, end: int) -> None:
        """A message was stored in this level, one before *end*."""
        if self.is_idle:
            self._missed = self._search_ms = 0
        self.stored_end = max(self.stored_end, end)
