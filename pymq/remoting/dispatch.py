"""Requests and who handles them: by code, in the loop, with RocketMQ's answers for what nobody handles.

Used by the server for its clients' requests, and by the client for requests of the servers it is connected to.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pymq.remoting.codes import ResponseCode, request_name
from pymq.remoting.command import Command
from pymq.remoting.errors import CodecError, RemotingError

if TYPE_CHECKING:
    from pymq._core._transport import Handed
    from pymq.remoting.calls import Calls

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Request:
    """A request as a handler sees it.

    Attributes:
        connection: names the connection for replies and pushes; never reused.
        peer: the client's address, also behind TLS.
        received_us: when it was read, CLOCK_MONOTONIC in microseconds.
        reason: why the native service did not serve it; a number of `pymq_hand_over_reason`.
        frame: the bytes it came in.
    """

    command: Command
    connection: int
    peer: tuple[str, int]
    received_us: int
    reason: int
    frame: bytes


Handler = Callable[[Request], Command | Awaitable[Command | None] | None]


class RpcHook(Protocol):
    """Looks at requests and answers on their way; a server's see what comes in, a client's what goes out."""

    def before_request(self, address: str, request: Command) -> None:
        """Before the request is handled or written; may change it, or raise RemotingError to refuse it."""

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        """After the answer was made or arrived; None when there is none."""


class Dispatcher:
    """Finds the handler of a request, runs it, and sends its answer."""

    def __init__(
        self,
        send: Callable[[int, bytes], None],
        close: Callable[[int], None],
        count_running: Callable[[Request, int], None] = lambda request, change: None,
    ) -> None:
        """Answer with *send*; tell *count_running* of a handler that waits, +1, and that it does no more, -1."""
        self._send = send
        self._close = close
        self._count_running = count_running
        self._handlers: dict[int, Handler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.hooks: list[RpcHook] = []
        self.failures = 0

    def register(self, codes: int | Iterable[int], handler: Handler) -> tuple[int, ...]:
        """Let *handler* handle *codes*; the last registration of a code counts."""
        numbers = (int(codes),) if isinstance(codes, int) else tuple(int(code) for code in codes)
        for code in numbers:
            self._handlers[code] = handler
        return numbers

    @property
    def running(self) -> int:
        """Handlers that have not finished."""
        return len(self._tasks)

    def handle(self, handed: Handed, calls: Calls) -> None:
        """Decode one frame and give it to its handler, or to the call of *calls* that it answers.

        A frame nobody can read ends its connection, as at Apache's broker.
        """
        try:
            command = Command.decode(handed.frame)
        except CodecError as error:
            logger.warning("closing %s:%d: %s", *handed.peer, error)
            self._close(handed.connection)
            return
        if command.is_response:
            calls.answer(handed.connection, command)
            return
        self.handle_request(
            Request(command, handed.connection, handed.peer, handed.received_us, handed.reason, handed.frame)
        )

    def handle_request(self, request: Request) -> None:
        """Run the handler; its answer is sent now, or when it has awaited what it awaits."""
        command = request.command
        handler = self._handlers.get(command.code)
        if handler is None:
            text = f" request type {command.code} not supported"
            logger.warning("%s:%d:%s", *request.peer, text)
            self.reply(request, command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        try:
            for hook in self.hooks:
                hook.before_request(address_of(request.peer), command)
            answer = handler(request)
        except RemotingError as error:
            self.reply(request, command.reply(error.code, error.remark))
        except Exception as error:  # noqa: BLE001 - a handler's bug is its request's failure, not the server's
            self.fail(request, error)
        else:
            if answer is None or isinstance(answer, Command):
                self.finish(request, answer)
            else:
                task = asyncio.ensure_future(self.finish_later(request, answer))
                self._tasks.add(task)
                self._count_running(request, 1)
                task.add_done_callback(functools.partial(self.finished, request))

    def finished(self, request: Request, task: asyncio.Task[None]) -> None:
        """A handler that waited has ended, however."""
        self._tasks.discard(task)
        self._count_running(request, -1)

    async def finish_later(self, request: Request, awaitable: Awaitable[Command | None]) -> None:
        """Wait for the answer and send it."""
        try:
            self.finish(request, await awaitable)
        except RemotingError as error:
            self.reply(request, request.command.reply(error.code, error.remark))
        except Exception as error:  # noqa: BLE001 - a handler's bug is its request's failure, not the server's
            self.fail(request, error)

    def finish(self, request: Request, answer: Command | None) -> None:
        """Send what a handler returned; None was answered elsewhere or will be."""
        for hook in self.hooks:
            hook.after_response(address_of(request.peer), request.command, answer)
        if answer is not None:
            self.reply(request, answer)

    def fail(self, request: Request, error: Exception) -> None:
        """A handler that broke: say it to the log and to the client, keep serving."""
        self.failures += 1
        name = request_name(request.command.code)
        logger.error("%s of %s:%d failed", name, *request.peer, exc_info=error)
        answer = request.command.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        self.reply(request, answer)

    def reply(self, request: Request, answer: Command) -> None:
        """Send *answer*, unless the request is oneway. It gets the request's number and serialization."""
        if request.command.is_oneway:
            return
        answer.opaque = request.command.opaque
        answer.flag |= 1
        answer.serialize_type = request.command.serialize_type
        try:
            frame = answer.encode()
        except CodecError as error:
            logger.error("the answer to %s cannot be written", request_name(request.command.code), exc_info=error)
            frame = request.command.reply(ResponseCode.SYSTEM_ERROR, str(error)).encode()
        self._send(request.connection, frame)

    async def settle(self, timeout_s: float) -> None:
        """Give running handlers up to *timeout_s*, then cancel what is left."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                logger.warning("%d handlers did not finish within %.1f s", len(late), timeout_s)
                await asyncio.wait(late)


def address_of(peer: tuple[str, int]) -> str:
    """An address as RocketMQ writes it: host:port."""
    return f"{peer[0]}:{peer[1]}"
