"""The promise over the wire: SIGKILL a broker that acknowledges pipelined sends natively; nothing acknowledged is lost.

Producers keep many sends in flight on several connections, singles and batches, so that at any moment some are in the
socket, some collected, some in the log, some parked for their flush, some answered. The answers a producer has read
are the ledger. Afterwards the store is opened again and every entry of the ledger must be where its answer said.
"""

from __future__ import annotations

import json
import os
import random
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pymq._core._store import Store
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.store.config import StoreConfig
from tests.broker.wire import BrokerProcess, Wire, send_fields

pytestmark = pytest.mark.crash

RUNS = int(os.environ.get("PYMQ_KILL_RUNS", "10"))
CONNECTIONS = 4
IN_FLIGHT = 48
BATCH = 5
TOPIC = "KillTest"
LIVE_MS = (50, 600)  # how long producers send before the kill


@dataclass
class Producer:
    """One connection that never waits for an answer before its next send."""

    port: int
    name: str
    acknowledged: list[tuple[int, int, bytes]] = field(default_factory=list)  # queue, offset, body
    refused: list[Command] = field(default_factory=list)

    def run(self) -> None:
        """Until the connection breaks."""
        waiting: dict[int, tuple[bytes, ...]] = {}
        sent = 0
        try:
            with Wire(self.port, timeout_s=10.0) as wire:
                while True:
                    while len(waiting) < IN_FLIGHT:
                        bodies = tuple(
                            b"%s-%d" % (self.name.encode(), sent + i) for i in range(1 if sent % 7 else BATCH)
                        )
                        sent += len(bodies)
                        waiting[wire.post(self.request(bodies))] = bodies
                    self.take(wire.receive(), waiting)
        except (OSError, EOFError):
            pass

    def request(self, bodies: tuple[bytes, ...]) -> Command:
        """One message, or a batch; each connection has a queue to itself, so that order can be checked."""
        fields = send_fields(TOPIC, int(self.name))
        if len(bodies) == 1:
            return Command(RequestCode.SEND_MESSAGE_V2, fields, bodies[0])
        parts = b"".join(struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0" for body in bodies)
        return Command(RequestCode.SEND_BATCH_MESSAGE, fields | {"m": "true"}, parts)

    def take(self, answer: Command, waiting: dict[int, tuple[bytes, ...]]) -> None:
        """Enter it into the ledger."""
        bodies = waiting.pop(answer.opaque)
        if answer.code != ResponseCode.SUCCESS:
            self.refused.append(answer)
            return
        queue_id, offset = int(answer.fields["queueId"]), int(answer.fields["queueOffset"])
        self.acknowledged += [(queue_id, offset + i, body) for i, body in enumerate(bodies)]


def native_sends(port: int) -> int:
    """How many sends the reactors served themselves."""
    with Wire(port) as wire:
        table = json.loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    return sum(int(table.get(f"pymq.served.{code}.native", 0)) for code in (310, 320))


def run_and_kill(directory: Path, live_s: float) -> tuple[list[Producer], int]:
    """Send until the broker is killed; the producers' ledgers, and the native sends seen shortly before."""
    with BrokerProcess(directory, "--flushDiskType", "SYNC_FLUSH") as broker:
        with Wire(broker.port) as wire:  # the topic's creation is not what is tested
            assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, 0), b"first").code == ResponseCode.SUCCESS
        producers = [Producer(broker.port, str(number)) for number in range(CONNECTIONS)]
        threads = [threading.Thread(target=producer.run) for producer in producers]
        for thread in threads:
            thread.start()
        time.sleep(live_s)
        native = native_sends(broker.port)
        broker.stop(9)
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    return producers, native


@pytest.mark.timeout(120 + 30 * RUNS)
def test_a_killed_broker_loses_no_acknowledged_send(tmp_path: Path) -> None:
    """Method: 10 kills (PYMQ_KILL_RUNS) under sync flush of one broker whose store lives on from kill to kill."""
    seed = int(os.environ.get("PYMQ_KILL_SEED", str(random.randrange(1 << 32))))
    chance = random.Random(seed)
    print(f"broker kill: {RUNS} runs, seed {seed}")
    ledger: dict[tuple[int, int], bytes] = {}
    native = 0
    for _ in range(RUNS):
        producers, served = run_and_kill(tmp_path, chance.uniform(*LIVE_MS) / 1000)
        native += served
        for producer in producers:
            assert not producer.refused, f"refused: {producer.refused[0]}"
            offsets = [offset for _, offset, _ in producer.acknowledged]
            numbers = [int(body.rpartition(b"-")[2]) for _, _, body in producer.acknowledged]
            assert numbers == sorted(numbers) == list(range(len(numbers))), "answers out of order"
            assert offsets == sorted(set(offsets)), "messages of one connection changed places in their queue"
            for queue_id, offset, body in producer.acknowledged:
                assert ledger.setdefault((queue_id, offset), body) == body, "one place was acknowledged twice"
    config = StoreConfig(flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=1 << 20)
    store = Store(tmp_path / "store", config)
    try:
        for (queue_id, offset), body in ledger.items():
            (found,) = store.read(TOPIC, queue_id, offset, 1)
            assert found.body == body, f"queue {queue_id} offset {offset}"
    finally:
        store.close()
    print(f"broker kill: {len(ledger)} messages acknowledged, {native} requests served natively, 0 lost")
    assert len(ledger) > RUNS * CONNECTIONS, "hardly anything was acknowledged"
    assert native > RUNS * CONNECTIONS, "hardly anything was served natively"
