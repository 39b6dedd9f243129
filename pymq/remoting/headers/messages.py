"""Looking at stored messages: by id, by key, by queue."""

from __future__ import annotations

from dataclasses import dataclass

from pymq.remoting.headers.base import Header, Int, Long, TopicHeader


@dataclass(slots=True, kw_only=True)
class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID (33): the message at a physical offset."""

    topic: str | None = None
    offset: Long


@dataclass(slots=True, kw_only=True)
class QueryMessageRequestHeader(TopicHeader):
    """QUERY_MESSAGE (12): messages of a topic by key, within a time."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None


@dataclass(slots=True, kw_only=True)
class QueryMessageResponseHeader(Header):
    """Its answer: how far the index has come."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@dataclass(slots=True, kw_only=True)
class QueryConsumeQueueRequestHeader(TopicHeader):
    """QUERY_CONSUME_QUEUE (321): units of a queue, for tools."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None


@dataclass(slots=True, kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(TopicHeader):
    """CONSUME_MESSAGE_DIRECTLY (309): have one client consume one message."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


@dataclass(slots=True, kw_only=True)
class RecallMessageRequestHeader(TopicHeader):
    """RECALL_MESSAGE (370): take a delayed message back."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@dataclass(slots=True, kw_only=True)
class RecallMessageResponseHeader(Header):
    """Its answer."""

    msg_id: str


@dataclass(slots=True, kw_only=True)
class EndTransactionRequestHeader(TopicHeader):
    """END_TRANSACTION (37): commit (8), roll back (12) or leave undecided (0) a half message."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
