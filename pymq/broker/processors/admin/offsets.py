"""Changing offsets for others: reset by time, clone from another group, correction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pymq.broker.disk_jobs import read_for
from pymq.broker.queue_info import message_queue, offset_at_time, queue_range
from pymq.broker.request_fields import boolean_field, integer_field, text_field
from pymq.remoting import json_dialect
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

JAVA_LONG_MAX = 2**63 - 1
CPP = "CPP"

log = logging.getLogger("pymq.broker")


class OffsetAdmin:
    """Serves what tools want done to offsets."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s offsets."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        server.register(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.reset)
        server.register(RequestCode.CLONE_GROUP_OFFSET, self.clone)
        server.register(RequestCode.QUERY_CORRECTION_OFFSET, self.correction)

    async def reset(self, request: Request) -> Command:
        """Set a group back or forward in a topic, by time or to an offset.

        The reset stands at the broker until the group has pulled from it, and members that are online are told.
        """
        command, broker = request.command, self._broker
        topic, group = text_field(command, "topic"), text_field(command, "group")
        timestamp = integer_field(command, "timestamp", -1, bits=64)
        queue_id, offset = integer_field(command, "queueId", -1), integer_field(command, "offset", -1, bits=64)
        config = broker.topics.get(topic)
        if config is None:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if broker.groups.get(group) is None:
            raise RemotingError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if queue_id >= 0 and offset != -1:
            low, high = queue_range(broker.store, topic, queue_id)
            if offset < low or offset > high + 1:
                raise RemotingError(
                    ResponseCode.SYSTEM_ERROR, f"Target offset {offset} not in consume queue range [{low}-{high}]"
                )
            targets = {queue_id: offset}
        else:
            ids = [queue_id] if queue_id >= 0 else list(range(config.read_queue_nums))
            targets = await read_for(
                broker,
                request,
                lambda: {number: max(0, offset_at_time(broker.store, topic, number, timestamp)) for number in ids},
            )
        if not targets:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for number, target in targets.items():
            broker.serve.offset_reset(group, topic, number, target)
        broker.serve.end_holds(topic, group)
        await broker.offsets.save()  # a restart must not undo what is about to be answered with success
        log.info("offsets reset group=%s topic=%s to=%s peer=%s", group, topic, targets, request.peer)
        name = broker.config.broker_name
        table = {message_queue(name, topic, number): target for number, target in targets.items()}
        body = json_dialect.dumps({"offsetTable": table}, standard=False)
        if not broker.config.use_server_side_reset_offset:
            self._tell_members(group, topic, timestamp, targets, body)
        return command.reply(body=body)

    def _tell_members(self, group: str, topic: str, timestamp: int, targets: dict[int, int], body: bytes) -> None:
        """RESET_CONSUMER_CLIENT_OFFSET to every member; those in C++ read a list."""
        info = self._broker.clients.consumer_group(group)
        name = self._broker.config.broker_name
        listed = [
            {"brokerName": name, "offset": at, "queueId": number, "topic": topic} for number, at in targets.items()
        ]
        fields = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "true"}
        for channel in info.channels.values() if info is not None else ():
            told = json_dialect.dumps({"offsetTable": listed}, standard=False) if channel.language == CPP else body
            command = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(fields), told)
            self._broker.server.push(channel.connection, command)

    async def clone(self, request: Request) -> Command:
        """Give one group the offsets of another."""
        command, broker = request.command, self._broker
        source, target = text_field(command, "srcGroup"), text_field(command, "destGroup")
        only = (command.fields.get("topic") or "").strip()
        offline = boolean_field(command, "offline")
        info = broker.clients.consumer_group(source)
        for (topic, group), queues in broker.offsets.table().items():
            if group != source or (only and topic != only) or broker.topics.get(topic) is None:
                continue
            if not offline and info is not None and info.subscriptions and topic not in info.subscriptions:
                continue
            for queue_id, offset in queues.items():
                broker.serve.offset_commit(target, topic, queue_id, offset)
        log.info("offsets cloned from=%s to=%s topic=%s", source, target, only or "all")
        return command.reply()

    async def correction(self, request: Request) -> Command:
        """The smallest offset per queue over all groups of a topic, held against one group's."""
        command = request.command
        topic = text_field(command, "topic")
        skipped = {name.strip() for name in (command.fields.get("filterGroups") or "").split(",") if name.strip()}
        compared = command.fields.get("compareGroup") or ""
        table = self._broker.offsets.table()
        smallest: dict[int, int] = {}
        for (name, group), queues in table.items():
            if name == topic and group not in skipped:
                for queue_id, offset in queues.items():
                    low = max(0, queue_range(self._broker.store, topic, queue_id)[0])
                    if offset >= low:
                        smallest[queue_id] = min(offset, smallest.get(queue_id, JAVA_LONG_MAX))
        for queue_id, offset in table.get((topic, compared), {}).items():
            if smallest.get(queue_id, JAVA_LONG_MAX) > offset:
                smallest[queue_id] = JAVA_LONG_MAX
        return command.reply(body=json_dialect.dumps({"correctionOffsets": smallest}, standard=False))
