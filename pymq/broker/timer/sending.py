"""A message with a delivery time, on its way into the timer topic (HookUtils.transformTimerMessage)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from pymq.broker import names as broker_names
from pymq.broker.processors.send_checks import SendRefused
from pymq.broker.timer import properties as names
from pymq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pymq.broker.controller import Broker
    from pymq.broker.redirect import Redirected

    Message = TypeVar("Message", bound=Redirected)


def to_timer(broker: Broker, message: Message, now_ms: int) -> Message:
    """Where *message* waits for its time; as it is, when that has come.

    Raises:
        SendRefused: timers are off, the time is none or too far away, or its slot is full.
    """
    config = broker.config
    timer = broker.timer
    if timer is None:
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
    properties = message.properties
    try:
        deliver_ms = names.asked_ms(properties, now_ms)
    except ValueError as error:
        raise illegal(broker, str(error)) from error
    if deliver_ms <= now_ms:
        if names.DELETE_KEY in properties:
            raise illegal(broker, f"{deliver_ms} is not after {now_ms}, so there is nothing to delete")
        return message
    if deliver_ms - now_ms > config.timer_max_delay_sec * 1000:
        raise illegal(broker, f"the delay asked for is {deliver_ms - now_ms}ms")
    time_ms = names.slot_ms(deliver_ms, config.timer_precision)
    check_congestion(broker, timer.store.wheel.count(time_ms))
    added = {
        names.OUT_MS: str(time_ms),
        names.REAL_TOPIC: message.topic,
        names.REAL_QUEUE: str(message.queue_id),
    }
    timer.wake()
    # How often it was rolled is the broker's to count: a client's number would be gone on from.
    kept = {name: value for name, value in properties.items() if name != names.ROLL_TIMES}
    return message._replace(topic=broker_names.TIMER_TOPIC, queue_id=0, properties=kept | added)


def illegal(broker: Broker, detail: str) -> SendRefused:
    """Apache's words, and which value it was."""
    return SendRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{broker.config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger than the "
        f"current time: {detail}",
    )


def check_congestion(broker: Broker, count: int) -> None:
    """Whether a slot with *count* timers takes one more.

    # Differs: Apache refuses the less often the fuller the slot is (it compares the wrong way round); here the more.

    Raises:
        SendRefused: not this one.
    """
    limit = broker.config.timer_congest_num_each_slot
    if count <= limit:
        return
    if count >= 2 * limit or random.random() < (count - limit) / limit:
        raise SendRefused(
            ResponseCode.SYSTEM_ERROR,
            f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater than "
            f"{limit} and less than {2 * limit}, trigger random flow control: {count} are due at that time "
            "(timerCongestNumEachSlot)",
        )
