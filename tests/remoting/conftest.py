"""What the remoting tests share: recorded frames, the C codec, a server on loopback."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pymq.remoting.client import RemotingClient
from pymq.remoting.config import RemotingClientConfig, RemotingServerConfig, TlsConfig, TlsMode
from pymq.remoting.server import RemotingServer
from tests.remoting.wire_build import Wire, build

FRAMES = Path(__file__).resolve().parents[1] / "data/golden-frames"
PLAIN = TlsConfig(server_mode=TlsMode.DISABLED, config_file=None)


@dataclasses.dataclass(frozen=True)
class GoldenFrame:
    """A frame as it passed between Apache's programs, and what its header says."""

    name: str
    data: bytes
    header: dict[str, Any]


def golden_frames() -> list[GoldenFrame]:
    """Every recorded frame, both serializations."""
    frames = []
    for kind in ("json", "rocketmq"):
        for entry in json.loads((FRAMES / kind / "index.json").read_text(encoding="utf-8"))["frames"]:
            data = (FRAMES / kind / entry["file"]).read_bytes()
            frames.append(GoldenFrame(f"{kind}/{entry['file']}", data, entry["header"]))
    return frames


@pytest.fixture(scope="session")
def golden() -> list[GoldenFrame]:
    """Every recorded frame."""
    return golden_frames()


@pytest.fixture(scope="session")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Wire:
    """The C codec."""
    return build(tmp_path_factory.mktemp("wire"))


async def until(condition: Callable[[], bool]) -> None:
    """Come back when *condition* holds; a test that waits longer than this has failed."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


Served = Callable[..., AbstractAsyncContextManager[tuple[RemotingServer, RemotingClient, str]]]


@pytest.fixture
def served() -> Served:
    """Makes a server and a client on loopback, stopped afterwards; an async context manager."""

    @asynccontextmanager
    async def make(
        prepare: Callable[[RemotingServer], None] = lambda server: None,
        *,
        server_config: RemotingServerConfig | None = None,
        client_config: RemotingClientConfig | None = None,
    ) -> AsyncIterator[tuple[RemotingServer, RemotingClient, str]]:
        config = server_config or RemotingServerConfig(tls=PLAIN)
        server = RemotingServer(dataclasses.replace(config, addresses=(("127.0.0.1", 0),)))
        client = RemotingClient(client_config or RemotingClientConfig(tls=PLAIN))
        try:
            prepare(server)
            await server.start()
            yield server, client, f"127.0.0.1:{server.ports[0]}"
        finally:
            await client.close()
            await server.stop(0.5)

    return make
