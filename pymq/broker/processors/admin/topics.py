"""Topics by administrators: create, change, delete, list, statistics."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pymq.broker import names
from pymq.broker.data_version import plain_json
from pymq.broker.disk_jobs import read_for
from pymq.broker.queue_info import message_queue, queue_range, stored_at
from pymq.broker.request_fields import boolean_field, integer_field, text_field
from pymq.broker.topic_config import FILTER_TYPES, TopicConfig
from pymq.remoting import json_dialect
from pymq.remoting.bodies import read_json
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import CodecError, RemotingError
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

# Compat: 5.5.0 answers a created topic with this remark and SUCCESS, because nobody takes the remark out.
UNSET_REMARK = "not set any response code"
MIXED = "MIXED"
NULL = "null"  # as Java writes what is not there
REMOVE_TIMEOUT_MS = 10_000

log = logging.getLogger("pymq.broker")


class TopicAdmin:
    """Serves what tools ask about topics."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s topics."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        server.register(RequestCode.UPDATE_AND_CREATE_TOPIC, self.create)
        server.register(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self.create_list)
        server.register(RequestCode.DELETE_TOPIC_IN_BROKER, self.delete)
        server.register(RequestCode.GET_ALL_TOPIC_CONFIG, self.list_all)
        server.register(RequestCode.GET_TOPIC_CONFIG, self.show)
        server.register(RequestCode.GET_TOPIC_STATS_INFO, self.stats)
        server.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.list_system)
        server.register(RequestCode.CLEAN_UNUSED_TOPIC, self.clean_unused)

    async def create(self, request: Request) -> Command:
        """Create or change one topic."""
        command = request.command
        topic = text_field(command, "topic")
        filter_type = command.fields.get("topicFilterType", NULL)
        if filter_type not in FILTER_TYPES:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{filter_type}] value invalid")
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=integer_field(command, "readQueueNums"),
            write_queue_nums=integer_field(command, "writeQueueNums"),
            perm=integer_field(command, "perm"),
            topic_filter_type=filter_type,
            topic_sys_flag=integer_field(command, "topicSysFlag", 0),
            order=boolean_field(command, "order"),
            attributes=parse_attributes(command.fields.get("attributes") or ""),
        )
        log.info("topic asked for topic=%s peer=%s", topic, request.peer)
        await self._update([config])
        return command.reply(remark=UNSET_REMARK)

    async def create_list(self, request: Request) -> Command:
        """Create or change many, all or none."""
        try:
            document = await read_json(request.command.body)
            configs = [TopicConfig.from_json(entry) for entry in document.get("topicConfigList") or ()]
        except (CodecError, TypeError, ValueError, AttributeError) as error:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"the list of topics cannot be read: {error}"
            ) from error
        await self._update(configs)
        return request.command.reply(remark=UNSET_REMARK)

    async def _update(self, configs: Iterable[TopicConfig]) -> None:
        changed = []
        for config in configs:
            self._check(config.topic_name)
            if not self._broker.config.enable_mixed_message_type and config.attributes.get("+message.type") == MIXED:
                raise RemotingError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
            if problem := config.problem():
                raise RemotingError(ResponseCode.INVALID_PARAMETER, problem)
            if config != self._broker.topics.get(config.topic_name):
                changed.append(config)
        try:
            await self._broker.topics.update(changed)
        except ValueError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from error

    def _check(self, topic: str) -> None:
        problem = names.check_topic_name(topic)
        if problem is None and self._broker.config.validate_system_topic_when_update_topic:
            problem = (
                f"The topic[{topic}] is conflict with system topic." if self._broker.topics.is_system(topic) else None
            )
        if problem is not None:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, problem)

    async def delete(self, request: Request) -> Command:
        """Delete a topic: configuration, offsets, queues; the log keeps its messages until they expire."""
        topic = request.command.fields.get("topic") or ""
        if not topic.strip():
            raise RemotingError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if self._broker.config.validate_system_topic_when_update_topic and self._broker.topics.is_system(topic):
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")
        log.info("topic deletion asked for topic=%s peer=%s", topic, request.peer)
        doomed = [topic]
        if self._broker.config.clear_retry_topic_when_delete_topic:
            groups = {group for name, group in self._broker.offsets.table() if name == topic}
            retries = [f"{names.RETRY_PREFIX}{group}{mark}{topic}" for group in sorted(groups) for mark in ("+", "_")]
            doomed += [name for name in retries if self._broker.topics.get(name) is not None]
        for name in doomed:
            await self._broker.topics.delete(name)
        return request.command.reply()

    async def list_all(self, request: Request) -> Command:
        """Every topic's configuration, or a slice of them by name."""
        command = request.command
        document = self._broker.topics.wrapper()
        table: dict[str, Any] = document["topicConfigTable"]
        total = len(table)
        begin, limit = integer_field(command, "topicSeq", 0), integer_field(command, "maxTopicNum", 0)
        if limit > 0:
            known = command.fields.get("dataVersion")
            if begin and known != json_dialect.dumps(document["dataVersion"], standard=True).decode():
                begin = 0
            document["topicConfigTable"] = {name: table[name] for name in sorted(table)[begin : begin + limit]}
        body = {
            "dataVersion": document["dataVersion"],
            "mappingDataVersion": {
                "counter": 0,
                "stateVersion": 0,
                "timestamp": self._broker.message_store.opened_at_ms,
            },
            "topicConfigTable": document["topicConfigTable"],
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        return command.reply(fields={"totalTopicNum": str(total)}, body=plain_json(body))

    async def show(self, request: Request) -> Command:
        """One topic's configuration."""
        topic = text_field(request.command, "topic")
        config = self._broker.topics.get(topic)
        if config is None:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.command.reply(body=json_dialect.dumps(config.to_json(), standard=False))

    async def stats(self, request: Request) -> Command:
        """First and last offset of every queue, when the last message came, and how many come."""
        broker = self._broker
        topic = text_field(request.command, "topic")
        config = broker.topics.get(topic)
        if config is None:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")

        def collect() -> dict[Any, Any]:
            table = {}
            for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
                low, high = queue_range(broker.store, topic, queue_id)
                last = stored_at(broker.store, topic, queue_id, high - 1) if high > 0 else 0
                entry = {"lastUpdateTimestamp": last, "maxOffset": high, "minOffset": low}
                table[message_queue(broker.config.broker_name, topic, queue_id)] = entry
            return table

        table = await read_for(broker, request, collect)
        body = {"offsetTable": table, "topicPutTps": broker.traffic.tps(topic)}
        return request.command.reply(body=json_dialect.dumps(body, standard=False))

    async def list_system(self, request: Request) -> Command:
        """Topics RocketMQ keeps for itself."""
        body = {"topicList": self._broker.topics.system_topics()}
        return request.command.reply(fields={}, body=json_dialect.dumps(body, standard=False))

    async def clean_unused(self, request: Request) -> Command:
        """Remove queues of topics that are no longer configured."""
        broker = self._broker
        known = broker.topics.all()
        unused = {topic for topic, *_ in broker.store.queues(settle=False)} - set(known)
        for topic in sorted(unused):
            if not broker.topics.is_system(topic):
                log.warning("queues of an unknown topic removed topic=%s", topic)
                await broker.topics.delete(topic)
        return request.command.reply()


def parse_attributes(text: str) -> dict[str, str]:
    """`+name=value,-name`: AttributeParser.parseToMap.

    Raises:
        RemotingError: it is not written so.
    """
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, separator, value = part.partition("=")
        if separator and not key.startswith("+"):
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "add/alter attribute format is wrong: " + key)
        if not separator and not key.startswith("-"):
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "delete attribute format is wrong: " + key)
        if key in found:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "key duplication: " + key)
        found[key] = value
    return found
