"""Consumer offsets the Python way, and where queues begin and end: QUERY_ and UPDATE_CONSUMER_OFFSET, GET_MAX_OFFSET,
GET_MIN_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME.

Consumer offsets that are there are answered natively; here comes what an absent one means, and every refusal. Whatever
may wait for the disk runs in the broker's small pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq.broker import queue_info
from pymq.broker.disk_jobs import read_for
from pymq.broker.new_groups import NO_QUEUE
from pymq.broker.request_fields import text_field
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.headers.base import read_number
from pymq.remoting.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

NEVER_COMMITTED = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
NOT_SET_TO_ZERO = "Not found, do not set to zero, maybe this group boot first"
RESET_BEFORE = "Offset has been previously reset"
UPPER = "upper"
NULL = "null"  # as Java writes what is not there


class OffsetProcessor:
    """Answers where groups and queues stand."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s clients."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        server.register(RequestCode.QUERY_CONSUMER_OFFSET, self.query)
        server.register(RequestCode.UPDATE_CONSUMER_OFFSET, self.update)
        server.register(RequestCode.GET_MAX_OFFSET, self.maximum)
        server.register(RequestCode.GET_MIN_OFFSET, self.minimum)
        server.register(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.by_time)
        server.register(RequestCode.GET_EARLIEST_MSG_STORETIME, self.earliest)

    # ---- of consumers --------------------------------------------------------------------------------------------

    async def query(self, request: Request) -> Command:
        """How far a group has come; without an offset, 0 or nothing as `pymq.broker.new_groups` decides."""
        command = request.command
        # Compat: a group that is not named is one called null.
        header = QueryConsumerOffsetRequestHeader.from_fields({"consumerGroup": NULL, **command.fields})
        offset = self._broker.serve.offset_query(
            header.consumer_group, header.topic, header.queue_id, request.connection
        )
        if offset is not None and offset >= 0:
            return command.reply(fields={"offset": str(offset)})
        if header.set_zero_if_not_found is False:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, NOT_SET_TO_ZERO, {})
        if await self._broker.new_groups.begins_at_zero(header.consumer_group, header.topic, header.queue_id):
            return command.reply(fields={"offset": "0"})
        return command.reply(ResponseCode.QUERY_NOT_FOUND, NEVER_COMMITTED, {})

    def update(self, request: Request) -> Command:
        """A group commits."""
        command = request.command
        group, topic = command.fields.get("consumerGroup"), text_field(command, "topic")
        if group is None or self._broker.groups.get(group) is None:
            called = NULL if group is None else group
            return command.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {called} not exist!", {})
        if self._broker.topics.get(topic) is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!", {})
        # Compat: a number that is none counts as absent here.
        queue_id, offset = optional(command, "queueId", 32), optional(command, "commitOffset", 64)
        if queue_id is None:
            return command.reply(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}", {})
        if offset is None:
            return command.reply(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}", {})
        try:
            stored = self._broker.serve.offset_commit(group, topic, queue_id, offset, request.connection)
        except StoreError:
            # Differs: 5.5.0 keeps offsets of queues that cannot be (-1, 70000) and writes them to its file for ever.
            return command.reply(ResponseCode.INVALID_PARAMETER, f"queueId[{queue_id}] is illegal, topic:[{topic}]", {})
        return command.reply(remark=None if stored else RESET_BEFORE, fields={})

    # ---- of queues -----------------------------------------------------------------------------------------------

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First offset and the one behind the last; of a queue that cannot be, 0 and 0 as of an empty one."""
        try:
            return queue_info.queue_range(self._broker.store, topic, queue_id)
        except NO_QUEUE:
            return 0, 0

    def maximum(self, request: Request) -> Command:
        """The offset behind the last message that can be consumed. 5.5.0 reads `committed` and does not ask it."""
        header = GetMaxOffsetRequestHeader.from_fields(request.command.fields)
        _, high = self._range(header.topic, header.queue_id)
        return request.command.reply(fields={"offset": str(high)})

    def minimum(self, request: Request) -> Command:
        """The first offset whose message is still there."""
        header = GetMinOffsetRequestHeader.from_fields(request.command.fields)
        low, _ = self._range(header.topic, header.queue_id)
        return request.command.reply(remark="", fields={"offset": str(low)})

    async def by_time(self, request: Request) -> Command:
        """The first message stored at or after a time, or (boundaryType upper) the last one at or before it."""
        header = SearchOffsetRequestHeader.from_fields(request.command.fields)
        offset = await read_for(self._broker, request, self._search, header)
        return request.command.reply(fields={"offset": str(offset)})

    def _search(self, header: SearchOffsetRequestHeader) -> int:
        upper = (header.boundary_type or "").lower() == UPPER
        store = self._broker.store
        try:
            found = int(store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper))
        except NO_QUEUE:
            return 0
        low, high = self._range(header.topic, header.queue_id)
        return min(max(found, low), high)

    async def earliest(self, request: Request) -> Command:
        """When the oldest message was stored; -1 without one."""
        header = GetEarliestMsgStoretimeRequestHeader.from_fields(request.command.fields)
        timestamp_ms = await read_for(self._broker, request, self._earliest, header)
        return request.command.reply(fields={"timestamp": str(timestamp_ms)})

    def _earliest(self, header: GetEarliestMsgStoretimeRequestHeader) -> int:
        low, high = self._range(header.topic, header.queue_id)
        if low >= high:
            return -1
        stored_ms = queue_info.stored_at(self._broker.store, header.topic, header.queue_id, low)
        return stored_ms if stored_ms > 0 else -1


def optional(command: Command, name: str, bits: int) -> int | None:
    """A number as Java reads it, or None."""
    text = command.fields.get(name)
    try:
        return None if text is None else read_number(name, text, bits=bits)
    except RemotingError:
        return None
