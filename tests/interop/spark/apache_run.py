"""Stores that Apache RocketMQ 5.5.0's own broker wrote under its own clients, POP included, for audits to read.

    one broker          stopped in order
    master and slave    the slave's log is the master's, copied by Apache's replication; both stopped in order
    killed              SIGKILL in the middle of it

Files are small, so that each rolls. Each run takes less than a minute, most of it waiting for POP's ten seconds.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pymq.remoting.codes import RequestCode
from spark_jobs.ledger import LedgerWriter
from tests.broker.wire import Wire
from tests.interop.apache_toolchain import Toolchain
from tests.interop.clients import raw
from tests.interop.clients.servers import apache_broker, apache_name_server
from tests.spark_jobs.stores import StoreMade

RUN_MAIN_CLASS = "org.pymq.interop.AuditRun"
RUN_TIMEOUT_S = 90.0
BROKER_NAME = "audited"
TOPICS = ("Plain", "Batched", "Ordered", "Prices", "Failing", "Delayed", "Timed", "Transacted")
POP_TOPIC = "Popped-" + "long-" * 15  # with its group's, the retry topic has more than 127 bytes
POP_GROUP = "pop-" + "long-" * 12
SUBSCRIPTIONS = {"tagged": {"Plain": "red || green"}, "sql": {"Prices": "sql:price > 5"}}
GROUPS = ("readers", "sql", "tagged", "in-order", "failing", POP_GROUP)
QUEUES = 4

SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": str(20 * 64),
    "maxHashSlotNum": "97",
    "maxIndexNum": "400",
    "mappedFileSizeTimerLog": str(1 << 20),
    "maxMessageSize": str(1 << 14),
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionOpBatchInterval": "100",
    "flushConsumerOffsetInterval": "1000",
    "reviveQueueNum": "2",  # a stop waits seven seconds for each
}


@contextmanager
def servers(apache: Toolchain, home: Path, *, in_order: bool, slave: bool = False) -> Iterator[tuple[str, str, str]]:
    """A name server, a broker and, on demand, its slave; gives their addresses (the slave's is empty without one).

    The slave is stopped first: what the master writes while it stops is then missing there, as it may.
    """
    with ExitStack() as running:
        namesrv = running.enter_context(apache_name_server(apache, home / "namesrv"))
        master = running.enter_context(
            apache_broker(
                apache, home / "master", namesrv, name=BROKER_NAME, in_order=in_order,
                settings={**SETTINGS, "brokerRole": "ASYNC_MASTER"},
            )
        )  # fmt: skip
        raw.await_route(namesrv, "TBW102")
        copying = ""
        if slave:
            settings = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"}
            copying = running.enter_context(
                apache_broker(apache, home / "slave", namesrv, name=BROKER_NAME, in_order=in_order, settings=settings)
            )
        yield namesrv, master, copying


def prepare(namesrv: str, broker: str) -> None:
    """Topics, groups, and the mode of the POP group."""
    for topic in (*TOPICS, POP_TOPIC):
        raw.create_topic(broker, namesrv, topic, QUEUES)
    host, _, port = broker.rpartition(":")
    with Wire(int(port), host) as wire:
        for group in GROUPS:
            settings = {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
            ask(wire, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, settings)
        mode = {"topic": POP_TOPIC, "consumerGroup": POP_GROUP, "mode": "POP", "popShareQueueNum": 0}
        ask(wire, RequestCode.SET_MESSAGE_REQUEST_MODE, mode)


def ask(wire: Wire, code: RequestCode, body: Mapping[str, object]) -> None:
    """A request that must succeed."""
    answer = wire.call(code, {}, json.dumps(body).encode())
    assert answer.code == 0, f"{code.name}: {answer.code} {answer.remark}"


def run_clients(apache: Toolchain, home: Path, namesrv: str, books: Path) -> tuple[Path, ...]:
    """Let Apache's clients do all they do; their ledgers."""
    home.mkdir(parents=True, exist_ok=True)
    books.mkdir(parents=True, exist_ok=True)
    command = apache.command(RUN_MAIN_CLASS, namesrv, POP_TOPIC, POP_GROUP, home=home)
    with (home / "stderr.log").open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8")
        watchdog = threading.Timer(RUN_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            printed, _ = process.communicate()
        finally:
            watchdog.cancel()
    lines = [json.loads(text) for text in printed.splitlines()]
    words = (home / "stderr.log").read_text(errors="replace")[-2000:]
    assert lines[-1:] == [{"type": "done"}], f"the clients ended with {process.returncode}:\n{words}"
    with LedgerWriter(books / "sent.tsv") as ledger:
        for number, line in enumerate(line for line in lines if line["type"] == "sent"):
            place = line["topic"], line["queueId"], line["queueOffset"], line["msgId"]
            ledger.acknowledged(*place, sender=1, sequence=number + 1)
    for group in GROUPS:
        with LedgerWriter(books / f"{group}.tsv", group=group, subscriptions=SUBSCRIPTIONS.get(group)) as ledger:
            for line in lines:
                # What comes again lies in a retry topic, and says it was its first one.
                if line["type"] == "handled" and line["group"] == group and line["reconsumeTimes"] == 0:
                    ledger.received(line["topic"], line["queueId"], line["queueOffset"], line["msgId"])
    return tuple(sorted(books.glob("*.tsv")))


def apache_store(apache: Toolchain, home: Path) -> StoreMade:
    """One broker, stopped in order."""
    with servers(apache, home, in_order=True) as (namesrv, broker, _):
        prepare(namesrv, broker)
        ledgers = run_clients(apache, home / "clients", namesrv, home / "books")
    return StoreMade("apache", home / "master/store", ledgers)


def apache_pair(apache: Toolchain, home: Path) -> StoreMade:
    """A slave's store, with its master's."""
    with servers(apache, home, in_order=True, slave=True) as (namesrv, master, _):
        prepare(namesrv, master)
        ledgers = run_clients(apache, home / "clients", namesrv, home / "books")
    return StoreMade("apache_pair", home / "slave/store", ledgers, master=home / "master/store")


def apache_killed(apache: Toolchain, home: Path) -> StoreMade:
    """One broker, killed right behind the last of it."""
    with servers(apache, home, in_order=False) as (namesrv, broker, _):
        prepare(namesrv, broker)
        ledgers = run_clients(apache, home / "clients", namesrv, home / "books")
    return StoreMade("apache_killed", home / "master/store", ledgers)
