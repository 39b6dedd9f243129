"""How far a delay level has been delivered, and how much of that may be written down.

Two numbers: `offset`, the next message to look at, and `vouched`, up to where everything delivered is on stable
storage. Only the second goes into `delayOffset.json`: a file that ran ahead of the log would lose messages when the
machine stops, one that lags behind repeats some.

A message that cannot be delivered is set aside and tried again by itself, while those behind it go on. It is written
down too, until a delivery of it is on stable storage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

PENDING_MAX = 4096  # deliveries that wait for their flush; the last two are then taken as one
ASIDE_MAX = 1024  # messages of one level set aside; one more stops the level
RETRY_MS_MIN, RETRY_MS_MAX = 1_000, 60_000


@dataclass(slots=True)
class FailedMessage:
    """A message that could not be delivered, by its offset in the level's queue."""

    offset: int
    again_ms: int
    tries: int = 1

    def failed_again(self, now_ms: int) -> None:
        """Wait twice as long as before."""
        self.again_ms = now_ms + min(RETRY_MS_MIN << min(self.tries, 16), RETRY_MS_MAX)
        self.tries += 1


class LevelProgress:
    """Progress of one level.

    Attributes:
        is_used: whether the level ever had a message; RocketMQ writes down only such.
    """

    def __init__(self, offset: int = 0, failed: Iterable[int] = (), *, is_used: bool = False) -> None:
        """Go on at *offset*; *failed* were set aside before."""
        self.is_used = is_used
        self.offset = offset
        self.vouched = offset
        self.aside = {at: FailedMessage(at, again_ms=0) for at in sorted(failed)}
        self._end_offset = 0  # of the newest delivery
        self._pending: deque[tuple[int, int]] = deque()  # (end in the log, offset vouched for once that is flushed)
        self._settling: dict[int, int] = {}  # set aside and delivered since: offset -> end in the log

    @property
    def is_full(self) -> bool:
        """Whether no more can be set aside."""
        return len(self.aside) + len(self._settling) >= ASIDE_MAX

    def advance(self, offset: int, end_offset: int = 0) -> None:
        """Everything below *offset* was delivered or set aside; the last of it ends at *end_offset* in the log."""
        self.is_used = True
        self.offset = offset
        self._end_offset = max(self._end_offset, end_offset)
        entry = (self._end_offset, offset)
        if len(self._pending) >= PENDING_MAX:
            self._pending[-1] = entry
        else:
            self._pending.append(entry)

    def set_aside(self, offset: int, now_ms: int) -> None:
        """The message at *offset*, the next one, failed: go on behind it."""
        self.aside[offset] = FailedMessage(offset, again_ms=now_ms + RETRY_MS_MIN)
        self.advance(offset + 1)

    def delivered_aside(self, offset: int, end_offset: int) -> None:
        """A message that was set aside is in the log now, up to *end_offset*; 0 means it is gone for good."""
        del self.aside[offset]
        if end_offset:
            self._settling[offset] = end_offset

    def settle(self, flushed_offset: int) -> None:
        """Everything below *flushed_offset* of the log is on stable storage."""
        while self._pending and self._pending[0][0] <= flushed_offset:
            self.vouched = self._pending.popleft()[1]
        for offset in [offset for offset, end in self._settling.items() if end <= flushed_offset]:
            del self._settling[offset]

    def failed_offsets(self) -> list[int]:
        """What was set aside below `vouched`, and is not delivered for sure."""
        return sorted(offset for offset in {*self.aside, *self._settling} if offset < self.vouched)
