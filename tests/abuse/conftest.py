"""What the abuse tests share: a server in a process of its own, watched through its counters."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.peer import PATIENCE_S, Peer

HERE = Path(__file__).resolve().parent


class EchoServer:
    """The process of echo_server.py."""

    def __init__(self, **settings: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, HERE / "echo_server.py", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=HERE.parents[1],
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        )
        self.port = int(self.line())

    def line(self) -> str:
        """A line of its output."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, "the server has ended"
        return text

    def stats(self) -> dict[str, Any]:
        """Its counters, now."""
        assert self.process.stdin is not None
        self.process.stdin.write("stats\n")
        self.process.stdin.flush()
        counters: dict[str, Any] = json.loads(self.line())
        return counters

    def until(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Wait until the counters satisfy *condition*; them."""
        end = time.monotonic() + PATIENCE_S
        while not condition(counters := self.stats()):
            assert time.monotonic() < end, f"never: {what}; {counters}"
            time.sleep(0.01)
        return counters

    def connect(self, *, receive_buffer: int | None = None) -> Peer:
        """A new connection to it."""
        return Peer(self.port, receive_buffer=receive_buffer)

    def stop(self) -> None:
        """End it by ending its input; it must end well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert status == 0


@pytest.fixture
def start_server() -> Iterator[Callable[..., EchoServer]]:
    """`start_server(setting=value, …)`; stopped afterwards."""
    servers: list[EchoServer] = []

    def start(**settings: int) -> EchoServer:
        servers.append(EchoServer(**{"reactors": 1, **settings}))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(start_server: Callable[..., EchoServer]) -> EchoServer:
    """A server with the settings of a broker."""
    return start_server()


@pytest.fixture
def descriptors() -> Iterator[int]:
    """How many descriptors this process may have, raised to the hard limit for the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
