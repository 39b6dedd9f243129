"""Bodies of requests, read without keeping everybody else waiting.

A table of thousands of topics takes tens of milliseconds and more to read. A long body is therefore read by a thread,
one at a time, which leaves the loop its turns: the decoder lets go of Python's lock at every map, see `json_dialect`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pymq.remoting.json_dialect import LONG_SIZE_MIN, loads
from pymq.remoting.turns import Turns

Result = TypeVar("Result")

_turns = Turns()


async def read_json(body: bytes) -> Any:
    """What `loads` makes of it.

    Raises:
        CodecError: neither JSON nor the dialect, or too long for what it is.
    """
    return loads(body) if len(body) < LONG_SIZE_MIN else await read_long(lambda: loads(body))


async def read_long(read: Callable[[], Result]) -> Result:
    """What *read* returns, called in a thread. Others of this loop that came before are read first."""
    async with _turns.of(id(asyncio.get_running_loop())):
        return await asyncio.to_thread(read)
