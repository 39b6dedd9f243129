"""Messages as the embedded API takes and returns them, and the offsets that must never meet by accident.

`Message` is what a sender may write down ahead of time. `ReceivedMessage`, `SendResult` and `SendManyResult` are
made by the native store; they are named here so that everything about a message is found in one module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, TypeAlias

PhysicalOffset = NewType("PhysicalOffset", int)
"""A byte in the commit log, counted from the store's first message."""

QueueOffset = NewType("QueueOffset", int)
"""A message's number within one queue of one topic, counted from zero."""

Body: TypeAlias = bytes | bytearray | memoryview
"""What a body may be given as. `bytes` is stored without a further copy."""

# The names RocketMQ reserves in the properties of a message (the ones this package reads or writes).
PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_UNIQUE_KEY = "UNIQ_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to send, for `send_many` when bodies alone are not enough.

    Attributes:
        body: the payload; at most `max_message_size` bytes.
        tags: one tag, by which readers filter cheaply.
        keys: words to find the message by; a string with spaces is several keys.
        properties: any further names and values.
        flag: 32 bits of the application's own.
        sys_flag: RocketMQ's own bits (compression, transaction); 0 for ordinary messages.
        born_timestamp_ms: when the sender made it; None means now.
    """

    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    properties: Mapping[str, str] | None = field(default=None)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int | None = None


# Imported last: the native module imports nothing from here, and readers should find the names above first.
from pymq._core._store import ReceivedMessage, SendManyResult, SendResult  # noqa: E402

__all__ = [
    "Body",
    "PROPERTY_KEYS",
    "PROPERTY_TAGS",
    "PROPERTY_UNIQUE_KEY",
    "Message",
    "PhysicalOffset",
    "QueueOffset",
    "ReceivedMessage",
    "SendManyResult",
    "SendResult",
]
