"""Consumer groups by administrators: create, change, delete, list, forbid."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pymq.broker import names
from pymq.broker.config_file import ConfigFile
from pymq.broker.data_version import plain_json
from pymq.broker.groups import SubscriptionGroup
from pymq.broker.request_fields import boolean_field, integer_field, text_field
from pymq.broker.topic_config import QUEUES_MAX
from pymq.remoting import json_dialect
from pymq.remoting.bodies import read_json
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import CodecError, RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

READ_FORBIDDEN = 1 << 2  # PermName.INDEX_PERM_READ
MODES_FILE = "messageRequestMode.json"

log = logging.getLogger("pymq.broker")


class GroupAdmin:
    """Serves what tools ask about groups."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s groups."""
        self._broker = broker
        self._modes: dict[str, dict[str, Any]] = {}
        self._file = ConfigFile(broker.config_directory / MODES_FILE, self._modes_document, broker.config_executor)
        self._modes = (self._file.load() or {}).get("messageRequestModeMap") or {}

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        server.register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.create)
        server.register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self.create_list)
        server.register(RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete)
        server.register(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.list_all)
        server.register(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self.show)
        server.register(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, self.forbid)
        server.register(RequestCode.SET_MESSAGE_REQUEST_MODE, self.set_mode)
        server.register(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self.list_modes)

    async def create(self, request: Request) -> Command:
        """Create or change one group."""
        await self._update(request, lambda document: [document])
        return request.command.reply()

    async def create_list(self, request: Request) -> Command:
        """Create or change many, all or none."""
        await self._update(request, lambda document: document.get("groupConfigList") or [])
        return request.command.reply()

    async def _update(self, request: Request, entries: Callable[[Any], list[Mapping[str, Any]]]) -> None:
        try:
            document = await read_json(request.command.body)
            groups = [SubscriptionGroup.from_json(entry) for entry in entries(document)]
        except (CodecError, TypeError, ValueError, AttributeError) as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"the group cannot be read: {error}") from error
        for group in groups:
            problem = names.check_group_name(group.group_name)
            # Differs: 5.5.0 takes any number, and makes the retry topic with it.
            if problem is None and not 0 <= group.retry_queue_nums <= QUEUES_MAX:
                problem = f"retryQueueNums of {group.group_name} is {group.retry_queue_nums}; 0 to {QUEUES_MAX} can be"
            if problem is not None:
                raise RemotingError(ResponseCode.INVALID_PARAMETER, problem)
        try:
            await self._broker.groups.update(groups)
        except ValueError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        for group in groups:
            if not group.consume_enable:
                self._broker.serve.end_holds("", group.group_name)

    async def delete(self, request: Request) -> Command:
        """Delete a group, and its offsets if asked; pulls it holds are answered."""
        command = request.command
        group = text_field(command, "groupName")
        # 4.x says removeOffset, 5.x cleanOffset.
        clean = boolean_field(command, "cleanOffset") or boolean_field(command, "removeOffset")
        log.info("group deletion asked for group=%s offsets_too=%s peer=%s", group, clean, request.peer)
        if not await self._broker.groups.delete(group, offsets_too=clean) and clean:
            self._broker.serve.offset_remove(group, "")
        return command.reply()

    async def list_all(self, request: Request) -> Command:
        """Every group's configuration, or a slice of them by name."""
        command = request.command
        document = self._broker.groups.document()
        table: dict[str, Any] = document["subscriptionGroupTable"]
        total = len(table)
        begin, limit = integer_field(command, "groupSeq", 0), integer_field(command, "maxGroupNum", 0)
        if limit > 0:
            known = command.fields.get("dataVersion")
            if begin and known != json_dialect.dumps(document["dataVersion"], standard=True).decode():
                begin = 0
            document["subscriptionGroupTable"] = {name: table[name] for name in sorted(table)[begin : begin + limit]}
        return command.reply(fields={"totalGroupNum": str(total)}, body=plain_json(document))

    async def show(self, request: Request) -> Command:
        """One group's configuration; asking for one makes it, as everywhere."""
        group = await self._broker.groups.find(text_field(request.command, "group"))
        if group is None:
            raise RemotingError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.command.reply(body=json_dialect.dumps(group.to_json(), standard=False))

    async def forbid(self, request: Request) -> Command:
        """Keep a group from reading a topic, or let it again."""
        command = request.command
        group, topic = text_field(command, "group"), text_field(command, "topic")
        groups = self._broker.groups
        if command.fields.get("readable") is not None:
            bits = groups.forbidden(group, topic)
            readable = boolean_field(command, "readable")
            await groups.set_forbidden(group, topic, bits & ~READ_FORBIDDEN if readable else bits | READ_FORBIDDEN)
        allowed = not groups.forbidden(group, topic) & READ_FORBIDDEN
        body = {"group": group, "readable": allowed, "topic": topic}
        return command.reply(remark="", body=json_dialect.dumps(body, standard=False))

    async def set_mode(self, request: Request) -> Command:
        """Keep whether a group pulls or pops a topic; it is kept and shown, popping itself comes later."""
        try:
            document = await read_json(request.command.body)
            topic, group = str(document["topic"]), str(document["consumerGroup"])
        except (CodecError, KeyError, TypeError) as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the mode cannot be read: {error}") from error
        if topic.startswith(names.RETRY_PREFIX):
            raise RemotingError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        entry = {
            "consumerGroup": group,
            "mode": str(document.get("mode", "PULL")),
            "popShareQueueNum": int(document.get("popShareQueueNum", 0)),
            "topic": topic,
        }
        self._modes.setdefault(topic, {})[group] = entry
        await self._file.save()
        return request.command.reply()

    def _modes_document(self) -> dict[str, Any]:
        return {"messageRequestModeMap": {topic: dict(groups) for topic, groups in self._modes.items()}}

    async def list_modes(self, request: Request) -> Command:
        """Every such mode."""
        body = {"messageRequestModeMap": self._modes}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))
