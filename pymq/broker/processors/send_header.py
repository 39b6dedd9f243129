"""The header of a send, read as leniently as Apache's broker reads it.

Compat: no field is insisted on while it is read. One that is missing is null, and the request fails where Apache's
first touches it: some clients leave out what their broker never needs. A number that is none is null too under the long
names, which are read one by one, and ends the request under the letters, which are read in one go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.headers.base import read_number
from pymq.remoting.headers.send import SendMessageRequestHeaderV2

Value = TypeVar("Value")

LONG_NAMES: Mapping[str, str] = {
    "topic": "topic",
    "default_topic": "defaultTopic",
    "default_topic_queue_nums": "defaultTopicQueueNums",
    "queue_id": "queueId",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "flag": "flag",
    "properties": "properties",
    "reconsume_times": "reconsumeTimes",
    "unit_mode": "unitMode",
    "batch": "batch",
    "max_reconsume_times": "maxReconsumeTimes",
}
LETTERS = SendMessageRequestHeaderV2.WIRE_NAMES
LONG_CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)


@dataclass(slots=True, kw_only=True)
class SendHeader:
    """What a send says; None where it says nothing."""

    topic: str
    default_topic: str | None
    default_topic_queue_nums: int | None
    queue_id: int | None
    sys_flag: int | None
    born_timestamp: int | None
    flag: int | None
    properties: str | None
    reconsume_times: int
    max_reconsume_times: int | None
    unit_mode: bool
    batch: bool


def topic_of(command: Command) -> str | None:
    """The topic it is for."""
    return command.fields.get("topic" if command.code in LONG_CODES else "b")


def read_header(command: Command) -> SendHeader:
    """Read the header.

    Raises:
        RemotingError: no topic, or (letters) a number that is none.
    """
    is_long = command.code in LONG_CODES
    names = LONG_NAMES if is_long else LETTERS

    def number(attribute: str, bits: int = 32) -> int | None:
        text = command.fields.get(names[attribute])
        if text is None:
            return None
        try:
            return read_number(names[attribute], text, bits=bits)
        except RemotingError:
            if is_long:
                return None
            raise

    def truth(attribute: str) -> bool:
        return command.fields.get(names[attribute], "").lower() == "true"

    return SendHeader(
        topic=needed(topic_of(command), names["topic"]),
        default_topic=command.fields.get(names["default_topic"]),
        default_topic_queue_nums=number("default_topic_queue_nums"),
        queue_id=number("queue_id"),
        sys_flag=number("sys_flag"),
        born_timestamp=number("born_timestamp", 64),
        flag=number("flag"),
        properties=command.fields.get(names["properties"]),
        reconsume_times=number("reconsume_times") or 0,
        max_reconsume_times=number("max_reconsume_times"),
        unit_mode=truth("unit_mode"),
        batch=truth("batch"),
    )


def needed(value: Value | None, name: str) -> Value:
    """A value that the request cannot go on without.

    Raises:
        RemotingError: it is missing.
    """
    if value is None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return value
