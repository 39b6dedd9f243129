"""A broker that runs: its store, its tables, its requests and its clock, opened and closed in order.

Inside a program: `async with Broker(BrokerConfig(listen_port=0)) as broker: broker.address`; without a loop of one's
own: `with Broker(config).running() as broker: …` (see `pymq.broker.running`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pymq._core._serve import Serve
from pymq._core._store import Store
from pymq.broker.clients import ClientManager
from pymq.broker.config import ANY_ADDRESS, LOOPBACK, BrokerConfig, join_host, resolve_host
from pymq.broker.daily import DailyTotals
from pymq.broker.dumps import DumpLeases
from pymq.broker.filters import FilterManager
from pymq.broker.groups import GroupManager
from pymq.broker.locks import OrderLocks
from pymq.broker.new_groups import NewGroups
from pymq.broker.offsets import OffsetManager
from pymq.broker.ports import hold_ports
from pymq.broker.processors import all_processors
from pymq.broker.publishing import Publisher
from pymq.broker.registration import Registration
from pymq.broker.reputs import Reputs
from pymq.broker.schedule.guard import DelayGuard
from pymq.broker.schedule.levels import DelayLevels
from pymq.broker.schedule.service import ScheduleService
from pymq.broker.serving import client_config, make_serve, serve_config, server_config
from pymq.broker.store import BrokerStore
from pymq.broker.timer.guard import TimerGuard
from pymq.broker.timer.service import TimerService
from pymq.broker.topics import TopicManager
from pymq.broker.traffic import SAMPLE_S, Traffic
from pymq.broker.transaction.service import TransactionService
from pymq.clock import Clock, SystemClock
from pymq.errors import ConfigError
from pymq.namesrv.config import NamesrvConfig
from pymq.namesrv.server import NameServer
from pymq.remoting.client import RemotingClient
from pymq.remoting.server import RemotingServer
from pymq.store.housekeeping import DiskProbe, disk_ratio
from pymq.store.retention import AllGuards

EXPIRE_INTERVAL_S = 10.0  # ClientHousekeepingService
OFFSETS_DELAY_S = 10.0  # before offsets are saved the first time
SETTLE_POLL_S = 0.005
WORKERS = 4  # threads for what waits for the disk: queries, statistics, removal; tables have one of their own

log = logging.getLogger("pymq.broker")


class Broker:
    """One broker. Everything of it lives on the event loop that started it.

    Attributes:
        config: as it is in force now; replaced as a whole when it is changed.
        store: the native store; serve: the native tables and what serves from them; server: connections and codes.
    """

    config: BrokerConfig
    message_store: BrokerStore
    serve: Serve
    server: RemotingServer
    registration: Registration

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        clock: Clock | None = None,
        disk_probe: DiskProbe = disk_ratio,
        progress: bool = False,
    ) -> None:
        """Prepare a broker; nothing is opened before start().

        Raises:
            ConfigError: settings that contradict each other.
        """
        self.config = (config or BrokerConfig()).resolved()
        self.clock: Clock = clock or SystemClock()
        self.name_server: NameServer | None = None
        self.traffic = Traffic(self.clock)
        self.daily = DailyTotals(self.clock)
        self.reputs = Reputs(self)
        self.dumps = DumpLeases(self.clock, lambda: self.config.dump_lease_max_age_hours)
        self.delay_guard = DelayGuard()
        self.delay_levels = DelayLevels(self.config.store.message_delay_level)
        self.timer: TimerService | None = None  # with timerWheelEnable
        self._disk_probe = disk_probe
        self._progress = progress
        self._tasks: set[asyncio.Task[None]] = set()
        self._closers: list[Callable[[], Awaitable[object] | object]] = []
        self._stopping: asyncio.Future[None] | None = None

    # ---- what it is ----------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where clients are told to connect to."""
        return join_host(self.config.broker_ip1, self.config.listen_port)

    @property
    def ha_address(self) -> str:
        """Where slaves will be told to connect to."""
        return join_host(self.config.broker_ip2, self.config.ha_listen_port or self.config.listen_port + 1)

    @property
    def namesrv_addr(self) -> str:
        """The name servers clients are to ask."""
        if self.name_server is not None:
            return join_host(self.config.broker_ip1, self.name_server.port)
        return ";".join(self.registration.addresses)

    @property
    def store(self) -> Store:
        """The native store."""
        return self.message_store.core

    @property
    def store_path(self) -> Path:
        """The store's directory."""
        return Path(self.config.store_path_root_dir)

    @property
    def config_directory(self) -> Path:
        """Where the tables are kept."""
        return self.store_path / "config"

    # ---- start and stop ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open everything; on return clients are served and the name servers know.

        Raises:
            ConfigError: a port or path that cannot be used.
            StoreError: the store cannot be opened.
        """
        complete = False
        try:
            await self._open()
            complete = True
        finally:
            if not complete:
                await self._close_all()

    async def _open(self) -> None:
        config = self.config
        held = hold_ports(config.bind_address, config.listen_port)
        self._closers.append(held.close)
        ports = held.numbers
        stamped = join_host(resolve_host("brokerIP1", config.broker_ip1), ports[0])
        self.config = config = config.replace(listen_port=ports[0], store=config.store.replace(store_host=stamped))
        self.executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="pymq-disk")
        self._closers.append(self.executor.shutdown)
        self.config_executor = ThreadPoolExecutor(1, thread_name_prefix="pymq-config")
        self._closers.append(self.config_executor.shutdown)
        await self._open_store()
        self.serve = make_serve(self)
        self._closers.append(self.serve.close)
        self.publisher = Publisher(self)
        self.clients = ClientManager(self)
        self.order_locks = OrderLocks(self.clock, config.rebalance_lock_max_live_time)
        self.topics.load()
        self.groups.load()
        self.filters = FilterManager(self)
        self.filters.load()
        self.topics.publish_all()
        self.groups.publish_all()
        self.offsets.load()
        self.schedule = ScheduleService(self)
        await self.schedule.start()
        self._closers.append(self.schedule.stop)
        self.transactions = TransactionService(self)
        await self.transactions.start()
        await self._open_timer()
        client = RemotingClient(client_config(config))
        self._closers.append(client.close)
        self.registration = Registration(self, client)
        await self._open_name_server()
        self.server = RemotingServer(server_config(config, ports), serve=self.serve)
        self._closers.append(self._close_server)
        self.serve.attach(self.server.transport)
        for processor in all_processors(self):
            processor.register(self.server)
        self.server.on_close(self.clients.connection_closed)
        await self.server.start()
        held.close()
        self._closers.append(self.registration.unregister)
        await self.registration.register_all()
        self.registration.start()
        self._spawn(self._save_offsets())
        self._spawn(self._expire_clients())
        self._spawn(self._sample_traffic())
        self._spawn(self._await_sends())
        self._spawn(self.transactions.run())

    async def _open_store(self) -> None:
        try:
            self.store_path.mkdir(parents=True, exist_ok=True)
            self.config_directory.mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the store path {self.store_path} cannot be made: {error.strerror}; set storePathRootDir"
            ) from error
        self.topics = TopicManager(self)
        self.groups = GroupManager(self)
        self.new_groups = NewGroups(self)
        self.offsets = OffsetManager(self)
        loop = asyncio.get_running_loop()
        self.message_store = await loop.run_in_executor(self.executor, self._make_store)
        self._closers.append(lambda: loop.run_in_executor(self.executor, self.message_store.close))

    def _make_store(self) -> BrokerStore:
        return BrokerStore(
            self.store_path,
            self.config.store,
            self.clock,
            self.offsets.saved,
            progress=self._progress,
            disk_probe=self._disk_probe,
            guard=AllGuards(TimerGuard(self), self.delay_guard),
            hold=self.dumps.held,
        )

    async def _open_timer(self) -> None:
        if self.config.timer_wheel_enable:
            timer = TimerService(self)
            self._closers.append(timer.stop)
            await timer.start()
            self.timer = timer

    async def _open_name_server(self) -> None:
        if self.config.namesrv_addr:
            self.registration.use(self.config.namesrv_addr)
            return
        home = self.config_directory / "namesrv"
        self.name_server = NameServer(
            NamesrvConfig(
                bind_address=self.config.bind_address,
                listen_port=self.config.namesrv_listen_port,
                kv_config_path=str(home / "kvConfig.json"),
                config_store_path=str(home / "namesrv.properties"),
                tls=dict(self.config.tls),
            )
        )
        try:
            await self.name_server.start()
        except OSError as error:
            raise ConfigError(
                f"the name server cannot listen on {self.config.bind_address}:{self.config.namesrv_listen_port}: "
                f"{error.strerror or error}; give -n with a name server that runs, or set namesrvListenPort"
            ) from error
        self._closers.append(self.name_server.stop)
        # Not through brokerIP1: behind a translated address it may lead nowhere from here.
        bind = self.config.bind_address
        self.registration.use(join_host(LOOPBACK if bind == ANY_ADDRESS else bind, self.name_server.port))

    @property
    def is_stopping(self) -> bool:
        """Whether the end has begun: what is still asked is answered, nothing is kept waiting."""
        return self._stopping is not None

    async def stop(self) -> None:
        """Answer what has been asked, flush, save, close. Idempotent; later callers wait for the first."""
        if self._stopping is not None:
            await asyncio.shield(self._stopping)
            return
        self._stopping = asyncio.get_running_loop().create_future()
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for failure in await self._close_all():
                raise failure
        finally:
            self._stopping.set_result(None)

    async def _close_server(self) -> None:
        """No more requests; held pulls and parked sends are answered; offsets are saved."""
        self.server.transport.drain()
        self.serve.stop_holds()
        await self._settle()
        await self.server.stop()
        await self.transactions.stop()
        await self.offsets.save()
        await self.filters.save()

    async def _settle(self) -> None:
        """Let what has been read be answered: sends that wait for their flush get the time they are owed."""
        end_s = time.monotonic() + self.config.store.sync_flush_timeout_ms / 1000
        while time.monotonic() < end_s:
            stats = self.serve.stats()
            busy = stats["parked"] or stats["holds"] or self.server.running
            if not busy and self.server.transport.drained:
                return
            await asyncio.sleep(SETTLE_POLL_S)

    async def _close_all(self) -> list[Exception]:
        """Close in the reverse order of opening; one failure does not keep the rest open. They are logged and given."""
        closers, self._closers = self._closers, []
        failures: list[Exception] = []
        for close in reversed(closers):
            # Whatever it is that failed, a bug included, the store behind it must still be flushed and closed.
            (outcome,) = await asyncio.gather(self._close_one(close), return_exceptions=True)
            if isinstance(outcome, Exception):
                log.error("stop failed error=%s", outcome, exc_info=outcome)
                failures.append(outcome)
        return failures

    @staticmethod
    async def _close_one(close: Callable[[], Awaitable[object] | object]) -> None:
        result = close()
        if isinstance(result, Awaitable):
            await result

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    def running(self) -> AbstractContextManager[Broker]:
        """Run it on a thread with a loop of its own, for programs without one: `with broker.running(): …`."""
        from pymq.broker.running import run_in_thread

        return run_in_thread(self)

    # ---- what administrators change ------------------------------------------------------------------------------

    async def apply_config(self, config: BrokerConfig) -> None:
        """Let *config* be in force from now on: at the reactors and, where it shows there, at the name servers."""
        before, self.config = self.config, config
        self.message_store.configure(config.store)
        self.serve.configure(serve_config(config, self.clock.now_ms()))
        self.groups.publish_all()
        if self.timer is not None:
            self.timer.configure()
        self.clients.publish_filters()
        self._spawn(self._await_sends())
        if before.broker_permission != config.broker_permission:
            self.topics.publish_all()
            self.serve.end_holds()
            self.topics.version.advance(self.clock)
            await self.registration.register_all()

    async def remove_queues(self, topic: str) -> None:
        """Remove a topic's queues from the store; waits for readers of them to let go. For `topics` to call."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.executor, self.store.remove_topic, topic)
        if self.timer is not None:
            self.timer.store.metrics.remove(topic)

    # ---- what happens by itself ----------------------------------------------------------------------------------

    async def _save_offsets(self) -> None:
        interval_s = self.config.flush_consumer_offset_interval / 1000
        await asyncio.sleep(min(OFFSETS_DELAY_S, interval_s))
        while True:
            try:
                await self.offsets.save()
                await self.filters.save()
            except OSError as error:
                log.error("offsets or filters not saved error=%s", error)
            await asyncio.sleep(interval_s)

    async def _expire_clients(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_INTERVAL_S)
            self.clients.expire()
            self.order_locks.forget_expired()

    async def _await_sends(self) -> None:
        """Sends before startAcceptSendRequestTimeStamp are refused by Python, so nothing is native until then."""
        delay_ms = self.config.start_accept_send_request_time_stamp - self.clock.now_ms()
        if delay_ms <= 0:
            return
        await asyncio.sleep(delay_ms / 1000)
        self.serve.configure(serve_config(self.config, self.clock.now_ms()))

    async def _sample_traffic(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.traffic.sample(self.serve.traffic())
            stats = self.serve.stats()
            self.daily.sample(stats["sent_messages"], stats["pulled_messages"])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work ended task=%s", task, exc_info=task.exception())
