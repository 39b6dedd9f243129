"""A remoting server that echoes bodies, in a process of its own, so that its descriptors and its memory can be watched.

Started as `python echo_server.py '{"setting": value, …}'`, settings being TransportConfig's. It says its port on the
first line of its output, and for each line of input its transport's counters and its memory as a line of JSON. It stops
when the input ends.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from pymq.remoting.command import Command
from pymq.remoting.config import RemotingServerConfig, TlsConfig, TlsMode, TransportConfig
from pymq.remoting.server import RemotingServer, Request

CODE_ECHO = 10


def echo(request: Request) -> Command:
    """The body back."""
    return request.command.reply(0, body=request.command.body)


def anonymous_bytes() -> int:
    """Memory of this process that is not a file's."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


async def serve(settings: dict[str, int]) -> None:
    """Serve until the input ends."""
    config = RemotingServerConfig(
        addresses=(("127.0.0.1", 0),),
        transport=TransportConfig(**settings),
        tls=TlsConfig(server_mode=TlsMode.DISABLED, config_file=None),
    )
    server = RemotingServer(config)
    server.register(CODE_ECHO, echo)
    await server.start()
    print(server.ports[0], flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps({**server.transport.stats(), "anonymous_bytes": anonymous_bytes()}), flush=True)
    await server.stop(0.2)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(json.loads(sys.argv[1])))
