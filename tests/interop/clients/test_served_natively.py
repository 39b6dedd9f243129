"""What the clients of this directory asked was served natively: ≥ 99 % of sends, of pulls and of offset requests.

The broker counts every request by code and by the way it went: `pymq.served.<code>.native`, or
`pymq.served.<code>.python.<reason>`. The first request of a topic or of a group may go to Python, which then makes
the topic or the group known to the native side; so, of the reasons that say "unknown", one per topic or group is
left out of the account. A consumer's group is known per topic, and it has two: the one it subscribes to and the
group's own for retries. Every other reason counts against.

By its name this module is the last of the directory, and looks at what all the others left in the counters.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.interop.clients import raw
from tests.interop.clients.fleet import KINDS, Clients
from tests.interop.clients.messages import identities, numbered
from tests.interop.clients.names import Names
from tests.interop.clients.servers import Cluster

SENDS = (10, 310, 320)
PULLS = (11, 361)
OFFSETS = (14, 15)

NATIVE_SHARE_MIN = 0.99
COUNT_MIN = 60
TOPICS_PER_GROUP = 2
MESSAGE_COUNT = 150


@pytest.fixture(scope="module")
def counters(target: str, cluster: Cluster, clients: Clients, unique: Names) -> dict[int, Counter[str]]:
    """The broker's counters, after a last exchange: this module means something when it is run alone, too."""
    if target != "pymq":
        pytest.skip("only pymq counts how it served")
    topic = unique("counted")
    raw.create_topic(cluster.broker, cluster.namesrv, topic, 4)
    for kind in KINDS:
        worker, producer, consumer = clients.get(kind), unique("counted-producer"), unique("counted-consumer")
        worker.start_producer(producer, cluster.namesrv)
        worker.start_push(consumer, cluster.namesrv, group=unique("counted-group"), topic=topic)
        sent = numbered(topic, unique("counted"), MESSAGE_COUNT)
        worker.send(producer, "sync", sent)
        received = worker.await_received(consumer, [message.identity for message in sent])
        assert set(identities(sent)) <= set(identities(received))
        worker.retire(consumer, producer)
    return raw.served(cluster.broker)


def check_native_share(ways: Counter[str], firsts: int) -> None:
    """Assert the share, leaving out at most *firsts* requests that met something unknown."""
    unknown = ways["topic-unknown"] + ways["group-unknown"]
    counted = ways.total() - min(unknown, firsts)
    assert counted >= COUNT_MIN, f"too few requests to speak of shares: {dict(ways)}"
    share = ways["native"] / counted
    assert share >= NATIVE_SHARE_MIN, f"{share:.1%} native, {firsts} firsts left out: {dict(ways)}"


def total(counters: dict[int, Counter[str]], codes: tuple[int, ...]) -> Counter[str]:
    """The counts of several codes together."""
    return sum((counters[code] for code in codes), Counter())


def test_sends_are_native_after_the_first_of_a_topic(
    counters: dict[int, Counter[str]], cluster: Cluster, unique: Names
) -> None:
    """Goal: C serves sends. Method: the counters of 10, 310 and 320 against one first per topic."""
    check_native_share(total(counters, SENDS), len(raw.topics(cluster.broker) & unique.given))


def test_pulls_are_native_after_the_first_of_a_group(
    counters: dict[int, Counter[str]], cluster: Cluster, unique: Names
) -> None:
    """Goal: C serves pulls. Method: the counters of 11 and 361 against one first per group and topic."""
    check_native_share(total(counters, PULLS), TOPICS_PER_GROUP * len(raw.groups(cluster.broker) & unique.given))


def test_offsets_are_native_after_the_first_of_a_group(
    counters: dict[int, Counter[str]], cluster: Cluster, unique: Names
) -> None:
    """Goal: C serves offsets. Method: the counters of 14 and 15 against one first per group and topic."""
    check_native_share(total(counters, OFFSETS), TOPICS_PER_GROUP * len(raw.groups(cluster.broker) & unique.given))
