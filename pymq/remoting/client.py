"""A client of RocketMQ's remoting protocol, on the native transport: calls, oneways, callbacks, servers' requests.

Connections are made when they are needed, one to an address, shared by everybody who calls it. The time a call spends
on connecting and in hooks is taken from its time-out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pymq._core._transport import Transport
from pymq.remoting.calls import Calls, Permits
from pymq.remoting.command import FLAG_ONEWAY, Command, next_opaque
from pymq.remoting.config import RemotingClientConfig
from pymq.remoting.dispatch import Dispatcher, Handler, RpcHook
from pymq.remoting.errors import (
    RemotingCallError,
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from pymq.remoting.lanes import LanePump

if TYPE_CHECKING:
    from pymq._core._transport import Handed

logger = logging.getLogger(__name__)

CLOSE_DRAIN_MS = 500
# A call that had less time than this left for its answer does not end the connection by not getting one.
CLOSE_AFTER_S = 0.1

Callback = Callable[[Command | RemotingCallError], None]


class RemotingClient:
    """Calls servers by address.

    A client belongs to the event loop of its first call; `pymq.remoting.client_sync` is for programs without a loop.
    """

    def __init__(self, config: RemotingClientConfig | None = None) -> None:
        self.config = config or RemotingClientConfig()
        self._transport: Transport | None = None
        self._handlers: list[tuple[tuple[int, ...], Handler]] = []
        self._hooks: list[RpcHook] = []
        self._connections: dict[str, int] = {}
        self._addresses: dict[int, str] = {}
        self._connecting: dict[str, asyncio.Task[int]] = {}
        self._callbacks: set[asyncio.Task[None]] = set()
        self._oneway_permits = Permits(self.config.oneway_semaphore_value)
        self._closed = False
        self._pump: LanePump
        self._dispatcher: Dispatcher
        self._calls: Calls

    # ---- calls ---------------------------------------------------------------------------------------------------

    async def invoke(self, address: str, command: Command, timeout_s: float) -> Command:
        """Ask *address* ("host:port") and wait for its answer.

        Raises:
            RemotingConnectError: no connection to the address.
            RemotingSendRequestError: the connection was lost; the request may have been served.
            RemotingTimeoutError: no answer in time; the request may have been served.
        """
        begin = time.monotonic()
        connection = await self._connection(address, timeout_s)
        for hook in self._hooks:
            hook.before_request(address, command)
        left_s = timeout_s - (time.monotonic() - begin)
        if left_s <= 0:
            raise RemotingTimeoutError(address, timeout_s, "the time was spent connecting")
        try:
            response = await self._calls.invoke(connection, address, command, left_s)
        except RemotingSendRequestError:
            self._drop(address, connection)
            raise
        except RemotingTimeoutError:
            had_time = left_s > CLOSE_AFTER_S or left_s > timeout_s / 4
            if self.config.close_socket_if_timeout and had_time:
                logger.warning("closing the connection to %s: no answer within %.0f ms", address, timeout_s * 1000)
                self._drop(address, connection)
            raise
        for hook in self._hooks:
            hook.after_response(address, command, response)
        return response

    async def oneway(self, address: str, command: Command, timeout_s: float) -> None:
        """Send *command* and wait for nothing but its turn.

        Raises:
            RemotingConnectError: no connection to the address.
            RemotingSendRequestError: the connection is gone.
            RemotingTooMuchRequestError: no time was left to send it.
        """
        begin = time.monotonic()
        connection = await self._connection(address, timeout_s)
        for hook in self._hooks:
            hook.before_request(address, command)
        left_s = timeout_s - (time.monotonic() - begin)
        if left_s <= 0:
            raise RemotingTooMuchRequestError(address, "the time was spent connecting")
        await self._oneway_permits.take(address, left_s)
        try:
            command.flag |= FLAG_ONEWAY
            command.opaque = next_opaque()
            if not self._running().send(connection, command.encode()):
                self._drop(address, connection)
                raise RemotingSendRequestError(address, "the connection is closed")
        finally:
            self._oneway_permits.give_back()

    def invoke_callback(self, address: str, command: Command, timeout_s: float, callback: Callback) -> None:
        """Ask *address* and have *callback* called with the answer, or with what went wrong; once, on the loop."""
        task = asyncio.get_running_loop().create_task(self._call_back(address, command, timeout_s, callback))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    async def _call_back(self, address: str, command: Command, timeout_s: float, callback: Callback) -> None:
        result: Command | RemotingCallError
        begin = time.monotonic()
        try:
            await self._connection(address, timeout_s)
            left_s = timeout_s - (time.monotonic() - begin)
            if left_s <= 0:
                raise RemotingTooMuchRequestError(address, "the time was spent connecting")
            result = await self.invoke(address, command, left_s)
        except RemotingCallError as error:
            result = error
        callback(result)

    # ---- what servers ask ----------------------------------------------------------------------------------------

    def register(self, codes: int | Iterable[int], handler: Handler) -> None:
        """Let *handler* answer requests of *codes* that a server sends over a connection made here."""
        numbers = (int(codes),) if isinstance(codes, int) else tuple(int(code) for code in codes)
        self._handlers.append((numbers, handler))
        if self._transport is not None:
            self._dispatcher.register(numbers, handler)

    def register_hook(self, hook: RpcHook) -> None:
        """Let *hook* see every request sent from here and its answer."""
        self._hooks.append(hook)

    # ---- connections ---------------------------------------------------------------------------------------------

    def is_connected(self, address: str) -> bool:
        """Whether there is a connection to *address* now."""
        return address in self._connections

    def address_of(self, connection: int) -> str | None:
        """Whom a connection leads to; for handlers of servers' requests."""
        return self._addresses.get(connection)

    def disconnect(self, address: str) -> None:
        """Close the connection to *address*, if there is one."""
        connection = self._connections.get(address)
        if connection is not None:
            self._drop(address, connection)

    async def close(self) -> None:
        """Close every connection; calls that wait end with a RemotingCallError. Idempotent."""
        self._closed = True
        for task in list(self._connecting.values()):
            task.cancel()
        transport, self._transport = self._transport, None
        if transport is None:
            return
        self._pump.stop()
        await asyncio.to_thread(transport.close, CLOSE_DRAIN_MS)
        for connection in list(self._addresses):
            self.closed(connection)
        if self._callbacks:
            await asyncio.wait(self._callbacks)  # each is told that its call has ended

    def _running(self) -> Transport:
        """The transport, made by the first call."""
        if self._closed:
            raise RuntimeError("the client is closed; make another")
        if self._transport is None:
            transport = Transport(self.config.transport)
            self._transport = transport
            self._pump = LanePump(transport, self)
            self._dispatcher = Dispatcher(self._pump.send, transport.close_connection)
            self._calls = Calls(transport, Permits(self.config.async_semaphore_value))
            for codes, handler in self._handlers:
                self._dispatcher.register(codes, handler)
            self._pump.start()
        return self._transport

    async def _connection(self, address: str, timeout_s: float) -> int:
        """The connection to *address*, made if there is none; everybody waits for the same attempt."""
        self._running()
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connect_done(address, done))
        try:
            return await asyncio.wait_for(asyncio.shield(task), max(timeout_s, 0))
        except TimeoutError:
            raise RemotingConnectError(address, f"no connection within {round(timeout_s * 1000)} ms") from None
        except (OSError, ValueError) as error:
            raise RemotingConnectError(address, str(error)) from error
        except asyncio.CancelledError:
            if task.cancelled():  # not the caller: close() ended the attempt
                raise RemotingConnectError(address, "the client was closed") from None
            raise

    def _connect_done(self, address: str, task: asyncio.Task[int]) -> None:
        """An attempt has ended, perhaps with nobody left who waits for it."""
        self._connecting.pop(address, None)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("connecting to %s failed: %s", address, task.exception())

    async def _connect(self, address: str) -> int:
        """Make a connection and give it to the transport."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.config.connect_timeout_ms / 1000):
            connected = await connect_socket(loop, host, port)
            peer = connected.getpeername()[:2]
            if self.config.tls.client_enable:
                from pymq.remoting.tls import connect_tls

                connected = await connect_tls(connected, host, self.config.tls)
        fd = connected.detach()
        try:
            connection = self._running().adopt(fd, peer, True)
        except (RuntimeError, OSError, ValueError):
            os.close(fd)
            raise
        self._connections[address] = connection
        self._addresses[connection] = address
        return connection

    def _drop(self, address: str, connection: int) -> None:
        """Close a connection; the next call makes a new one."""
        if self._connections.get(address) == connection:
            del self._connections[address]
        if self._transport is not None:
            self._transport.close_connection(connection)

    # ---- from the lanes ------------------------------------------------------------------------------------------

    def frame(self, handed: Handed) -> None:
        """An answer, or a request of a server."""
        self._dispatcher.handle(handed, self._calls)

    def opened(self, connection: int, peer: tuple[str, int]) -> None:
        """Nobody connects to a client."""

    def closed(self, connection: int) -> None:
        """A connection is gone; calls that wait on it end."""
        address = self._addresses.pop(connection, None)
        if address is not None and self._connections.get(address) == connection:
            del self._connections[address]
        self._calls.closed(connection)

    def tls(self, fd: int, peer: tuple[str, int]) -> None:
        """Nobody connects to a client."""
        os.close(fd)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[host]:port".

    Raises:
        ValueError: it is neither.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


async def connect_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A connected, non-blocking socket; the first address of the name that answers."""
    failure: OSError | None = None
    try:  # a number is no name to be asked for in a thread
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, where in found:
        attempt = socket.socket(family, kind, protocol)
        try:
            attempt.setblocking(False)
            attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(attempt, where)
        except OSError as error:
            attempt.close()
            failure = error
        except BaseException:
            attempt.close()
            raise
        else:
            return attempt
    raise failure or OSError(f"{host} has no address")
