"""Pulling messages."""

from __future__ import annotations

from dataclasses import dataclass

from pymq.remoting.headers.base import Header, Int, Long, TopicHeader


@dataclass(slots=True, kw_only=True)
class PullMessageRequestHeader(TopicHeader):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

    consumer_group: str
    topic: str
    lite_topic: str | None = None
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None


@dataclass(slots=True, kw_only=True)
class PullMessageResponseHeader(Header):
    """Their answer; clients read the four offsets whatever its code is."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None
