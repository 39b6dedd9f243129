"""Reading a topic's queues on and on: the engine of tail, atail and consumer groups.

Queues are visited in turn, a batch each, so that a busy one cannot starve the others. Queues that appear later are
found when the store's number of queues changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pymq.errors import OffsetNotFoundError
from pymq.message import ReceivedMessage

if TYPE_CHECKING:
    from pymq.embedded import EmbeddedStore

Position = Literal["earliest", "latest"] | int
BATCH = 64  # messages read from one queue before the next one is looked at
COLD_LAG_COUNT = 4096  # an async reader this far behind may have to wait for the disk: it reads in a thread

log = logging.getLogger("pymq.store")


class TailReader:
    """Positions in a topic's queues and the messages that follow. One reader, one user at a time."""

    def __init__(
        self,
        store: EmbeddedStore,
        topic: str,
        queue_ids: Sequence[int] | None,
        position: Callable[[int], Position],
        *,
        described: str = "tail",
    ) -> None:
        """Read *queue_ids* of *topic* (all, when None), each from where *position* says."""
        self._store = store
        self._topic = topic
        self._wanted = None if queue_ids is None else frozenset(queue_ids)
        self._position = position
        self._described = described
        self._next: dict[int, int] = {}
        self._turn: deque[int] = deque()
        self._known_queue_count = -1
        self._first_look = True
        self._find_queues()

    def _find_queues(self) -> None:
        """Take in queues that are new since the last look. A queue that appears later is read from its beginning."""
        count = self._store._store.queue_count()
        if count == self._known_queue_count:
            return
        self._known_queue_count = count
        for info in self._store.queues(self._topic):
            if info.queue_id in self._next or (self._wanted is not None and info.queue_id not in self._wanted):
                continue
            position = self._position(info.queue_id)
            if position == "latest":
                offset = int(info.max_offset) if self._first_look else 0
            elif position == "earliest":
                offset = int(info.min_offset)
            else:
                offset = self._corrected(info.queue_id, int(position), int(info.min_offset), int(info.max_offset))
            self._next[info.queue_id] = offset
            self._turn.append(info.queue_id)
        self._first_look = False

    def _corrected(self, queue_id: int, offset: int, low: int, high: int) -> int:
        """*offset*, or the nearest one that can be read; says so when messages are passed over."""
        if low <= offset <= high:
            return offset
        corrected = low if offset < low else high
        log.warning(
            "offset corrected reader=%r topic=%s queue=%d offset=%d to=%d because=%s",
            self._described, self._topic, queue_id, offset, corrected,
            "its messages were removed" if offset < low else "the queue ends before it",
        )  # fmt: skip
        return corrected

    def read(self) -> list[ReceivedMessage] | None:
        """A batch from the next queue that has messages, or None."""
        self._find_queues()
        for _ in range(len(self._turn)):
            queue_id = self._turn[0]
            self._turn.rotate(-1)
            try:
                messages = self._store._store.read(self._topic, queue_id, self._next[queue_id], BATCH, False)
            except OffsetNotFoundError as error:
                self._next[queue_id] = self._corrected(
                    queue_id, self._next[queue_id], error.offset_min, error.offset_max
                )
                messages = self._store._store.read(self._topic, queue_id, self._next[queue_id], BATCH, False)
            if messages:
                self._next[queue_id] = messages[-1].queue_offset + 1
                return messages
        return None

    def behind(self) -> int:
        """Messages not read yet, over the known queues."""
        ranges = (
            (offset, self._store._store.queue_range(self._topic, queue, False)) for queue, offset in self._next.items()
        )
        return sum(high - offset for offset, (_, high) in ranges)

    def blocking(self, timeout: float | None) -> Iterator[ReceivedMessage]:
        """Messages, waiting for new ones; ends after *timeout* seconds without any."""
        arrivals = self._store._arrivals
        self._store._store.wait_dispatched(1000)  # what was acknowledged before this call can be read by it
        while True:
            deadline_s = None if timeout is None else time.monotonic() + timeout
            while True:
                seen = arrivals.count()
                messages = self.read()
                if messages is not None:
                    break
                if not arrivals.wait(seen, deadline_s):
                    return
            yield from messages

    async def asynchronous(self, idle_s: float | None) -> AsyncIterator[ReceivedMessage]:
        """The same for an asyncio loop, without blocking it."""
        signal = self._store._loops.current()
        while True:
            if self.behind() > COLD_LAG_COUNT:
                messages = await asyncio.to_thread(self.read)
            else:
                messages = await signal.arrived(self.read, idle_s)
            if messages is None:
                return
            for message in messages:
                yield message
