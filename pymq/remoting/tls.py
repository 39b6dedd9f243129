"""TLS, as a pump beside the transport.

A connection that begins with a TLS handshake leaves its reactor as a descriptor. Here it is decrypted by Python's ssl,
and the plain bytes go through a socket pair whose other end the transport adopts as an ordinary connection of the real
peer: one parser, one path for both. The pumps run on a thread of their own, so that a handshake's arithmetic does not
delay heartbeats, and a failing one ends nothing but itself.

The server's files are watched: a changed trust file is loaded at once, certificate and key when both have changed.
Files that cannot be loaded are reported, and the old ones stay.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import ssl
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pymq.errors import ConfigError
from pymq.remoting.config import TlsConfig, TlsMode
from pymq.remoting.loop_thread import LoopThread
from pymq.remoting.tls_context import (
    check_self_signed,
    client_context,
    server_context,
    watched_files,
    with_file,
)

if TYPE_CHECKING:
    from pymq._core._transport import Transport

logger = logging.getLogger(__name__)

CLOSE_S = 1.0
CLOSE_POLL_S = 0.01
DROPPED_INTERVAL_S = 10.0  # between two words about it
Signature = tuple[int, int, int] | None


class PumpEnd(asyncio.Protocol):
    """One end of a pump: what it reads it gives to the other end, no faster than that end writes."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: PumpEnd | None = None
        self.lost = False

    def join(self, other: PumpEnd) -> None:
        """Begin to pump between this end and *other*."""
        self.other, other.other = other, self
        for end in (self, other):
            if end.lost:
                end.connection_lost(None)
            elif end.transport is not None:
                end.transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait with reading until there is another end."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Read no more at the other end while this one is full."""
        if self.other is not None and self.other.transport is not None and not self.other.lost:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on at the other end."""
        if self.other is not None and self.other.transport is not None and not self.other.lost:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        """The peer has said all: close both ends, after what is written."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Close the other end, after what is written to it."""
        self.lost = True
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class ServerTls:
    """Handshakes and pumps of one server.

    Attributes:
        mode: the mode in effect; a permissive server that has no certificate to show serves plain connections only.
    """

    def __init__(self, config: TlsConfig, transport: Transport) -> None:
        self.config = with_file(config)
        self.mode = self.config.server_mode
        self._transport = transport
        self._context: ssl.SSLContext | None = None
        self._thread: LoopThread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumps: set[PumpEnd] = set()
        self._unfinished: dict[asyncio.Task[None], tuple[str, int]] = {}  # handshakes, the oldest first
        self._dropped_told_s = -math.inf
        self._accepting = True
        self._pair_files, self._trust_files = watched_files(self.config)
        self._seen: dict[Path, Signature] = {}
        self._counts = {"handshakes": 0, "handshakes_failed": 0, "handshakes_dropped": 0, "reloads": 0}

    def start(self) -> None:
        """Load the files and begin to watch them. The certificate of test mode is made with the first handshake.

        Raises:
            ConfigError: TLS is enforced and there is no certificate.
        """
        try:
            if self.config.test_mode_enable:
                check_self_signed()
            else:
                self._context = server_context(self.config)
        except ConfigError as error:
            if self.mode == TlsMode.ENFORCING:
                raise
            logger.warning("serving plain connections only: %s", error)
            self.mode = TlsMode.DISABLED
            return
        self._thread = LoopThread("pymq-tls")
        if self._pair_files or self._trust_files:
            self._seen = {path: signature(path) for path in (*self._pair_files, *self._trust_files)}
            self._thread.post(self._watch)

    def accept(self, fd: int, peer: tuple[str, int]) -> None:
        """Take over a connection that begins a handshake."""
        if self._thread is None or not self._accepting or not self._thread.post(self._begin, fd, peer):
            os.close(fd)

    def stop_accepting(self) -> None:
        """Refuse new connections; those there are go on."""
        self._accepting = False

    def close(self) -> None:
        """Let pumps write what they have for a moment, then end them. Not on the pump's own thread."""
        if self._thread is None:
            return
        end = time.monotonic() + CLOSE_S
        while (self._pumps or self._tasks) and time.monotonic() < end:
            time.sleep(CLOSE_POLL_S)
        self._thread.run(self._end())
        self._thread.stop()

    def stats(self) -> dict[str, int]:
        """Counters by name."""
        return {**self._counts, "handshaking": len(self._unfinished), "connections": len(self._pumps)}

    # ---- on the pump's thread ------------------------------------------------------------------------------------

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for end in list(self._pumps):
            if end.transport is not None:
                end.transport.abort()
        await asyncio.sleep(0)

    def _begin(self, fd: int, peer: tuple[str, int]) -> None:
        accepted = socket.socket(fileno=fd)
        if len(self._unfinished) >= self.config.handshakes_max:
            self._drop_oldest()
        task = asyncio.get_running_loop().create_task(self._serve(accepted, peer))
        self._tasks.add(task)
        self._unfinished[task] = peer
        task.add_done_callback(partial(self._done, accepted))

    def _drop_oldest(self) -> None:
        """End the handshake that has taken longest: who means it is done in a moment, who sits on it makes room."""
        task = next(iter(self._unfinished))
        peer = self._unfinished.pop(task)
        task.cancel()
        self._counts["handshakes_dropped"] += 1
        now_s = time.monotonic()
        if now_s >= self._dropped_told_s + DROPPED_INTERVAL_S:
            self._dropped_told_s = now_s
            logger.warning(
                "%d handshakes are under way: the oldest, of %s:%d, is dropped for a new one; %d were so far",
                self.config.handshakes_max,
                *peer,
                self._counts["handshakes_dropped"],
            )

    def _done(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._unfinished.pop(task, None)
        if task.cancelled():  # perhaps before it had begun
            accepted.close()

    async def _serve(self, accepted: socket.socket, peer: tuple[str, int]) -> None:
        """Handshake, then pump."""
        outer = ServedEnd(self._pumps)
        joined = False
        try:
            if self._context is None:
                self._context = server_context(self.config)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: outer,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self.config.handshake_timeout_s,
            )
            self._unfinished.pop(cast(asyncio.Task[None], asyncio.current_task()), None)
            await self._join(outer, peer)
            joined = True
            self._counts["handshakes"] += 1
        except (OSError, ConfigError, ValueError, RuntimeError) as error:  # ssl.SSLError is an OSError
            self._counts["handshakes_failed"] += 1
            logger.info("TLS with %s:%d failed: %s", *peer, error)
        finally:
            if not joined:
                if outer.transport is not None:
                    outer.transport.abort()
                accepted.close()

    async def _join(self, outer: PumpEnd, peer: tuple[str, int]) -> None:
        """Give the transport the other end."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        inner = PumpEnd()
        try:
            await asyncio.get_running_loop().create_connection(lambda: inner, sock=ours)
            self._transport.adopt(theirs.fileno(), peer, False)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        theirs.detach()
        outer.join(inner)

    def _watch(self) -> None:
        """Look at the files, and come again."""
        changed = {path for path, seen in self._seen.items() if signature(path) not in (seen, None)}
        pair_changed = bool(self._pair_files) and changed.issuperset(self._pair_files)
        if pair_changed or changed.intersection(self._trust_files):
            try:
                self._context = server_context(self.config)
            except ConfigError as error:
                logger.error("TLS files changed and cannot be loaded; the old ones stay: %s", error)
            else:
                self._counts["reloads"] += 1
                logger.info("TLS files loaded again: %s", ", ".join(sorted(str(path) for path in changed)))
            loaded = (*self._pair_files, *self._trust_files) if pair_changed else self._trust_files
            self._seen.update({path: signature(path) for path in loaded})
        asyncio.get_running_loop().call_later(self.config.watch_interval_s, self._watch)


class ServedEnd(PumpEnd):
    """The encrypted end of a server's pump, which knows when it is over."""

    def __init__(self, pumps: set[PumpEnd]) -> None:
        super().__init__()
        self._pumps = pumps

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        super().connection_made(transport)
        self._pumps.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        self._pumps.discard(self)
        super().connection_lost(error)


def signature(path: Path) -> Signature:
    """What changes when a file does; None while it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


async def connect_tls(connected: socket.socket, host: str, config: TlsConfig) -> socket.socket:
    """Shake hands over *connected* and return the plain end of a pump to it; the pump runs on this loop.

    Raises:
        OSError: the handshake failed. ConfigError: the files cannot be loaded.
    """
    loop = asyncio.get_running_loop()
    outer, inner = PumpEnd(), PumpEnd()
    try:
        context = client_context(with_file(config))
        keywords: dict[str, Any] = {"ssl_handshake_timeout": config.handshake_timeout_s}
        await loop.create_connection(lambda: outer, sock=connected, ssl=context, server_hostname=host, **keywords)
    except BaseException:
        connected.close()
        raise
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    await loop.create_connection(lambda: inner, sock=ours)
    outer.join(inner)
    return theirs
