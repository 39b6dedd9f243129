"""Who may consume a queue in order: the queue locks of consumer groups (RocketMQ's RebalanceLockManager).

A client that consumes in order asks for the locks of its queues every 20 s and consumes only what it holds. A lock that
has not been asked for again within `rocketmq.broker.rebalance.lockMaxLiveTime` (60 s) counts as free; the client itself
stops using it after 30 s, so two clients never work on one queue, whatever time either message takes. Locks live in
memory alone: after a restart of the broker the first to ask gets them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pymq.clock import Clock

log = logging.getLogger("pymq.broker")


class LockedQueue(NamedTuple):
    """A queue as clients name it: of which broker, too."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class QueueLock:
    """One lock.

    Attributes:
        renewed_s: monotonic: a step of the wall clock must not hand out a lock that is in use.
        refused: the client that was last told no, so that one who asks for ever is logged once.
    """

    client_id: str
    renewed_s: float
    refused: str = ""


class OrderLocks:
    """The locks of every group. On the control loop alone, so a batch is granted or refused in one piece."""

    def __init__(self, clock: Clock, live_ms: int) -> None:
        """No queue is locked yet; a lock is good for *live_ms* after its owner last asked for it."""
        self._clock = clock
        self._live_s = live_ms / 1000
        self._groups: dict[str, dict[LockedQueue, QueueLock]] = {}

    def lock(self, group: str, queues: Iterable[LockedQueue], client_id: str) -> list[LockedQueue]:
        """Give *client_id* what nobody else holds, and renew what it holds; the queues it has now."""
        locks = self._groups.setdefault(group, {})
        granted = [queue for queue in dict.fromkeys(queues) if self._lock_one(group, locks, queue, client_id)]
        if not locks:
            del self._groups[group]
        return granted

    def _lock_one(self, group: str, locks: dict[LockedQueue, QueueLock], queue: LockedQueue, client_id: str) -> bool:
        now_s = self._clock.monotonic_s()
        held = locks.get(queue)
        if held is not None and held.client_id != client_id:
            if not self._is_expired(held, now_s):
                if held.refused != client_id:
                    held.refused = client_id
                    log.warning(
                        "queue is locked by another client group=%s queue=%s owner=%s asked=%s",
                        group, queue, held.client_id, client_id,
                    )  # fmt: skip
                return False
            log.warning(
                "expired queue lock taken over group=%s queue=%s old=%s new=%s silent_s=%.1f",
                group, queue, held.client_id, client_id, now_s - held.renewed_s,
            )  # fmt: skip
            held = None
        if held is None:
            locks[queue] = QueueLock(client_id, now_s)
            log.info("queue locked group=%s queue=%s client=%s", group, queue, client_id)
        else:
            held.renewed_s = now_s
        return True

    def unlock(self, group: str, queues: Iterable[LockedQueue], client_id: str) -> None:
        """Give up what *client_id* holds of *queues*; what another holds stays locked."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is None:
                log.info("queue to unlock is not locked group=%s queue=%s client=%s", group, queue, client_id)
            elif held.client_id != client_id:
                log.warning(
                    "queue to unlock is locked by another client group=%s queue=%s owner=%s asked=%s",
                    group, queue, held.client_id, client_id,
                )  # fmt: skip
            else:
                del locks[queue]
                log.info("queue unlocked group=%s queue=%s client=%s", group, queue, client_id)
        if not locks:
            self._groups.pop(group, None)

    def owner(self, group: str, queue: LockedQueue) -> str | None:
        """Who holds *queue* now."""
        held = self._groups.get(group, {}).get(queue)
        return None if held is None or self._is_expired(held, self._clock.monotonic_s()) else held.client_id

    def is_free(self, group: str) -> bool:
        """Whether nobody holds anything of *group* (isLockAllExpired)."""
        return not any(True for _ in self.held(group))

    def held(self, group: str = "") -> Iterator[tuple[str, LockedQueue, str]]:
        """(group, queue, client id) of every lock in force; of one group, or of all."""
        now_s = self._clock.monotonic_s()
        for name, locks in self._groups.items():
            if not group or name == group:
                for queue, held in locks.items():
                    if not self._is_expired(held, now_s):
                        yield name, queue, held.client_id

    def forget_expired(self) -> None:
        """Drop what counts as free anyway, so that clients that come and go leave nothing behind."""
        now_s = self._clock.monotonic_s()
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if self._is_expired(held, now_s)]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def _is_expired(self, held: QueueLock, now_s: float) -> bool:
        return now_s - held.renewed_s > self._live_s
