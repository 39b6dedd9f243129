"""Apache's mqadmin 5.5.0 against the servers: what an operator types, and the facts in what is printed.

Columns and headings are mqadmin's own affair; the tests look for names, numbers and effects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.clients import raw
from tests.interop.clients.fleet import Clients
from tests.interop.clients.messages import numbered
from tests.interop.clients.names import QUEUE_COUNT, Names
from tests.interop.clients.servers import Cluster
from tests.interop.clients.workers import ClientError, ClientWorker

MESSAGE_COUNT = 40
EFFECT_TIMEOUT_SECONDS = 30.0
PERMISSION_READ = 4

MqAdmin = Callable[..., str]


@pytest.fixture(scope="session")
def java(clients: Clients) -> ClientWorker:
    """The program that mqadmin runs in."""
    return clients.get("java550")


@pytest.fixture(scope="session")
def mqadmin(java: ClientWorker, cluster: Cluster) -> MqAdmin:
    """`mqadmin(command, *arguments)`, pointed at the name server; a complaint of it is an error."""
    return lambda command, *arguments: java.admin(command, "-n", cluster.namesrv, *arguments)


@pytest.fixture
def sent_to(java: ClientWorker, cluster: Cluster, unique: Names) -> Iterator[Callable[[str], None]]:
    """Sends MESSAGE_COUNT messages to a topic."""
    producer = unique("admin-producer")
    java.start_producer(producer, cluster.namesrv)
    yield lambda topic: _check_sent(java, producer, topic, unique("admin"))
    java.retire(producer)


def _check_sent(java: ClientWorker, producer: str, topic: str, prefix: str) -> None:
    results = java.send(producer, "sync", numbered(topic, prefix, MESSAGE_COUNT))
    assert [result.status for result in results] == ["SEND_OK"] * MESSAGE_COUNT


def rows(output: str, word: str) -> list[list[str]]:
    """The lines of a printed table that have *word* as a column, split into columns."""
    return [columns for line in output.splitlines() if word in (columns := line.split())]


def settings(output: str, separator: str) -> dict[str, str]:
    """Printed `name = value` lines."""
    pairs = (line.split(separator, 1) for line in output.splitlines() if separator in line)
    return {name.strip(): value.strip() for name, value in pairs}


def await_effect(holds: Callable[[], bool], what: str) -> None:
    """Wait until what an operator asked for can be seen."""
    deadline = time.monotonic() + EFFECT_TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {EFFECT_TIMEOUT_SECONDS} s"
        time.sleep(0.1)


def test_a_complaint_of_mqadmin_is_an_error_here(mqadmin: MqAdmin, unique: Names) -> None:
    """Goal: the other tests can fail. Method: ask for the route of a topic that does not exist."""
    with pytest.raises(ClientError, match=r"CODE: 17|route info"):
        mqadmin("topicRoute", "-t", unique("no-such-topic"))


def test_cluster_list_names_the_broker(mqadmin: MqAdmin, cluster: Cluster) -> None:
    """Goal: an operator finds the broker. Method: cluster, name, id and address stand in one line."""
    (row,) = rows(mqadmin("clusterList"), cluster.broker)
    assert row[:4] == [cluster.cluster_name, cluster.broker_name, "0", cluster.broker]


def test_update_topic_creates_changes_and_lists_it(mqadmin: MqAdmin, cluster: Cluster, unique: Names) -> None:
    """Goal: topics are made and changed by command. Method: create on the cluster, change on the broker, look."""
    topic = unique("operated")
    assert "success" in mqadmin("updateTopic", "-c", cluster.cluster_name, "-t", topic, "-r", "3", "-w", "3")
    (queues,) = raw.await_route(cluster.namesrv, topic)["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 3, raw.PERMISSION_READ_WRITE)
    assert topic in mqadmin("topicList").split()

    changed = mqadmin("updateTopic", "-b", cluster.broker, "-t", topic, "-r", "5", "-w", "4", "-p", "4")
    assert "success" in changed
    wanted = ["5", "4", str(PERMISSION_READ)]
    await_effect(
        lambda: rows(mqadmin("topicRoute", "-l", "-t", topic), cluster.broker_name)[0][-3:] == wanted,
        f"the route of {topic} to become {wanted}",
    )


def test_topic_route_and_status_tell_what_is_there(
    mqadmin: MqAdmin, cluster: Cluster, topic: str, sent_to: Callable[[str], None]
) -> None:
    """Goal: where a topic is and how full. Method: send a known number; queues, offsets and their sum."""
    sent_to(topic)
    route = mqadmin("topicRoute", "-t", topic)
    assert cluster.broker_name in route
    assert cluster.broker in route
    status = rows(mqadmin("topicStatus", "-t", topic), cluster.broker_name)
    assert sorted(int(row[1]) for row in status) == list(range(QUEUE_COUNT))
    assert sum(int(row[3]) - int(row[2]) for row in status) == MESSAGE_COUNT


def test_delete_topic_removes_it_everywhere(
    mqadmin: MqAdmin, cluster: Cluster, topic: str, sent_to: Callable[[str], None]
) -> None:
    """Goal: a deleted topic is gone. Method: delete one with messages; no route, not listed; made anew it is empty."""
    sent_to(topic)
    assert "success" in mqadmin("deleteTopic", "-c", cluster.cluster_name, "-t", topic)
    await_effect(lambda: raw.route(cluster.namesrv, topic) is None, f"{topic} to have no route")
    assert topic not in mqadmin("topicList").split()
    raw.create_topic(cluster.broker, cluster.namesrv, topic, QUEUE_COUNT)
    status = rows(mqadmin("topicStatus", "-t", topic), cluster.broker_name)
    assert sum(int(row[3]) for row in status) == 0


def test_a_group_is_made_watched_and_deleted(
    mqadmin: MqAdmin,
    java: ClientWorker,
    cluster: Cluster,
    topic: str,
    unique: Names,
    sent_to: Callable[[str], None],
) -> None:
    """Goal: groups by command. Method: make one, consume with it, fall behind on purpose, read the lag, delete it."""
    group, consumer = unique("operated-group"), unique("operated-consumer")
    made = mqadmin("updateSubGroup", "-c", cluster.cluster_name, "-g", group, "-r", "7")
    assert "success" in made
    assert "retryMaxTimes=7" in made

    sent_to(topic)
    java.start_push(consumer, cluster.namesrv, group=group, topic=topic)
    await_effect(lambda: len(java.received(consumer)) == MESSAGE_COUNT, f"{group} to consume")
    java.close_client(consumer)
    sent_to(topic)
    progress = rows(mqadmin("consumerProgress", "-g", group), topic)
    assert len(progress) == QUEUE_COUNT
    broker_offset, consumer_offset = 3, 4
    assert sum(int(row[broker_offset]) for row in progress) == 2 * MESSAGE_COUNT
    assert sum(int(row[consumer_offset]) for row in progress) == MESSAGE_COUNT

    assert "success" in mqadmin("deleteSubGroup", "-c", cluster.cluster_name, "-g", group)
    await_effect(lambda: not _knows_progress_of(mqadmin, group), f"{group} to be gone")


def _knows_progress_of(mqadmin: MqAdmin, group: str) -> bool:
    try:
        mqadmin("consumerProgress", "-g", group)
    except ClientError:
        return False
    return True


def test_broker_status_counts_what_was_put(
    mqadmin: MqAdmin, cluster: Cluster, topic: str, sent_to: Callable[[str], None]
) -> None:
    """Goal: figures an operator watches are real. Method: read them, send, read them again."""
    before = settings(mqadmin("brokerStatus", "-b", cluster.broker), ":")
    sent_to(topic)
    after = settings(mqadmin("brokerStatus", "-b", cluster.broker), ":")
    for name in ("brokerVersionDesc", "bootTimestamp", "runtime", "putTps", "commitLogDiskRatio"):
        assert after[name], name
    assert int(after["msgPutTotalTodayNow"]) - int(before["msgPutTotalTodayNow"]) == MESSAGE_COUNT
    assert int(after["commitLogMaxOffset"]) > int(before["commitLogMaxOffset"])
    assert after["bootTimestamp"] == before["bootTimestamp"]


def test_broker_configuration_is_read_and_changed(mqadmin: MqAdmin, cluster: Cluster) -> None:
    """Goal: settings change while the broker runs. Method: read, change one by its Apache name, read again."""
    before = settings(mqadmin("getBrokerConfig", "-b", cluster.broker), "=")
    assert before["brokerName"] == cluster.broker_name
    assert before["brokerClusterName"] == cluster.cluster_name
    assert before["listenPort"] == cluster.broker.rpartition(":")[2]
    assert before["fileReservedTime"] == "72"

    updated = mqadmin("updateBrokerConfig", "-b", cluster.broker, "-k", "fileReservedTime", "-v", "71")
    assert "success" in updated
    after = settings(mqadmin("getBrokerConfig", "-b", cluster.broker), "=")
    assert after["fileReservedTime"] == "71"
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {"fileReservedTime"}


def test_write_permission_is_wiped_and_given_back(
    mqadmin: MqAdmin, cluster: Cluster, topic: str, sent_to: Callable[[str], None]
) -> None:
    """Goal: a broker is drained by command. Method: the permission in routes, and a send afterwards."""

    def permissions() -> set[int]:
        return {queues["perm"] for queues in raw.await_route(cluster.namesrv, topic)["queueDatas"]}

    assert "OK" in mqadmin("wipeWritePerm", "-b", cluster.broker_name)
    try:
        assert permissions() == {PERMISSION_READ}
    finally:
        assert "OK" in mqadmin("addWritePerm", "-b", cluster.broker_name)
    assert permissions() == {raw.PERMISSION_READ_WRITE}
    sent_to(topic)


def test_name_server_settings_by_key(mqadmin: MqAdmin, cluster: Cluster, unique: Names) -> None:
    """Goal: the name server keeps what it is told. Method: put a pair, ask for it by a frame, delete it, ask again."""
    key = unique("key")
    wanted = {"namespace": "INTEROP", "key": key}
    assert "success" in mqadmin("updateKvConfig", "-s", "INTEROP", "-k", key, "-v", "some value")
    found = raw.ask(cluster.namesrv, raw.GET_KV_CONFIG, wanted)
    assert (found.code, found.fields.get("value")) == (raw.SUCCESS, "some value")
    assert "success" in mqadmin("deleteKvConfig", "-s", "INTEROP", "-k", key)
    assert raw.ask(cluster.namesrv, raw.GET_KV_CONFIG, wanted).code == raw.QUERY_NOT_FOUND
