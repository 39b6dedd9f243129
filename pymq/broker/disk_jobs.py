"""Work for a request that may wait for the disk: done by the broker's threads, unless it waited too long for one.

A disk that takes seconds keeps the threads, and what comes meanwhile waits for one as it would have waited in its lane.
It is answered as there: SYSTEM_BUSY when its lane's limit is over before a thread was free. What a thread has begun is
finished, however long it takes. Only for work that is a request's first and changes nothing, or else something would be
left half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pymq.broker.controller import Broker
    from pymq.remoting.server import Request

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def read_for(
    broker: Broker,
    request: Request,
    work: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Result:
    """What *work* returns, called in a thread.

    Raises:
        RemotingError: no thread was free within the limit of the request's lane.
    """
    job = broker.executor.submit(work, *arguments, **named)
    left_s = broker.server.wait_left_s(request)
    late = False

    def give_up() -> None:
        nonlocal late
        late = job.cancel()  # not when a thread has begun

    timer = asyncio.get_running_loop().call_later(max(left_s, 0), give_up) if left_s is not None else None
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        if late:
            raise broker.server.waited_too_long(request) from None
        raise
    finally:
        if timer is not None:
            timer.cancel()
