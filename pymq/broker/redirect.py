"""Where a message is stored that is not for now: the half topic, the timer's, or a delay level's.

The one place that decides it, in Apache's order (SendMessageProcessor, then HookUtils.handleScheduleMessage): a half
message goes to its transaction whatever else it asks for; a delay level wins over a delivery time, whose properties
are then dropped; and what carries another mark of transactions than committed is stored as it came.

Each kind has a function below that says where it goes; what the kind means lives in its own package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pymq.broker import names
from pymq.broker.processors.send_checks import TRANSACTION_COMMIT, TRANSACTION_MASK, SendRefused
from pymq.broker.schedule.levels import DELAY, level_of
from pymq.broker.timer.sending import to_timer
from pymq.broker.transaction.half import (
    CHECK_TIMES,
    HALF_QUEUE,
    ORIGIN,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
    UNIQUE_KEY,
)
from pymq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

HALF = "TRAN_MSG"
TIMER_OUT = "TIMER_OUT_MS"
BROKERS_OWN = frozenset({ORIGIN, CHECK_TIMES})  # of a half message; a client's would end another's transaction
# What the broker says of every message must fit besides, and what checks add to a half (its origin, its count) or
# rolling and delivery to a timed message (its times, its count). A half that is timed has room for both.
HALF_PROPERTIES_MAX = TIMER_PROPERTIES_MAX = 32_767 - 512
TIMER_ASKED = ("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")


class Redirected(NamedTuple):
    """A message as it is stored: perhaps elsewhere than it was sent to, perhaps with more properties."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    sys_flag: int


def redirect(
    broker: Broker,
    topic: str,
    queue_id: int,
    properties: dict[str, str],
    sys_flag: int,
    reconsume_times: int,
    now_ms: int,
) -> Redirected:
    """Where a message for *queue_id* of *topic* is stored now; *properties* may be changed.

    Raises:
        SendRefused: it asks for something that cannot be had.
    """
    message = Redirected(topic, queue_id, properties, sys_flag)
    level = level_of(properties)
    # Compat: clients before 4.6.1 send a message back with the mark of its transaction still on it.
    if properties.get(HALF, "").lower() == "true" and not (reconsume_times > 0 and level > 0):
        return to_transaction(broker, message)
    stored = by_time(broker, message, now_ms)
    if stored.topic == names.TIMER_TOPIC:
        check_room(stored.properties, TIMER_PROPERTIES_MAX, "a timed message", "its delivery")
    return stored


def by_time(broker: Broker, message: Redirected, now_ms: int) -> Redirected:
    """Where a message that is no half (any more) is stored: by its delay level, its delivery time, or neither.

    Raises:
        SendRefused: it asks for something that cannot be had.
    """
    if message.sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
        return message
    level = level_of(message.properties)
    if level > 0:
        return to_level(broker, message, level)
    timed = TIMER_OUT not in message.properties and not message.properties.keys().isdisjoint(TIMER_ASKED)
    if timed and message.topic != names.TIMER_TOPIC:
        return to_timer(broker, message, now_ms)
    return message


def to_transaction(broker: Broker, message: Redirected) -> Redirected:
    """A half message, in the half topic until its producer decides (TransactionalMessageBridge.parseHalfMessageInner).

    Differs: a half message that asks for a delay as well waits as a half first and for its time from its commit on;
    Apache stores it as delayed and drops it when it is due.

    Raises:
        SendRefused: transactions are not wanted here, or it does not say whom to ask about it.
    """
    properties, config = message.properties, broker.config
    if config.reject_transaction_message:
        remark = f"the broker[{config.broker_ip1}] sending transaction message is forbidden"
        raise SendRefused(ResponseCode.NO_PERMISSION, remark)
    if not properties.get(PRODUCER_GROUP):
        # Differs: Apache stores it, can never ask about it, and gives it up.
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, "a half message (TRAN_MSG) needs its producer group (PGROUP)")
    kept = {name: value for name, value in properties.items() if name not in BROKERS_OWN}
    added = {
        TRANSACTION_ID: properties[UNIQUE_KEY],
        REAL_TOPIC: message.topic,
        REAL_QUEUE_ID: str(message.queue_id),
    }
    stored = kept | added
    check_room(stored, HALF_PROPERTIES_MAX, "a half message", "its checks")
    return Redirected(names.HALF_TOPIC, HALF_QUEUE, stored, message.sys_flag & ~TRANSACTION_MASK)


def check_room(properties: dict[str, str], limit: int, what: str, purpose: str) -> None:
    """Whether *properties* leave room for what is added to *what* while it waits.

    Raises:
        SendRefused: they do not.
    """
    size = sum(len(name.encode()) + len(value.encode("utf-8", "replace")) + 2 for name, value in properties.items())
    if size > limit:
        remark = f"{what} has {size} bytes of properties: at most {limit} leave room for {purpose}"
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)


def to_level(broker: Broker, message: Redirected, level: int) -> Redirected:
    """A delayed message, in its level's queue until it is due; a delivery time besides is dropped."""
    kept = {name: value for name, value in message.properties.items() if name not in TIMER_ASKED}
    topic, queue_id, added = broker.delay_levels.waiting(level, message.topic, message.queue_id)
    if level <= broker.delay_levels.level_max:
        added[DELAY] = kept[DELAY]  # as it was written: "+2"
    return Redirected(topic, queue_id, kept | added, message.sys_flag)
