"""Offsets: of consumers, of queues, by time."""

from __future__ import annotations

from dataclasses import dataclass

from pymq.remoting.headers.base import Header, Int, Long, RpcHeader, TopicHeader


@dataclass(slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader(TopicHeader):
    """QUERY_CONSUMER_OFFSET (14): how far a group has come in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


@dataclass(slots=True, kw_only=True)
class QueryConsumerOffsetResponseHeader(Header):
    """Its answer; QUERY_NOT_FOUND has none."""

    offset: Long


@dataclass(slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader(TopicHeader):
    """UPDATE_CONSUMER_OFFSET (15): a group commits; clients send it oneway."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


@dataclass(slots=True, kw_only=True)
class GetMaxOffsetRequestHeader(TopicHeader):
    """GET_MAX_OFFSET (30): the offset the next message gets."""

    topic: str
    queue_id: Int
    committed: bool = True


@dataclass(slots=True, kw_only=True)
class GetMaxOffsetResponseHeader(Header):
    """Its answer."""

    offset: Long


@dataclass(slots=True, kw_only=True)
class GetMinOffsetRequestHeader(TopicHeader):
    """GET_MIN_OFFSET (31): the oldest message still there."""

    topic: str
    queue_id: Int


@dataclass(slots=True, kw_only=True)
class GetMinOffsetResponseHeader(Header):
    """Its answer."""

    offset: Long


@dataclass(slots=True, kw_only=True)
class SearchOffsetRequestHeader(TopicHeader):
    """SEARCH_OFFSET_BY_TIMESTAMP (29): the message stored at a time, LOWER or UPPER of equal ones."""

    topic: str
    lite_topic: str | None = None
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None


@dataclass(slots=True, kw_only=True)
class SearchOffsetResponseHeader(Header):
    """Its answer."""

    offset: Long


@dataclass(slots=True, kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(TopicHeader):
    """GET_EARLIEST_MSG_STORETIME (32): when the oldest message of a queue was stored."""

    topic: str
    queue_id: Int


@dataclass(slots=True, kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    """Its answer; -1 for an empty queue."""

    timestamp: Long


@dataclass(slots=True, kw_only=True)
class ResetOffsetRequestHeader(TopicHeader):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), and on to clients by RESET_CONSUMER_CLIENT_OFFSET (220)."""

    group: str
    topic: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool


@dataclass(slots=True, kw_only=True)
class CloneGroupOffsetRequestHeader(RpcHeader):
    """CLONE_GROUP_OFFSET (314): one group begins where another stands."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True, kw_only=True)
class QueryCorrectionOffsetHeader(TopicHeader):
    """QUERY_CORRECTION_OFFSET (308): the smallest offsets of other groups."""

    filter_groups: str | None = None
    compare_group: str
    topic: str
