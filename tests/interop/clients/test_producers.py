"""Producers beyond the exchange: the first send to a topic, the VIP port, and the send header of old clients."""

from __future__ import annotations

import pytest

from tests.interop.clients import raw
from tests.interop.clients.fleet import CODECS, KINDS, Clients
from tests.interop.clients.messages import identities, numbered
from tests.interop.clients.names import Names
from tests.interop.clients.servers import Cluster

SEND_MESSAGE = 10
SEND_MESSAGE_V2 = 310


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_send_creates_the_topic(
    cluster: Cluster, clients: Clients, unique: Names, kind: str, codec: str
) -> None:
    """Goal: a program needs no operator. Method: send to a topic nobody made; its route exists, and its messages."""
    worker = clients.get(kind, codec)
    topic, producer, consumer = unique("created-by-send"), unique("creator"), unique("first-reader")
    assert raw.route(cluster.namesrv, topic) is None
    worker.start_producer(producer, cluster.namesrv)
    sent = numbered(topic, unique("first"), 60)
    worker.send(producer, "sync", sent)

    (queues,) = raw.await_route(cluster.namesrv, topic)["queueDatas"]
    assert (queues["brokerName"], queues["perm"]) == (cluster.broker_name, raw.PERMISSION_READ_WRITE)
    assert queues["readQueueNums"] == queues["writeQueueNums"] > 1
    worker.start_push(consumer, cluster.namesrv, group=unique("first-readers"), topic=topic)
    received = worker.await_received(consumer, [message.identity for message in sent])
    assert identities(received) == identities(sent)
    worker.retire(consumer, producer)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vip_port_takes_sends(cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str) -> None:
    """Goal: old programs use the port two below. Method: send with the VIP channel on, receive without it."""
    worker = clients.get(kind)
    producer, consumer = unique("vip-producer"), unique("vip-consumer")
    worker.start_producer(producer, cluster.namesrv, vip=True)
    sent = numbered(topic, unique("vip"), 60)
    worker.send(producer, "sync", sent)
    worker.start_push(consumer, cluster.namesrv, group=unique("vip-group"), topic=topic)
    received = worker.await_received(consumer, [message.identity for message in sent])
    assert identities(received) == identities(sent)
    worker.retire(consumer, producer)


@pytest.mark.parametrize("codec", CODECS)
def test_the_send_header_with_long_names_is_understood(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, codec: str
) -> None:
    """Goal: request 10, which clients sent before 310. Method: Java 4.9.8 with its switch for it; it counts as 10."""
    before = raw.served_totals(cluster.broker)
    worker = clients.start("java498", codec, options=["-Dorg.apache.rocketmq.client.sendSmartMsg=false"])
    try:
        producer, consumer = unique("old-producer"), unique("old-consumer")
        worker.start_producer(producer, cluster.namesrv)
        sent = numbered(topic, unique("old"), 30)
        assert [result.status for result in worker.send(producer, "sync", sent)] == ["SEND_OK"] * len(sent)
        worker.start_push(consumer, cluster.namesrv, group=unique("old-group"), topic=topic)
        received = worker.await_received(consumer, [message.identity for message in sent])
        assert identities(received) == identities(sent)
    finally:
        worker.close()
    if cluster.target == "pymq":
        after = raw.served_totals(cluster.broker)
        assert after.get(SEND_MESSAGE, 0) - before.get(SEND_MESSAGE, 0) == len(sent)
        assert after.get(SEND_MESSAGE_V2, 0) == before.get(SEND_MESSAGE_V2, 0)
