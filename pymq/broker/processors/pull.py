"""PULL_MESSAGE and LITE_PULL_MESSAGE the Python way: all of them with dataPlane=python, and otherwise those that
csrc/serve hands over, because they need a word of explanation or something only the control loop knows. Both give the
same answers byte for byte: messages are read, and pulls held, by the same native functions either way.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymq._core._serve import (
    GET_COLD,
    GET_FOUND,
    GET_MESSAGE_WAS_REMOVING,
    GET_NO_MATCHED_LOGIC_QUEUE,
    GET_NO_MATCHED_MESSAGE,
    GET_NO_MESSAGE_IN_QUEUE,
    GET_OFFSET_FOUND_NULL,
    GET_OFFSET_OVERFLOW_BADLY,
    GET_OFFSET_OVERFLOW_ONE,
    GET_OFFSET_TOO_SMALL,
    REASON_HOLD_ENDED,
    GetResult,
)
from pymq.broker.disk_jobs import read_for
from pymq.broker.groups import SubscriptionGroup
from pymq.broker.processors.pull_checks import Pull, Wanted, check_pull, find_subscription, wanted_messages
from pymq.broker.queue_info import queue_range
from pymq.broker.topic_config import TopicConfig
from pymq.errors import StoreError
from pymq.remoting.codes import RequestCode, ResponseCode, SerializeType
from pymq.remoting.command import Command
from pymq.remoting.config import Lane
from pymq.remoting.server import RemotingServer, Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

COMMIT_OFFSET, SUSPEND = 1 << 0, 1 << 1  # of sysFlag
MASTER_ID = 0
SUSPEND_MS_MAX = 24 * 3600 * 1000
OFFSET_RESET = "OFFSET_RESET"
TOO_MANY_HELD = "too many pulls are held"
STOPPING = "the broker is stopping"
# After these a client pulls again without a pause; at a stop that would be on a connection about to close.
ASKED_AGAIN_AT_ONCE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
JSON_ORDER = ("suggestWhichBrokerId", "groupSysFlag", "nextBeginOffset", "maxOffset", "minOffset", "topicSysFlag")
BINARY_ORDER = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag")

STATUS_NAMES: Mapping[int, str] = {
    GET_FOUND: "FOUND",
    GET_NO_MATCHED_MESSAGE: "NO_MATCHED_MESSAGE",
    GET_MESSAGE_WAS_REMOVING: "MESSAGE_WAS_REMOVING",
    GET_OFFSET_FOUND_NULL: "OFFSET_FOUND_NULL",
    GET_OFFSET_OVERFLOW_BADLY: "OFFSET_OVERFLOW_BADLY",
    GET_OFFSET_OVERFLOW_ONE: "OFFSET_OVERFLOW_ONE",
    GET_OFFSET_TOO_SMALL: "OFFSET_TOO_SMALL",
    GET_NO_MATCHED_LOGIC_QUEUE: "NO_MATCHED_LOGIC_QUEUE",
    GET_NO_MESSAGE_IN_QUEUE: "NO_MESSAGE_IN_QUEUE",
}
NOT_FOUND = frozenset({GET_OFFSET_FOUND_NULL, GET_OFFSET_OVERFLOW_ONE})
RETRY = frozenset({GET_NO_MATCHED_MESSAGE, GET_MESSAGE_WAS_REMOVING})
EMPTY = frozenset({GET_NO_MATCHED_LOGIC_QUEUE, GET_NO_MESSAGE_IN_QUEUE})

log = logging.getLogger("pymq.broker")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pull is answered, apart from who asked."""

    code: int
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slave: bool = False
    body: bytes = b""


class PullProcessor:
    """Answers consumers that pull."""

    def __init__(self, broker: Broker) -> None:
        """Serve *broker*'s consumers."""
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Take both codes."""
        server.register((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self.pull, lane=Lane.PULL)

    async def pull(self, request: Request) -> Command | None:
        """Read, answer, or hold. A pull that was held before is not held again, and commits nothing again."""
        pull = Pull(request)
        first_pass = request.reason != REASON_HOLD_ENDED
        checked = await check_pull(self._broker, pull)
        if isinstance(checked, Command):
            return checked
        group, topic = checked
        subscription = find_subscription(self._broker, pull, group)
        if isinstance(subscription, Command):
            return subscription
        wanted = wanted_messages(self._broker, pull, subscription)
        if isinstance(wanted, Command):
            return wanted
        outcome = self._reset(pull)
        if first_pass and pull.sys_flag & COMMIT_OFFSET:  # before the read: it cannot mean what is read only now
            self._broker.serve.offset_commit(
                pull.group, pull.topic, pull.queue_id, pull.number("commitOffset"), request.connection
            )
        if outcome is None:
            outcome = await self._read(pull, wanted)
        if outcome.code == ResponseCode.PULL_NOT_FOUND and first_pass and pull.sys_flag & SUSPEND:
            held = self._hold(pull, wanted)
            if held:
                return None
            if held is not None:  # otherwise the broker stops
                outcome = dataclasses.replace(outcome, code=ResponseCode.POLLING_FULL, remark=TOO_MANY_HELD)
        answer = self._answer(request.command, outcome, group, topic)
        if outcome.code in ASKED_AGAIN_AT_ONCE and self._broker.is_stopping:
            answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, STOPPING
        return answer

    def _reset(self, pull: Pull) -> Outcome | None:
        """Where to begin instead, while a reset has not been followed."""
        begin = self._broker.serve.pull_begins(
            pull.group, pull.topic, pull.queue_id, pull.offset, pull.request.connection
        )
        if begin is None:
            return None
        low, high = queue_range(self._broker.store, pull.topic, pull.queue_id)
        log.info(
            "pull follows a reset group=%s topic=%s queue=%d offset=%d to=%d",
            pull.group, pull.topic, pull.queue_id, pull.offset, begin,
        )  # fmt: skip
        return Outcome(ResponseCode.PULL_OFFSET_MOVED, OFFSET_RESET, begin, low, high)

    async def _read(self, pull: Pull, wanted: Wanted) -> Outcome:
        """Read what is in memory here, anything else off the loop."""
        serve = self._broker.serve
        try:
            get = functools.partial(
                serve.get, pull.topic, pull.queue_id, pull.offset, pull.number("maxMsgNums"), 0, wanted.tag_hashes,
                program=wanted.program,
            )  # fmt: skip
            found = get(no_wait=True)
            if found.status == GET_COLD:
                found = await read_for(self._broker, pull.request, get)
        except StoreError as error:
            log.error("pull failed topic=%s queue=%d: %s", pull.topic, pull.queue_id, error)
            return Outcome(ResponseCode.SYSTEM_ERROR, "store getMessage return null", 0, 0, 0)
        serve.pulled(
            pull.group, pull.topic, pull.queue_id, pull.offset, found.next_offset, pull.request.connection
        )  # fmt: skip
        if found.status == GET_FOUND:
            serve.count_pull(pull.group, pull.topic, found.message_count, len(found.body))
        return Outcome(
            code_of(found, pull.offset),
            STATUS_NAMES[found.status],
            found.next_offset,
            found.min_offset,
            found.max_offset,
            found.suggest_slave,
            found.body,
        )

    def _hold(self, pull: Pull, wanted: Wanted) -> bool | None:
        config = self._broker.config
        wait_ms = pull.number("suspendTimeoutMillis") if config.long_polling_enable else config.short_polling_time_mills
        return self._broker.serve.hold(
            pull.request.connection,
            pull.request.frame,
            pull.topic,
            pull.queue_id,
            pull.offset,
            pull.group,
            min(max(wait_ms, 0), SUSPEND_MS_MAX),
            wanted.tag_hashes,
            wanted.program,
        )

    def _answer(self, command: Command, outcome: Outcome, group: SubscriptionGroup, topic: TopicConfig) -> Command:
        if outcome.code == ResponseCode.SYSTEM_ERROR:
            return command.reply(outcome.code, outcome.remark, {})
        suggested = MASTER_ID
        if self._broker.config.slave_read_enable:
            suggested = group.which_broker_when_consume_slowly if outcome.suggest_slave else group.broker_id
        values = {
            "suggestWhichBrokerId": suggested,
            "groupSysFlag": group.group_sys_flag,
            "nextBeginOffset": outcome.next_offset,
            "maxOffset": outcome.max_offset,
            "minOffset": outcome.min_offset,
            "topicSysFlag": topic.topic_sys_flag,
        }
        # Apache's two header codecs write the fields in two orders, and so does csrc/serve.
        order = JSON_ORDER if command.serialize_type == SerializeType.JSON else BINARY_ORDER
        return command.reply(
            outcome.code, outcome.remark, {name: str(values[name]) for name in order}, body=outcome.body
        )


def code_of(found: GetResult, requested_offset: int) -> int:
    """The answer's code for a read's status."""
    if found.status == GET_FOUND:
        return ResponseCode.SUCCESS
    if found.status in RETRY:
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if found.status in NOT_FOUND or (found.status in EMPTY and requested_offset == 0):
        return ResponseCode.PULL_NOT_FOUND
    return ResponseCode.PULL_OFFSET_MOVED
