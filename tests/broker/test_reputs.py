"""Messages put again, gathered: each is put once, wherever it lies and whatever goes wrong."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from pymq._core._serve import PutResult, Reput
from pymq.broker.reputs import BATCH_MAX, HOT_BYTES, Reputs


class Store:
    """A log that grows whenever somebody looks at its end."""

    def __init__(self):
        self.written = HOT_BYTES + 100

    def watermarks(self):
        """The end, a little further each time."""
        self.written += 10
        return {"written": self.written}


class Serve:
    """Counts what is put; raises what it is told to."""

    def __init__(self, error=None):
        self.put: list[int] = []
        self.error = error

    def reput(self, items):
        """Put them."""
        if self.error is not None:
            raise self.error
        self.put += [item.source for item in items]
        return [PutResult(item.source, 0, 0, 0) for item in items]


def ask(serve, sources):
    """Put *sources* in one turn; the results."""

    async def work():
        with ThreadPoolExecutor(1) as executor:
            reputs = Reputs(SimpleNamespace(store=Store(), serve=serve, executor=executor))
            futures = [reputs.put(Reput(source=source)) for source in sources]
            return await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 20)

    return asyncio.run(work())


def test_a_message_at_the_edge_of_what_is_in_memory_is_put_once():
    """Symptom: while the log grew, one was both in memory and not, and its consumer got it twice."""
    serve = Serve()
    sources = list(range(90, 160))
    results = ask(serve, sources)
    assert sorted(serve.put) == sources
    assert [result.queue_offset for result in results] == sources


def test_more_than_one_batch_are_all_put_once():
    """A turn in which more are asked for than one call takes."""
    serve = Serve()
    sources = list(range(10_000, 10_000 + 2 * BATCH_MAX + 7))
    results = ask(serve, sources)
    assert sorted(serve.put) == sources
    assert [result.queue_offset for result in results] == sources


@pytest.mark.parametrize("source", [0, 2 * HOT_BYTES])
def test_a_failure_nobody_expected_is_everybodys_answer(source):
    """Symptom: they waited for ever, read from the disk or not."""
    (result,) = ask(Serve(ValueError("a bug")), [source])
    assert isinstance(result, ValueError)
