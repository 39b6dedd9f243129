"""Requests served by Python, one module per subject; each has a class with `register(server)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pymq.remoting.server import RemotingServer

if TYPE_CHECKING:
    from pymq.broker.controller import Broker


class Processor(Protocol):
    """Serves some request codes."""

    def register(self, server: RemotingServer) -> None:
        """Say which."""
        ...


def all_processors(broker: Broker) -> list[Processor]:
    """Every processor of a broker."""
    from pymq.broker.processors.admin.brokers import BrokerAdmin
    from pymq.broker.processors.admin.clients import ClientAdmin
    from pymq.broker.processors.admin.consumers import ConsumeAdmin
    from pymq.broker.processors.admin.groups import GroupAdmin
    from pymq.broker.processors.admin.offsets import OffsetAdmin
    from pymq.broker.processors.admin.topics import TopicAdmin
    from pymq.broker.processors.client import ClientProcessor
    from pymq.broker.processors.offsets import OffsetProcessor
    from pymq.broker.processors.pull import PullProcessor
    from pymq.broker.processors.query import QueryProcessor
    from pymq.broker.processors.send import SendProcessor

    return [
        SendProcessor(broker),
        PullProcessor(broker),
        OffsetProcessor(broker),
        QueryProcessor(broker),
        ClientProcessor(broker),
        TopicAdmin(broker),
        GroupAdmin(broker),
        ClientAdmin(broker),
        ConsumeAdmin(broker),
        OffsetAdmin(broker),
        BrokerAdmin(broker),
    ]
