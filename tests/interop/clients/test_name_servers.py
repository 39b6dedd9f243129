"""Name servers and brokers of the two makes, mixed: each registers with the other, and clients do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.apache_toolchain import Toolchain
from tests.interop.clients import raw
from tests.interop.clients.fleet import KINDS, Clients
from tests.interop.clients.messages import identities, numbered
from tests.interop.clients.names import Names
from tests.interop.clients.servers import (
    CLUSTER_NAME,
    TOPIC_TO_CREATE_FROM,
    Cluster,
    apache_broker,
    apache_name_server,
    pymq_broker,
    pymq_name_server,
)

MESSAGE_COUNT = 30


@pytest.fixture(scope="module", params=["apache_broker", "pymq_broker"])
def mixed(request: pytest.FixtureRequest, target: str, apache: Toolchain, interop_home: Path) -> Iterator[Cluster]:
    """A broker of one make registered with a name server of the other."""
    if target != "pymq":
        pytest.skip("two makes are mixed here, whatever the target is; run it with pymq as the target")
    home, name = interop_home / request.param, "mixed-broker"
    with ExitStack() as running:
        if request.param == "apache_broker":
            namesrv = running.enter_context(pymq_name_server(home / "namesrv"))
            broker = running.enter_context(apache_broker(apache, home / "broker", namesrv, name=name))
        else:
            namesrv = running.enter_context(apache_name_server(apache, home / "namesrv"))
            broker = running.enter_context(pymq_broker(home / "broker", namesrv, name=name))
        raw.await_route(namesrv, TOPIC_TO_CREATE_FROM)
        yield Cluster("mixed", namesrv, broker, name, CLUSTER_NAME)


def test_the_broker_is_found_through_the_other_name_server(mixed: Cluster, unique: Names) -> None:
    """Goal: registration is understood. Method: the route of the creating topic, then of one made just now."""
    for topic in (TOPIC_TO_CREATE_FROM, unique("mixed-topic")):
        if topic != TOPIC_TO_CREATE_FROM:
            raw.create_topic(mixed.broker, mixed.namesrv, topic, 6)
        route = raw.await_route(mixed.namesrv, topic)
        (broker,) = route["brokerDatas"]
        assert (broker["cluster"], broker["brokerName"]) == (mixed.cluster_name, mixed.broker_name)
        assert broker["brokerAddrs"] == {"0": mixed.broker}
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (6, 6, raw.PERMISSION_READ_WRITE)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_work_with_the_pair(mixed: Cluster, clients: Clients, unique: Names, kind: str) -> None:
    """Goal: the pair serves as any. Method: a first send makes a topic, a consumer receives what was sent."""
    worker = clients.get(kind)
    topic, producer, consumer = unique("mixed-topic"), unique("mixed-producer"), unique("mixed-consumer")
    worker.start_producer(producer, mixed.namesrv)
    sent = numbered(topic, unique("mixed"), MESSAGE_COUNT)
    worker.send(producer, "sync", sent)
    raw.await_route(mixed.namesrv, topic)
    worker.start_push(consumer, mixed.namesrv, group=unique("mixed-group"), topic=topic)
    received = worker.await_received(consumer, [message.identity for message in sent])
    assert identities(received) == identities(sent)
    worker.retire(consumer, producer)


def test_mqadmin_lists_the_pair(mixed: Cluster, clients: Clients) -> None:
    """Goal: cluster info crosses makes. Method: mqadmin asks the one for the list and the other for its figures."""
    listed = clients.get("java550").admin("clusterList", "-n", mixed.namesrv)
    (row,) = [columns for line in listed.splitlines() if mixed.broker in (columns := line.split())]
    assert row[:4] == [mixed.cluster_name, mixed.broker_name, "0", mixed.broker]
