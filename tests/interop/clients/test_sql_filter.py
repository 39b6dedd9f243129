"""Java consumers that subscribe by SQL92 (MessageSelector.bySql): what they get, how they are served and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.interop.clients import raw
from tests.interop.clients.fleet import JAVA_KINDS, Clients
from tests.interop.clients.messages import OutMessage, identities, numbered
from tests.interop.clients.names import Names
from tests.interop.clients.servers import Cluster
from tests.interop.clients.test_lite_pull import poll_until
from tests.interop.clients.workers import ClientError

MESSAGE_COUNT = 60
EXPRESSION = "price BETWEEN 10 AND 19 AND (colour IS NULL OR colour NOT IN ('red', 'it''s')) AND name STARTSWITH '日'"
PULLS = (11, 361)
PULLS_MIN = 4  # the first of each queue may meet an unknown offset


def priced(topic: str, name: str) -> tuple[list[OutMessage], list[OutMessage]]:
    """Messages the expression wants, and others."""
    wanted, others = [], []
    for number, message in enumerate(numbered(topic, name, MESSAGE_COUNT)):
        properties = {"price": str(number), "name": "日本"}
        if number % 3 == 0:
            properties["colour"] = "red" if number % 2 else "green"
        made = replace(message, properties=properties)
        (wanted if 10 <= number <= 19 and properties.get("colour") != "red" else others).append(made)
    return wanted, others


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_push_consumer_is_given_what_its_expression_says(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str, target: str
) -> None:
    """Goal: filtered at the broker, natively. Method: before and while it is held; the pulls' counters."""
    worker = clients.get(kind)
    producer, consumer = unique("sql-producer"), unique("sql-consumer")
    worker.start_producer(producer, cluster.namesrv)
    wanted, others = priced(topic, unique("early"))
    worker.send(producer, "sync", [*others[:30], *wanted, *others[30:]])
    before = raw.served(cluster.broker) if target == "pymq" else {}
    worker.start_push(consumer, cluster.namesrv, group=unique("sql-group"), topic=topic, sql=EXPRESSION)
    worker.await_received(consumer, [message.identity for message in wanted])
    more, rest = priced(topic, unique("late"))
    worker.send(producer, "sync", [*rest, *more])
    received = worker.await_received(consumer, [message.identity for message in [*wanted, *more]])
    assert set(identities(received)) == set(identities([*wanted, *more]))
    if target == "pymq":
        after = raw.served(cluster.broker)
        ways = sum((after[code] - before[code] for code in PULLS), type(after[11])())
        assert ways["native"] >= PULLS_MIN
        assert ways["filter"] == 0
    worker.retire(consumer, producer)


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_lite_pull_consumer_is_given_what_its_expression_says(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str
) -> None:
    """Goal: as for push consumers; its pulls bring the expression along. Method: send, poll."""
    worker = clients.get(kind)
    producer, consumer = unique("sql-pulled"), unique("sql-puller")
    worker.start_producer(producer, cluster.namesrv)
    wanted, others = priced(topic, unique("pulled"))
    worker.send(producer, "sync", [*others, *wanted])
    worker.start_lite_pull(consumer, cluster.namesrv, group=unique("sql-pull-group"), topic=topic, sql=EXPRESSION)
    assert identities(poll_until(worker, consumer, len(wanted))) == identities(wanted)
    worker.retire(consumer, producer)


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_consumer_with_a_bad_expression_does_not_start_and_is_told_where(
    cluster: Cluster, clients: Clients, topic: str, unique: Names, kind: str, target: str
) -> None:
    """Goal: the mistake is found at start. Method: a comparison of a string by >."""
    worker = clients.get(kind)
    # Both refuse it with SUBSCRIPTION_PARSE_FAILED; Apache's words are those of the exception it met.
    told = {
        "pymq": r"CODE: 23 .*Invalid MessageSelector\. line 1, column 5: 'b' cannot be compared with >",
        "apache": r"CODE: 23 .*Value ''b'' cannot be compared",
    }[target]
    with pytest.raises(ClientError, match=told):
        worker.start_push(unique("bad"), cluster.namesrv, group=unique("bad-group"), topic=topic, sql="a > 'b'")
