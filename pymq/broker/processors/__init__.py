"""Requests served by Python, one module per subject; each has a class with `register(server)`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from pymq.remoting.server import RemotingServer

if TYPE_CHECKING:
    from pymq.broker.controller import Broker


# Module and class; loaded when a broker starts, because they need one.
PROCESSORS = (
    ("send", "SendProcessor"),
    ("send_back", "SendBackProcessor"),
    ("reply", "ReplyProcessor"),
    ("end_transaction", "EndTransactionProcessor"),
    ("pull", "PullProcessor"),
    ("offsets", "OffsetProcessor"),
    ("query", "QueryProcessor"),
    ("recall", "RecallProcessor"),
    ("client", "ClientProcessor"),
    ("locks", "LockProcessor"),
    ("admin.topics", "TopicAdmin"),
    ("admin.groups", "GroupAdmin"),
    ("admin.clients", "ClientAdmin"),
    ("admin.consumers", "ConsumeAdmin"),
    ("admin.offsets", "OffsetAdmin"),
    ("admin.queues", "QueueAdmin"),
    ("admin.brokers", "BrokerAdmin"),
    ("admin.transactions", "TransactionAdmin"),
    ("admin.timers", "TimerAdmin"),
    ("admin.dump", "DumpAdmin"),
)


class Processor(Protocol):
    """Serves some request codes."""

    def register(self, server: RemotingServer) -> None:
        """Say which."""
        ...


def all_processors(broker: Broker) -> list[Processor]:
    """Every processor of a broker."""
    return [getattr(importlib.import_module(f"{__name__}.{module}"), name)(broker) for module, name in PROCESSORS]
