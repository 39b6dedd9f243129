"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: clients that consume in order ask for their queues, and give them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pymq.broker.locks import LockedQueue
from pymq.broker.subscriptions import whole_number
from pymq.remoting import json_dialect
from pymq.remoting.bodies import read_json
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.errors import CodecError, RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker


class Batch(NamedTuple):
    """LockBatchRequestBody. `onlyThisBroker` needs no attention: no other broker is asked (see lock())."""

    group: str
    client_id: str
    queues: tuple[LockedQueue, ...]


class LockProcessor:
    """Answers clients that consume in order."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s locks."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take both codes, in the lane that never starves: a client waits one second for its locks."""
        server.register(RequestCode.LOCK_BATCH_MQ, self.lock, lane=Lane.CLIENT)
        server.register(RequestCode.UNLOCK_BATCH_MQ, self.unlock, lane=Lane.CLIENT)

    async def lock(self, request: Request) -> Command:
        """Which of the queues the client holds now.

        With lockInStrictMode a majority of the replicas has to agree; of one replica, this one is the majority.
        """
        batch = await read_batch(request.command.body)
        granted = self._broker.order_locks.lock(batch.group, batch.queues, batch.client_id)
        answer = {"lockOKMQSet": [queue_json(queue) for queue in granted]}
        return request.command.reply(body=json_dialect.dumps(answer, standard=False))

    async def unlock(self, request: Request) -> Command:
        """The client gives queues up; those that are not its own stay as they are, and nothing is said about them."""
        batch = await read_batch(request.command.body)
        self._broker.order_locks.unlock(batch.group, batch.queues, batch.client_id)
        return request.command.reply()


async def read_batch(body: bytes) -> Batch:
    """The body of either request.

    Raises:
        RemotingError: it is not one; the text says what is missing.
    """
    try:
        document = await read_json(body)
        group, client_id = document.get("consumerGroup"), document.get("clientId")
        if not isinstance(group, str) or not isinstance(client_id, str):
            raise TypeError(f"consumerGroup is {group!r} and clientId is {client_id!r}")
        queues = tuple(read_queue(entry) for entry in document.get("mqSet") or ())
    except (CodecError, AttributeError, TypeError, ValueError) as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the locks asked for cannot be read: {error}") from error
    return Batch(group, client_id, queues)


def read_queue(entry: Mapping[str, Any]) -> LockedQueue:
    """One MessageQueue.

    Raises:
        TypeError, ValueError: its queue is no number.
    """
    return LockedQueue(
        str(entry.get("topic")), str(entry.get("brokerName")), whole_number("queueId", entry.get("queueId") or 0, 32)
    )


def queue_json(queue: LockedQueue) -> dict[str, Any]:
    """A MessageQueue, in RocketMQ's order."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
