"""A message sent by each client is received by each client: over JSON headers, over binary ones, and over TLS.

One exchange per wire: every client has a producer, and a consumer in a group of its own, all on one topic. Each
producer sends in every mode, a part before the consumers start (they catch up) and the rest while they wait (they
long-poll). The tests then look at the cells of what came of it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest

from tests.interop.clients import raw
from tests.interop.clients.fleet import KINDS, WIRES, Clients
from tests.interop.clients.messages import (
    COMPRESS_OVER_BYTES,
    OutMessage,
    Received,
    SendResult,
    identities,
    numbered,
)
from tests.interop.clients.names import QUEUE_COUNT, Names
from tests.interop.clients.servers import Cluster
from tests.interop.clients.workers import MODES, Mode

MESSAGES_PER_MODE = 40

# At, just over and far over the size from which clients compress.
BIG_BODY_SIZES = (COMPRESS_OVER_BYTES - 1, COMPRESS_OVER_BYTES + 1, 100_003, 1_000_003)


@dataclass(frozen=True)
class Exchange:
    """What was sent by each producer in each mode (and as `big`), and what each consumer was given."""

    sent: dict[tuple[str, str], tuple[list[OutMessage], list[SendResult]]]
    received: dict[str, list[Received]]

    def of_producer(self, kind: str) -> list[OutMessage]:
        """All that one producer sent."""
        return [message for (sender, _), (messages, _) in self.sent.items() if sender == kind for message in messages]

    def by_key(self, consumer: str) -> dict[str, Received]:
        """What a consumer was given, to look up."""
        return {message.key: message for message in self.received[consumer]}


def big_messages(topic: str, prefix: str) -> list[OutMessage]:
    """Bodies that compress well, at sizes around the threshold."""
    return [
        OutMessage(topic, f"{prefix}-{size}", (f"{prefix} goes on and on. ".encode() * size)[:size])
        for size in BIG_BODY_SIZES
    ]


@pytest.fixture(scope="session", params=WIRES)
def exchange(request: pytest.FixtureRequest, cluster: Cluster, clients: Clients, unique: Names) -> Exchange:
    """Have everybody send to everybody, and wait until everything has arrived."""
    topic = unique(f"exchange-{request.param}")
    raw.create_topic(cluster.broker, cluster.namesrv, topic, QUEUE_COUNT)
    workers = {kind: clients.on_wire(kind, request.param, cluster) for kind in KINDS}
    names = {kind: unique(f"{kind}-exchange") for kind in KINDS}
    sent: dict[tuple[str, str], tuple[list[OutMessage], list[SendResult]]] = {}

    def send(kind: str, mode: Mode, label: str, messages: list[OutMessage]) -> None:
        sent[kind, label] = messages, workers[kind].send(f"{names[kind]}-out", mode, messages)

    for kind, worker in workers.items():
        worker.start_producer(f"{names[kind]}-out", cluster.namesrv)
        send(kind, "sync", "sync", numbered(topic, f"{names[kind]}-sync", MESSAGES_PER_MODE))
    for kind, worker in workers.items():
        group = f"{names[kind]}-group"
        worker.start_push(f"{names[kind]}-in", cluster.namesrv, group=group, topic=topic)
    for kind in workers:
        for mode in MODES[1:]:
            send(kind, mode, mode, numbered(topic, f"{names[kind]}-{mode}", MESSAGES_PER_MODE))
        send(kind, "sync", "big", big_messages(topic, f"{names[kind]}-big"))

    wanted = [message.identity for messages, _ in sent.values() for message in messages]
    received = {kind: worker.await_received(f"{names[kind]}-in", wanted) for kind, worker in workers.items()}
    for kind, worker in workers.items():
        worker.retire(f"{names[kind]}-in", f"{names[kind]}-out")
    return Exchange(sent, received)


@pytest.mark.parametrize("consumer", KINDS)
@pytest.mark.parametrize("producer", KINDS)
def test_what_each_sends_each_receives(exchange: Exchange, producer: str, consumer: str) -> None:
    """Goal: everybody understands everybody. Method: keys and digests of one cell; each once, none else."""
    sent = exchange.of_producer(producer)
    keys = {message.key for message in sent}
    received = [message for message in exchange.received[consumer] if message.key in keys]
    assert len(sent) == len(MODES) * MESSAGES_PER_MODE + len(BIG_BODY_SIZES)
    assert identities(received) == identities(sent)


@pytest.mark.parametrize("consumer", KINDS)
@pytest.mark.parametrize("producer", KINDS)
def test_properties_arrive_as_they_were_sent(exchange: Exchange, producer: str, consumer: str) -> None:
    """Goal: a program's own properties survive. Method: compare them, in every mode, with text beyond ASCII."""
    found = exchange.by_key(consumer)
    for message in exchange.of_producer(producer):
        received = found[message.key].properties
        assert {name: received.get(name) for name in message.properties} == message.properties


@pytest.mark.parametrize("producer", KINDS)
@pytest.mark.parametrize("mode", ["sync", "async", "selector"])
def test_a_send_result_says_where_the_message_is(exchange: Exchange, producer: str, mode: str) -> None:
    """Goal: ids and offsets mean the same to both sides. Method: the result's against the received message's."""
    found = exchange.by_key("java550")
    messages, results = exchange.sent[producer, mode]
    assert len(results) == len(messages)
    for message, result in zip(messages, results, strict=True):
        arrived = found[message.key]
        assert result.status == "SEND_OK"
        assert (result.queue_id, result.queue_offset) == (arrived.queue_id, arrived.queue_offset)
        assert (result.msg_id, result.offset_msg_id) == (arrived.msg_id, arrived.offset_msg_id)


@pytest.mark.parametrize("producer", KINDS)
def test_a_selector_decides_the_queue(exchange: Exchange, producer: str) -> None:
    """Goal: a message goes where the program wants it. Method: the selector's argument against the queue's id."""
    messages, results = exchange.sent[producer, "selector"]
    for message, result in zip(messages, results, strict=True):
        assert message.queue_id is not None
        assert result.queue_id == message.queue_id % QUEUE_COUNT


@pytest.mark.parametrize("producer", KINDS)
def test_a_batch_is_stored_as_its_messages(exchange: Exchange, producer: str) -> None:
    """Goal: a batch is one request and many messages. Method: successive offsets in one queue, an id for each."""
    found = exchange.by_key("java550")
    messages, (result,) = exchange.sent[producer, "batch"]
    arrived = [found[message.key] for message in messages]
    assert result.status == "SEND_OK"
    assert [message.queue_id for message in arrived] == [result.queue_id] * len(messages)
    first = result.queue_offset
    assert [message.queue_offset for message in arrived] == list(range(first, first + len(messages)))
    assert result.offset_msg_id.split(",") == [message.offset_msg_id for message in arrived]


@pytest.mark.parametrize("consumer", KINDS)
@pytest.mark.parametrize("producer", KINDS)
def test_large_bodies_travel_compressed(exchange: Exchange, producer: str, consumer: str) -> None:
    """Goal: compression is the clients' affair. Method: the records' sizes, for bodies around the threshold."""
    found = exchange.by_key(consumer)
    messages, _ = exchange.sent[producer, "big"]
    for message in messages:
        arrived = found[message.key]
        compressed = len(message.body) >= COMPRESS_OVER_BYTES
        assert arrived.identity == message.identity
        assert arrived.body_size == len(message.body)
        assert (arrived.store_size < len(message.body)) == compressed


@pytest.mark.parametrize("consumer", KINDS)
def test_every_queue_is_received_in_order(exchange: Exchange, consumer: str) -> None:
    """Goal: no offset is skipped or given twice. Method: a queue's received offsets are 0, 1, 2 … without a gap."""
    offsets = defaultdict(list)
    for message in exchange.received[consumer]:
        offsets[message.queue_id].append(message.queue_offset)
    assert set(offsets) == set(range(QUEUE_COUNT))
    for queue in offsets.values():
        assert sorted(queue) == list(range(len(queue)))
