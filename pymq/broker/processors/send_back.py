"""CONSUMER_SEND_MSG_BACK: a consumer could not work on a message and wants it again later.

The message is put again, log to log, for `%RETRY%group`, by way of the delay level that fits how often it came back;
one that came back too often, or that nobody wants again (a negative level), goes to `%DLQ%group`. What is answered is
as safe as a send: the consumer commits past the message on our word.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pymq._core._serve import PutResult, Reput
from pymq.broker import names
from pymq.broker.disk_jobs import read_for
from pymq.broker.groups import SubscriptionGroup
from pymq.broker.processors.parking import answers_wait, park
from pymq.broker.processors.send_checks import FAQ, UNIT_SUBSCRIBED, SendRefused, check_role
from pymq.broker.processors.send_properties import NAME_VALUE, PROPERTY
from pymq.broker.redirect import TIMER_ASKED
from pymq.broker.topic_config import PERM_READ_WRITE, PERM_WRITE, TopicConfig
from pymq.errors import CorruptRecordError, NotFoundError
from pymq.message import ReceivedMessage
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

V3_4_9 = 121  # MQVersion: from here on a request's own maximum of deliveries counts
FIRST_LEVEL = 3  # of the first time a message comes back; one more each time
DLQ_QUEUES = 1
INT32_MAX = 2**31 - 1
RETRY_TOPIC, ORIGIN_MESSAGE_ID, WAIT, DELAY = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "WAIT", "DELAY"
# What lies there was never delivered to a consumer, so none can send it back.
INNER_TOPICS = frozenset(
    {
        names.SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OP_HALF_TOPIC,
        names.ROCKSDB_HALF_TOPIC,
        names.ROCKSDB_OP_HALF_TOPIC,
    }
)
LATE = "stored, but not on stable storage in time: it may come back although this was not acknowledged"

log = logging.getLogger("pymq.broker")


class SendBackProcessor:
    """Takes messages back."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s consumers."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take this code."""
        server.register(RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back, lane=Lane.SEND)

    async def send_back(self, request: Request) -> Command | None:
        """Put the message where it waits for its next delivery, or where it stays."""
        try:
            return await self._send_back(request)
        except SendRefused as refused:
            return request.command.reply(refused.code, refused.remark)

    async def _send_back(self, request: Request) -> Command | None:
        broker = self._broker
        header = ConsumerSendMsgBackRequestHeader.from_fields(request.command.fields)
        check_role(broker)
        if broker.serve.is_busy:
            code, _, remark = broker.serve.refusal("PYMQ_ETIMEDOUT")
            raise SendRefused(code, remark)
        group = await self._group(header.group)
        if group.retry_queue_nums <= 0:
            return request.command.reply()
        topic = await self._retry_topic(group, header)
        message = await self._original(request, header.offset)
        if message.topic in INNER_TOPICS or message.topic.startswith(names.SYSTEM_TOPIC_PREFIX):
            # Differs: Apache puts it again, and a half message is seen by whoever knows where it lies.
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        times_max = group.retry_max_times
        if request.command.version >= V3_4_9 and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if message.reconsume_times >= times_max or header.delay_level < 0:
            dead = await self._made(names.DLQ_PREFIX + group.group_name, DLQ_QUEUES, 0)
            reput = again(message, dead.topic_name, random.randrange(DLQ_QUEUES), {DELAY: "0"})
        else:
            # Differs: not beyond the queues the topic has, which Apache does after retryQueueNums was raised.
            queue_id = random.randrange(max(1, min(group.retry_queue_nums, topic.read_queue_nums)))
            level = header.delay_level or FIRST_LEVEL + message.reconsume_times
            if level > 0:
                name, queue_id, properties = broker.delay_levels.waiting(level, topic.topic_name, queue_id)
            else:  # its producer said that it came back less than never
                name, properties = topic.topic_name, {DELAY: str(level)}
            reput = again(message, name, queue_id, properties)
        result = await self._put(reput)
        self._note(header, message, reput, result)
        answer = request.command.reply()
        if request.command.is_oneway or not answers_wait(broker):
            return answer
        refused = refusal(broker, "PYMQ_EFAILED")
        park(broker, request, answer, result.end_offset, request.command.reply(refused.code, refused.remark), LATE)
        return None

    # ---- checks --------------------------------------------------------------------------------------------------

    async def _group(self, name: str) -> SubscriptionGroup:
        """The group, if it may send back."""
        broker = self._broker
        group = await broker.groups.find(name)
        if group is None:
            raise SendRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}")
        if not broker.config.broker_permission & PERM_WRITE:
            raise SendRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_ip1}] sending message is forbidden"
            )
        return group

    async def _retry_topic(self, group: SubscriptionGroup, header: ConsumerSendMsgBackRequestHeader) -> TopicConfig:
        """`%RETRY%group`, made when it is not there."""
        sys_flag = UNIT_SUBSCRIBED if header.unit_mode else 0
        topic = await self._made(names.retry_topic(group.group_name), group.retry_queue_nums, sys_flag)
        if not topic.perm & PERM_WRITE:
            raise SendRefused(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden")
        return topic

    async def _made(self, name: str, queues: int, sys_flag: int) -> TopicConfig:
        topics = self._broker.topics
        topic = topics.get(name) or await topics.create_on_send_back(name, queues, PERM_READ_WRITE, sys_flag)
        if topic is None:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        return topic

    async def _original(self, request: Request, offset: int) -> ReceivedMessage:
        """The message at *offset* of the log."""
        store = self._broker.store
        try:
            if self._broker.reputs.is_hot(offset):
                return store.read_record(offset)
            return await read_for(self._broker, request, store.read_record, offset)
        except (NotFoundError, CorruptRecordError, ValueError) as error:
            log.warning("send back of a message that is not there offset=%d error=%s", offset, error)
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}") from error

    # ---- storing -------------------------------------------------------------------------------------------------

    async def _put(self, reput: Reput) -> PutResult:
        result = await self._broker.reputs.put(reput)
        if isinstance(result, str):
            raise refusal(self._broker, result)
        return result

    def _note(
        self, header: ConsumerSendMsgBackRequestHeader, message: ReceivedMessage, reput: Reput, result: PutResult
    ) -> None:
        """Let the message be delivered, or say that it will not be."""
        if reput.topic == names.SCHEDULE_TOPIC:
            self._broker.schedule.stored(reput.queue_id, result)
        if not reput.topic.startswith(names.DLQ_PREFIX):
            return
        log.info(
            "dead letter topic=%s offset=%d group=%s original_topic=%s key=%s reconsume_times=%d level=%d",
            reput.topic, result.queue_offset, header.group, header.origin_topic, message.unique_key,
            message.reconsume_times, header.delay_level,
        )  # fmt: skip


def again(message: ReceivedMessage, topic: str, queue_id: int, properties: Mapping[str, str]) -> Reput:
    """*message* as it is put again: for *topic*, with *properties*, and knowing where it came from at first."""
    known = message.properties
    added = {WAIT: "false", **properties}
    if RETRY_TOPIC not in known:
        added[RETRY_TOPIC] = message.topic
    if not known.get(ORIGIN_MESSAGE_ID, "").strip():
        added[ORIGIN_MESSAGE_ID] = message.message_id
    timers = TIMER_ASKED if topic == names.SCHEDULE_TOPIC else ()
    return Reput(
        source=message.physical_offset,
        topic=topic,
        queue_id=queue_id,
        remove="".join(f"{name}{PROPERTY}" for name in timers).encode(),
        set="".join(f"{name}{NAME_VALUE}{value}{PROPERTY}" for name, value in added.items()).encode(),
        reconsume_times=min(max(message.reconsume_times + 1, 0), INT32_MAX),
    )


def refusal(broker: Broker, status: str) -> SendRefused:
    """The store's no. Apache names the status it got; we say what it means."""
    return SendRefused(
        ResponseCode.SYSTEM_ERROR, f"the message was not stored again: {broker.serve.refusal(status).remark}"
    )
