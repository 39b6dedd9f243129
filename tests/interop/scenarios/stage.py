"""Where scenarios are played: brokers of either make with short times, and a JVM that plays many at once.

A scenario names the broker it needs by what is set there (`SETTINGS`); most are content with `main`. Those that have
their broker restarted are played together, so that it is restarted once for all of them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.apache_broker import is_free
from tests.interop.apache_toolchain import Toolchain
from tests.interop.clients import raw
from tests.interop.clients.builds import java_client
from tests.interop.clients.servers import (
    ServerError,
    apache_broker,
    apache_name_server,
    pymq_broker,
    pymq_name_server,
)
from tests.interop.clients.workers import ClientError, ClientWorker

SCENARIO_MAIN_CLASS = "org.pymq.interop.scenarios.ScenarioTool"
TOPIC_TO_CREATE_FROM = "TBW102"

# Scenarios mostly wait, but starting a client is work: more at once would make two cores late.
SCENARIOS_AT_ONCE = 14
SCENARIO_TIMEOUT_SECONDS = 240.0

# Level 1 is a second, level 2 two, the last three; retries (level 3 and above) come after one.
DELAY_LEVELS = " ".join(["1s", "2s", *["1s"] * 15, "3s"])

QUICK = {
    "messageDelayLevel": DELAY_LEVELS,
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    # Apache counts as a check every look at a message, also while nobody is there to ask: three would be few.
    "transactionCheckMax": "6",
    # Apache notes that a message is decided only so often; until then it asks again and delivers again.
    "transactionOpBatchInterval": "100",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
}
STRICT = {
    "rejectTransactionMessage": "true",
    "enablePropertyFilter": "false",
    "autoCreateSubscriptionGroup": "false",
}
FEW_BUFFERS = {
    "flushDiskType": "ASYNC_FLUSH",
    "transientStorePoolEnable": "true",
    "transientStorePoolSize": "2",
    "fastFailIfNoBufferInStorePool": "true",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": str(64 << 10),
    "commitIntervalCommitLog": "20000",
    "commitCommitLogThoroughInterval": "20000",
}
# What the brokers are, by the name that scenarios ask for them.
SETTINGS: dict[str, dict[str, str]] = {
    "main": {},
    "strict": STRICT,
    "few-buffers": FEW_BUFFERS,
    # Each look at a half message counts, and a restart takes Apache many seconds.
    "restart": {"transactionCheckMax": "100"},
}
NEEDS = {
    "group-unknown-refused": "strict",
    "transaction-refused": "strict",
    "filter-sql-disabled": "strict",
    "flow-control-pool-exhausted": "few-buffers",
}
# Those that take longest begin first: the rest fits beside them.
LONG = ("retry-default-maximum-is-16", "transaction-gives-up", "order-queues-grow-and-shrink")


def needed_broker(scenario: str) -> str:
    """Which broker of `SETTINGS` a scenario is played at."""
    return "restart" if scenario.startswith("restart-") else NEEDS.get(scenario, "main")


@dataclass(frozen=True)
class Mode:
    """How the brokers work: by which data plane, with which flush, with or without a transient pool."""

    plane: str = "native"
    flush: str = "ASYNC_FLUSH"
    pool: bool = False

    def __str__(self) -> str:
        return f"{self.plane}-{self.flush}-{'pool' if self.pool else 'mapped'}"

    def settings(self, target: str) -> dict[str, str]:
        """The mode in the words of `broker.conf`; Apache has one data plane."""
        chosen = {"flushDiskType": self.flush, "transientStorePoolEnable": str(self.pool).lower()}
        if self.pool:
            chosen["transientStorePoolSize"] = "3"
        return {**chosen, "dataPlane": self.plane} if target == "pymq" else chosen


def quiet_port() -> int:
    """A free port, with free neighbours, that no client's end is ever given by the kernel.

    While a broker is away its clients keep calling: one whose own end were given the very port it calls would be
    connected with itself, and the port be taken when the broker comes back.
    """
    for port in random.sample(range(20_000, 32_000), 200):
        if all(is_free(candidate) for candidate in (port - 2, port, port + 1)):
            return port
    raise ServerError("no port below the kernel's own range is free")


class Stage:
    """The brokers of one target in one mode, each started when it is first needed."""

    def __init__(self, target: str, apache: Toolchain, home: Path, mode: Mode) -> None:
        self._target = target
        self._apache = apache
        self._home = home
        self._mode = mode
        self._running = ExitStack()
        self._brokers: dict[str, tuple[AbstractContextManager[str], str]] = {}
        self._refused: dict[str, ServerError] = {}
        self._namesrvs: dict[str, str] = {}

    def __enter__(self) -> Stage:
        self._running.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        for server, _ in reversed(self._brokers.values()):
            self._running.push(server.__exit__)
        self._running.__exit__(*problem)

    @property
    def namesrv(self) -> str:
        """The name server of the broker that most scenarios are played at."""
        return self.namesrv_of("main")

    def namesrv_of(self, broker: str) -> str:
        """The name server of *broker*, which knows no other: clients send to whichever broker a route has.

        A consumer makes its retry topic at every broker it hears of; what it gives up may then become a dead letter of
        another than the one that is looked at.
        """
        if broker not in self._namesrvs:
            settings = {"orderMessageEnable": "true"}
            home = self._home / f"namesrv-{broker}"
            if self._target == "pymq":
                server = pymq_name_server(home, settings=settings)
            else:
                server = apache_name_server(self._apache, home, settings=settings)
            self._namesrvs[broker] = self._running.enter_context(server)
        return self._namesrvs[broker]

    def broker_name(self, broker: str) -> str:
        """What *broker* of `SETTINGS` is called in routes."""
        return f"scenarios-{broker}"

    def _settings(self, broker: str) -> Mapping[str, str]:
        # A cluster of its own: replies go to any broker of the cluster, and only one has the requester's connection.
        cluster = {"brokerClusterName": f"cluster-{broker}"}
        return {**QUICK, **self._mode.settings(self._target), **SETTINGS[broker], **cluster}

    def address(self, broker: str) -> str:
        """Where *broker* is; one that did not start is not tried again."""
        if broker in self._refused:
            raise self._refused[broker]
        if broker not in self._brokers:
            try:
                self._start(broker, quiet_port() if broker == "restart" else None)
            except ServerError as problem:
                self._refused[broker] = problem
                raise
        return self._brokers[broker][1]

    def _start(self, broker: str, port: int | None) -> None:
        home, name, namesrv = self._home / broker, self.broker_name(broker), self.namesrv_of(broker)
        if self._target == "pymq":
            server = pymq_broker(home, namesrv, name=name, settings=self._settings(broker), port=port)
        else:
            in_order = broker == "restart"
            server = apache_broker(
                self._apache,
                home,
                namesrv,
                name=name,
                settings=self._settings(broker),
                port=port,
                in_order=in_order,
            )
        address = server.__enter__()
        self._brokers[broker] = server, address
        raw.await_route(namesrv, TOPIC_TO_CREATE_FROM)

    def restart(self, broker: str) -> None:
        """Stop *broker* in order, and start it again where it was."""
        server, address = self._brokers.pop(broker)
        server.__exit__(None, None, None)
        self._start(broker, int(address.rpartition(":")[2]))


class Performance:
    """Scenarios under way: all of those announced begin together, when the first of them is asked for."""

    def __init__(self, stage: Stage, worker: ClientWorker, names: Iterable[str]) -> None:
        self._stage = stage
        self._worker = worker
        self._numbers: dict[str, int] = {}
        self._failed: dict[str, Exception] = {}
        known = list(names)
        ordered = [*(name for name in LONG if name in known), *(name for name in known if name not in LONG)]
        for name in ordered:
            if needed_broker(name) != "restart":
                try:
                    self._numbers[name] = self._begin(name)
                except ServerError as problem:
                    self._failed[name] = problem
        self._restarted = [name for name in ordered if needed_broker(name) == "restart"]

    def _begin(self, name: str) -> int:
        broker = needed_broker(name)
        return self._worker.begin(
            "scenario",
            name=name,
            namesrv=self._stage.namesrv_of(broker),
            broker=self._stage.address(broker),
            brokerName=self._stage.broker_name(broker),
        )

    def facts(self, name: str) -> dict[str, Any]:
        """What was observed; a scenario that could not be played to its end is an error."""
        if name in self._restarted:
            self._play_restarted()
        if name in self._failed:
            raise self._failed[name]
        if name not in self._numbers:
            raise ClientError(f"{name} was not played to its end: the broker was not restarted")
        answer = self._worker.finish(self._numbers[name], SCENARIO_TIMEOUT_SECONDS)
        facts: dict[str, Any] = answer["facts"]
        return facts

    def _play_restarted(self) -> None:
        began, self._restarted = {name: self._begin(name) for name in self._restarted}, []
        paused = []
        for name, number in began.items():
            try:
                self._worker.finish(number, SCENARIO_TIMEOUT_SECONDS)
            except ClientError as problem:
                self._failed[name] = problem
            else:
                paused.append(name)
        self._stage.restart("restart")
        for name in paused:
            self._numbers[name] = self._worker.begin("resume", scenario=began[name])


NUMBERS = itertools.count(1)


@contextmanager
def scenario_worker(kind: str, home: Path) -> Iterator[ClientWorker]:
    """The JVM that plays scenarios with the client *kind*; 4.9.8 speaks with binary headers, 5.5.0 with JSON ones."""
    home = home / f"{kind}-{next(NUMBERS)}"
    options = [
        f"-Drocketmq.serialize.type={'ROCKETMQ' if kind == 'java498' else 'JSON'}",
        "-Drocketmq.client.rebalance.lockInterval=1000",
    ]
    command = java_client(kind).command(SCENARIO_MAIN_CLASS, str(SCENARIOS_AT_ONCE), home=home, options=options)
    worker = ClientWorker(f"scenarios-{kind}", command, home)
    try:
        yield worker
    finally:
        worker.close()
