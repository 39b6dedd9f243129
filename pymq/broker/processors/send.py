"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, the Python way: all of them with dataPlane=python, and otherwise
those that csrc/serve hands over. Both give the same answers byte for byte.

Sends of one connection to one topic are taken in their order, also while the first of them waits for its topic to be
made; the reactor sends later ones here too until it is told that the earlier are in the log (`send_settled`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from pymq._core._serve import REASON_HEADER, PutResult
from pymq.broker import names
from pymq.broker.processors import send_properties as texts
from pymq.broker.processors.parking import answers_wait, park
from pymq.broker.processors.send_checks import (
    FAQ,
    INNER_BATCH,
    SendRefused,
    check_accepting,
    check_batch,
    check_batch_message,
    check_queue,
    check_topic,
    find_or_create_topic,
    integer,
)
from pymq.broker.processors.send_header import SendHeader, needed, read_header, topic_of
from pymq.broker.redirect import redirect
from pymq.broker.timer.recall_handle import handle_of
from pymq.broker.topic_config import PERM_READ_WRITE, SINGLE_TAG, TopicConfig
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode, SerializeType
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.dispatch import address_of
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import RemotingServer, Request
from pymq.store.housekeeping import disk_ratio, existing

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

MULTI_TAGS = 1 << 1  # of sysFlag
V3_4_9 = 121  # MQVersion: from here on a request's own maximum of deliveries counts
DLQ_QUEUES = 1
LITE_PREFIX = "%LMQ%$"
PRIORITY = "_SYS_MSG_PRIORITY_"
DISK_FULL = "the broker's disk is full"
BATCH_ITEM = struct.Struct(">iiiii")  # total size, magic, body CRC (all three ignored), flag, body size
BATCH_PROPERTIES = struct.Struct(">h")


class SendProcessor:
    """Stores what producers send."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s producers."""
        self._broker = broker
        self._last: dict[tuple[int, str], asyncio.Future[None]] = {}  # of each connection and topic, while it waits

    def register(self, server: RemotingServer) -> None:
        """Take these codes."""
        codes = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        server.register(codes, self.send, lane=Lane.SEND)

    # ---- order ---------------------------------------------------------------------------------------------------

    def send(self, request: Request) -> Command | Awaitable[Command | None] | None:
        """At once where nothing has to be waited for, otherwise behind what came before."""
        name = topic_of(request.command)
        key = (request.connection, name or "")
        if key in self._last or self._must_wait(name):
            before, mine = self._last.get(key), asyncio.get_running_loop().create_future()
            self._last[key] = mine
            return self._send_later(request, key, before, mine)
        try:
            header = self._header(request)
            topic = self._checked(request, header)
            if topic is None:
                raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
            return self._store(request, header, topic)
        except SendRefused as refused:
            return self._refuse(request, refused)
        finally:
            self._settle(request, name)

    def _must_wait(self, name: str | None) -> bool:
        """Whether a topic or group may have to be made."""
        return name is not None and (self._broker.topics.get(name) is None or name.startswith(names.RETRY_PREFIX))

    async def _send_later(
        self,
        request: Request,
        key: tuple[int, str],
        before: asyncio.Future[None] | None,
        mine: asyncio.Future[None],
    ) -> Command | None:
        try:
            if before is not None:
                await before
            header = self._header(request)
            topic = self._checked(request, header)
            if topic is None:
                topic = await find_or_create_topic(self._broker, header, address_of(request.peer))
                check_queue(topic, header.queue_id, address_of(request.peer))
            if header.topic.startswith(names.RETRY_PREFIX) and not header.batch:
                topic = await self._retry_topic(request, header, topic)
            return self._store(request, header, topic)
        except SendRefused as refused:
            return self._refuse(request, refused)
        finally:
            if self._last.get(key) is mine:
                del self._last[key]
            mine.set_result(None)
            self._settle(request, key[1])

    def _settle(self, request: Request, name: str | None) -> None:
        """Tell the reactor: what it could not read itself keeps all topics of the connection waiting."""
        if request.reason == REASON_HEADER:
            self._broker.serve.send_settled(request.connection, "")
        elif name:
            self._broker.serve.send_settled(request.connection, name)

    # ---- checks --------------------------------------------------------------------------------------------------

    def _header(self, request: Request) -> SendHeader:
        header = read_header(request.command)
        if not request.command.body:
            # Differs: Apache trips over the missing body and answers SYSTEM_ERROR with the exception's name.
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "a message without a body is not stored")
        needed(header.born_timestamp, "bornTimestamp")
        return header

    def _checked(self, request: Request, header: SendHeader) -> TopicConfig | None:
        """The topic, if there is one; every check that does not need it has been made."""
        check_accepting(self._broker, self._broker.clock.now_ms())
        check_topic(self._broker, header.topic)
        topic = self._broker.topics.get(header.topic)
        if topic is not None:
            check_queue(topic, header.queue_id, address_of(request.peer))
        return topic

    async def _retry_topic(self, request: Request, header: SendHeader, topic: TopicConfig) -> TopicConfig:
        """Where a message that comes back goes: its retry topic, or the dead letters once it came back too often."""
        group_name = header.topic.removeprefix(names.RETRY_PREFIX)
        group = await self._broker.groups.find(group_name)
        if group is None:
            raise SendRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name} {FAQ}"
            )
        times_max = group.retry_max_times
        if request.command.version >= V3_4_9 and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        # What an ordered consumer sends to its retry topic is what it gave up: it retries where it stands.
        if header.reconsume_times <= times_max and self._broker.order_locks.is_free(group_name):
            return topic
        dead = names.DLQ_PREFIX + group_name
        made = await self._broker.topics.create_on_send_back(dead, DLQ_QUEUES, PERM_READ_WRITE, 0)
        if made is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"topic[{dead}] not exist")
        return made

    # ---- storing -------------------------------------------------------------------------------------------------

    def _store(self, request: Request, header: SendHeader, topic: TopicConfig) -> Command | None:
        """Put it into the log and answer, or let the answer wait for flush and replica."""
        if self._broker.serve.is_busy:
            raise self._refusal("PYMQ_ETIMEDOUT")
        properties = texts.parse(header.properties)
        queue_id = needed(header.queue_id, "queueId")
        if queue_id < 0:
            queue_id = random.randrange(topic.write_queue_nums)
        handle: str | None = None
        try:
            if header.batch:
                results = self._put_batch(request, header, topic, queue_id, properties)
                key = properties.get(texts.UNIQUE_KEY)
            else:
                queue_id, key, result, handle = self._put_message(request, header, topic, queue_id, properties)
                results = [result]
        except StoreError as error:
            raise self._refusal(error.status) from error
        answer = request.command.reply(fields=self._sent_fields(request, queue_id, key, results, handle))
        if request.command.is_oneway or not texts.waits(properties) or not answers_wait(self._broker):
            return answer
        failed = self._refuse(request, self._refusal("PYMQ_EFAILED"))
        park(self._broker, request, answer, results[-1].end_offset, failed)
        return None

    def _put_message(
        self,
        request: Request,
        header: SendHeader,
        topic: TopicConfig,
        queue_id: int,
        properties: dict[str, str],
    ) -> tuple[int, str, PutResult, str | None]:
        """One message; the queue and key it was stored with, and the handle it can be recalled by."""
        if topic.topic_name != header.topic:  # dead letters
            properties["DELAY"] = "-1"
            queue_id = 0
        kept = texts.sent(properties)
        if kept.get("__LITE_TOPIC"):
            kept["INNER_MULTI_DISPATCH"] = f"{LITE_PREFIX}{header.topic}$" + kept["__LITE_TOPIC"]
        if integer(kept.get(PRIORITY), -1) >= 0:
            if {"DELAY", "__SHARDINGKEY", "TRAN_MSG"} & kept.keys():
                del kept[PRIORITY]
            else:
                queue_id = min(integer(kept[PRIORITY], 0), topic.write_queue_nums - 1)
        if topic.attributes.get("cleanup.policy") == "COMPACTION" and not kept.get("KEYS", "").strip():
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        sys_flag = self._sys_flag(header, topic)
        if "INNER_NUM" in kept or sys_flag & INNER_BATCH:
            raise self._refusal("PYMQ_ETOOBIG")
        if len(request.command.body) > self._broker.config.max_message_size:
            raise self._refusal("PYMQ_ETOOBIG")
        stored = redirect(
            self._broker,
            topic.topic_name,
            queue_id,
            kept,
            sys_flag,
            header.reconsume_times,
            self._broker.clock.now_ms(),
        )
        result = self._broker.serve.put(
            stored.topic,
            stored.queue_id,
            request.command.body,
            texts.encode(stored.properties, self._broker.config),
            born_host=request.peer,
            born_timestamp_ms=needed(header.born_timestamp, "bornTimestamp"),
            flag=needed(header.flag, "flag"),
            sys_flag=stored.sys_flag,
            reconsume_times=header.reconsume_times,
        )
        if stored.topic == names.SCHEDULE_TOPIC:
            self._broker.schedule.stored(stored.queue_id, result)
        elif stored.topic == names.TIMER_TOPIC and self._broker.timer is not None:
            self._broker.timer.stored(result)
        return queue_id, kept[texts.UNIQUE_KEY], result, handle_of(self._broker.config.broker_name, stored.properties)

    def _put_batch(
        self,
        request: Request,
        header: SendHeader,
        topic: TopicConfig,
        queue_id: int,
        properties: dict[str, str],
    ) -> list[PutResult]:
        """A batch, whole or not at all. Its messages keep their properties as they are."""
        if header.topic.startswith(names.RETRY_PREFIX):
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        sys_flag = self._sys_flag(header, topic)
        needed(header.flag, "flag")  # each message has its own; without the request's a send is refused all the same
        special = sys_flag & (3 << 2 | INNER_BATCH) or integer(properties.get("DELAY"), 0) > 0
        if special or len(request.command.body) > self._broker.config.max_message_size:
            raise self._refusal("PYMQ_ETOOBIG")
        check_batch(properties)
        messages = split_batch(request.command.body)
        if not messages:
            raise self._refusal("PYMQ_ETOOBIG")
        for _, _, raw in messages:
            check_batch_message(raw)
        return self._broker.serve.put_batch(
            topic.topic_name,
            queue_id,
            messages,
            born_host=request.peer,
            born_timestamp_ms=needed(header.born_timestamp, "bornTimestamp"),
            sys_flag=sys_flag,
            reconsume_times=header.reconsume_times,
        )

    def _sys_flag(self, header: SendHeader, topic: TopicConfig) -> int:
        return needed(header.sys_flag, "sysFlag") | (0 if topic.topic_filter_type == SINGLE_TAG else MULTI_TAGS)

    # ---- answers -------------------------------------------------------------------------------------------------

    def _broker_fields(self) -> dict[str, str]:
        config = self._broker.config
        return {"TRACE_ON": "true" if config.trace_on else "false", "MSG_REGION": config.region_id}

    def _sent_fields(
        self,
        request: Request,
        queue_id: int,
        key: str | None,
        results: Sequence[PutResult],
        handle: str | None = None,
    ) -> dict[str, str]:
        """In the order Apache writes them: of a hash map in JSON, of the header class in binary."""
        host = self._broker.serve.host_hex
        ids = ",".join(f"{host}{result.physical_offset:016X}" for result in results)
        transaction = {} if key is None else {"transactionId": key}
        recall = {} if handle is None else {"recallHandle": handle}
        queue, offset = {"queueId": str(queue_id)}, {"queueOffset": str(results[0].queue_offset)}
        if request.command.serialize_type == SerializeType.JSON:
            return {**queue, **transaction, "msgId": ids, **self._broker_fields(), **recall, **offset}
        return {"msgId": ids, **queue, **offset, **transaction, **recall, **self._broker_fields()}

    def _refuse(self, request: Request, refused: SendRefused) -> Command:
        fields = self._broker_fields() if refused.has_fields else None
        return request.command.reply(refused.code, refused.remark, fields)

    def _refusal(self, status: str) -> SendRefused:
        """The store's no, in Apache's words."""
        code, has_fields, remark = self._broker.serve.refusal(status)
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:
            ratio = 0.0
            with contextlib.suppress(OSError):
                ratio = disk_ratio(existing(self._broker.store_path))
            full = f"{DISK_FULL} [CL: {ratio:5.2f} CQ: {ratio:5.2f} INDEX: {ratio:5.2f}]"
            remark = remark.replace(DISK_FULL, full)
        return SendRefused(code, remark, has_fields=has_fields)


def split_batch(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """The messages of a batch as (flag, body, properties); none when the body is not one."""
    messages = []
    at = 0
    while at < len(body):
        if at + BATCH_ITEM.size > len(body):
            return []
        _, _, _, flag, size = BATCH_ITEM.unpack_from(body, at)
        at += BATCH_ITEM.size
        if size < 0 or at + size + BATCH_PROPERTIES.size > len(body):
            return []
        message = body[at : at + size]
        at += size
        (properties_size,) = BATCH_PROPERTIES.unpack_from(body, at)
        at += BATCH_PROPERTIES.size
        if properties_size < 0 or at + properties_size > len(body):
            return []
        properties = body[at : at + properties_size]
        at += properties_size
        if properties and not properties.endswith(texts.PROPERTY.encode()):
            properties += texts.PROPERTY.encode()
        messages.append((flag, message, properties))
    return messages
