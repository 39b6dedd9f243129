"""Long bodies are read beside the loop, in their order."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from pymq.remoting import bodies
from pymq.remoting.bodies import read_json, read_long
from pymq.remoting.errors import CodecError
from pymq.remoting.json_dialect import LONG_SIZE_MIN

UNITS = ('"%d":1', "%d:1", '"T%d":{"perm":6}', '{"queueId":%d}:{}')


async def turns_during(work: asyncio.Future[object]) -> int:
    """How often the loop came round until *work* was done."""
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize("unit", UNITS)
def test_the_loop_goes_on_while_a_long_body_is_read(unit: str):
    """Symptom: a table of 5 MiB with bare keys held everybody up for 2 s."""
    count = 16 * LONG_SIZE_MIN // len(unit)
    body = ("{" + ",".join(unit % index for index in range(count)) + "}").encode()

    async def scenario() -> None:
        work = asyncio.ensure_future(read_json(body))
        assert await turns_during(work) > 5  # one or two when it is read here
        assert len(work.result()) == count

    asyncio.run(scenario())


def test_a_short_body_is_read_at_once_and_both_say_what_is_wrong(monkeypatch):
    """Goal: no thread for heartbeats. Method: without one; then texts that are no JSON."""
    with pytest.raises(CodecError, match="not standard JSON"):
        asyncio.run(read_json(b"{'a':1}" + b" " * LONG_SIZE_MIN))
    monkeypatch.setattr(bodies, "read_long", None)
    assert asyncio.run(read_json(b'{0:{"a":1}}')) == {0: {"a": 1}}
    with pytest.raises(CodecError, match="character"):
        asyncio.run(read_json(b"{"))


def test_long_bodies_are_read_one_after_another():
    """Goal: one thread's worth of work at a time, in order. Method: the first waits for a word."""
    go, done = threading.Event(), []

    def read(name: str, wait: bool) -> None:
        if wait:
            go.wait(20)
        done.append(name)

    async def scenario() -> None:
        both = [asyncio.ensure_future(read_long(partial(read, name, name == "a"))) for name in "ab"]
        await asyncio.sleep(0.05)
        assert done == []
        go.set()
        await asyncio.gather(*both)

    asyncio.run(scenario())
    assert done == ["a", "b"]
