"""Consumers of one group share its queues: one comes, one goes in order, one is killed; no message is lost.

A rebalance may hand over a queue before the last offset was stored, so a message may come twice around it; never
after it, and never to two members of the group at rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.interop.clients.fleet import WIRES, Clients
from tests.interop.clients.messages import identities, numbered
from tests.interop.clients.names import QUEUE_COUNT, Names
from tests.interop.clients.servers import Cluster
from tests.interop.clients.workers import ClientWorker

ALL_QUEUES = set(range(QUEUE_COUNT))
REBALANCE_TIMEOUT_SECONDS = 60.0
MESSAGES_PER_QUEUE = 10


def await_queues(worker: ClientWorker, consumer: str, topic: str, accepted: Callable[[set[int]], bool]) -> set[int]:
    """The queues a Java consumer holds, as soon as they are what is expected."""
    deadline = time.monotonic() + REBALANCE_TIMEOUT_SECONDS
    while True:
        held = worker.queues(consumer, topic)
        if accepted(held):
            return held
        assert time.monotonic() < deadline, f"{consumer} still holds {held} after {REBALANCE_TIMEOUT_SECONDS} s"
        time.sleep(0.1)


def has_half(held: set[int]) -> bool:
    """Whether a consumer of two has its share."""
    return len(held) == QUEUE_COUNT // 2


def has_all(held: set[int]) -> bool:
    """Whether a consumer has every queue."""
    return held == ALL_QUEUES


class Group:
    """A group's first consumer (Java, which tells its queues), a producer beside it, and what is sent."""

    def __init__(self, cluster: Cluster, worker: ClientWorker, topic: str, unique: Names) -> None:
        self.worker, self.topic = worker, topic
        self._unique = unique
        self.group, self.first, self.producer = unique("shared"), unique("first"), unique("shared-producer")
        worker.start_producer(self.producer, cluster.namesrv)
        worker.start_push(self.first, cluster.namesrv, group=self.group, topic=topic)
        await_queues(worker, self.first, topic, has_all)

    def send_to_every_queue(self) -> dict[int, list[tuple[str, str]]]:
        """Send the same number to each queue; gives the identities by queue."""
        messages = numbered(self.topic, self._unique("shared"), QUEUE_COUNT * MESSAGES_PER_QUEUE)
        self.worker.send(self.producer, "selector", messages)
        return {
            queue: [message.identity for message in messages if message.queue_id % QUEUE_COUNT == queue]
            for queue in ALL_QUEUES
        }

    def check_first_receives(self, queues: set[int]) -> None:
        """Send; the first consumer must be given what goes to *queues*, once, and nothing of what goes elsewhere."""
        sent = self.send_to_every_queue()
        wanted = [identity for queue in queues for identity in sent[queue]]
        everything = {identity for queue in sent.values() for identity in queue}
        received = [message.identity for message in self.worker.await_received(self.first, wanted)]
        assert sorted(identity for identity in received if identity in everything) == sorted(wanted)

    def close(self) -> None:
        """Have both clients closed."""
        self.worker.retire(self.first, self.producer)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("first", "second"), [("java550", "java550"), ("java498", "java550"), ("java498", "java498")])
def test_two_consumers_share_the_queues_until_one_leaves(
    cluster: Cluster,
    clients: Clients,
    topic: str,
    unique: Names,
    first: str,
    second: str,
    wire: str,
) -> None:
    """Goal: joining and leaving are noticed by both. Method: the queues each holds, and which messages each gets."""
    group = Group(cluster, clients.on_wire(first, wire, cluster), topic, unique)
    joining, worker = unique("second"), clients.on_wire(second, wire, cluster)
    group.check_first_receives(ALL_QUEUES)

    worker.start_push(joining, cluster.namesrv, group=group.group, topic=topic)
    held_by_second = await_queues(worker, joining, topic, has_half)
    held_by_first = await_queues(group.worker, group.first, topic, has_half)
    assert held_by_first | held_by_second == ALL_QUEUES
    sent = group.send_to_every_queue()
    for holder, name, held in ((group.worker, group.first, held_by_first), (worker, joining, held_by_second)):
        wanted = [identity for queue in held for identity in sent[queue]]
        received = {message.identity for message in holder.await_received(name, wanted)}
        assert received.isdisjoint(identity for queue in ALL_QUEUES - held for identity in sent[queue])

    worker.close_client(joining)
    await_queues(group.worker, group.first, topic, has_all)
    group.check_first_receives(ALL_QUEUES)
    group.close()


@pytest.mark.parametrize(
    ("leaving", "end"), [("java550", "exit"), ("java550", "kill"), ("java498", "kill"), ("go", "kill")]
)
def test_a_process_that_ends_leaves_its_queues_to_the_other(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, leaving: str, end: str
) -> None:
    """Goal: whoever ends, by exit or by SIGKILL, is missed at once. Method: end one of two, then send to all queues."""
    group = Group(cluster, clients.get("java550"), topic, unique)
    victim, name = clients.start(leaving), unique("victim")
    try:
        victim.start_push(name, cluster.namesrv, group=group.group, topic=topic)
        held_by_first = await_queues(group.worker, group.first, topic, has_half)
        sent = group.send_to_every_queue()
        wanted = [identity for queue in ALL_QUEUES - held_by_first for identity in sent[queue]]
        assert identities(victim.await_received(name, wanted)) == sorted(wanted)
        if end == "exit":
            victim.close()
    finally:
        victim.kill()
    everything = [identity for queue in group.send_to_every_queue().values() for identity in queue]
    await_queues(group.worker, group.first, topic, has_all)
    group.worker.await_received(group.first, everything)
    group.close()


def test_a_java_and_a_go_consumer_share_a_group(cluster: Cluster, clients: Clients, topic: str, unique: Names) -> None:
    """Goal: both languages divide alike. Method: every message reaches one of the two; then Go leaves in order."""
    group = Group(cluster, clients.get("java498"), topic, unique)
    go, name = clients.get("go"), unique("gopher")
    go.start_push(name, cluster.namesrv, group=group.group, topic=topic)
    held_by_first = await_queues(group.worker, group.first, topic, has_half)
    sent = group.send_to_every_queue()
    for_java = [identity for queue in held_by_first for identity in sent[queue]]
    for_go = [identity for queue in ALL_QUEUES - held_by_first for identity in sent[queue]]
    group.worker.await_received(group.first, for_java)
    assert set(for_go) <= {message.identity for message in go.await_received(name, for_go)}
    assert {message.identity for message in group.worker.received(group.first)}.isdisjoint(for_go)
    go.close_client(name)
    await_queues(group.worker, group.first, topic, has_all)
    group.close()
