"""A whole broker under every abuse at once: it serves the others, keeps what it acknowledged, and gives memory back."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.json_dialect import loads
from tests.abuse.peer import Peer, frame
from tests.abuse.test_frames import LYING, header_with
from tests.broker.sides import heartbeat, offsets_in
from tests.broker.wire import BrokerProcess, Wire, send_fields

IDLE_CONNECTIONS = 10_000
DESCRIPTORS_KEPT = 600
MEMORY_GROWTH_MAX = 64 << 20
TOPIC, GROUP = "AbuseTopic", "AbuseGroup"


@pytest.fixture
def broker(tmp_path: Path, descriptors: int) -> Iterator[BrokerProcess]:
    """A broker with as many descriptors as this machine allows; it must stop in order."""
    with BrokerProcess(tmp_path) as running:
        yield running
        assert running.stop() == 0


def anonymous_bytes(broker: BrokerProcess) -> int:
    """Memory of the broker that is not a file's."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


class Producer(threading.Thread):
    """Sends one message after the other; every one must be acknowledged, in order."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.acknowledged: list[int] = []
        self.failure: str | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        """Send until told to stop."""
        with Wire(self.port) as wire:
            while not self.stopping.is_set():
                body = f"message {len(self.acknowledged)}".encode()
                answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), body)
                if answer.code != ResponseCode.SUCCESS:
                    self.failure = f"{answer.code}: {answer.remark}"
                    return
                self.acknowledged.append(int(answer.fields["queueOffset"]))

    def more(self, count: int) -> None:
        """Wait until *count* more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        end = time.monotonic() + 60
        while len(self.acknowledged) < wanted:
            assert self.failure is None, self.failure
            assert time.monotonic() < end, "the producer stands still"
            time.sleep(0.001)


def lie(port: int) -> None:
    """Everything that cannot be trusted, on a connection each; all of them are ended."""
    for bytes_ in LYING.values():
        with Peer(port) as peer:
            peer.write(bytes_)
            assert peer.read() is None


def cut_frames(port: int) -> None:
    """Sends that end in the middle."""
    request = frame(int(RequestCode.SEND_MESSAGE_V2), 1, b"x" * 100_000)
    for cut in (1, 4, 8, 100, 5000, 99_000):
        with Peer(port) as peer:
            peer.write(request[:cut])


def strange_but_answered(port: int) -> None:
    """What can be answered is: unknown codes, a header of 16 MiB, a body above the maximum, text that is no UTF-8."""
    with Peer(port) as peer:
        peer.write(frame(77_777, 1))
        answer = peer.read()
        assert answer is not None
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    with Peer(port) as peer:
        room = (16 << 20) - 4 - len(header_with(b""))
        peer.write(frame(0, 0, header=header_with(b"x" * room).replace(b'"code":10,', b'"code":26,')))
        answer = peer.read()
        assert answer is not None
        assert answer.opaque == 5
    with Wire(port) as wire:
        too_large = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), b"x" * ((4 << 20) + 1))
        assert too_large.code == ResponseCode.MESSAGE_ILLEGAL
        assert wire.call(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS
    for text in (b"\xff\xfe", b"\xed\xa0\x80", b"\\ud83d"):
        with Peer(port) as peer:
            peer.write(frame(0, 0, header=header_with(text)))
            answer = peer.read()
            assert answer is None or answer.opaque == 5


def deaf_peers(port: int, count: int) -> list[Peer]:
    """Peers that ask for the broker's configuration again and again and never read an answer."""
    peers = [Peer(port, receive_buffer=4096) for _ in range(count)]
    asked = b"".join(frame(int(RequestCode.GET_BROKER_CONFIG), number) for number in range(200))
    for peer in peers:
        peer.write(asked)
    return peers


def trickle(peers: list[Peer], producer: Producer) -> None:
    """A frame byte by byte on each of *peers*, while messages are acknowledged; all are answered in the end."""
    request = frame(77_777, 9)
    for position in range(len(request)):
        for peer in peers:
            peer.write(request[position : position + 1])
        if position % 10 == 0:
            producer.more(5)
    for peer in peers:
        answer = peer.read()
        assert answer is not None
        assert answer.opaque == 9


def read_back(port: int) -> list[int]:
    """Queue offsets of every message of the queue, pulled as a consumer does."""
    found: list[int] = []
    with Wire(port) as wire:
        heartbeat(wire, GROUP, TOPIC)
        while True:
            fields = {
                "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": str(len(found)),
                "maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subVersion": "1", "expressionType": "TAG",
            }  # fmt: skip
            answer = wire.call(RequestCode.PULL_MESSAGE, fields)
            if answer.code != ResponseCode.SUCCESS:
                return found
            found += offsets_in(answer.body)


def abuse_all(port: int, count: int, producer: Producer) -> None:
    """Every abuse at once, *count* idle connections among them, while *producer* gets its acknowledgements."""
    peers = [Peer(port) for _ in range(count)]
    producer.more(100)
    slow = peers[:30]
    for _ in range(100):
        liar = Peer(port)
        liar.write(struct.pack(">II", 16 << 20, 100))
        peers.append(liar)
    peers += deaf_peers(port, 5)
    for abuse in (lie, cut_frames, strange_but_answered):
        abuse(port)
        producer.more(50)
    trickle(slow, producer)
    for peer in peers:
        peer.socket.close()
    producer.more(200)


def test_an_abused_broker_serves_the_others_keeps_its_promises_and_its_memory_returns(
    broker: BrokerProcess, descriptors: int
) -> None:
    """Goal: the issue's abuse, all of it. Method: a producer beside it, three rounds; pull, count, compare memory."""
    producer = Producer(broker.port)
    producer.start()
    producer.more(200)
    memory = [anonymous_bytes(broker)]
    count = min(IDLE_CONNECTIONS, descriptors - DESCRIPTORS_KEPT)
    for idle in (count, 1000, 1000):
        abuse_all(broker.port, idle, producer)
        memory.append(anonymous_bytes(broker))
    producer.stopping.set()
    producer.join()
    assert producer.failure is None
    assert producer.acknowledged == list(range(len(producer.acknowledged)))
    assert read_back(broker.port) == producer.acknowledged
    with Wire(broker.port) as wire:
        table = loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    sends = int(RequestCode.SEND_MESSAGE_V2)
    assert int(table[f"pymq.served.{sends}.native"]) >= 0.99 * len(producer.acknowledged)
    print(f"{count} idle; MiB before and after each round: {[size >> 20 for size in memory]}")
    assert memory[-1] - memory[0] < MEMORY_GROWTH_MAX
    assert memory[-1] - memory[-2] < MEMORY_GROWTH_MAX / 8  # what is left is used again
