"""A message queue in this process, the way SQLite is a database: `with pymq.open("data/") as mq:`.

The directory is a RocketMQ store; Apache RocketMQ opens it too, when nobody else has it open. Several threads may
use one `EmbeddedStore`; a second process opening the same directory gets StoreLockedError.

What a method promises is said where it stands. In short: `send` returns once the message is on stable storage
(SYNC_FLUSH, the default); what was acknowledged can be read at once by everybody here; nothing is read that is not
acknowledged-grade durable for the mode, and no body is delivered whose CRC does not match.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from pymq.clock import Clock
from pymq.errors import CorruptRecordError, InvalidArgumentError, OffsetNotFoundError, StoreError
from pymq.message import Body, Message, QueueOffset, ReceivedMessage, SendManyResult, SendResult
from pymq.store.config import StoreConfig
from pymq.store.groups import ConsumerGroup
from pymq.store.housekeeping import DiskProbe, disk_ratio
from pymq.store.layout import config_for
from pymq.store.message_store import MessageStore
from pymq.store.resuming import AsyncResumable, Resumable
from pymq.store.tailing import Position, TailReader, step_over_removed

ITERATE_BATCH = 64
MESSAGE_ID = re.compile(r"[0-9a-fA-F]{32}(?:[0-9a-fA-F]{24})?")  # address, port and physical offset
OFFSET_DIGITS = 16
TIME_END_MS = 2**63 - 1


class QueueInfo(NamedTuple):
    """One queue of one topic: messages from `min_offset` up to, and without, `max_offset`."""

    topic: str
    queue_id: int
    min_offset: QueueOffset
    max_offset: QueueOffset


@dataclass(slots=True)
class IterationCursor:
    """Where `iterate` stands: the next offset (None: the queue's first), and whether it has got anywhere yet."""

    offset: int | None
    moved: bool = False


def open(
    path: str | os.PathLike[str],
    config: StoreConfig | None = None,
    *,
    progress: bool = False,
    clock: Clock | None = None,
) -> EmbeddedStore:
    """Open the store under *path*, or make one; use it with `with`, or call `close()`.

    Without *config* a new store gets small files (64 MiB of log) and SYNC_FLUSH, and an existing one is opened with the
    sizes its files have. With one, other sizes than the files have are an error. To change settings and keep the
    sizes found, start from `pymq.config_for(path, flush_disk_type="ASYNC_FLUSH")`.

    Args:
        path: the store directory.
        config: settings; see docs/config.md.
        progress: show recovery's progress as one line on stderr, if that is a terminal.
        clock: the time retention and statistics go by.

    Raises:
        StoreLockedError: it is open elsewhere, here or in another process.
        StoreMismatchError: its files have other sizes than *config* says.
        UnsupportedStoreError: it uses a feature pymq does not read; the error names it.
        CorruptFileError: config/consumerOffset.json and its backup cannot be read.

    Example:
        >>> with open(getfixture("tmp_path") / "data") as mq:
        ...     sent = mq.send("greetings", b"hello", keys="first")
        ...     [message.body for message in mq.query("greetings", "first")]
        [b'hello']
    """
    absolute = Path(path).absolute()  # the working directory may be another one when the next file is made
    settings = config if config is not None else config_for(absolute)
    return EmbeddedStore(absolute, settings, progress=progress, clock=clock)


class EmbeddedStore(MessageStore):
    """An open store: send, read, look up, follow. Made by `pymq.open`. Every method may be called from any thread."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: StoreConfig,
        *,
        progress: bool = False,
        clock: Clock | None = None,
        disk_probe: DiskProbe = disk_ratio,
    ) -> None:
        """As `MessageStore`; use `pymq.open`."""
        super().__init__(path, config, progress=progress, clock=clock, disk_probe=disk_probe)
        # The core's own method stands in for the one below, which only passes on: a third of the time of a send.
        self.__dict__["send"] = self._store.send

    # ---- sending -------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int | None = None,
        wait: bool = True,
        timeout_ms: int | None = None,
        unique_key: bool = True,
    ) -> SendResult:
        """Store one message and return where it stands.

        Returns after: SYNC_FLUSH, it is on stable storage; ASYNC_FLUSH, it is in the page cache (with the transient
        pool: in the pool); SYNC_MASTER, and on a replica. With *wait* False it returns once the message is in the log
        (RocketMQ's waitStoreMsgOK=false).

        Args:
            topic: made by its first message; at most 127 bytes for RocketMQ's clients.
            body: at most `max_message_size` bytes.
            queue_id: which queue of the topic; order is kept within a queue.
            tags: one tag to filter by.
            keys: words to look the message up by.
            properties: further names and values.
            flag: 32 bits of the application's own.
            sys_flag: RocketMQ's own bits.
            born_timestamp_ms: when it was made; None means now.
            wait: whether to wait for the acknowledgement.
            timeout_ms: how long to wait; None means `sync_flush_timeout_ms`.
            unique_key: whether to add a UNIQ_KEY when *properties* has none, as RocketMQ's producers do.

        Raises:
            FlushTimeoutError: not acknowledged in time; it may still become durable. `.result` says where it stands.
            StoreFailedError: a flush failed; nothing is acknowledged any more.
            DiskFullError, StoreReadOnlyError, PoolExhaustedError: refused, nothing was stored.
            MessageTooLargeError, PropertiesTooLargeError, InvalidTopicError, InvalidArgumentError: never storable.
        """
        return self._store.send(
            topic,
            body,
            queue_id=queue_id,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            wait=wait,
            timeout_ms=timeout_ms,
            unique_key=unique_key,
        )

    async def send_async(
        self,
        topic: str,
        body: Body,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int | None = None,
        timeout_ms: int | None = None,
        unique_key: bool = True,
    ) -> SendResult:
        """`send` for asyncio: awaits the acknowledgement without a blocked thread. Arguments and errors as there.

        Ten thousand tasks that wait here cost one flush. The message is in the log when the task first waits, so
        cancelling the task does not take it back.
        """
        result = self._store.send(
            topic,
            body,
            queue_id=queue_id,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            wait=False,
            unique_key=unique_key,
        )
        timeout_s = (self.config.sync_flush_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            await self._loops.current().acknowledged(result.physical_offset + result.store_size, timeout_s)
        except StoreError as error:
            error.result = result
            raise
        return result

    def send_many(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        queue_id: int | Sequence[int] = 0,
        wait: bool = True,
        timeout_ms: int | None = None,
        unique_key: bool = True,
        together: bool = False,
    ) -> SendManyResult:
        """Store many messages with one wait at the end; the way to send fast.

        Args:
            topic: of all of them.
            messages: bodies, or `Message` where a body is not enough.
            queue_id: one queue, or several that are filled in turn.
            wait: as for `send`, for all of them at once.
            timeout_ms: as for `send`.
            unique_key: as for `send`.
            together: all of them next to each other in one log file, or none; their records together must then fit in
                `max_message_size`.

        Returns a compact sequence of SendResult, in the order given.

        Raises:
            what `send` raises; `.result` then holds the messages that were stored before. Bodies are checked first, so
            one that is too large stores nothing.
        """
        return self._store.send_many(
            topic,
            messages,
            queue_id=queue_id,
            wait=wait,
            timeout_ms=timeout_ms,
            unique_key=unique_key,
            together=together,
        )

    # ---- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        *,
        max_count: int = 32,
        timeout: float = 0.0,
    ) -> list[ReceivedMessage]:
        """Up to *max_count* messages of a queue from *offset* on; an empty list at its end.

        What was acknowledged before the call is seen by it. At the end it waits up to *timeout* seconds for one more.
        A damaged record ends the answer before it; reading at it raises.

        Raises:
            QueueNotFoundError: nothing was ever stored there.
            OffsetNotFoundError: below the first or above the last message; the error has `offset_min`, `offset_max`.
            CorruptRecordError: the record at *offset* is damaged; the error names file and byte. Go on at offset + 1.
        """
        messages = self._store.read(topic, queue_id, offset, max_count)
        if not messages and timeout > 0 and self._store.wait_arrival(topic, queue_id, offset, int(timeout * 1000)):
            messages = self._store.read(topic, queue_id, offset, max_count)
        return messages

    def iterate(
        self,
        topic: str,
        queue_id: int = 0,
        start: int | None = None,
        *,
        stop: int | None = None,
        tags: Iterable[str] | None = None,
    ) -> Iterator[ReceivedMessage]:
        """Every message of a queue, from *start* (its first, when None) to its end or *stop* (exclusive).

        With *tags*, only messages with one of them; the queue is scanned in C without reading the others.

        Messages that retention removes ahead of the iteration are passed over, and the log says so.

        Raises:
            as `read`; OffsetNotFoundError only for *start*. After a CorruptRecordError the same iterator goes on behind
            the damaged record.
        """
        cursor = IterationCursor(start)
        wanted = None if tags is None else ([tags] if isinstance(tags, str) else list(tags))
        return Resumable(lambda: self._iterate(topic, queue_id, cursor, stop, wanted))

    def _iterate(
        self, topic: str, queue_id: int, cursor: IterationCursor, stop: int | None, tags: list[str] | None
    ) -> Generator[ReceivedMessage, None, None]:
        if cursor.offset is None:
            cursor.offset = int(self._store.queue_range(topic, queue_id)[0])
            cursor.moved = True
        while stop is None or cursor.offset < stop:
            offset = cursor.offset
            try:
                if tags is None:
                    messages = self._store.read(topic, queue_id, offset, ITERATE_BATCH)
                    cursor.offset = offset + len(messages)
                else:
                    messages, following = self._store.read_tagged(topic, queue_id, offset, tags, ITERATE_BATCH)
                    cursor.offset = int(following)
            except OffsetNotFoundError:
                if not cursor.moved:
                    raise
                cursor.offset = step_over_removed(self._store, topic, queue_id, offset, "iterate")
                continue
            except CorruptRecordError as error:
                cursor.offset = error.queue_offset + 1
                raise
            cursor.moved = True
            for message in messages:
                if stop is not None and message.queue_offset >= stop:
                    return
                yield message
            if cursor.offset == offset:
                return

    def tail(
        self,
        topic: str,
        start: Literal["earliest", "latest"] | Mapping[int, int] = "latest",
        *,
        queue_ids: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> Iterator[ReceivedMessage]:
        """Follow a topic over all its queues: messages as they arrive, blocking in between.

        Args:
            topic: it may have no messages yet.
            start: "latest" for messages sent from now on, "earliest" for everything still there, or a next offset per
                queue (queues not named are read from their beginning).
            queue_ids: only these queues.
            timeout: end after so many seconds without a message; None waits for ever.

        "Now" is when this is called, not when the first message is asked for. Order is kept within each queue.

        Raises:
            StoreClosedError: the store was closed meanwhile. OffsetNotFoundError is not raised: a position whose
            messages are gone moves to the first one there, and the log says so.
            CorruptRecordError: the next message is damaged. Ask this same iterator again to go on behind it.
        """
        reader = TailReader(self, topic, queue_ids, positions(start))
        return Resumable(lambda: reader.blocking(timeout))

    def atail(
        self,
        topic: str,
        start: Literal["earliest", "latest"] | Mapping[int, int] = "latest",
        *,
        queue_ids: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """`tail` for asyncio: `async for message in mq.atail("orders"):`. Arguments as there."""
        reader = TailReader(self, topic, queue_ids, positions(start))
        return AsyncResumable(lambda: reader.asynchronous(timeout))

    def group(self, name: str) -> ConsumerGroup:
        """The consumer group *name*: reads on from its committed offsets, also after a restart.

        Raises:
            InvalidArgumentError: a name RocketMQ would refuse.
        """
        return ConsumerGroup(self, self._offsets, name)

    def groups(self) -> list[str]:
        """Groups that have committed something."""
        return self._offsets.groups()

    # ---- looking up ----------------------------------------------------------------------------------------------

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Every queue (of *topic*), sorted, with its first and next offset."""
        return sorted(QueueInfo(*row) for row in self._store.queues() if topic is None or row[0] == topic)

    def topics(self) -> list[str]:
        """Every topic that has a queue."""
        return sorted({row[0] for row in self._store.queues()})

    def offset_range(self, topic: str, queue_id: int = 0) -> tuple[QueueOffset, QueueOffset]:
        """First offset and next offset of a queue; raises QueueNotFoundError."""
        return self._store.queue_range(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int = 0) -> QueueOffset:
        """Offset of the first message still there; raises QueueNotFoundError."""
        return self._store.queue_range(topic, queue_id)[0]

    def max_offset(self, topic: str, queue_id: int = 0) -> QueueOffset:
        """One past the offset of the last message; raises QueueNotFoundError."""
        return self._store.queue_range(topic, queue_id)[1]

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin: int | datetime = 0,
        end: int | datetime = TIME_END_MS,
        max_count: int = 32,
    ) -> list[ReceivedMessage]:
        """Messages of *topic* with *key* (one of their keys, or the unique one), newest first.

        The index holds hashes only; each candidate is compared with the real key, so a collision is never returned.

        Args:
            topic: where to look.
            key: one word.
            begin: stored at or after this time, milliseconds or datetime.
            end: stored at or before this time.
            max_count: at most so many.

        Raises:
            UnsupportedStoreError: the store was opened with `message_index_enable` False.
        """
        return self._store.query(topic, key, timestamp_ms(begin), timestamp_ms(end), max_count)

    def get_by_id(self, message_id: str) -> ReceivedMessage:
        """The message with this offset message id (32 hex characters, 56 with IPv6), as `SendResult.message_id`.

        Raises:
            InvalidArgumentError: not such an id.
            OffsetNotFoundError: it is of another store, or its file was removed.
            CorruptRecordError: its record is damaged.
        """
        if not MESSAGE_ID.fullmatch(message_id):
            raise InvalidArgumentError(f"{message_id[:64]!r} is no message id of 32 or 56 hex digits")
        offset = int(message_id[-OFFSET_DIGITS:], 16)
        if offset > TIME_END_MS:
            raise OffsetNotFoundError(f"{self.path}: message id {message_id}: offset {offset} is beyond any log")
        message = self._store.read_record(offset)
        if message.message_id != message_id.upper():
            raise OffsetNotFoundError(
                f"{self.path}: message id {message_id} names another store than {message.store_host}, which wrote the "
                f"message at {offset}"
            )
        return message

    def get_by_offset(self, physical_offset: int) -> ReceivedMessage:
        """The message whose record begins at this byte of the log.

        Raises:
            OffsetNotFoundError: nothing visible there. CorruptRecordError: no whole record begins there.
        """
        return self._store.read_record(physical_offset)

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int | datetime,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> QueueOffset:
        """The queue offset for a time, milliseconds or datetime.

        "lower" is the first message stored at or after it (the next offset, when there is none), "upper" the last one
        stored at or before it. An empty queue gives 0.

        Raises:
            QueueNotFoundError: nothing was ever stored there.
        """
        if boundary not in ("lower", "upper"):
            raise InvalidArgumentError(f"boundary is {boundary!r}; it can be lower or upper")
        return self._store.offset_by_time(topic, queue_id, timestamp_ms(timestamp), boundary == "upper")


def timestamp_ms(time: int | datetime) -> int:
    """Milliseconds since 1970; a datetime without a zone is local time, as Python has it."""
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else time


def positions(start: Literal["earliest", "latest"] | Mapping[int, int]) -> Callable[[int], Position]:
    """Where to begin, by queue."""
    if isinstance(start, Mapping):
        named = dict(start)
        return lambda queue_id: named.get(queue_id, "earliest")
    if start not in ("earliest", "latest"):
        raise InvalidArgumentError(f"start is {start!r}; it can be earliest, latest or an offset per queue")
    return lambda _: start
