"""Messages put again one at a time, gathered: all that are asked for in one turn of the loop go into the log together.

One call into the core costs more than the message it moves, so a hundred consumers that send messages back at once
share it. Sources near the end of the log are in memory and are put on the loop; others are read from the disk
first, off the loop, and hold up nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from pymq._core._serve import PutResult, Reput
from pymq.errors import StoreError

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

HOT_BYTES = 64 << 20  # the end of the log that the kernel has in memory: it was written a moment ago
BATCH_MAX = 512

Waiting = tuple[Reput, "asyncio.Future[PutResult | str]"]


class Reputs:
    """Gathers and puts. On the control loop."""

    def __init__(self, broker: Broker) -> None:
        """Put into *broker*'s log."""
        self._broker = broker
        self._waiting: list[Waiting] = []
        self._tasks: set[asyncio.Task[list[PutResult | str]]] = set()  # the loop itself forgets them

    def is_hot(self, offset: int) -> bool:
        """Whether the record at *offset* of the log is taken to be in memory."""
        return offset >= self._hot_from()

    def _hot_from(self) -> int:
        return int(self._broker.store.watermarks()["written"]) - HOT_BYTES

    def put(self, reput: Reput) -> asyncio.Future[PutResult | str]:
        """Put it with the others of this turn; where it stands then, or the status that says why it does not."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PutResult | str] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._begin)
        self._waiting.append((reput, future))
        if len(self._waiting) >= BATCH_MAX:
            self._begin()
        return future

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        hot: list[Waiting] = []
        cold: list[Waiting] = []
        hot_from = self._hot_from()  # once: it moves while others append
        for entry in waiting:
            (hot if entry[0].source >= hot_from else cold).append(entry)
        if hot:
            here = self._spawn(self._reput_here([reput for reput, _ in hot]))
            here.add_done_callback(lambda done: settle(hot, done))
        if cold:
            loop = asyncio.get_running_loop()
            put = loop.run_in_executor(self._broker.executor, self._reput, [reput for reput, _ in cold])
            put.add_done_callback(lambda done: settle(cold, done))

    def _spawn(self, work: Coroutine[Any, Any, list[PutResult | str]]) -> asyncio.Task[list[PutResult | str]]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _reput_here(self, reputs: list[Reput]) -> list[PutResult | str]:
        return self._reput(reputs)

    def _reput(self, reputs: list[Reput]) -> list[PutResult | str]:
        try:
            return self._broker.serve.reput(reputs)
        except StoreError as error:
            return [error.status] * len(reputs)


def settle(waiting: list[Waiting], done: asyncio.Future[list[PutResult | str]]) -> None:
    """Tell each what became of it, and all of them what went wrong; who is not there any more (a stop) is not told."""
    failure = done.exception()
    results = [""] * len(waiting) if failure is not None else done.result()
    for (_, future), result in zip(waiting, results, strict=True):
        if future.done():
            continue
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(result)
