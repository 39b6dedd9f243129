"""The route tables: clusters, brokers, topics and who is alive.

Nothing here waits and nothing is locked: one event loop owns the tables. A registration is bound to the connection the
broker spoke on last, and only that connection can take it back, by asking or by closing. Apache queues removals and
carries them out later, which can remove a broker that has registered again meanwhile (apache/rocketmq#11043); here
there is no later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymq.namesrv.registration import BrokerRegistration, TopicConfig

MASTER_ID = 0
PERM_READ = 4
PERM_WRITE = 2
UNIT_FLAG = 1
UNIT_SUB_FLAG = 2
MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
HEARTBEAT_TIMEOUT_MS = 120_000

log = logging.getLogger("pymq.namesrv")

Address = tuple[str, str]  # (cluster, "ip:port")
Json = dict[str, Any]


@dataclass(slots=True)
class QueueData:
    """What one broker offers of one topic."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int

    def to_json(self) -> Json:
        """As clients read it in a route."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }


@dataclass(slots=True)
class BrokerData:
    """The members of one broker name: broker id → address."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None

    def to_json(self) -> Json:
        """As clients read it in a route; the zone is left out when there is none, as fastjson does."""
        value: Json = {
            "brokerAddrs": dict(sorted(self.broker_addrs.items())),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": self.enable_acting_master,
        }
        if self.zone_name is not None:
            value["zoneName"] = self.zone_name
        return value


@dataclass(slots=True)
class LiveBroker:
    """A registration that has not expired, and the connection that keeps it."""

    last_update_ms: int
    timeout_ms: int
    data_version: Json
    connection: int
    ha_server_addr: str | None


@dataclass(slots=True)
class MinBrokerIdChange:
    """The smallest member of a broker name has changed; `addresses` want to know."""

    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    addresses: list[str]


@dataclass(slots=True)
class RegisterResult:
    """What a broker is told: for a slave where its master is."""

    accepted: bool = True
    master_addr: str | None = None
    ha_server_addr: str | None = None
    change: MinBrokerIdChange | None = None


class RouteTable:
    """All tables of the name server."""

    def __init__(self, *, support_acting_master: bool = False, delete_topic_with_registration: bool = False) -> None:
        self.support_acting_master = support_acting_master
        self.delete_topic_with_registration = delete_topic_with_registration
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[Address, LiveBroker] = {}
        self.filter_servers: dict[Address, list[str]] = {}
        self.queue_mappings: dict[str, dict[str, Json]] = {}

    # --- registration ------------------------------------------------------------------------------------------

    def register(self, broker: BrokerRegistration, connection: int, now_ms: int) -> RegisterResult:
        """Take in a broker's registration; not accepted only where Apache refuses it too."""
        self.clusters.setdefault(broker.cluster, set()).add(broker.broker_name)
        data = self.brokers.get(broker.broker_name)
        first = data is None
        if data is None:
            data = self.brokers[broker.broker_name] = BrokerData(broker.cluster, broker.broker_name)
        data.enable_acting_master = bool(broker.enable_acting_master)
        data.zone_name = broker.zone_name
        members = data.broker_addrs
        previous_min = min(members, default=0)
        # A member that changes its id (a slave becoming master) must not be listed twice.
        for member_id in [
            known for known, addr in members.items() if addr == broker.addr and known != broker.broker_id
        ]:
            del members[member_id]
        if self._is_older_than_live(broker, members.get(broker.broker_id)):
            self.live.pop((broker.cluster, broker.addr), None)
            return RegisterResult()
        if broker.broker_id not in members and len(broker.topics) == 1:
            # Compat: one topic alone is an increment, and an increment needs a whole registration before it.
            log.warning("%s at %s sends one topic before it has registered: refused", broker.broker_name, broker.addr)
            return RegisterResult(accepted=False)
        first = first or broker.broker_id not in members
        members[broker.broker_id] = broker.addr
        self._take_topics(broker, data, first)
        return self._go_live(broker, data, connection, now_ms, min_changed=broker.broker_id < previous_min)

    def _is_older_than_live(self, broker: BrokerRegistration, old_addr: str | None) -> bool:
        """Whether another address holds this broker id with a newer state (a master that came back too late)."""
        if old_addr is None or old_addr == broker.addr:
            return False
        old = self.live.get((broker.cluster, old_addr))
        older = old is not None and state_version(old.data_version) > state_version(broker.data_version)
        if older:
            log.warning("%s at %s is older than %s: ignored", broker.broker_name, broker.addr, old_addr)
        return older

    def _take_topics(self, broker: BrokerRegistration, data: BrokerData, first: bool) -> None:
        """Topics come from masters; slaves carry a copy. Newer brokers' first slave may stand in for a lost master."""
        stands_in = (
            broker.enable_acting_master is not None
            and broker.broker_id != MASTER_ID
            and broker.broker_id == min(data.broker_addrs)
        )
        if broker.broker_id != MASTER_ID and not stands_in:
            return
        changed = self.is_changed(broker.cluster, broker.addr, broker.data_version)
        if self.delete_topic_with_registration and not broker.queue_mappings:
            for name in [name for name, queues in self.topics.items() if broker.broker_name in queues]:
                if name not in broker.topics:
                    self._drop_queue_data(name, broker.broker_name)
        for topic in broker.topics.values():
            known = broker.broker_name in self.topics.get(topic.topic_name, {})
            if first or changed or not known:
                perm = topic.perm & ~PERM_WRITE if stands_in and data.enable_acting_master else topic.perm
                self._put_queue_data(broker.broker_name, topic, perm)
        if first or changed:
            for mapped, info in broker.queue_mappings.items():
                self.queue_mappings.setdefault(mapped, {})[str(info.get("bname"))] = info

    def _put_queue_data(self, broker_name: str, topic: TopicConfig, perm: int) -> None:
        queue_data = QueueData(broker_name, topic.read_queue_nums, topic.write_queue_nums, perm, topic.topic_sys_flag)
        queues = self.topics.setdefault(topic.topic_name, {})
        if queues.get(broker_name) != queue_data:
            log.info("topic %s of %s: %s", topic.topic_name, broker_name, queue_data)
            queues[broker_name] = queue_data

    def _drop_queue_data(self, topic: str, broker_name: str) -> None:
        queues = self.topics.get(topic, {})
        if queues.pop(broker_name, None) is not None and not queues:
            del self.topics[topic]

    def _go_live(
        self, broker: BrokerRegistration, data: BrokerData, connection: int, now_ms: int, *, min_changed: bool
    ) -> RegisterResult:
        address = (broker.cluster, broker.addr)
        if address not in self.live:
            log.info("new broker: %s, HA %s", address, broker.ha_server_addr)
        timeout_ms = HEARTBEAT_TIMEOUT_MS if broker.heartbeat_timeout_ms is None else broker.heartbeat_timeout_ms
        self.live[address] = LiveBroker(now_ms, timeout_ms, broker.data_version, connection, broker.ha_server_addr)
        if broker.filter_servers is not None:
            if broker.filter_servers:
                self.filter_servers[address] = broker.filter_servers
            else:
                self.filter_servers.pop(address, None)
        result = RegisterResult()
        master_addr = data.broker_addrs.get(MASTER_ID)
        if broker.broker_id != MASTER_ID and master_addr is not None:
            master = self.live.get((broker.cluster, master_addr))
            if master is not None:
                result.master_addr, result.ha_server_addr = master_addr, master.ha_server_addr
        if min_changed:
            result.change = self._change_of(data, None, broker.ha_server_addr)
        return result

    # --- liveness ----------------------------------------------------------------------------------------------

    def touch(self, cluster: str, addr: str, connection: int, now_ms: int) -> None:
        """The broker at *addr* is alive, and *connection* is the one it uses now.

        # Differs: Apache leaves the registration with the connection it came on, so that the late end of an old one
        # takes a broker away which has long been asking and beating on a new one.
        """
        live = self.live.get((cluster, addr))
        if live is not None:
            live.last_update_ms = now_ms
            live.connection = connection

    def data_version(self, cluster: str, addr: str) -> Json | None:
        """The version of the topics *addr* registered last."""
        live = self.live.get((cluster, addr))
        return None if live is None else live.data_version

    def is_changed(self, cluster: str, addr: str, version: Mapping[str, Any]) -> bool:
        """Whether *version* differs from what is registered."""
        known = self.data_version(cluster, addr)
        return known is None or version_key(known) != version_key(version)

    def expired(self, now_ms: int) -> list[tuple[Address, int]]:
        """Brokers that have been silent too long, each with the connection to close."""
        return [
            (address, live.connection)
            for address, live in self.live.items()
            if live.last_update_ms + live.timeout_ms < now_ms
        ]

    def of_connection(self, connection: int) -> list[Address]:
        """What is registered by *connection*, and would go with it."""
        return [address for address, live in self.live.items() if live.connection == connection]

    def unregister(self, cluster: str, addr: str, connection: int | None) -> list[MinBrokerIdChange]:
        """Remove the broker at *addr*; with a *connection*, only if that is the one that keeps the registration.

        Returns who must be told of a new smallest member, per broker name.
        """
        live = self.live.get((cluster, addr))
        if live is not None and connection is not None and live.connection != connection:
            log.info("unregister of %s by a connection that does not hold it: a stale one, ignored", addr)
            return []
        self.live.pop((cluster, addr), None)
        self.filter_servers.pop((cluster, addr), None)
        changes: list[MinBrokerIdChange] = []
        for data in [found for found in self.brokers.values() if found.cluster == cluster]:
            ids = [known for known, known_addr in data.broker_addrs.items() if known_addr == addr]
            if not ids:
                continue
            was_min = min(data.broker_addrs) in ids
            for member_id in ids:
                del data.broker_addrs[member_id]
            log.info("broker %s: %s is gone", data.broker_name, addr)
            if not data.broker_addrs:
                self._forget(data)
                continue
            self._wipe_without_master(data)
            if was_min and data.enable_acting_master:
                change = self._change_of(data, addr, None)
                changes.append(change)
        return changes

    def _forget(self, data: BrokerData) -> None:
        """The last member has gone: so do its name, its topics and perhaps its cluster."""
        del self.brokers[data.broker_name]
        names = self.clusters.get(data.cluster, set())
        names.discard(data.broker_name)
        if not names:
            self.clusters.pop(data.cluster, None)
        for topic in list(self.topics):
            self._drop_queue_data(topic, data.broker_name)

    def _wipe_without_master(self, data: BrokerData) -> None:
        """A stand-in for the master can be read from, not written to."""
        if not data.enable_acting_master or MASTER_ID in data.broker_addrs:
            return
        for queue_data in self._queue_datas_of(data.broker_name):
            queue_data.perm &= ~PERM_WRITE

    def _change_of(self, data: BrokerData, offline: str | None, ha_addr: str | None) -> MinBrokerIdChange:
        smallest = min(data.broker_addrs)
        everybody = offline is not None or len(data.broker_addrs) == 1
        addresses = [addr for known, addr in data.broker_addrs.items() if everybody or known != smallest]
        return MinBrokerIdChange(smallest, data.broker_addrs[smallest], offline, ha_addr, addresses)

    # --- topics ------------------------------------------------------------------------------------------------

    def route(self, topic: str) -> Json | None:
        """The route of *topic* as clients read it, or None."""
        queues = self.topics.get(topic)
        if not queues:
            return None
        known = [self.brokers[name] for name in queues if name in self.brokers]
        if not known:
            return None
        broker_datas = [data.to_json() for data in known]
        servers: dict[str, list[str] | None] = {}
        if self.filter_servers:
            for data in known:
                for addr in data.broker_addrs.values():
                    servers[addr] = self.filter_servers.get((data.cluster, addr))
        if self.support_acting_master and not topic.startswith(MEMBER_GROUP_PREFIX):
            for value in broker_datas:
                self._let_first_slave_act(value, queues)
        route: Json = {
            "brokerDatas": broker_datas,
            "filterServerTable": servers,
            "queueDatas": [queue_data.to_json() for queue_data in queues.values()],
        }
        mappings = self.queue_mappings.get(topic)
        if mappings is not None:
            route["topicQueueMappingByBroker"] = mappings
        return route

    @staticmethod
    def _let_first_slave_act(value: Json, queues: Mapping[str, QueueData]) -> None:
        """Without a master and with write permission wiped, the first slave is shown as the master."""
        members: dict[int, str] = value["brokerAddrs"]
        if not members or MASTER_ID in members or not value["enableActingMaster"]:
            return
        if not queues[value["brokerName"]].perm & PERM_WRITE:
            members[MASTER_ID] = members.pop(min(members))

    def set_write_permission(self, broker_name: str, *, allowed: bool) -> int:
        """Wipe or give back the write permission of every topic of a broker; returns how many."""
        changed = self._queue_datas_of(broker_name)
        for queue_data in changed:
            queue_data.perm = PERM_READ | PERM_WRITE if allowed else queue_data.perm & ~PERM_WRITE
        return len(changed)

    def put_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> None:
        """Add a topic by hand; brokers nobody knows are refused as a whole."""
        if any(queue_data.broker_name not in self.brokers for queue_data in queue_datas):
            log.warning("topic %s names a broker that is not registered: ignored", topic)
            return
        for queue_data in queue_datas:
            self.topics.setdefault(topic, {})[queue_data.broker_name] = queue_data

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, everywhere or on one cluster's brokers."""
        if not cluster:
            self.topics.pop(topic, None)
            return
        for broker_name in self.clusters.get(cluster, set()):
            self._drop_queue_data(topic, broker_name)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics that some broker of *cluster* serves."""
        names = self.clusters.get(cluster, set())
        return [topic for topic, queues in self.topics.items() if not names.isdisjoint(queues)]

    def topics_by_unit(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Topics by the unit bits of their first broker's flag; None does not care."""
        return [
            topic
            for topic, queues in self.topics.items()
            for flag in [next(iter(queues.values())).topic_sys_flag]
            if (unit is None or bool(flag & UNIT_FLAG) == unit)
            and (unit_sub is None or bool(flag & UNIT_SUB_FLAG) == unit_sub)
        ]

    def _queue_datas_of(self, broker_name: str) -> list[QueueData]:
        return [queues[broker_name] for queues in self.topics.values() if broker_name in queues]

    # --- views -------------------------------------------------------------------------------------------------

    def cluster_info(self) -> Json:
        """ClusterInfo: every broker and every cluster."""
        return {
            "brokerAddrTable": {name: data.to_json() for name, data in self.brokers.items()},
            "clusterAddrTable": {cluster: sorted(names) for cluster, names in self.clusters.items()},
        }

    def system_topics(self) -> Json:
        """Topics named like clusters and brokers, and one broker to ask for the rest."""
        names = dict.fromkeys(
            name for cluster, members in self.clusters.items() for name in (cluster, *sorted(members))
        )
        value: Json = {"topicList": list(names)}
        address = next(self._addresses(), None)
        return value if address is None else {"brokerAddr": address, **value}

    def _addresses(self) -> Iterator[str]:
        return (addr for data in self.brokers.values() for addr in data.broker_addrs.values())

    def member_group(self, cluster: str, broker_name: str) -> Json:
        """BrokerMemberGroup: the members of one broker name."""
        data = self.brokers.get(broker_name)
        members = {} if data is None else dict(data.broker_addrs)
        return {"brokerMemberGroup": {"brokerAddrs": members, "brokerName": broker_name, "cluster": cluster}}


def state_version(version: Mapping[str, Any]) -> int:
    """The epoch of a data version; 0 from brokers that have none."""
    return int(version.get("stateVersion") or 0)


def version_key(version: Mapping[str, Any]) -> tuple[int, int, int]:
    """What makes two data versions equal."""
    return state_version(version), int(version.get("timestamp") or 0), int(version.get("counter") or 0)
