"""pymq: a message store and broker that reads and writes Apache RocketMQ's files.

    import pymq

    with pymq.open("data/") as mq:
        mq.send("orders", b"one coffee", keys="order-17")
        for message in mq.group("billing").consume("orders", timeout=0):
            print(message.body)

Importing pymq starts no thread and loads no native module; the names below are loaded when they are first used, so
that a Spark worker that only needs `pymq._scan` stays small.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymq.broker.config import BrokerConfig
    from pymq.broker.controller import Broker
    from pymq.embedded import EmbeddedStore, QueueInfo, open
    from pymq.errors import (
        ConfigError,
        CorruptFileError,
        CorruptRecordError,
        DiskFullError,
        FlushTimeoutError,
        InvalidArgumentError,
        InvalidTopicError,
        MappingBudgetError,
        MessageTooLargeError,
        NotFoundError,
        OffsetNotFoundError,
        PoolExhaustedError,
        PropertiesTooLargeError,
        PymqError,
        QueueNotFoundError,
        StoreClosedError,
        StoreError,
        StoreFailedError,
        StoreIOError,
        StoreLockedError,
        StoreMemoryError,
        StoreMismatchError,
        StoreReadOnlyError,
        TopicRemovedError,
        TruncatedRecordError,
        UnsupportedStoreError,
    )
    from pymq.message import Message, PhysicalOffset, QueueOffset, ReceivedMessage, SendManyResult, SendResult
    from pymq.namesrv.config import NamesrvConfig
    from pymq.namesrv.server import NameServer
    from pymq.store.config import StoreConfig
    from pymq.store.groups import ConsumerGroup
    from pymq.store.layout import config_for
    from pymq.store.stats import StoreStats, Watermarks

# Name to the module that has it.
_HOMES = {
    "Broker": "pymq.broker.controller",
    "BrokerConfig": "pymq.broker.config",
    "NameServer": "pymq.namesrv.server",
    "NamesrvConfig": "pymq.namesrv.config",
    "open": "pymq.embedded",
    "EmbeddedStore": "pymq.embedded",
    "QueueInfo": "pymq.embedded",
    "ConfigError": "pymq.errors",
    "CorruptFileError": "pymq.errors",
    "CorruptRecordError": "pymq.errors",
    "DiskFullError": "pymq.errors",
    "FlushTimeoutError": "pymq.errors",
    "InvalidArgumentError": "pymq.errors",
    "InvalidTopicError": "pymq.errors",
    "MappingBudgetError": "pymq.errors",
    "MessageTooLargeError": "pymq.errors",
    "NotFoundError": "pymq.errors",
    "OffsetNotFoundError": "pymq.errors",
    "PoolExhaustedError": "pymq.errors",
    "PropertiesTooLargeError": "pymq.errors",
    "PymqError": "pymq.errors",
    "QueueNotFoundError": "pymq.errors",
    "StoreClosedError": "pymq.errors",
    "StoreError": "pymq.errors",
    "StoreFailedError": "pymq.errors",
    "StoreIOError": "pymq.errors",
    "StoreLockedError": "pymq.errors",
    "StoreMemoryError": "pymq.errors",
    "StoreMismatchError": "pymq.errors",
    "StoreReadOnlyError": "pymq.errors",
    "TopicRemovedError": "pymq.errors",
    "TruncatedRecordError": "pymq.errors",
    "UnsupportedStoreError": "pymq.errors",
    "Message": "pymq.message",
    "PhysicalOffset": "pymq.message",
    "QueueOffset": "pymq.message",
    "ReceivedMessage": "pymq.message",
    "SendManyResult": "pymq.message",
    "SendResult": "pymq.message",
    "StoreConfig": "pymq.store.config",
    "ConsumerGroup": "pymq.store.groups",
    "config_for": "pymq.store.layout",
    "StoreStats": "pymq.store.stats",
    "Watermarks": "pymq.store.stats",
}

__all__ = [
    "Broker",
    "BrokerConfig",
    "ConfigError",
    "ConsumerGroup",
    "CorruptFileError",
    "CorruptRecordError",
    "DiskFullError",
    "EmbeddedStore",
    "FlushTimeoutError",
    "InvalidArgumentError",
    "InvalidTopicError",
    "MappingBudgetError",
    "Message",
    "MessageTooLargeError",
    "NameServer",
    "NamesrvConfig",
    "NotFoundError",
    "OffsetNotFoundError",
    "PhysicalOffset",
    "PoolExhaustedError",
    "PropertiesTooLargeError",
    "PymqError",
    "QueueInfo",
    "QueueNotFoundError",
    "QueueOffset",
    "ReceivedMessage",
    "SendManyResult",
    "SendResult",
    "StoreClosedError",
    "StoreConfig",
    "StoreError",
    "StoreFailedError",
    "StoreIOError",
    "StoreLockedError",
    "StoreMemoryError",
    "StoreMismatchError",
    "StoreReadOnlyError",
    "StoreStats",
    "TopicRemovedError",
    "TruncatedRecordError",
    "UnsupportedStoreError",
    "Watermarks",
    "config_for",
    "open",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pymq' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
