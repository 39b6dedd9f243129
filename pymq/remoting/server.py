"""A server of RocketMQ's remoting protocol: the control loop's half of it.

The transport serves what it can natively and hands over the rest; here requests meet their handlers, on one event
loop, with no lock. A handler returns its answer, or an awaitable of it, or None when the answer is sent elsewhere or
later with `reply`. SYSTEM_BUSY for full and slow lanes is answered by the transport itself.

After an `await` a handler may find its client gone: `peer()` says None then, and `on_close` has been told.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pymq._core._transport import Transport
from pymq.remoting.calls import Calls, Permits
from pymq.remoting.codes import ResponseCode
from pymq.remoting.command import FLAG_ONEWAY, Command
from pymq.remoting.config import Lane, RemotingServerConfig, TlsMode
from pymq.remoting.dispatch import Dispatcher, Handler, Request, RpcHook, address_of
from pymq.remoting.errors import RemotingConnectError, RemotingError
from pymq.remoting.lanes import LanePump
from pymq.remoting.refusals import Refusals

if TYPE_CHECKING:
    from pymq._core._transport import Handed
    from pymq.remoting.tls import ServerTls

__all__ = ["Handler", "RemotingError", "RemotingServer", "Request"]

logger = logging.getLogger(__name__)

TICK_S = 0.5
DRAIN_POLL_S = 0.005
CLOSE_DRAIN_MS = 1000


class RemotingServer:
    """Listens, dispatches, answers, asks its clients.

    Attributes:
        transport: the native half, from construction on.
        ports: the ports listened on, in the order of the configuration's addresses; after start().
        loop_late_count, loop_late_ms_max: how often the loop was late by more than `loop_late_ms`, and the worst.
    """

    transport: Transport

    def __init__(self, config: RemotingServerConfig, *, serve: object | None = None) -> None:
        self.config = config
        self.transport = Transport(config.transport, serve)
        self.ports: tuple[int, ...] = ()
        self.loop_late_count = 0
        self.loop_late_ms_max = 0
        self._peers: dict[int, tuple[str, int]] = {}
        self._close_listeners: list[Callable[[int], None]] = []
        self._pump = LanePump(self.transport, self)
        self._lanes: dict[int, Lane] = {}
        self._dispatcher = Dispatcher(self._pump.send, self.transport.close_connection, self._count_running)
        self._calls = Calls(self.transport, Permits(config.async_semaphore_value))
        self._tls: ServerTls | None = None
        self._refusals = Refusals()
        self._ticker: asyncio.TimerHandle | None = None
        self._stopped = False

    # ---- life ----------------------------------------------------------------------------------------------------

    def register(self, codes: int | Iterable[int], handler: Handler, *, lane: Lane = Lane.ADMIN) -> None:
        """Let *handler* handle requests of *codes*, which wait in *lane*."""
        for code in self._dispatcher.register(codes, handler):
            self.transport.set_lane(code, lane)
            self._lanes[code] = lane

    def _count_running(self, request: Request, change: int) -> None:
        """A request that waits elsewhere still is one of its lane's: its capacity and bytes bound both."""
        self.transport.count_running(self.lane_of(request), change, change * len(request.frame))

    def register_hook(self, hook: RpcHook) -> None:
        """Let *hook* see every request handled here and its answer."""
        self._dispatcher.hooks.append(hook)

    async def start(self) -> None:
        """Listen on every address of the configuration.

        Raises:
            OSError: an address is in use or not ours.
            ConfigError: TLS is enforced and cannot be set up.
        """
        loop = asyncio.get_running_loop()
        if self.config.tls.server_mode != TlsMode.DISABLED:
            from pymq.remoting.tls import ServerTls

            self._tls = ServerTls(self.config.tls, self.transport)
            self._tls.start()
            self.transport.set_tls_mode(self._tls.mode)
        self._pump.start()
        self._tick(loop.time())
        self.ports = tuple(self.transport.listen(host, port) for host, port in self.config.addresses)

    async def stop(self, drain_s: float = 3.0) -> None:
        """Stop reading, let what was read be answered for up to *drain_s*, then close. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        end = time.monotonic() + drain_s
        self.transport.drain()
        if self._tls is not None:
            self._tls.stop_accepting()
        if self._pump.started:
            # Polled, because the transport's threads ring nobody when they are done.
            while time.monotonic() < end and (self._dispatcher.running or not self.transport.drained):  # noqa: ASYNC110
                await asyncio.sleep(DRAIN_POLL_S)
            await self._dispatcher.settle(max(end - time.monotonic(), 0))
        self._pump.stop()
        if self._ticker is not None:
            self._ticker.cancel()
        left_ms = max(round((end - time.monotonic()) * 1000), CLOSE_DRAIN_MS if drain_s > 0 else 0)
        await asyncio.to_thread(self.transport.close, left_ms)
        if self._tls is not None:
            await asyncio.to_thread(self._tls.close)
        for connection in list(self._peers):
            self.closed(connection)

    def _tick(self, due: float) -> None:
        """Look how late the loop is and who was refused, give back what a burst left of memory, and come again."""
        loop = asyncio.get_running_loop()
        late_ms = round((loop.time() - due) * 1000)
        if late_ms > self.config.loop_late_ms:
            self.loop_late_count += 1
            self.loop_late_ms_max = max(self.loop_late_ms_max, late_ms)
            logger.warning("the control loop is %d ms late; the limit is %d", late_ms, self.config.loop_late_ms)
        self.transport.trim()
        self._refusals.look(self.transport.stats(), loop.time())
        due = loop.time() + TICK_S
        self._ticker = loop.call_at(due, self._tick, due)

    # ---- to clients ----------------------------------------------------------------------------------------------

    def reply(self, request: Request, answer: Command) -> bool:
        """Answer *request* now; False when its connection is known to be gone."""
        if request.connection not in self._peers:
            return False
        self._dispatcher.reply(request, answer)
        return True

    def push(self, connection: int, command: Command) -> bool:
        """Send *command* as oneway; False when the connection is gone."""
        command.flag |= FLAG_ONEWAY
        return self.transport.send(connection, command.encode())

    async def invoke(self, connection: int, command: Command, timeout_s: float) -> Command:
        """Ask a client and wait for its answer.

        Raises:
            RemotingConnectError: there is no such connection.
            RemotingSendRequestError: it went before the answer came.
            RemotingTimeoutError: no answer within *timeout_s*.
        """
        peer = self._peers.get(connection)
        if peer is None:
            raise RemotingConnectError(f"connection {connection:#x}", "it is closed")
        return await self._calls.invoke(connection, address_of(peer), command, timeout_s)

    def peer(self, connection: int) -> tuple[str, int] | None:
        """The address of a client, None when it is gone."""
        return self._peers.get(connection)

    def connections(self) -> Iterable[int]:
        """Those open now."""
        return self._peers.keys()

    def close_connection(self, connection: int) -> None:
        """Close it after what is queued has been written."""
        self._pump.flush()
        self.transport.close_connection(connection)

    def on_close(self, listener: Callable[[int], None]) -> None:
        """Tell *listener* of every connection that is gone, after its last request was handled or begun."""
        self._close_listeners.append(listener)

    def lane_of(self, request: Request) -> Lane:
        """The lane it came by."""
        return self._lanes.get(request.command.code, Lane.ADMIN)

    def wait_left_s(self, request: Request) -> float | None:
        """How long *request* may still wait by its lane's limit, less than 0 when that is over; None: for ever."""
        limit_ms = self.config.transport.lane_wait_ms[self.lane_of(request)]
        return limit_ms / 1000 - waited_s(request) if limit_ms else None

    def waited_too_long(self, request: Request) -> RemotingError:
        """What a request is answered that nobody began to handle in time, in the words of the lanes (csrc/remoting)."""
        lane = self.lane_of(request)
        self.transport.count_expired(lane)
        return RemotingError(
            ResponseCode.SYSTEM_BUSY,
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {round(waited_s(request) * 1000)}ms, size of queue: {self.running}, "
            f"limit of lane {lane.name.lower()}: {self.config.transport.lane_wait_ms[lane]}ms",
        )

    @property
    def running(self) -> int:
        """Handlers that have not finished."""
        return self._dispatcher.running

    @property
    def handler_failures(self) -> int:
        """Handlers that broke."""
        return self._dispatcher.failures

    def tls_stats(self) -> dict[str, int]:
        """Counters of TLS, empty when it is off."""
        return self._tls.stats() if self._tls is not None else {}

    # ---- from the lanes ------------------------------------------------------------------------------------------

    def frame(self, handed: Handed) -> None:
        """A request or a client's answer."""
        if handed.connection not in self._peers:
            self._pump.take_events()  # opened between our last look and the frame
        self._dispatcher.handle(handed, self._calls)

    def opened(self, connection: int, peer: tuple[str, int]) -> None:
        """A client is there."""
        self._peers[connection] = peer

    def closed(self, connection: int) -> None:
        """A client is gone."""
        self._peers.pop(connection, None)
        self._calls.closed(connection)
        for listener in self._close_listeners:
            try:
                listener(connection)
            except Exception:
                logger.exception("a listener failed on the end of a connection")

    def tls(self, fd: int, peer: tuple[str, int]) -> None:
        """A client begins a TLS handshake."""
        if self._tls is None:
            os.close(fd)
        else:
            self._tls.accept(fd, peer)


def waited_s(request: Request) -> float:
    """How long ago it was read."""
    return time.monotonic() - request.received_us / 1_000_000
