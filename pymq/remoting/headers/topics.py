"""Topics and groups as administrators see them."""

from __future__ import annotations

from dataclasses import dataclass

from pymq.remoting.headers.base import Header, Int, RpcHeader, TopicHeader


@dataclass(slots=True, kw_only=True)
class CreateTopicRequestHeader(TopicHeader):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


@dataclass(slots=True, kw_only=True)
class DeleteTopicRequestHeader(TopicHeader):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


@dataclass(slots=True, kw_only=True)
class GetTopicConfigRequestHeader(TopicHeader):
    """GET_TOPIC_CONFIG (351)."""

    topic: str


@dataclass(slots=True, kw_only=True)
class GetTopicStatsInfoRequestHeader(TopicHeader):
    """GET_TOPIC_STATS_INFO (202): offsets and times of every queue."""

    topic: str


@dataclass(slots=True, kw_only=True)
class GetAllTopicConfigRequestHeader(Header):
    """GET_ALL_TOPIC_CONFIG (21), in pages for slaves of 5.5.0."""

    topic_seq: Int
    data_version: str | None = None
    max_topic_num: Int | None = None


@dataclass(slots=True, kw_only=True)
class GetAllTopicConfigResponseHeader(Header):
    """Its answer."""

    total_topic_num: Int | None = None


@dataclass(slots=True, kw_only=True)
class DeleteSubscriptionGroupRequestHeader(RpcHeader):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


@dataclass(slots=True, kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(RpcHeader):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


@dataclass(slots=True, kw_only=True)
class GetAllSubscriptionGroupRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), in pages for slaves of 5.5.0."""

    group_seq: Int
    data_version: str | None = None
    max_group_num: Int | None = None


@dataclass(slots=True, kw_only=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    """Its answer."""

    total_group_num: Int


@dataclass(slots=True, kw_only=True)
class GetConsumeStatsRequestHeader(TopicHeader):
    """GET_CONSUME_STATS (208): how far a group is behind."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(slots=True, kw_only=True)
class GetConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS (317): the same for all groups."""

    is_order: bool


@dataclass(slots=True, kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(TopicHeader):
    """QUERY_TOPIC_CONSUME_BY_WHO (300): the groups of a topic."""

    topic: str


@dataclass(slots=True, kw_only=True)
class QueryTopicsByConsumerRequestHeader(RpcHeader):
    """QUERY_TOPICS_BY_CONSUMER (343): the topics of a group."""

    group: str


@dataclass(slots=True, kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(TopicHeader):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345): what a group subscribes of a topic."""

    group: str
    topic: str | None = None


@dataclass(slots=True, kw_only=True)
class QueryConsumeTimeSpanRequestHeader(TopicHeader):
    """QUERY_CONSUME_TIME_SPAN (303): the times a group has consumed up to."""

    topic: str
    group: str


@dataclass(slots=True, kw_only=True)
class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA (315): one statistic."""

    stats_name: str
    stats_key: str


@dataclass(slots=True, kw_only=True)
class GetBrokerConfigResponseHeader(Header):
    """GET_BROKER_CONFIG (26): the version of what the body says."""

    version: str
