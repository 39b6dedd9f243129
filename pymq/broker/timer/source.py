"""What the timers stand on: the queue of the timer topic, records of the log, and putting them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pymq._core._serve import PutResult, Reput, Serve
from pymq._core._store import Store
from pymq.broker import names
from pymq.errors import CorruptRecordError, NotFoundError

NOWHERE = -1  # the offset of a message that is damaged


class Timed(NamedTuple):
    """A message of the timer topic; a `damaged` one is there, and nothing is known of it but its place in the queue."""

    queue_offset: int
    offset: int
    size: int
    properties: dict[str, str]
    damaged: bool = False


class TimerSource(Protocol):
    """The log and the timer topic's one queue, as timers see them. Everything may wait for the disk."""

    def queue_range(self, *, settle: bool = False) -> tuple[int, int]:
        """The queue's first offset and its end; *settle* waits until all that is in the log is in the queue."""
        ...

    def read(self, queue_offset: int, count: int) -> list[Timed]:
        """Messages from *queue_offset* on, at most *count*."""
        ...

    def record(self, offset: int) -> Timed | None:
        """The message at *offset* of the log; None when it is gone or damaged."""
        ...

    def reput(self, items: Sequence[Reput]) -> list[PutResult | str]:
        """Put records again; for each where it is now, or why it is not."""
        ...

    def flushed(self) -> int:
        """Up to where the log is on stable storage."""
        ...

    def flush(self) -> None:
        """Put all of it there."""
        ...


class StoreSource:
    """The real one."""

    def __init__(self, store: Store, serve: Serve) -> None:
        """Read from *store*, put again through *serve*."""
        self._store = store
        self._serve = serve

    def queue_range(self, *, settle: bool = False) -> tuple[int, int]:
        """(0, 0) when there never was a timer."""
        try:
            first, end = self._store.queue_range(names.TIMER_TOPIC, 0, settle=settle)
        except NotFoundError:
            return 0, 0
        return int(first), int(end)

    def read(self, queue_offset: int, count: int) -> list[Timed]:
        """None when nothing is there yet, or not any more. A damaged record costs only itself."""
        try:
            messages = self._store.read(names.TIMER_TOPIC, 0, queue_offset, count, settle=False)
        except NotFoundError:
            return []
        except CorruptRecordError:
            if count == 1:
                return [Timed(queue_offset, NOWHERE, 0, {}, damaged=True)]
            found: list[Timed] = []
            for at in range(queue_offset, queue_offset + count):
                one = self.read(at, 1)
                if not one:
                    break
                found += one
            return found
        return [
            Timed(int(message.queue_offset), int(message.physical_offset), message.store_size, message.properties)
            for message in messages
        ]

    def record(self, offset: int) -> Timed | None:
        """None when no record begins there any more, or none that can be read."""
        try:
            message = self._store.read_record(offset)
        except (NotFoundError, CorruptRecordError):
            return None
        return Timed(int(message.queue_offset), int(message.physical_offset), message.store_size, message.properties)

    def reput(self, items: Sequence[Reput]) -> list[PutResult | str]:
        """One call for all of them."""
        return self._serve.reput(items)

    def flushed(self) -> int:
        """The store's watermark."""
        return int(self._store.watermarks()["flushed"])

    def flush(self) -> None:
        """Waits for the disk."""
        self._store.flush()
