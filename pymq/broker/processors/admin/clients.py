"""Connected clients, for administrators: lists, and requests passed on to a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymq.broker.clients import ClientChannel
from pymq.broker.disk_jobs import read_for
from pymq.broker.queue_info import stored_record
from pymq.broker.request_fields import text_field
from pymq.remoting import json_dialect
from pymq.remoting.bodies import read_json
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingCallError, RemotingError, RemotingTimeoutError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

CALL_TIMEOUT_S = 10.0  # Broker2Client.callClient
STATUS_TIMEOUT_S = 5.0
UNSET_REMARK = "not set any response code"


class ClientAdmin:
    """Serves what tools ask about clients."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s clients."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        server.register(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.consumer_connections)
        server.register(RequestCode.GET_PRODUCER_CONNECTION_LIST, self.producer_connections)
        server.register(RequestCode.GET_ALL_PRODUCER_INFO, self.all_producers)
        server.register(RequestCode.GET_CONSUMER_RUNNING_INFO, self.running_info)
        server.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_directly)
        server.register(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.consumer_status)

    async def consumer_connections(self, request: Request) -> Command:
        """Members of a consumer group, what they subscribe to, and where they do not agree."""
        group = text_field(request.command, "consumerGroup")
        info = self._broker.clients.consumer_group(group)
        if info is None:
            raise RemotingError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body: dict[str, Any] = {
            "connectionSet": [connection_of(channel) for channel in info.channels.values()],
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": {topic: item.to_json() for topic, item in info.subscriptions.items()},
        }
        findings = self._broker.clients.consistency.findings(group)
        if findings:  # ours alone; Apache's tools do not look at it
            body["inconsistencies"] = [finding.to_json() for finding in findings]
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def producer_connections(self, request: Request) -> Command:
        """Members of a producer group."""
        group = text_field(request.command, "producerGroup")
        channels = self._broker.clients.producers(group)
        if not channels:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = {"connectionSet": [connection_of(channel) for channel in channels]}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def all_producers(self, request: Request) -> Command:
        """Every producer group with its members."""
        data = {
            group: [
                {
                    "clientId": channel.client_id,
                    "language": channel.language,
                    "lastUpdateTimestamp": channel.last_update_ms,
                    "remoteIP": f"/{channel.address}",
                    "version": channel.version,
                }
                for channel in channels
            ]
            for group, channels in self._broker.clients.producer_groups().items()
        }
        return request.command.reply(body=json_dialect.dumps({"data": data}, standard=False))

    async def running_info(self, request: Request) -> Command:
        """What a consumer says of itself; it is asked."""
        return await self._call(request, RequestCode.GET_CONSUMER_RUNNING_INFO, request.command.body)

    async def consume_directly(self, request: Request) -> Command:
        """Have one consumer consume one stored message now."""
        command, broker = request.command, self._broker
        topic, group = command.fields.get("topic"), command.fields.get("consumerGroup")
        command.fields["brokerName"] = broker.config.broker_name
        config = broker.topics.get(topic) if topic else None
        if config is not None:
            command.fields["topicSysFlag"] = str(config.topic_sys_flag)
        found = await broker.groups.find(group) if group else None
        if found is not None:
            command.fields["groupSysFlag"] = str(found.group_sys_flag)
        message_id = text_field(command, "msgId")
        record = await read_for(broker, request, stored_record, broker.store, message_id)
        return await self._call(request, RequestCode.CONSUME_MESSAGE_DIRECTLY, record)

    async def _call(self, request: Request, code: int, body: bytes) -> Command:
        """Pass a request on to one client and its answer back."""
        command = request.command
        group, client_id = text_field(command, "consumerGroup"), text_field(command, "clientId")
        info = self._broker.clients.consumer_group(group)
        channel = info.find(client_id) if info is not None else None
        if channel is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        try:
            answer = await self._broker.server.invoke(
                channel.connection, Command(code, dict(command.fields), body), CALL_TIMEOUT_S
            )
        except RemotingTimeoutError as error:
            raise RemotingError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
            ) from error
        except RemotingCallError as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from error
        return command.reply(answer.code, answer.remark, answer.fields or None, answer.body)

    async def consumer_status(self, request: Request) -> Command:
        """Where the members of a group stand with a topic; they are asked."""
        command = request.command
        topic, group = text_field(command, "topic"), text_field(command, "group")
        only = (command.fields.get("clientAddr") or "").strip()
        info = self._broker.clients.consumer_group(group)
        if info is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        table: dict[str, Any] = {}
        for channel in list(info.channels.values()):
            if only and only != channel.client_id:
                continue
            question = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group})
            try:
                answer = await self._broker.server.invoke(channel.connection, question, STATUS_TIMEOUT_S)
            except RemotingCallError:
                continue
            if answer.code == ResponseCode.SUCCESS and answer.body:
                table[channel.client_id] = (await read_json(answer.body)).get("messageQueueTable") or {}
        body = {"consumerTable": table, "messageQueueTable": {}}
        return command.reply(remark=UNSET_REMARK, body=json_dialect.dumps(body, standard=False))


def connection_of(channel: ClientChannel) -> dict[str, Any]:
    """Connection, as tools list it."""
    return {
        "clientAddr": channel.address,
        "clientId": channel.client_id,
        "language": channel.language,
        "version": channel.version,
    }
