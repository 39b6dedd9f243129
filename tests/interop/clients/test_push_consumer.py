"""Push consumers: what they subscribe to is what they are given, and where they stopped is where they go on."""

from __future__ import annotations

import time

import pytest

from tests.interop.clients import raw
from tests.interop.clients.fleet import CODECS, JAVA_KINDS, KINDS, WIRES, Clients
from tests.interop.clients.messages import identities, numbered
from tests.interop.clients.names import Names
from tests.interop.clients.servers import Cluster

MESSAGES_PER_TAG = 30
MESSAGES_TO_RESUME = 80
COMMIT_TIMEOUT_SECONDS = 30.0

# Java hashes a tag's UTF-16 units, and so does the broker; Go hashes its UTF-8 bytes, so only ASCII works for it.
TAGS = {
    "java550": ("TagA", "TagB", "Schirm☂𝄞"),
    "java498": ("TagA", "TagB", "Schirm☂𝄞"),
    "go": ("TagA", "TagB", "TagC"),
}


def await_committed(broker: str, group: str, topic: str, count: int) -> None:
    """Wait until the group's offsets in all queues add up to *count*."""
    deadline = time.monotonic() + COMMIT_TIMEOUT_SECONDS
    while (committed := raw.committed(broker, group, topic)) != count:
        assert time.monotonic() < deadline, f"{group} committed {committed} of {count} in {COMMIT_TIMEOUT_SECONDS} s"
        time.sleep(0.1)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_expression_chooses_messages(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str, wire: str
) -> None:
    """Goal: filters are the subscriber's. Method: three expressions in three groups; each gets its tags, once."""
    worker = clients.on_wire(kind, wire, cluster)
    first, second, third = TAGS[kind]
    chosen = {f"{first} || {second}": {first, second}, third: {third}, "*": {first, second, third}}
    consumers = {expression: unique("tags") for expression in chosen}
    for expression, name in consumers.items():
        worker.start_push(name, cluster.namesrv, group=name, topic=topic, expression=expression)
    producer = unique("tags-producer")
    worker.start_producer(producer, cluster.namesrv)
    sent = [message for tag in TAGS[kind] for message in numbered(topic, unique("tagged"), MESSAGES_PER_TAG, tag=tag)]
    worker.send(producer, "async", sent)

    for expression, name in consumers.items():
        wanted = [message for message in sent if message.tag in chosen[expression]]
        received = worker.await_received(name, [message.identity for message in wanted])
        assert identities(received) == identities(wanted)
        assert {message.tag for message in received} == chosen[expression]
    worker.retire(*consumers.values(), producer)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_goes_on_where_its_group_stopped(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str, codec: str
) -> None:
    """Goal: offsets outlive consumers. Method: consume, commit, close; send more, consume again: only the new ones."""
    worker = clients.get(kind, codec)
    producer, group = unique("resume-producer"), unique("resume-group")
    worker.start_producer(producer, cluster.namesrv)
    for round_number in (1, 2):
        sent = numbered(topic, unique("resumed"), MESSAGES_TO_RESUME)
        worker.send(producer, "sync", sent)
        consumer = unique("resume")
        worker.start_push(consumer, cluster.namesrv, group=group, topic=topic)
        received = worker.await_received(consumer, [message.identity for message in sent])
        assert identities(received) == identities(sent)
        if kind in JAVA_KINDS:
            worker.close_client(consumer)
        await_committed(cluster.broker, group, topic, round_number * MESSAGES_TO_RESUME)
        if kind == "go":
            # Java commits when it closes. Go does, too, but resets the connection in the next moment, and what it
            # wrote is lost now and then: its commit of every five seconds is waited for instead.
            worker.close_client(consumer)
    worker.retire(producer)


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_topic_may_be_subscribed_to_before_it_exists(
    cluster: Cluster, clients: Clients, unique: Names, kind: str
) -> None:
    """Goal: programs start in any order (Java's do; Go's refuse). Method: subscribe first, then send to the topic."""
    worker = clients.get(kind)
    topic, producer, consumer = unique("awaited-topic"), unique("late-producer"), unique("early-consumer")
    worker.start_push(consumer, cluster.namesrv, group=unique("early-group"), topic=topic)
    worker.start_producer(producer, cluster.namesrv)
    sent = numbered(topic, unique("awaited"), 60)
    worker.send(producer, "sync", sent)
    received = worker.await_received(consumer, [message.identity for message in sent])
    assert identities(received) == identities(sent)
    worker.retire(consumer, producer)
