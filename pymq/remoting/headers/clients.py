"""Clients of a broker: heartbeats, membership, what they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pymq.remoting.headers.base import Long, RpcHeader, TopicHeader


@dataclass(slots=True, kw_only=True)
class HeartbeatRequestHeader(RpcHeader):
    """HEART_BEAT (34): the body says who and what."""


@dataclass(slots=True, kw_only=True)
class UnregisterClientRequestHeader(RpcHeader):
    """UNREGISTER_CLIENT (35): a client leaves a group."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(slots=True, kw_only=True)
class GetConsumerListByGroupRequestHeader(RpcHeader):
    """GET_CONSUMER_LIST_BY_GROUP (38): the client ids of a group."""

    consumer_group: str


@dataclass(slots=True, kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(RpcHeader):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to client: the members of a group have changed."""

    consumer_group: str


@dataclass(slots=True, kw_only=True)
class LockBatchMqRequestHeader(RpcHeader):
    """LOCK_BATCH_MQ (41): the body names the queues."""


@dataclass(slots=True, kw_only=True)
class UnlockBatchMqRequestHeader(RpcHeader):
    """UNLOCK_BATCH_MQ (42): the body names the queues."""


@dataclass(slots=True, kw_only=True)
class CheckTransactionStateRequestHeader(RpcHeader):
    """CHECK_TRANSACTION_STATE (39), broker to client: what became of a transaction."""

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@dataclass(slots=True, kw_only=True)
class GetConsumerConnectionListRequestHeader(RpcHeader):
    """GET_CONSUMER_CONNECTION_LIST (203): who consumes for a group."""

    consumer_group: str


@dataclass(slots=True, kw_only=True)
class GetProducerConnectionListRequestHeader(RpcHeader):
    """GET_PRODUCER_CONNECTION_LIST (204): who produces for a group."""

    producer_group: str


@dataclass(slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader(RpcHeader):
    """GET_CONSUMER_RUNNING_INFO (307): what one client is doing."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(slots=True, kw_only=True)
class GetConsumerStatusRequestHeader(TopicHeader):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and on to clients by 221: how far they have come."""

    topic: str
    group: str
    client_addr: str | None = None
