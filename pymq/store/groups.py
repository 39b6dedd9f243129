"""Named consumer groups: read on from where the group stopped, also after a restart.

A group is a name and, per queue, the offset it will read next. Reading is at least once: an offset is committed
after its message was handed out and the next one asked for, so a crash repeats messages and skips none.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pymq.errors import CorruptRecordError, InvalidArgumentError
from pymq.message import QueueOffset, ReceivedMessage
from pymq.store.offsets import OffsetStore, check_names
from pymq.store.resuming import Resumable
from pymq.store.tailing import Position, TailReader

if TYPE_CHECKING:
    from pymq.embedded import EmbeddedStore

log = logging.getLogger("pymq.store")


class ConsumerGroup:
    """One group of one store. Cheap to make; two objects of one name share their offsets."""

    def __init__(self, store: EmbeddedStore, offsets: OffsetStore, name: str) -> None:
        """Use `EmbeddedStore.group`."""
        check_names(name, "any")
        self._store = store
        self._offsets = offsets
        self.name = name

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.name!r})"

    def committed(self, topic: str, queue_id: int = 0) -> QueueOffset | None:
        """The offset the group will read next, or None when it never committed one."""
        return self._offsets.committed(self.name, topic, queue_id)

    def commit(self, topic: str, queue_id: int, offset: int, *, durable: bool = True) -> None:
        """Everything below *offset* is done. With *durable* it is on stable storage on return.

        Otherwise it is saved within `flush_consumer_offset_interval_ms` and at close. An offset below the committed one
        is accepted: the group reads again.

        Raises:
            InvalidArgumentError: the offset is negative or beyond the end of the queue.
        """
        _, end = self._store.offset_range(topic, queue_id)
        if offset > end:
            raise InvalidArgumentError(
                f"group {self.name}: commit of offset {offset} in {topic} queue {queue_id}, which ends at {end}"
            )
        self._offsets.commit(self.name, topic, queue_id, offset, durable=durable)

    def acknowledge(self, message: ReceivedMessage, *, durable: bool = True) -> None:
        """*message*, and everything before it in its queue, is done."""
        self._offsets.commit(self.name, message.topic, message.queue_id, message.queue_offset + 1, durable=durable)

    def lag(self, topic: str) -> dict[int, int]:
        """Messages the group has not read, by queue; a queue it never read counts from its beginning."""
        lags = {}
        for info in self._store.queues(topic):
            committed = self.committed(topic, info.queue_id)
            begin = info.min_offset if committed is None else max(committed, info.min_offset)
            lags[info.queue_id] = max(0, info.max_offset - begin)
        return lags

    def reset(self, topic: str, queue_id: int, offset: int) -> None:
        """Read on from *offset*, forward or back; durable on return."""
        self.commit(topic, queue_id, offset)

    def delete(self) -> None:
        """Forget the group: it starts again as if it had never read. Durable on return."""
        self._offsets.forget(self.name)

    def consume(
        self,
        topic: str,
        queue_ids: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        auto_commit: bool = True,
        durable: bool = False,
    ) -> Iterator[ReceivedMessage]:
        """Messages of *topic*, from where the group stopped, then new ones as they arrive.

        Args:
            topic: the topic; it may have no messages yet.
            queue_ids: the queues to read; all of them, also later ones, when None. Readers that share a group divide
                its queues with this.
            timeout: end after this many seconds without a message; None waits for ever, 0 ends at the current end.
            start: where a queue begins that the group never read.
            auto_commit: commit a message when the next one is asked for, and the last one when the iteration ends. With
                False, call `acknowledge`.
            durable: whether these commits wait for the disk.

        Raises:
            StoreClosedError: the store was closed meanwhile.
            InvalidArgumentError: at once, when offsets of such a topic cannot be committed.
            CorruptRecordError: the next message is damaged. Ask this same iterator for the next one to go on behind it;
                with *auto_commit* that commits the damaged one as well. A new `consume` begins at the committed offset
                and meets the damage again, unless `commit(error.topic, error.queue_id, error.queue_offset + 1)`.
        """
        check_names(self.name, topic)

        def position(queue_id: int) -> Position:
            committed = self.committed(topic, queue_id)
            return start if committed is None else committed

        reader = TailReader(self._store, topic, queue_ids, position, described=f"group {self.name}")
        damaged: list[CorruptRecordError] = []
        return Resumable(lambda: self._deliver(reader, damaged, timeout, auto_commit=auto_commit, durable=durable))

    def _deliver(
        self,
        reader: TailReader,
        damaged: list[CorruptRecordError],
        timeout: float | None,
        *,
        auto_commit: bool,
        durable: bool,
    ) -> Generator[ReceivedMessage, None, None]:
        delivered = False
        try:
            while damaged:
                # Asked for what follows a damaged record: its error was handled, as a message would have been.
                error = damaged.pop()
                if auto_commit:
                    delivered = True
                    self._offsets.commit(
                        self.name, error.topic, error.queue_id, error.queue_offset + 1, durable=durable
                    )
            for message in reader.blocking(timeout):
                yield message
                # Here the consumer has asked for the next message: this one was handled.
                delivered = True
                if auto_commit:
                    self.acknowledge(message, durable=durable)
        except CorruptRecordError as error:
            damaged.append(error)
            raise
        finally:
            if auto_commit and delivered and not self._store.closed:
                self._offsets.save()
