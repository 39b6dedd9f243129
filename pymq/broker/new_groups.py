"""Where a group begins with a queue that it has no offset in (QUERY_CONSUMER_OFFSET), by newGroupOffsetPolicy.

`rocketmq`: at 0 while the queue still begins at 0 and its first message is in memory, otherwise the client chooses by
its consumeFromWhere. The rule is there for queues added to a topic: what was sent to them before their consumers saw
them must not be skipped. It cannot tell such a queue from a new group, which on a young topic gets the history it did
not ask for, depending on the page cache.

`asked`: tells them apart. A group is known to a topic from its first question on; a queue whose first message is
younger than that came later, and begins at 0, in memory or not. Any other queue was there before the group, and begins
where the client asks. A group that has offsets in the topic from before pymq kept that time was always known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pymq.broker.config import ASKED_POLICY
from pymq.broker.queue_info import queue_range, stored_at
from pymq.errors import InvalidArgumentError, InvalidTopicError, NotFoundError

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

NO_QUEUE = (InvalidArgumentError, InvalidTopicError, NotFoundError)  # a number or a name that no queue can have
ALWAYS_MS = 0

Pair = tuple[str, str]  # topic, group


class NewGroups:
    """Decides, and remembers since when groups are known."""

    def __init__(self, broker: Broker) -> None:
        """Nobody is known yet; see load()."""
        self._broker = broker
        self._known_since: dict[Pair, int] = {}

    def load(self, known_since: Mapping[Pair, int]) -> None:
        """What the offsets' file says."""
        self._known_since = dict(known_since)

    def known_since(self) -> Mapping[Pair, int]:
        """For the offsets' file: milliseconds by topic and group, of those that still exist."""
        topics, groups = self._broker.topics, self._broker.groups
        return {
            (topic, group): since_ms
            for (topic, group), since_ms in self._known_since.items()
            if topics.get(topic) is not None and groups.get(group) is not None
        }

    def forget(self, *, topic: str = "", group: str = "") -> None:
        """A topic or a group is gone with its offsets: should it come back it is new."""
        for pair in [pair for pair in self._known_since if topic in ("", pair[0]) and group in ("", pair[1])]:
            del self._known_since[pair]

    async def begins_at_zero(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the queue is consumed from its first message on, whatever the client would choose."""
        low, high = self._range(topic, queue_id)
        if self._broker.config.new_group_offset_policy != ASKED_POLICY:
            return low <= 0 and self._is_in_memory(topic, queue_id)
        since_ms = self._since(group, topic)
        if low > 0 or high <= low:
            return False
        loop = asyncio.get_running_loop()
        store = self._broker.store
        first_ms = await loop.run_in_executor(self._broker.executor, stored_at, store, topic, queue_id, low)
        return first_ms >= since_ms

    def _since(self, group: str, topic: str) -> int:
        """Since when the group has been known to the topic; from now on, when it was not."""
        pair = (topic, group)
        known_ms = self._known_since.get(pair)
        if known_ms is None:
            known_ms = ALWAYS_MS if self._has_offsets(group, topic) else self._broker.clock.now_ms()
            self._known_since[pair] = known_ms
        return known_ms

    def _has_offsets(self, group: str, topic: str) -> bool:
        config = self._broker.topics.get(topic)
        queues = range(max(config.read_queue_nums, config.write_queue_nums)) if config is not None else ()
        return any(self._broker.serve.offset_query(group, topic, queue_id) is not None for queue_id in queues)

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        try:
            return queue_range(self._broker.store, topic, queue_id)
        except NO_QUEUE:
            return 0, 0

    def _is_in_memory(self, topic: str, queue_id: int) -> bool:
        try:
            return self._broker.store.is_in_memory(topic, queue_id, 0)
        except NO_QUEUE:
            return False
