"""RECALL_MESSAGE: a timed message is taken back before its time (RecallMessageProcessor).

A recall is itself a message with a delivery time, the same as the one it names; where both are taken out of the wheel
together, neither is delivered. Off unless `recallMessageEnable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq.broker.processors import send_properties as texts
from pymq.broker.processors.parking import answers_wait
from pymq.broker.processors.send_checks import SLAVE, SendRefused
from pymq.broker.redirect import redirect
from pymq.broker.request_fields import text_field
from pymq.broker.timer import properties as names
from pymq.broker.timer.recall_handle import RecallHandle, decode_handle
from pymq.broker.topic_config import PERM_WRITE
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

TAG = "_RECALL_TAG_"
BODY = b"0"
UNAVAILABLE = "recall failed, broker service not available"
FAILED = "recall failed, execute error"


class RecallProcessor:
    """Puts the message that recalls another."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s producers."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take the code, beside sends."""
        server.register(RequestCode.RECALL_MESSAGE, self.recall, lane=Lane.SEND)

    def recall(self, request: Request) -> Command | None:
        """Recall, if the handle names a message of ours that is not due yet; answered when that is stored as asked."""
        region = {"MSG_REGION": self._broker.config.region_id}
        try:
            handle = self._checked(request)
            end_offset = self._put(request, handle)
        except SendRefused as refused:
            return request.command.reply(refused.code, refused.remark, region)
        answer = request.command.reply(fields={"msgId": handle.unique_key, **region})
        if not answers_wait(self._broker):
            return answer
        frame = answer.encode()
        failed = request.command.reply(ResponseCode.SYSTEM_ERROR, FAILED, region).encode()
        self._broker.serve.park(request.connection, end_offset, frame, frame, failed)
        return None

    def _checked(self, request: Request) -> RecallHandle:
        """The handle, after Apache's checks in Apache's order."""
        broker, config = self._broker, self._broker.config
        topic, text = text_field(request.command, "topic"), text_field(request.command, "recallHandle")
        if not config.recall_message_enable:
            raise SendRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if config.broker_role == SLAVE:
            raise SendRefused(ResponseCode.SLAVE_NOT_AVAILABLE, UNAVAILABLE)
        now_ms = broker.clock.now_ms()
        forbidden = not config.broker_permission & PERM_WRITE and not config.allow_recall_when_broker_not_writeable
        if now_ms < config.start_accept_send_request_time_stamp or forbidden:
            raise SendRefused(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
        if broker.topics.get(topic) is None:
            raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        try:
            handle = decode_handle(text)
        except ValueError as error:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != topic:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, UNAVAILABLE)
        try:
            left_ms = names.java_long(handle.timestamp) - now_ms
        except ValueError:
            left_ms = 0
        if not 0 < left_ms < config.timer_max_delay_sec * 1000:
            raise SendRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _put(self, request: Request, handle: RecallHandle) -> int:
        """Where its record ends."""
        broker, config = self._broker, self._broker.config
        now_ms = broker.clock.now_ms()
        with_topic = config.append_topic_for_timer_delete_key
        properties = {
            names.DELETE_KEY: names.delete_key(handle.topic, handle.unique_key, with_topic=with_topic),
            names.UNIQUE_KEY: handle.unique_key,
            names.DELIVER_MS: handle.timestamp,
            "BORN_TIMESTAMP": str(now_ms),
            "TAGS": TAG,
        }
        if group := request.command.fields.get("producerGroup"):
            properties["PGROUP"] = group
        try:
            stored = redirect(broker, handle.topic, 0, properties, 0, 0, now_ms)
            result = broker.serve.put(
                stored.topic,
                stored.queue_id,
                BODY,
                texts.join(stored.properties),
                born_host=request.peer,
                born_timestamp_ms=now_ms,
                sys_flag=stored.sys_flag,
            )
        except (StoreError, SendRefused) as error:
            raise SendRefused(ResponseCode.SYSTEM_ERROR, FAILED) from error
        if broker.timer is not None:
            broker.timer.stored(result)
        return result.end_offset
