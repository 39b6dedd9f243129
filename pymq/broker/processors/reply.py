"""SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2: a consumer answers a request message.

The reply is passed on to the client that asked (PUSH_REPLY_MESSAGE_TO_CLIENT, its id is in REPLY_TO_CLIENT), and the
answer to the replier says whether that client took it. With storeReplyMessageEnable it is stored in its reply topic
too, whether or not the asker was reached, as Apache's broker does.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from pymq._core._serve import PutResult
from pymq.broker.processors import send_properties as texts
from pymq.broker.processors.send_checks import SendRefused, check_begun, check_queue, check_topic, find_or_create_topic
from pymq.broker.processors.send_header import SendHeader, needed, read_header
from pymq.broker.redirect import HALF, redirect
from pymq.broker.topic_config import TopicConfig
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode, SerializeType
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.dispatch import address_of
from pymq.remoting.errors import RemotingCallError
from pymq.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PUSH_TIMEOUT_S = 10.0  # Broker2Client.callClient
NOT_STORED_ID = "0"  # what a client can decode where there is no message id

log = logging.getLogger("pymq.broker")


class ReplyProcessor:
    """Takes replies to those who asked."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s clients."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take both codes; not in the sends' lane, whose 200 ms are not a reply's."""
        server.register(
            (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2), self.reply, lane=Lane.ADMIN
        )

    async def reply(self, request: Request) -> Command | None:
        """Pass it on, store it, and say what became of it."""
        is_long = request.command.code == RequestCode.SEND_REPLY_MESSAGE
        kind = SendMessageRequestHeader if is_long else SendMessageRequestHeaderV2
        sent = kind.from_fields(request.command.fields)
        header = read_header(request.command)
        try:
            topic = await self._check(request, header)
            queue_id = sent.queue_id if sent.queue_id >= 0 else random.randrange(topic.write_queue_nums)
            problem = await self._push(request, sent)
            stored = self._store(request, header, topic, queue_id) if self._stores else None
        except SendRefused as refused:
            return request.command.reply(refused.code, refused.remark, self._broker_fields())
        answer = self._answer(request, problem, queue_id, stored)
        if stored is None or request.command.is_oneway or not self._must_wait:
            return answer
        # Apache's broker, too, answers the same whether the flush was in time or not.
        lost = self._answer(request, problem, queue_id, None).encode()
        self._broker.serve.park(request.connection, stored.end_offset, answer.encode(), answer.encode(), lost)
        return None

    @property
    def _stores(self) -> bool:
        return self._broker.config.store_reply_message_enable

    @property
    def _must_wait(self) -> bool:
        return self._broker.config.store.flush_disk_type == "SYNC_FLUSH"

    async def _check(self, request: Request, header: SendHeader) -> TopicConfig:
        """The reply topic, if the reply may be sent there.

        Raises:
            SendRefused: it may not.
        """
        check_begun(self._broker, self._broker.clock.now_ms())
        check_topic(self._broker, header.topic)
        topic = await find_or_create_topic(self._broker, header, address_of(request.peer))
        check_queue(topic, header.queue_id, address_of(request.peer))
        return topic

    async def _push(self, request: Request, sent: SendMessageRequestHeader) -> str:
        """Pass the reply on to who asked; the reason why not, or an empty text."""
        properties = self._properties(sent.properties)
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            log.warning("reply to nobody topic=%s peer=%s", sent.topic, request.peer)
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        channel = self._broker.clients.find_producer(client_id)
        if channel is None:
            log.warning("reply to a client that is not there client=%s topic=%s", client_id, sent.topic)
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._broker.clock.now_ms()
        properties[PUSH_REPLY_TIME] = str(now_ms)
        header = ReplyMessageRequestHeader(
            producer_group=sent.producer_group,
            topic=sent.topic,
            default_topic=sent.default_topic,
            default_topic_queue_nums=sent.default_topic_queue_nums,
            queue_id=sent.queue_id,
            sys_flag=sent.sys_flag,
            born_timestamp=sent.born_timestamp,
            flag=sent.flag,
            properties=properties_text(properties),
            reconsume_times=sent.reconsume_times,
            unit_mode=bool(sent.unit_mode),
            born_host=address_of(request.peer),
            store_host=self._broker.config.store.store_host,
            store_timestamp=now_ms,
        )
        push = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header.to_fields(), request.command.body)
        try:
            answer = await self._broker.server.invoke(channel.connection, push, PUSH_TIMEOUT_S)
        except RemotingCallError as error:
            log.warning("reply not passed on client=%s address=%s: %s", client_id, channel.address, error)
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            log.warning("reply refused client=%s code=%d remark=%s", client_id, answer.code, answer.remark)
            return f"push reply message to {client_id}fail."
        return ""

    def _store(self, request: Request, header: SendHeader, topic: TopicConfig, queue_id: int) -> PutResult | None:
        """Keep it, with the properties it came with; None when the store refuses, which is only logged.

        # Differs: with its sysFlag, so that a compressed reply can be read there; 5.5.0 stores it with 0.
        """
        properties = self._properties(header.properties)
        properties.pop(HALF, None)  # a reply is no half message, whatever it says
        try:
            kept = redirect(
                self._broker,
                topic.topic_name,
                queue_id,
                properties,
                needed(header.sys_flag, "sysFlag"),
                header.reconsume_times,
                self._broker.clock.now_ms(),
            )
            return self._broker.serve.put(
                kept.topic,
                kept.queue_id,
                request.command.body,
                properties_text(kept.properties).encode("utf-8", "replace"),
                born_host=request.peer,
                born_timestamp_ms=needed(header.born_timestamp, "bornTimestamp"),
                flag=needed(header.flag, "flag"),
                sys_flag=kept.sys_flag,
                reconsume_times=header.reconsume_times,
            )
        except (SendRefused, StoreError) as error:
            log.warning("reply not stored topic=%s: %s", topic.topic_name, error)
            return None

    def _answer(self, request: Request, problem: str, queue_id: int, stored: PutResult | None) -> Command:
        """In Apache's words; where it was stored is said even if nobody took it."""
        place: dict[str, str] = {}
        if stored is not None:
            message_id = f"{self._broker.serve.host_hex}{stored.physical_offset:016X}"
            place = {"msgId": message_id, "queueId": str(queue_id), "queueOffset": str(stored.queue_offset)}
        elif not problem:
            place = {"msgId": NOT_STORED_ID, "queueId": str(queue_id), "queueOffset": "0"}
        if place and request.command.serialize_type == SerializeType.JSON:
            fields = {"queueId": place["queueId"], "msgId": place["msgId"], **self._broker_fields()}
            fields["queueOffset"] = place["queueOffset"]
        else:
            fields = place | self._broker_fields()
        code = ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS
        return request.command.reply(code, problem or None, fields)

    def _properties(self, text: str | None) -> dict[str, str]:
        """The properties of a reply; the broker says its region and its tracing in them, as with any message."""
        return texts.parse(text) | self._broker_fields()

    def _broker_fields(self) -> dict[str, str]:
        config = self._broker.config
        return {"TRACE_ON": "true" if config.trace_on else "false", "MSG_REGION": config.region_id}


def properties_text(properties: dict[str, str]) -> str:
    """As a header and a record carry them."""
    return "".join(f"{name}{texts.NAME_VALUE}{value}{texts.PROPERTY}" for name, value in properties.items())
