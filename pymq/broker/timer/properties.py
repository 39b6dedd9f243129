"""The properties of a timed message (MessageConst), and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping

DELAY_SEC, DELAY_MS, DELIVER_MS = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"
OUT_MS = "TIMER_OUT_MS"  # the slot's time: when it is over, the message is due
ENQUEUE_MS, DEQUEUE_MS = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"
ROLL_TIMES = "TIMER_ROLL_TIMES"
DELETE_KEY = "TIMER_DEL_UNIQKEY"  # of a message that recalls another: whose
REAL_TOPIC, REAL_QUEUE = "REAL_TOPIC", "REAL_QID"
UNIQUE_KEY = "UNIQ_KEY"
COUNT_DIGITS_MAX = 9  # of a count that fits an int for certain
NEVER_ENQUEUED = 2**63 - 1  # TIMER_ENQUEUE_MS of what was late before it entered the wheel


def asked_ms(properties: dict[str, str], now_ms: int) -> int:
    """The delivery time a message asks for; of several the first of second, millisecond, point in time.

    Raises:
        ValueError: it is no number.
    """
    if DELAY_SEC in properties:
        return now_ms + java_long(properties[DELAY_SEC]) * 1000
    if DELAY_MS in properties:
        return now_ms + java_long(properties[DELAY_MS])
    return java_long(properties[DELIVER_MS])


def slot_ms(deliver_ms: int, precision_ms: int) -> int:
    """The slot whose end is the first of the wheel not before *deliver_ms*: never early, late by less than one."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def delete_key(topic: str, unique_key: str, *, with_topic: bool) -> str:
    """What a recall names."""
    return f"{topic}+{unique_key}" if with_topic else unique_key


def roll_times(text: str) -> int:
    """How often a message was rolled; a text that no broker can have written counts as never."""
    return int(text) if len(text) <= COUNT_DIGITS_MAX and text.isascii() and text.isdigit() else 0


def rolled_again(properties: Mapping[str, str]) -> str:
    """The count of a message with *properties* that is rolled once more, as it is stored."""
    return f"{ROLL_TIMES}\x01{roll_times(properties.get(ROLL_TIMES, '0')) + 1}\x02"


def java_long(text: str) -> int:
    """Long.parseLong.

    Raises:
        ValueError: it would throw.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is no number")
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{text!r} does not fit 64 bits")
    return value
