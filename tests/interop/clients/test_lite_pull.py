"""Lite pull consumers (Java): they take when they want, and what they committed is not given again."""

from __future__ import annotations

import time

import pytest

from tests.interop.clients.fleet import JAVA_KINDS, WIRES, Clients
from tests.interop.clients.messages import Received, identities, numbered
from tests.interop.clients.names import Names
from tests.interop.clients.servers import Cluster
from tests.interop.clients.workers import RECEIVE_TIMEOUT_SECONDS, ClientWorker

POLL_MS = 1_000
MESSAGE_COUNT = 90


def poll_until(worker: ClientWorker, consumer: str, count: int) -> list[Received]:
    """Poll until *count* messages have come."""
    received: list[Received] = []
    deadline = time.monotonic() + RECEIVE_TIMEOUT_SECONDS
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} polled in {RECEIVE_TIMEOUT_SECONDS} s"
        received += worker.poll(consumer, timeout_ms=POLL_MS)
    return received


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_lite_pull_consumer_goes_on_from_its_commit(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str, wire: str
) -> None:
    """Goal: commits decide, not polls. Method: poll and commit, poll without commit, come back: the rest again."""
    worker = clients.on_wire(kind, wire, cluster)
    producer, group = unique("pulled-producer"), unique("pull-group")
    worker.start_producer(producer, cluster.namesrv)

    committed = numbered(topic, unique("committed"), MESSAGE_COUNT)
    worker.send(producer, "sync", committed)
    first = unique("puller")
    worker.start_lite_pull(first, cluster.namesrv, group=group, topic=topic)
    assert identities(poll_until(worker, first, len(committed))) == identities(committed)
    worker.commit(first)

    uncommitted = numbered(topic, unique("uncommitted"), MESSAGE_COUNT)
    worker.send(producer, "sync", uncommitted)
    assert identities(poll_until(worker, first, len(uncommitted))) == identities(uncommitted)
    worker.close_client(first)

    second = unique("puller")
    worker.start_lite_pull(second, cluster.namesrv, group=group, topic=topic)
    assert identities(poll_until(worker, second, len(uncommitted))) == identities(uncommitted)
    worker.retire(second, producer)


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_lite_pull_consumer_is_given_its_tags(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str
) -> None:
    """Goal: as for push consumers. Method: two tags sent, one subscribed to."""
    worker = clients.get(kind)
    producer, consumer = unique("pulled-tags"), unique("tag-puller")
    worker.start_producer(producer, cluster.namesrv)
    wanted = numbered(topic, unique("wanted"), MESSAGE_COUNT, tag="Wanted")
    worker.send(producer, "sync", [*numbered(topic, unique("other"), MESSAGE_COUNT, tag="Other"), *wanted])
    worker.start_lite_pull(consumer, cluster.namesrv, group=unique("tag-pull-group"), topic=topic, expression="Wanted")
    assert identities(poll_until(worker, consumer, len(wanted))) == identities(wanted)
    worker.retire(consumer, producer)
