"""A broker is stopped in order and started again, while clients stay: they go on, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.interop.clients import raw
from tests.interop.clients.fleet import KINDS, Clients
from tests.interop.clients.messages import OutMessage, identities, numbered
from tests.interop.clients.names import QUEUE_COUNT, Names
from tests.interop.clients.servers import Cluster, pymq_broker
from tests.interop.clients.workers import ClientError, ClientWorker

MESSAGE_COUNT = 60
BACK_TIMEOUT_SECONDS = 60.0


def send_when_it_is_back(worker: ClientWorker, producer: str, probe: OutMessage) -> None:
    """Send *probe* until it is taken: a client needs a moment to notice that its broker is back."""
    deadline = time.monotonic() + BACK_TIMEOUT_SECONDS
    while True:
        try:
            worker.send(producer, "sync", [probe])
        except ClientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


@pytest.fixture
def broker_home(target: str, interop_home: Path, unique: Names) -> Path:
    """Where the broker that is restarted lives."""
    if target != "pymq":
        pytest.skip("how Apache's broker stops is not what is tested here, and it takes its time")
    return interop_home / unique("restarted")


@pytest.mark.parametrize("kind", KINDS)
def test_clients_outlive_a_restart_of_the_broker(
    cluster: Cluster, clients: Clients, unique: Names, broker_home: Path, kind: str
) -> None:
    """Goal: a restart is a pause. Method: two groups, one with a consumer that stays, one whose consumer comes back.

    The one that stays is given the messages sent after the restart; the one that comes back likewise, and not the
    old ones again, for it had committed; a new group is given all that was ever acknowledged.
    """
    worker, topic, name = clients.get(kind), unique("restart"), unique("restarted-broker")
    producer, staying, leaving = unique("restart-producer"), unique("staying"), unique("leaving")
    with pymq_broker(broker_home, cluster.namesrv, name=name) as address:
        raw.create_topic(address, cluster.namesrv, topic, QUEUE_COUNT)
        worker.start_producer(producer, cluster.namesrv)
        for consumer in (staying, leaving):
            worker.start_push(consumer, cluster.namesrv, group=f"{consumer}-group", topic=topic)
        before = numbered(topic, unique("before"), MESSAGE_COUNT)
        worker.send(producer, "sync", before)
        for consumer in (staying, leaving):
            worker.await_received(consumer, [message.identity for message in before])
        worker.close_client(leaving)
        committed = raw.committed(address, f"{leaving}-group", topic)

    port = int(address.rpartition(":")[2])
    with pymq_broker(broker_home, cluster.namesrv, name=name, port=port) as address:
        assert raw.committed(address, f"{leaving}-group", topic) == committed
        raw.await_route(cluster.namesrv, topic)
        probe = numbered(topic, unique("probe"), 1)
        send_when_it_is_back(worker, producer, probe[0])
        after = [*probe, *numbered(topic, unique("after"), MESSAGE_COUNT)]
        worker.send(producer, "sync", after[1:])
        wanted = [message.identity for message in after]
        worker.await_received(staying, wanted)

        again, fresh = unique("again"), unique("fresh")
        worker.start_push(again, cluster.namesrv, group=f"{leaving}-group", topic=topic)
        received = identities(worker.await_received(again, wanted))
        assert set(wanted) <= set(received)
        assert len(received) == len(after) + len(before) - committed
        worker.start_push(fresh, cluster.namesrv, group=unique("fresh-group"), topic=topic)
        everything = [message.identity for message in (*before, *after)]
        assert identities(worker.await_received(fresh, everything)) == sorted(everything)
        worker.retire(staying, again, fresh, producer)
