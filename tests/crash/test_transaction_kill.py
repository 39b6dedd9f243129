"""Transactions over SIGKILL: no acknowledged commit is lost, none is stored twice, no acknowledged rollback is ever
seen.

Producers keep half messages and ends in flight on several connections, so that a kill comes between and around half,
commit and op message. After each kill, before the broker starts again, its store is opened and compared with the
producers' ledgers; then the broker goes on with it, asks about what is pending, and is killed again.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pymq._core._store import Store
from pymq.errors import NotFoundError
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.store.config import StoreConfig
from tests.broker.wire import BrokerProcess, Wire, send_fields

pytestmark = pytest.mark.crash

RUNS = int(os.environ.get("PYMQ_KILL_RUNS", "10"))
CONNECTIONS = 3
IN_FLIGHT = 24
TOPIC, GROUP = "TransactionKill", "P"
COMMIT, ROLLBACK = "8", "12"
LIVE_MS = (300, 1200)
SETTLE_S = 60.0
OPTIONS = {
    "flushDiskType": "SYNC_FLUSH",
    "transactionTimeOut": "200",
    "transactionCheckInterval": "150",
    "transactionOpBatchInterval": "40",
    "transactionCheckMax": "1000",
    "brokerFastFailureEnable": "false",  # a slow machine is not what is tested
}


@dataclass
class Books:
    """What the producers know, over all kills. Bodies end in c or r: how their transaction ends."""

    halves: set[bytes] = field(default_factory=set)
    committed: set[bytes] = field(default_factory=set)
    rolled_back: set[bytes] = field(default_factory=set)
    checks: int = 0

    def enter(self, body: bytes) -> None:
        """An end was acknowledged."""
        (self.committed if body.endswith(b"c") else self.rolled_back).add(body)


class Producer:
    """One connection: half messages, their ends, and answers to checks; nothing is waited for before the next."""

    def __init__(self, port: int, name: str, books: Books, *, sending: bool = True) -> None:
        self.port, self.name, self.books, self.sending = port, name, books, sending
        self.problems: list[Command] = []
        self.waiting: dict[int, tuple[str, bytes]] = {}
        self.number = 0
        self.stop = False

    def run(self) -> None:
        """Until the connection breaks."""
        try:
            with Wire(self.port, timeout_s=1.0 if not self.sending else 10.0) as wire:
                body = {"clientID": self.name, "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
                self.waiting[wire.post(Command(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()))] = ("beat", b"")
                while not self.stop:
                    while self.sending and len(self.waiting) < IN_FLIGHT:
                        self.send_half(wire)
                    try:
                        self.take(wire, wire.receive())
                    except TimeoutError:
                        continue
        except (OSError, EOFError):
            pass

    def send_half(self, wire: Wire) -> None:
        """The next half message."""
        self.number += 1
        body = b"%s-%d-%s" % (self.name.encode(), self.number, b"c" if self.number % 3 else b"r")
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02BODY\x01{body.decode()}\x02"
        fields = send_fields(TOPIC, 0, properties, f="4")
        self.waiting[wire.post(Command(RequestCode.SEND_MESSAGE_V2, fields, body))] = ("half", body)

    def take(self, wire: Wire, command: Command) -> None:
        """An answer, or a check."""
        if not command.is_response:
            self.books.checks += 1
            text = command.body[command.body.index(b"BODY\x01") + 5 :]
            names = ("tranStateTableOffset", "commitLogOffset", "msgId", "transactionId")
            self.end(wire, text[: text.index(b"\x02")], {name: command.fields[name] for name in names})
            return
        kind, body = self.waiting.pop(command.opaque)
        if command.code != ResponseCode.SUCCESS:
            self.problems.append(command)
        elif kind == "half":
            self.books.halves.add(body)
            if self.number % 5:  # the others are left to the checks
                key = command.fields["transactionId"]
                place = {"tranStateTableOffset": command.fields["queueOffset"], "msgId": key, "transactionId": key}
                self.end(wire, body, place | {"commitLogOffset": str(int(command.fields["msgId"][-16:], 16))})
        elif kind == "end":
            self.books.enter(body)

    def end(self, wire: Wire, body: bytes, place: dict[str, str]) -> None:
        """END_TRANSACTION, to be answered."""
        how = COMMIT if body.endswith(b"c") else ROLLBACK
        fields = {"producerGroup": GROUP, "commitOrRollback": how, "fromTransactionCheck": "false"} | place
        self.waiting[wire.post(Command(RequestCode.END_TRANSACTION, fields))] = ("end", body)


def start(directory: Path, plane: str) -> BrokerProcess:
    """A broker that checks often."""
    options = OPTIONS | {"dataPlane": plane}
    return BrokerProcess(directory, *(text for name, value in options.items() for text in (f"--{name}", value)))


def run_and_kill(directory: Path, plane: str, run: int, live_s: float, books: Books) -> list[Command]:
    """Send until the broker is killed; what went wrong."""
    with start(directory, plane) as broker:
        with Wire(broker.port) as wire:  # the topic's creation is not what is tested
            assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, 1), b"first").code == ResponseCode.SUCCESS
        producers = [Producer(broker.port, f"{run}-{number}", books) for number in range(CONNECTIONS)]
        threads = [threading.Thread(target=producer.run) for producer in producers]
        for thread in threads:
            thread.start()
        time.sleep(live_s)
        broker.stop(9)
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    return [problem for producer in producers for problem in producer.problems]


def seen(directory: Path) -> Counter[bytes]:
    """What the topic's queue holds, by opening the store."""
    config = StoreConfig(flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=1 << 20)
    store = Store(directory / "store", config)
    found: Counter[bytes] = Counter()
    try:
        while messages := store.read(TOPIC, 0, found.total(), 1000):
            found.update(message.body for message in messages)
    except NotFoundError:
        pass
    finally:
        store.close()
    return found


def compare(books: Books, found: Counter[bytes]) -> None:
    """The promise."""
    assert not books.committed - found.keys(), "an acknowledged commit is lost"
    assert not [body for body, count in found.items() if count > 1], "a transaction was stored twice"
    assert not [body for body in found if not body.endswith(b"c")], "what was to be rolled back is seen"


@pytest.mark.timeout(180 + 45 * RUNS)
@pytest.mark.parametrize(("plane", "runs"), [("native", RUNS), ("python", (RUNS + 2) // 3)])
def test_killed_transactions_end_exactly_once(tmp_path: Path, plane: str, runs: int) -> None:
    """Method: 10 kills (PYMQ_KILL_RUNS) under sync flush, then one run that answers checks until nothing is pending."""
    seed = int(os.environ.get("PYMQ_KILL_SEED", str(random.randrange(1 << 32))))
    chance = random.Random(seed)
    print(f"transaction kill: {plane} plane, {runs} runs, seed {seed}")
    books = Books()
    for run in range(runs):
        problems = run_and_kill(tmp_path, plane, run, chance.uniform(*LIVE_MS) / 1000, books)
        assert not problems, f"refused: {problems[0].code} {problems[0].remark}"
        compare(books, seen(tmp_path))
    with start(tmp_path, plane) as broker:
        listener = Producer(broker.port, "listener", books, sending=False)
        thread = threading.Thread(target=listener.run)
        thread.start()
        end_s = time.monotonic() + SETTLE_S
        with Wire(broker.port) as wire:
            while (pending := int(runtime_info(wire)["pymq.transaction.pending"])) and time.monotonic() < end_s:
                time.sleep(0.2)
        listener.stop = True
        thread.join(10)
        assert broker.stop() == 0
    assert pending == 0
    found = seen(tmp_path)
    compare(books, found)
    wanted = {body for body in books.halves if body.endswith(b"c")}
    assert not wanted - found.keys(), "what its producer wanted committed was forgotten"
    print(
        f"transaction kill: {len(books.halves)} half messages, {len(books.committed)} commits and "
        f"{len(books.rolled_back)} rollbacks acknowledged, {books.checks} checks, 0 lost, 0 twice"
    )
    assert len(books.committed) > runs * CONNECTIONS, "hardly anything was committed"
    assert books.checks, "nothing was asked about"


def runtime_info(wire: Wire) -> dict[str, str]:
    """The broker's counters."""
    return json.loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
