"""Which half messages are pending. Memory only: no clock, no store, no wire.

A half message is named by its offset in the half queue. A check puts it again at the queue's end, so a transaction can
have several copies; it is named by the offset of the first (`origin`), and only its newest copy (`head`) is pending.

Every offset below `progress` needs no attention any more; `progress` is what the consumer offset of CID_RMQ_SYS_TRANS
says. From there on `done` names the offsets that have ended or were put again; whatever else is below the queue's end
is pending. Those that a round has looked at and that must wait are in `waiting`; `cursor` is the first that none has
looked at.

A transaction ends once: `head` says None from then on, whichever of its copies is asked about. What has left the ledger
(below `progress`, no copy above) has ended too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum

from pymq.broker.transaction.half import Half


class End(IntEnum):
    """Why an offset needs no attention any more."""

    COMMITTED = 1
    ROLLED_BACK = 2
    GIVEN_UP = 3
    MOVED = 4  # put again further up
    UNREADABLE = 5
    ENDED = 6  # by an op message of an earlier run, which does not say how


class Ledger:
    """The pending half messages of one half queue."""

    def __init__(self, progress: int = 0) -> None:
        """Nothing is known from *progress* on."""
        self.progress = progress
        self.cursor = progress
        self.waiting: dict[int, Half] = {}  # in the order of offsets
        self._done: dict[int, End] = {}
        self._heads: dict[int, int] = {}  # origin to newest copy, of what was put again and has not ended
        self._ops: deque[tuple[int, int]] = deque()  # op messages: offset, and the highest half offset in it
        self.op_progress = 0

    # ---- what was ------------------------------------------------------------------------------------------------

    def load(self, halves: Iterable[Half], ops: Iterable[tuple[int, list[int]]]) -> None:
        """Take note of both queues at a start: all half messages from `progress` on, then all op messages."""
        origins: dict[int, int] = {}
        for half in halves:
            if half.origin != half.offset:
                origins[half.offset] = half.origin
                self.moved(self._heads.get(half.origin, half.origin), half.origin, half.offset)
        for op_offset, offsets in ops:
            for offset in offsets:
                origin = origins.get(offset, offset)
                if offset >= self.progress or origin in self._heads:
                    self.end(origin, End.ENDED, offset)
            self.op_written(op_offset, max(offsets, default=-1))

    # ---- asking --------------------------------------------------------------------------------------------------

    def head(self, offset: int, origin: int) -> int | None:
        """The newest copy of a transaction that has not ended, by any of its copies; None when it has."""
        if origin in self._heads:
            return self._heads[origin]
        if origin != offset or offset < self.progress or offset in self._done:
            return None
        return offset

    def how_ended(self, offset: int) -> End | None:
        """How the half at *offset* ended; None when that is not known (any more)."""
        return self._done.get(offset)

    def is_done(self, offset: int) -> bool:
        """Whether the half at *offset* needs no attention."""
        return offset < self.progress or offset in self._done

    def pending_count(self, end_offset: int) -> int:
        """How many are pending in a queue that ends at *end_offset*."""
        return max(0, end_offset - self.progress - len(self._done))

    # ---- what happens --------------------------------------------------------------------------------------------

    def end(self, origin: int, how: End, offset: int | None = None) -> int:
        """The transaction of *origin* ends, asked for by its copy at *offset*; the offset its op message names."""
        head = self._heads.pop(origin, origin)
        for copy in {head, origin if offset is None else offset}:
            if copy >= self.progress:
                self._done[copy] = how
        self.waiting.pop(head, None)
        return head

    def moved(self, offset: int, origin: int, new_offset: int) -> None:
        """The half at *offset* was put again at *new_offset*."""
        self._heads[origin] = new_offset
        if offset >= self.progress:
            self._done[offset] = End.MOVED
        self.waiting.pop(offset, None)

    def unreadable(self, offset: int) -> None:
        """Nothing can be done about the half at *offset*."""
        if offset >= self.progress:
            self._done[offset] = End.UNREADABLE

    def wait(self, half: Half) -> None:
        """The half at the cursor was looked at and is pending."""
        self.waiting[half.offset] = half
        self.cursor = half.offset + 1

    def skip_to(self, offset: int) -> None:
        """Nothing is stored between the cursor and *offset* any more."""
        self.cursor = max(self.cursor, offset)

    def op_written(self, op_offset: int, highest: int) -> None:
        """The op message at *op_offset* names no half above *highest*."""
        self._ops.append((op_offset, highest))

    def advance(self) -> None:
        """Move the cursor over what is done, and both progresses as far as they may."""
        while self.cursor in self._done:
            self.cursor += 1
        lowest = next(iter(self.waiting), self.cursor)
        while self.progress < lowest:
            self._done.pop(self.progress, None)
            self.progress += 1
        while self._ops and self._ops[0][1] < self.progress:
            self.op_progress = self._ops.popleft()[0] + 1
