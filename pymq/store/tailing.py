"""Reading a topic's queues on and on: the engine of tail, atail and consumer groups.

Queues are visited in turn, a batch each, so that a busy one cannot starve the others. Queues that appear later are
found when the store's number of queues changes.

A reader that retention has overtaken goes on with the first message still there, and the log says what was passed
over. One that meets a damaged record raises once and stands behind it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Literal

from pymq._core._store import Store
from pymq.errors import CorruptRecordError, OffsetNotFoundError
from pymq.message import ReceivedMessage

if TYPE_CHECKING:
    from pymq.embedded import EmbeddedStore

Position = Literal["earliest", "latest"] | int
BATCH = 64  # messages read from one queue before the next one is looked at
COLD_LAG_COUNT = 4096  # an async reader this far behind may have to wait for the disk: it reads in a thread

log = logging.getLogger("pymq.store")


def step_over_removed(core: Store, topic: str, queue_id: int, offset: int, reader: str) -> int:
    """The offset to go on from when the message at *offset* is gone; logs what is passed over.

    Usually that is the queue's first offset, which retention moves before it removes a file. While a unit is there
    whose record is not, the first readable one is searched for: records go in the order of their queue.
    """
    low, high = (int(bound) for bound in core.queue_range(topic, queue_id, False))
    found = low
    if offset > high:
        found = high
    elif offset >= low:
        found, gone_below = high, offset
        while gone_below < found:
            middle = (gone_below + found) // 2
            if is_removed(core, topic, queue_id, middle):
                gone_below = middle + 1
            else:
                found = middle
    log.warning(
        "offset corrected reader=%r topic=%s queue=%d offset=%d to=%d because=%s",
        reader, topic, queue_id, offset, found,
        "the queue ends before it" if offset > high else f"its messages were removed, {found - offset} of them",
    )  # fmt: skip
    return found


def is_removed(core: Store, topic: str, queue_id: int, offset: int) -> bool:
    """Whether the message at *offset* is gone; a damaged one is there."""
    try:
        core.read(topic, queue_id, offset, 1, False)
    except OffsetNotFoundError:
        return True
    except CorruptRecordError:
        return False
    return False


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
                offset = int(position)
                if not info.min_offset <= offset <= info.max_offset:
                    offset = self._stepped_over(info.queue_id, offset)
            self._next[info.queue_id] = offset
            self._turn.append(info.queue_id)
        self._first_look = False

    def _stepped_over(self, queue_id: int, offset: int) -> int:
        return step_over_removed(self._store._store, self._topic, queue_id, offset, self._described)

    def read(self) -> list[ReceivedMessage] | None:
        """A batch from the next queue that has messages, or None.

        Raises:
            CorruptRecordError: the next message is damaged; this reader now stands behind it.
        """
        self._find_queues()
        for _ in range(len(self._turn)):
            queue_id = self._turn[0]
            self._turn.rotate(-1)
            messages = self._read_queue(queue_id)
            if messages:
                self._next[queue_id] = messages[-1].queue_offset + 1
                return messages
        return None

    def _read_queue(self, queue_id: int) -> list[ReceivedMessage]:
        """A batch from one queue. Retention may overtake it again and again; the queue's end it cannot overtake."""
        while True:
            try:
                return self._store._store.read(self._topic, queue_id, self._next[queue_id], BATCH, False)
            except OffsetNotFoundError:
                self._next[queue_id] = self._stepped_over(queue_id, self._next[queue_id])
            except CorruptRecordError as error:
                self._next[queue_id] = error.queue_offset + 1
                raise

    def behind(self) -> int:
        """Messages not read yet, over the known queues."""
        ranges = (
            (offset, self._store._store.queue_range(self._topic, queue, False)) for queue, offset in self._next.items()
        )
        return sum(high - offset for offset, (_, high) in ranges)

    def blocking(self, timeout: float | None) -> Generator[ReceivedMessage, None, None]:
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

    async def asynchronous(self, idle_s: float | None) -> AsyncGenerator[ReceivedMessage, None]:
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
