"""The name server: registration, routes, KV configuration."""

from __future__ import annotations

from dataclasses import dataclass

from pymq.remoting.headers.base import Header, Int, Long, TopicHeader


@dataclass(slots=True, kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER (103): the body, perhaps compressed, has the CRC given here."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


@dataclass(slots=True, kw_only=True)
class RegisterBrokerResponseHeader(Header):
    """Its answer."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True, kw_only=True)
class UnregisterBrokerRequestHeader(Header):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass(slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """BROKER_HEARTBEAT (904)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


@dataclass(slots=True, kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """QUERY_DATA_VERSION (322): whether a registration is needed."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass(slots=True, kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """Its answer; the body has the version known."""

    changed: bool


@dataclass(slots=True, kw_only=True)
class GetRouteInfoRequestHeader(TopicHeader):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(slots=True, kw_only=True)
class GetTopicsByClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


@dataclass(slots=True, kw_only=True)
class DeleteTopicFromNamesrvRequestHeader(TopicHeader):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


@dataclass(slots=True, kw_only=True)
class RegisterTopicRequestHeader(TopicHeader):
    """REGISTER_TOPIC_IN_NAMESRV (217): the body is its route."""

    topic: str


@dataclass(slots=True, kw_only=True)
class WipeWritePermOfBrokerRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


@dataclass(slots=True, kw_only=True)
class WipeWritePermOfBrokerResponseHeader(Header):
    """Its answer."""

    wipe_topic_count: Int


@dataclass(slots=True, kw_only=True)
class AddWritePermOfBrokerRequestHeader(Header):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


@dataclass(slots=True, kw_only=True)
class AddWritePermOfBrokerResponseHeader(Header):
    """Its answer."""

    add_topic_count: Int


@dataclass(slots=True, kw_only=True)
class GetBrokerMemberGroupRequestHeader(Header):
    """GET_BROKER_MEMBER_GROUP (901): a master and its slaves."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True, kw_only=True)
class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


@dataclass(slots=True, kw_only=True)
class GetKVConfigRequestHeader(Header):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


@dataclass(slots=True, kw_only=True)
class GetKVConfigResponseHeader(Header):
    """Its answer."""

    value: str | None = None


@dataclass(slots=True, kw_only=True)
class DeleteKVConfigRequestHeader(Header):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


@dataclass(slots=True, kw_only=True)
class GetKVListByNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
