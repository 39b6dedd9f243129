"""A server on a thread with an event loop of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar


class Startable(Protocol):
    """A broker or a name server."""

    async def start(self) -> None:
        """Open."""
        ...

    async def stop(self) -> None:
        """Close."""
        ...


Server = TypeVar("Server", bound=Startable)


@contextmanager
def run_in_thread(server: Server) -> Iterator[Server]:
    """Start *server* on a new thread, yield it once it serves, and stop it at the end.

    Raises:
        whatever start() or stop() raise, here.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pymq-loop", daemon=True)
    thread.start()

    def call(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        call(server.start())
        try:
            yield server
        finally:
            call(server.stop())
    finally:
        call(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
