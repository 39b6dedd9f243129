"""One consume queue, for administrators: its ends and its units."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pymq.broker.disk_jobs import read_for
from pymq.broker.processors.admin.topics import UNSET_REMARK
from pymq.broker.request_fields import integer_field, text_field
from pymq.broker.subscriptions import hash_tag
from pymq.errors import NotFoundError, OffsetNotFoundError
from pymq.remoting import json_dialect
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

UNITS_MAX = 1024  # of one answer; more are asked for with a later index


def pretty(document: dict[str, Any]) -> str:
    """JSON as 5.5.0 shows it to people: one line a field, arrays of numbers on one."""
    text = json.dumps(document, indent="\t", separators=(",", ":"), ensure_ascii=False)
    return re.sub(r"\[\s+([0-9,\s]*?)\s+\]", lambda found: "[" + "".join(found.group(1).split()) + "]", text)


class QueueAdmin:
    """Serves QUERY_CONSUME_QUEUE."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s queues."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take this code."""
        server.register(RequestCode.QUERY_CONSUME_QUEUE, self.query)

    async def query(self, request: Request) -> Command:
        """Units from an index on: where each message lies in the log, its size and its tag's hash."""
        command, broker = request.command, self._broker
        topic, queue_id = text_field(command, "topic"), integer_field(command, "queueId")
        index = integer_field(command, "index", bits=64)
        count = min(max(integer_field(command, "count"), 0), UNITS_MAX)
        try:
            low, high = broker.store.queue_range(topic, queue_id, settle=False)
        except NotFoundError:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!") from None
        try:
            units = await read_for(broker, request, self._units, topic, queue_id, index, count)
        except OffsetNotFoundError:
            return command.reply(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        body: dict[str, Any] = {"maxQueueIndex": int(high), "minQueueIndex": int(low), "queueData": units}
        group = command.fields.get("consumerGroup")
        if group is not None:
            info = broker.clients.consumer_group(group)
            found = info.subscription(topic) if info is not None else None
            known = broker.filters.get(topic, group)
            shown = pretty(known.to_json()) if known is not None else "null"
            body["filterData"] = shown if found is not None else f"{group}@{topic} is not online!"
            body["subscriptionData"] = found.to_json() if found is not None else None
        ordered = dict(sorted(body.items()))
        return command.reply(remark=UNSET_REMARK, body=json_dialect.dumps(ordered, standard=False))

    def _units(self, topic: str, queue_id: int, index: int, count: int) -> list[dict[str, Any]]:
        """Read off the messages themselves. Asks the disk."""
        messages = self._broker.store.read(topic, queue_id, index, max_count=count, settle=False) if count else []
        return [
            {
                "eval": False,
                "physicOffset": int(message.physical_offset),
                "physicSize": message.store_size,
                "tagsCode": hash_tag(message.tags) if message.tags else 0,
            }
            for message in messages
        ]
