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
from pymq.broker.schedule.levels import level_of
from pymq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

HALF = "TRAN_MSG"
TIMER_OUT = "TIMER_OUT_MS"
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
    if sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
        return message
    if level > 0:
        return to_level(broker, message, level)
    if topic != names.TIMER_TOPIC and TIMER_OUT not in properties and not properties.keys().isdisjoint(TIMER_ASKED):
        return to_timer(broker, message, now_ms)
    return message


def to_transaction(broker: Broker, message: Redirected) -> Redirected:
    """A half message, in the half topic until its producer decides."""
    raise SendRefused(ResponseCode.SYSTEM_ERROR, "transaction messages (TRAN_MSG) are not supported yet")


def to_level(broker: Broker, message: Redirected, level: int) -> Redirected:
    """A delayed message, in its level's queue until it is due; a delivery time besides is dropped."""
    kept = {name: value for name, value in message.properties.items() if name not in TIMER_ASKED}
    topic, queue_id, added = broker.delay_levels.waiting(level, message.topic, message.queue_id)
    return Redirected(topic, queue_id, kept | added, message.sys_flag)


def to_timer(broker: Broker, message: Redirected, now_ms: int) -> Redirected:
    """A timed message, in the timer's topic until it is due."""
    asked = min(name for name in TIMER_ASKED if name in message.properties)
    raise SendRefused(ResponseCode.SYSTEM_ERROR, f"timed messages ({asked}) are not supported yet")
