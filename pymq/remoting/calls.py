"""Requests this side has sent and waits for: permits, numbers, time-outs.

A call takes a permit, registers a future under its connection and number, writes, waits, and always removes the future
and gives the permit back, whichever way it ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pymq.remoting.command import Command, next_opaque
from pymq.remoting.errors import (
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)

if TYPE_CHECKING:
    from pymq._core._transport import Transport

logger = logging.getLogger(__name__)


class Permits:
    """A semaphore whose waiters have a deadline and whose refusal says how full it is."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.used = 0
        self.waiting = 0
        self._freed: asyncio.Semaphore = asyncio.Semaphore(value)

    async def take(self, address: str, timeout_s: float) -> None:
        """Wait at most *timeout_s* for a permit.

        Raises:
            RemotingTooMuchRequestError: none is free and there is no time to wait.
            RemotingTimeoutError: none became free in time.
        """
        if self._freed.locked():
            if timeout_s <= 0:
                raise RemotingTooMuchRequestError(address, f"invoke too fast: all {self.value} permits are in use")
            self.waiting += 1
            try:
                await asyncio.wait_for(self._freed.acquire(), timeout_s)
            except TimeoutError:
                raise RemotingTimeoutError(
                    address, timeout_s, f"no permit; waiting: {self.waiting}, free: {self.value - self.used}"
                ) from None
            finally:
                self.waiting -= 1
        else:
            await self._freed.acquire()  # does not wait
        self.used += 1

    def give_back(self) -> None:
        """Return one permit."""
        self.used -= 1
        self._freed.release()


class Calls:
    """The calls in flight on one transport."""

    def __init__(self, transport: Transport, permits: Permits) -> None:
        self._transport = transport
        self._permits = permits
        self._waiting: dict[int, dict[int, asyncio.Future[Command]]] = {}
        self.unmatched = 0

    async def invoke(self, connection: int, address: str, request: Command, timeout_s: float) -> Command:
        """Send *request* over *connection* and wait for its answer. The request's number is set here.

        Raises:
            RemotingSendRequestError: the connection is gone, or went while waiting.
            RemotingTimeoutError: no answer, or no permit, within *timeout_s*.
            RemotingTooMuchRequestError: no permit and no time.
        """
        begin = time.monotonic()
        await self._permits.take(address, timeout_s)
        try:
            left_s = timeout_s - (time.monotonic() - begin)
            if left_s <= 0:
                raise RemotingTimeoutError(address, timeout_s, "the time was spent waiting for a permit")
            request.opaque = next_opaque()
            future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            table = self._waiting.setdefault(connection, {})
            table[request.opaque] = future
            try:
                if not self._transport.send(connection, request.encode()):
                    raise RemotingSendRequestError(address, "the connection is closed")
                return await asyncio.wait_for(future, left_s)
            except TimeoutError:
                raise RemotingTimeoutError(address, timeout_s) from None
            except ConnectionResetError:
                raise RemotingSendRequestError(address, "the connection was closed before the answer came") from None
            finally:
                table.pop(request.opaque, None)
                if not table:
                    self._waiting.pop(connection, None)
        finally:
            self._permits.give_back()

    def answer(self, connection: int, response: Command) -> None:
        """Give a response to whoever waits for it."""
        future = self._waiting.get(connection, {}).get(response.opaque)
        if future is None or future.done():
            self.unmatched += 1  # it came too late, or to nobody
            logger.debug("an answer that nobody waits for: connection %#x, opaque %d", connection, response.opaque)
        else:
            future.set_result(response)

    def closed(self, connection: int) -> None:
        """End every call that waits on *connection*."""
        for future in self._waiting.pop(connection, {}).values():
            if not future.done():
                future.set_exception(ConnectionResetError())
