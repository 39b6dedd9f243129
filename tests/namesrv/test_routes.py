"""The route tables by themselves: who is listed, who goes, and who must not."""

from __future__ import annotations

from pymq.namesrv.registration import BrokerRegistration, TopicConfig
from pymq.namesrv.routes import HEARTBEAT_TIMEOUT_MS, QueueData, RouteTable

CLUSTER = "DefaultCluster"


def broker(
    addr: str = "10.0.0.1:10911", broker_id: int = 0, name: str = "broker-a", counter: int = 1, **values: object
) -> BrokerRegistration:
    """A registration with two topics."""
    topics = {topic: TopicConfig(topic, 4, 4) for topic in ("A", "B")}
    registration = BrokerRegistration(CLUSTER, addr, name, broker_id, ha_server_addr="10.0.0.1:10912", topics=topics)
    registration.data_version = {"counter": counter, "timestamp": 7, "stateVersion": 0}
    registration.enable_acting_master = False
    for key, value in values.items():
        setattr(registration, key, value)
    return registration


def test_a_registered_broker_is_in_the_route_of_its_topics() -> None:
    """A registered broker is in the route of its topics."""
    routes = RouteTable()
    assert routes.register(broker(), connection=1, now_ms=0).accepted
    assert routes.route("A") == {
        "brokerDatas": [
            {
                "brokerAddrs": {0: "10.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": CLUSTER,
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
        ],
    }
    assert routes.route("C") is None


def test_a_stale_unregister_does_not_remove_a_fresh_registration() -> None:
    """A stale unregister does not remove a fresh registration."""
    # apache/rocketmq#11043: the old process says good-bye after the new one at the same address has registered.
    routes = RouteTable()
    routes.register(broker(), connection=1, now_ms=0)
    routes.register(broker(counter=2), connection=2, now_ms=1)
    assert routes.unregister(CLUSTER, "10.0.0.1:10911", connection=1) == []
    assert routes.route("A") is not None
    routes.unregister(CLUSTER, "10.0.0.1:10911", connection=2)
    assert routes.route("A") is None


def test_a_stale_connections_close_names_nobody() -> None:
    """A stale connections close names nobody."""
    routes = RouteTable()
    routes.register(broker(), connection=1, now_ms=0)
    routes.register(broker(counter=2), connection=2, now_ms=1)
    assert routes.of_connection(1) == []
    assert routes.of_connection(2) == [(CLUSTER, "10.0.0.1:10911")]


def test_the_last_member_takes_name_topics_and_cluster_with_it() -> None:
    """The last member takes name topics and cluster with it."""
    routes = RouteTable()
    routes.register(broker(), connection=1, now_ms=0)
    routes.register(broker("10.0.0.2:10911", 1), connection=2, now_ms=0)
    routes.unregister(CLUSTER, "10.0.0.2:10911", connection=2)
    assert routes.clusters == {CLUSTER: {"broker-a"}}
    routes.unregister(CLUSTER, "10.0.0.1:10911", connection=1)
    assert (routes.topics, routes.brokers, routes.clusters, routes.live) == ({}, {}, {}, {})


def test_a_topic_of_two_brokers_stays_with_the_one_that_is_left() -> None:
    """A topic of two brokers stays with the one that is left."""
    routes = RouteTable()
    routes.register(broker(), connection=1, now_ms=0)
    routes.register(broker("10.0.0.3:10911", name="broker-b"), connection=2, now_ms=0)
    routes.unregister(CLUSTER, "10.0.0.1:10911", connection=1)
    route = routes.route("A")
    assert route is not None
    assert [queue["brokerName"] for queue in route["queueDatas"]] == ["broker-b"]


def test_silence_expires_and_a_heartbeat_keeps_alive() -> None:
    """Silence expires and a heartbeat keeps alive."""
    routes = RouteTable()
    routes.register(broker(), connection=1, now_ms=0)
    routes.register(broker("10.0.0.3:10911", name="broker-b", heartbeat_timeout_ms=1000), connection=2, now_ms=0)
    assert routes.expired(HEARTBEAT_TIMEOUT_MS) == [((CLUSTER, "10.0.0.3:10911"), 2)]
    routes.touch(CLUSTER, "10.0.0.3:10911", connection=3, now_ms=HEARTBEAT_TIMEOUT_MS)
    assert routes.expired(HEARTBEAT_TIMEOUT_MS) == []
    assert [addr for (_, addr), _ in routes.expired(HEARTBEAT_TIMEOUT_MS + 1)] == ["10.0.0.1:10911"]


def test_topics_come_from_masters_only() -> None:
    """Topics come from masters only."""
    routes = RouteTable()
    routes.register(broker("10.0.0.2:10911", 1, enable_acting_master=None), connection=2, now_ms=0)
    assert routes.topics == {}
    result = routes.register(broker(), connection=1, now_ms=0)
    assert set(routes.topics) == {"A", "B"}
    assert result.master_addr is None
    result = routes.register(broker("10.0.0.2:10911", 1), connection=2, now_ms=0)
    assert (result.master_addr, result.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:10912")


def test_one_topic_alone_needs_a_registration_before_it() -> None:
    """One topic alone needs a registration before it."""
    routes = RouteTable()
    alone = broker(topics={"A": TopicConfig("A", 4, 4)})
    assert not routes.register(alone, connection=1, now_ms=0).accepted
    assert routes.register(broker(), connection=1, now_ms=0).accepted
    more = broker(topics={"C": TopicConfig("C", 1, 1)}, counter=2)
    assert routes.register(more, connection=1, now_ms=0).accepted
    assert set(routes.topics) == {"A", "B", "C"}


def test_an_unchanged_version_does_not_bring_back_a_wiped_permission() -> None:
    """An unchanged version does not bring back a wiped permission."""
    routes = RouteTable()
    routes.register(broker(), connection=1, now_ms=0)
    assert routes.set_write_permission("broker-a", allowed=False) == 2
    routes.register(broker(), connection=1, now_ms=1)
    assert routes.topics["A"]["broker-a"].perm == 4
    routes.register(broker(counter=2), connection=1, now_ms=2)
    assert routes.topics["A"]["broker-a"].perm == 6
    assert routes.set_write_permission("nobody", allowed=False) == 0


def test_a_member_that_changes_its_id_is_listed_once() -> None:
    """A member that changes its id is listed once."""
    routes = RouteTable()
    routes.register(broker("10.0.0.2:10911", 1), connection=2, now_ms=0)
    routes.register(broker("10.0.0.2:10911", 0, counter=2), connection=2, now_ms=0)
    assert routes.brokers["broker-a"].broker_addrs == {0: "10.0.0.2:10911"}


def test_an_older_master_does_not_displace_a_newer_one() -> None:
    """An older master does not displace a newer one."""
    routes = RouteTable()
    newer = broker(data_version={"counter": 1, "timestamp": 1, "stateVersion": 5})
    routes.register(newer, connection=1, now_ms=0)
    older = broker("10.0.0.9:10911", data_version={"counter": 9, "timestamp": 9, "stateVersion": 4})
    routes.register(older, connection=2, now_ms=0)
    assert routes.brokers["broker-a"].broker_addrs == {0: "10.0.0.1:10911"}
    assert (CLUSTER, "10.0.0.9:10911") not in routes.live


def test_the_first_slave_acts_for_a_lost_master_and_members_are_told() -> None:
    """The first slave acts for a lost master and members are told."""
    routes = RouteTable(support_acting_master=True)
    routes.register(broker(enable_acting_master=True), connection=1, now_ms=0)
    routes.register(broker("10.0.0.2:10911", 1, enable_acting_master=True), connection=2, now_ms=0)
    (change,) = routes.unregister(CLUSTER, "10.0.0.1:10911", connection=1)
    assert (change.min_broker_id, change.offline_broker_addr, change.addresses) == (
        1,
        "10.0.0.1:10911",
        ["10.0.0.2:10911"],
    )
    route = routes.route("A")
    assert route is not None
    assert route["brokerDatas"][0]["brokerAddrs"] == {0: "10.0.0.2:10911"}
    assert route["queueDatas"][0]["perm"] == 4


def test_topics_by_cluster_unit_and_hand() -> None:
    """Topics by cluster unit and hand."""
    routes = RouteTable()
    routes.register(broker(), connection=1, now_ms=0)
    routes.put_topic("U", [QueueData("broker-a", 1, 1, 6, 3)])
    routes.put_topic("nobody's", [QueueData("broker-x", 1, 1, 6, 3)])
    assert routes.topics_of_cluster(CLUSTER) == ["A", "B", "U"]
    assert routes.topics_of_cluster("other") == []
    assert routes.topics_by_unit(unit=True, unit_sub=None) == ["U"]
    assert routes.topics_by_unit(unit=False, unit_sub=True) == []
    routes.delete_topic("U", "other")
    assert "U" in routes.topics
    routes.delete_topic("U", CLUSTER)
    routes.delete_topic("A", None)
    assert set(routes.topics) == {"B"}


def test_topics_a_broker_no_longer_has_go_when_that_is_asked_for() -> None:
    """Topics a broker no longer has go when that is asked for."""
    routes = RouteTable(delete_topic_with_registration=True)
    routes.register(broker(), connection=1, now_ms=0)
    routes.register(broker(topics={"B": TopicConfig("B", 4, 4)}, counter=2), connection=1, now_ms=0)
    assert set(routes.topics) == {"B"}


def test_filter_servers_absent_empty_and_given() -> None:
    """Filter servers absent empty and given."""
    routes = RouteTable()
    routes.register(broker(filter_servers=["f1"]), connection=1, now_ms=0)
    routes.register(broker(filter_servers=None), connection=1, now_ms=0)
    route = routes.route("A")
    assert route is not None
    assert route["filterServerTable"] == {"10.0.0.1:10911": ["f1"]}
    routes.register(broker(filter_servers=[]), connection=1, now_ms=0)
    assert routes.filter_servers == {}
