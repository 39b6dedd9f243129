"""Client management: HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG, GET_CONSUMER_LIST_BY_GROUP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.clients import ClientChannel
from pymq.broker.filters import compile_typed
from pymq.broker.processors.pull_checks import CLASS_FILTER_GONE, FILTER_NOT_SUPPORTED
from pymq.broker.request_fields import text_field
from pymq.broker.subscriptions import CONSUME_ACTIVELY, TAG_TYPE, ConsumerData, Heartbeat
from pymq.broker.topic_config import PERM_READ_WRITE
from pymq.filter import FilterError
from pymq.remoting import json_dialect
from pymq.remoting.bodies import read_json
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.errors import CodecError, RemotingError
from pymq.remoting.server import RemotingServer, Request
from pymq.remoting.turns import Turns

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

UNIT_SUBSCRIBED = 2  # TopicSysFlag.FLAG_UNIT_SUB
HEARTBEAT_V2 = "IS_SUPPORT_HEART_BEAT_V2"
SUBSCRIPTION_CHANGED = "IS_SUB_CHANGE"

log = logging.getLogger("pymq.broker")


class ClientProcessor:
    """Keeps the client tables by what clients say."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s clients."""
        self._broker = broker
        self._turns = Turns()

    def register(self, server: RemotingServer) -> None:
        """Take these codes, in the lane that never starves."""
        server.register(RequestCode.HEART_BEAT, self.heartbeat, lane=Lane.CLIENT)
        server.register(RequestCode.UNREGISTER_CLIENT, self.unregister, lane=Lane.CLIENT)
        server.register(RequestCode.CHECK_CLIENT_CONFIG, self.check_config, lane=Lane.CLIENT)
        server.register(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.consumer_list, lane=Lane.CLIENT)

    async def heartbeat(self, request: Request) -> Command:
        """A client is alive: keep its groups, tell members of changes, and make what its groups need."""
        async with self._turns.of(request.connection):
            return await self._heartbeat(request)

    async def _heartbeat(self, request: Request) -> Command:
        command = request.command
        try:
            beat = Heartbeat.from_json(await read_json(command.body))
        except (CodecError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the heartbeat cannot be read: {error}") from error
        channel = self._channel(request, beat.client_id)
        changed = False
        for data in beat.consumers:
            if self._broker.config.reject_pull_consumer_enable and data.consume_type == CONSUME_ACTIVELY:
                continue
            changed |= self._broker.clients.changed_fingerprint(data.group_name, beat.fingerprint)
            await self._consumer(channel, data, subscriptions_too=not (beat.fingerprint and beat.without_sub))
        if self._broker.config.enable_register_producer and self._broker.server.peer(request.connection) is not None:
            for group in beat.producers:
                self._broker.clients.register_producer(group, channel)
        # Compat: a heartbeat of version 1 is always answered as if subscriptions had changed.
        told = changed if beat.fingerprint else True
        return command.reply(fields={HEARTBEAT_V2: "true", SUBSCRIPTION_CHANGED: "true" if told else "false"})

    async def _consumer(self, channel: ClientChannel, data: ConsumerData, *, subscriptions_too: bool) -> None:
        broker = self._broker
        group = await broker.groups.find(data.group_name)
        if group is None:
            return
        order = any(
            topic is not None and topic.order
            for topic in (broker.topics.get(item.topic) for item in data.subscriptions)
        )
        sys_flag = UNIT_SUBSCRIBED if data.unit_mode else 0
        await broker.topics.create_on_send_back(
            names.retry_topic(group.group_name), group.retry_queue_nums, PERM_READ_WRITE, sys_flag, order=order
        )
        if broker.server.peer(channel.connection) is None:
            return  # gone while the disk was waited for; nobody would ever take it out again
        broker.clients.register_consumer(
            channel, data, notify=group.notify_consumer_ids_changed_enable, subscriptions_too=subscriptions_too
        )

    async def unregister(self, request: Request) -> Command:
        """A client stops, after the heartbeats it sent before: one that waits for the disk would bring it back."""
        async with self._turns.of(request.connection):
            return await self._unregister(request)

    async def _unregister(self, request: Request) -> Command:
        fields = request.command.fields
        producer, consumer = fields.get("producerGroup"), fields.get("consumerGroup")
        if producer is not None:
            self._broker.clients.unregister_producer(producer, request.connection)
        if consumer is not None:
            group = await self._broker.groups.find(consumer)  # Compat: which makes it, as asking for a group does
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._broker.clients.unregister_consumer(consumer, request.connection, notify=notify)
        return request.command.reply(fields={})

    async def check_config(self, request: Request) -> Command:
        """Whether a consumer's filter would be accepted, asked before it starts."""
        command = request.command
        document = await read_json(command.body) if command.body else None
        subscription = document.get("subscriptionData") if isinstance(document, dict) else None
        kind = str((subscription or {}).get("expressionType") or TAG_TYPE)
        if (subscription or {}).get("classFilterMode") is True:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"a class filter was asked for, {CLASS_FILTER_GONE}")
        if kind == TAG_TYPE:
            return command.reply()
        if not self._broker.config.enable_property_filter:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{FILTER_NOT_SUPPORTED} {kind}")
        try:
            compile_typed(str((subscription or {}).get("subString") or ""), kind)
        except FilterError as error:
            log.warning("filter refused client=%s: %s", request.peer, error)
            # Differs: 5.5.0 says "Invalid MessageSelector. " and not where.
            raise RemotingError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}") from error
        return command.reply()

    async def consumer_list(self, request: Request) -> Command:
        """The client ids of a group, by which its members divide the queues."""
        command = request.command
        group = text_field(command, "consumerGroup")
        info = self._broker.clients.consumer_group(group)
        ids = info.client_ids() if info is not None else []
        if not ids:
            log.warning("consumer list of a group without members group=%s peer=%s", group, request.peer)
            return command.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
        return command.reply(fields={}, body=json_dialect.dumps({"consumerIdList": ids}, standard=True))

    def _channel(self, request: Request, client_id: str) -> ClientChannel:
        host, port = request.peer
        return ClientChannel(
            connection=request.connection,
            client_id=client_id,
            language=request.command.language,
            version=request.command.version,
            address=f"{host}:{port}",
            last_update_ms=self._broker.clock.now_ms(),
            seen_s=self._broker.clock.monotonic_s(),
        )
