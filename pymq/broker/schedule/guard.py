"""What retention must wait for: messages in delay levels that were not due yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.errors import CorruptRecordError, NotFoundError

if TYPE_CHECKING:
    from pymq._core._store import Store
    from pymq.broker.schedule.offsets import DelayOffsets


class DelayGuard:
    """Keeps log files with delayed messages. Asked by the housekeeping thread; nothing here is changed by it.

    One that was set aside keeps no file: it could not be delivered, and would keep the log for ever.
    """

    def __init__(self) -> None:
        """Everything is needed until it is known how far the levels have come."""
        self._watched: tuple[Store, DelayOffsets] | None = None

    def watch(self, store: Store, offsets: DelayOffsets) -> None:
        """From now on look there."""
        self._watched = (store, offsets)

    def needed_from(self) -> int | None:
        """The lowest physical offset of a message that waits."""
        if self._watched is None:
            return 0
        store, offsets = self._watched
        heads = (physical_offset(store, level, progress.vouched) for level, progress in [*offsets.levels.items()])
        return min((head for head in heads if head is not None), default=None)

    def count_below(self, offset: int) -> int:
        """How many messages that wait begin below *offset*."""
        if self._watched is None:
            return 0
        store, offsets = self._watched
        return sum(count_below(store, level, progress.vouched, offset) for level, progress in [*offsets.levels.items()])


def physical_offset(store: Store, level: int, queue_offset: int) -> int | None:
    """Where the message at *queue_offset* of a level, or the first behind it, begins; None when there is none."""
    try:
        low, _ = store.queue_range(names.SCHEDULE_TOPIC, level - 1, False)
        found = store.read(names.SCHEDULE_TOPIC, level - 1, max(low, queue_offset), 1, False)
    except NotFoundError:
        return None
    except CorruptRecordError as error:
        return error.physical_offset if error.physical_offset >= 0 else None
    return int(found[0].physical_offset) if found else None


def count_below(store: Store, level: int, begin: int, offset: int) -> int:
    """How many messages of a level, from *begin* on, lie below *offset* of the log: those before the first that not."""
    try:
        first, last = store.queue_range(names.SCHEDULE_TOPIC, level - 1, False)
    except NotFoundError:
        return 0
    begin = low = max(int(first), begin)
    end = int(last)
    while low < end:
        middle = (low + end) // 2
        found = physical_offset(store, level, middle)
        if found is not None and found < offset:
            low = middle + 1
        else:
            end = middle
    return low - begin
