"""A name server that runs: its tables, its requests and its clock.

Inside a program: `async with NameServer(NamesrvConfig(listen_port=0)) as server: server.port`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pymq.file_limit import raise_file_limit
from pymq.namesrv.config import NamesrvConfig
from pymq.namesrv.kv_config import KvConfig
from pymq.namesrv.processor import NamesrvProcessor, now_ms
from pymq.namesrv.routes import MinBrokerIdChange, RouteTable
from pymq.remoting.client import RemotingClient
from pymq.remoting.codes import RequestCode
from pymq.remoting.command import Command
from pymq.remoting.config import RemotingServerConfig, TransportConfig
from pymq.remoting.errors import RemotingCallError
from pymq.remoting.server import RemotingServer
from pymq.remoting.tls_context import tls_config

SCAN_DELAY_S = 5.0
PRINT_DELAY_S = 60.0
PRINT_INTERVAL_S = 600.0
NOTIFY_TIMEOUT_S = 0.3

log = logging.getLogger("pymq.namesrv")


class NameServer:
    """Routes, liveness, KV configuration, on one port."""

    def __init__(self, config: NamesrvConfig | None = None) -> None:
        self.config = config or NamesrvConfig()
        self.routes = RouteTable(
            support_acting_master=self.config.support_acting_master,
            delete_topic_with_registration=self.config.delete_topic_with_broker_registration,
        )
        self.kv_config = KvConfig(Path(self.config.kv_config_path))
        self._processor = NamesrvProcessor(self.config, self.routes, self.kv_config, self._tell)
        raise_file_limit(log)  # before there is a transport, which looks at it once
        idle_ms = self.config.server_channel_max_idle_time_seconds * 1000
        self._server = RemotingServer(
            RemotingServerConfig(
                addresses=((self.config.bind_address, self.config.listen_port),),
                transport=TransportConfig(reactors=1, idle_timeout_ms=idle_ms),
                tls=tls_config(self.config.tls),
            )
        )
        self._processor.register(self._server)
        self._server.on_close(self._connection_closed)
        self._client: RemotingClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on, also when the kernel chose it."""
        return self._server.ports[0]

    @property
    def server(self) -> RemotingServer:
        """The transport underneath, for counters."""
        return self._server

    async def start(self) -> None:
        """Load what is kept on disk, listen, and begin to watch.

        Raises:
            ValueError: the KV configuration is damaged.
            OSError: the port is taken.
        """
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._server.stop)
            self.kv_config.load()
            await self._server.start()
            undo.pop_all()
        self._spawn(self._scan())
        self._spawn(self._print_kv_config())

    async def stop(self) -> None:
        """Answer what has been asked, then end."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.stop()
        if self._client is not None:
            await self._client.close()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    # --- what happens by itself --------------------------------------------------------------------------------

    def _connection_closed(self, connection: int) -> None:
        """A broker's connection is gone: so is the broker, unless it has spoken on another one since."""
        for cluster, addr in self.routes.of_connection(connection):
            log.info("the connection of %s is closed", addr)
            self._processor.remove(cluster, addr, connection)

    async def _scan(self) -> None:
        """Remove brokers that have been silent too long."""
        await asyncio.sleep(SCAN_DELAY_S)
        while True:
            self.expire()
            await asyncio.sleep(self.config.scan_not_active_broker_interval / 1000)

    def expire(self) -> None:
        """One round of the scan."""
        for (cluster, addr), connection in self.routes.expired(now_ms()):
            log.warning("broker %s was silent too long: removed", addr)
            self._processor.remove(cluster, addr, connection)
            self._server.close_connection(connection)

    async def _print_kv_config(self) -> None:
        await asyncio.sleep(PRINT_DELAY_S)
        while True:
            for line in self.kv_config.lines():
                log.info("KV config: %s", line)
            await asyncio.sleep(PRINT_INTERVAL_S)

    def _tell(self, change: MinBrokerIdChange) -> None:
        """NOTIFY_MIN_BROKER_ID_CHANGE, oneway, to the members that are left."""
        fields = {"minBrokerId": str(change.min_broker_id), "minBrokerAddr": change.min_broker_addr}
        if change.offline_broker_addr is not None:
            fields["offlineBrokerAddr"] = change.offline_broker_addr
        if change.ha_broker_addr is not None:
            fields["haBrokerAddr"] = change.ha_broker_addr
        for address in change.addresses:
            self._spawn(self._tell_one(address, fields))

    async def _tell_one(self, address: str, fields: dict[str, str]) -> None:
        self._client = self._client or RemotingClient()
        command = Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, fields)
        try:
            await self._client.oneway(address, command, NOTIFY_TIMEOUT_S)
        except RemotingCallError as failure:
            log.warning("%s was not told of its broker's new first member: %s", address, failure)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
