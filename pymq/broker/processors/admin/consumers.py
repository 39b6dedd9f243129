"""Consumption, for administrators: how far groups are, who reads what, every offset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pymq.broker.disk_jobs import read_for
from pymq.broker.queue_info import message_queue, queue_range, stored_at
from pymq.broker.request_fields import boolean_field, text_field
from pymq.remoting import json_dialect
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker
    from pymq.broker.offsets import Table

Result = TypeVar("Result")
TOPIC_LIST_SEPARATOR = ";"


class ConsumeAdmin:
    """Serves what tools ask about consumption."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s consumers."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        server.register(RequestCode.GET_CONSUME_STATS, self.stats)
        server.register(RequestCode.GET_BROKER_CONSUME_STATS, self.all_stats)
        server.register(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.groups_of_topic)
        server.register(RequestCode.QUERY_TOPICS_BY_CONSUMER, self.topics_of_group)
        server.register(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, self.subscription)
        server.register(RequestCode.QUERY_CONSUME_TIME_SPAN, self.time_span)
        server.register(RequestCode.GET_ALL_CONSUMER_OFFSET, self.all_offsets)
        server.register(RequestCode.GET_ALL_DELAY_OFFSET, self.delay_offsets)

    async def stats(self, request: Request) -> Command:
        """How far a group is with each queue of its topics."""
        command, broker = request.command, self._broker
        group = text_field(command, "consumerGroup")
        table = broker.offsets.table()
        topics = self._topics_of(command, group, table)
        queues = [
            (topic, range(config.read_queue_nums))
            for topic, config in ((topic, broker.topics.get(topic)) for topic in topics)
            if config is not None
        ]
        pulled = {
            (state.topic, state.queue_id): state.pulled
            for state in broker.serve.offset_states()
            if state.group == group and state.pulled is not None
        }
        found = await read_for(self._broker, request, lambda: self._collect(group, queues, table, pulled))
        tps = sum((broker.traffic.tps(topic, group) for topic, _ in queues), 0.0)
        return command.reply(body=json_dialect.dumps({"consumeTps": tps, "offsetTable": found}, standard=False))

    def _topics_of(self, command: Command, group: str, table: Table) -> list[str]:
        """The topics asked for, or those the group has offsets for and, when it is online, still subscribes to."""
        listed = [name for name in (command.fields.get("topicList") or "").split(TOPIC_LIST_SEPARATOR) if name]
        if listed:
            return listed
        topic = (command.fields.get("topic") or "").strip()
        topics = [topic] if topic else sorted(name for name, owner in table if owner == group)
        info = self._broker.clients.consumer_group(group)
        if info is None or not info.subscriptions:
            return topics
        return [name for name in topics if name in info.subscriptions]

    def _collect(
        self,
        group: str,
        queues: Iterable[tuple[str, range]],
        table: Table,
        pulled: Mapping[tuple[str, int], int] | None = None,
    ) -> dict[Any, Any]:
        """OffsetWrapper of every queue, without *pulled* as if nothing had been. Asks the disk."""
        store, name = self._broker.store, self._broker.config.broker_name
        found: dict[Any, Any] = {}
        for topic, ids in queues:
            offsets = table.get((topic, group), {})
            for queue_id in ids:
                offset = max(0, offsets.get(queue_id, 0))
                found[message_queue(name, topic, queue_id)] = {
                    "brokerOffset": queue_range(store, topic, queue_id)[1],
                    "consumerOffset": offset,
                    "lastTimestamp": stored_at(store, topic, queue_id, offset - 1) if offset else 0,
                    "pullOffset": 0 if pulled is None else max(offset, pulled.get((topic, queue_id), 0)),
                }
        return found

    async def all_stats(self, request: Request) -> Command:
        """The same of every group of this broker."""
        broker = self._broker
        only_ordered = boolean_field(request.command, "isOrder")
        table = broker.offsets.table()
        total = inflight = 0
        groups: list[dict[str, Any]] = []
        for group in broker.groups.all():
            entries = []
            for topic in sorted(name for name, owner in table if owner == group):
                config = broker.topics.get(topic)
                info = broker.clients.consumer_group(group)
                subscribed = info is None or not info.subscriptions or topic in info.subscriptions
                if config is None or not subscribed or (only_ordered and not config.order):
                    continue
                queues = [(topic, range(config.write_queue_nums))]
                found = await self._off_loop(partial(self._collect, group, queues, table))
                total += sum(row["brokerOffset"] - row["consumerOffset"] for row in found.values())
                inflight += sum(row["pullOffset"] - row["consumerOffset"] for row in found.values())
                entries.append({"consumeTps": broker.traffic.tps(topic, group), "offsetTable": found})
            groups.append({group: entries})
        body = {
            "brokerAddr": broker.address,
            "consumeStatsList": groups,
            "totalDiff": total,
            "totalInflightDiff": inflight,
        }
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def groups_of_topic(self, request: Request) -> Command:
        """Groups that read a topic: online, or with an offset in it."""
        topic = text_field(request.command, "topic")
        groups = self._broker.clients.groups_of_topic(topic)
        groups |= {group for name, group in self._broker.offsets.table() if name == topic}
        return request.command.reply(body=json_dialect.dumps({"groupList": sorted(groups)}, standard=False))

    async def topics_of_group(self, request: Request) -> Command:
        """Topics a group has an offset in."""
        group = text_field(request.command, "group")
        topics = sorted(name for name, owner in self._broker.offsets.table() if owner == group)
        body = {"brokerAddr": self._broker.address, "topicList": topics}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def subscription(self, request: Request) -> Command:
        """What a group wants of a topic."""
        topic, group = text_field(request.command, "topic"), text_field(request.command, "group")
        info = self._broker.clients.consumer_group(group)
        found = info.subscription(topic) if info is not None else None
        body = {"group": group, "subscriptionData": found.to_json() if found is not None else None, "topic": topic}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def time_span(self, request: Request) -> Command:
        """When the oldest and the newest message of each queue were stored, and the one the group is at."""
        broker = self._broker
        topic, group = text_field(request.command, "topic"), text_field(request.command, "group")
        config = broker.topics.get(topic)
        if config is None:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        offsets = broker.offsets.table().get((topic, group), {})
        now_ms = broker.clock.now_ms()

        def collect() -> list[dict[str, Any]]:
            spans = []
            for queue_id in range(config.write_queue_nums):
                low, high = queue_range(broker.store, topic, queue_id)
                offset = offsets.get(queue_id, -1)
                oldest = stored_at(broker.store, topic, queue_id, low) if high > low else -1
                newest = stored_at(broker.store, topic, queue_id, high - 1) if high > low else -1
                at = stored_at(broker.store, topic, queue_id, offset - 1) if offset > 0 else oldest
                waiting = offset < high and high > low
                delay = now_ms - stored_at(broker.store, topic, queue_id, max(offset, low)) if waiting else 0
                spans.append(
                    {
                        "consumeTimeStamp": at,
                        "consumeTimeStampStr": human_time(at),
                        "delayTime": delay,
                        "maxTimeStamp": newest,
                        "maxTimeStampStr": human_time(newest),
                        "messageQueue": dict(message_queue(broker.config.broker_name, topic, queue_id)),
                        "minTimeStamp": oldest,
                        "minTimeStampStr": human_time(oldest),
                    }
                )
            return spans

        body = {"consumeTimeSpanSet": await read_for(self._broker, request, collect)}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def all_offsets(self, request: Request) -> Command:
        """Every offset of every group, as its file has it; what a slave asks for."""
        return request.command.reply(body=self._broker.offsets.encode())

    async def delay_offsets(self, request: Request) -> Command:
        """How far each delay level is; none is delivered yet."""
        body = {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "offsetTable": {}}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def _off_loop(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._broker.executor, work)


def human_time(timestamp_ms: int) -> str:
    """UtilAll.timeMillisToHumanString2 of QueueTimeSpan: 2026-11-16#01:59:50:719, in local time."""
    moment = datetime.fromtimestamp(max(0, timestamp_ms) / 1000).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{moment.microsecond // 1000:03d}"
