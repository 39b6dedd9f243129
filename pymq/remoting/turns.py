"""Work that must be done in the order it came, although it waits: requests of one connection, as a rule.

A heartbeat waits for the disk when it makes a group; the good-bye that the client sent right after it does not, and
would otherwise be overtaken by the member it takes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """One at a time of a connection, or whatever the number names; first come first served. Others do not wait."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._last: dict[int, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def of(self, connection: int) -> AsyncIterator[None]:
        """Wait until those that came before on *connection* have left, and keep the place until the end."""
        before = self._last.get(connection)
        mine = self._last[connection] = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.wait([before])  # not awaited itself: being cancelled here must not end it for others
            yield
        finally:
            mine.set_result(None)
            if self._last[connection] is mine:
                del self._last[connection]
