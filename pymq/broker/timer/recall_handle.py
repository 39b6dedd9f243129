"""The handle a producer gets for a timed message, to recall it by (RecallMessageHandle).

It is base64url of "v1 topic brokerName timestamp uniqueKey", the timestamp one ms behind the slot's beginning.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from pymq.broker import names as broker_names
from pymq.broker.timer import properties as names

VERSION = "v1"


class RecallHandle(NamedTuple):
    """What a handle names."""

    topic: str
    broker_name: str
    timestamp: str
    unique_key: str

    def encode(self) -> str:
        """As it travels."""
        return base64.urlsafe_b64encode(" ".join((VERSION, *self)).encode("utf-8")).decode("ascii")


def decode_handle(text: str) -> RecallHandle:
    """Read a handle.

    Raises:
        ValueError: it is none.
    """
    try:
        # Java's decoder takes a handle with or without its padding, and nothing but the alphabet.
        padded = text + "=" * (-len(text) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "replace")
    except (ValueError, binascii.Error) as error:
        raise ValueError("recall handle is invalid") from error
    parts = raw.split(" ")
    if parts[0] != VERSION or len(parts) < 5:
        raise ValueError("recall handle is invalid")
    return RecallHandle(*parts[1:5])


def handle_of(broker_name: str, properties: dict[str, str]) -> str | None:
    """The handle of a message that was stored with *properties*; None when it is not in the timer topic."""
    time_ms, topic = properties.get(names.OUT_MS), properties.get(names.REAL_TOPIC)
    if time_ms is None or topic is None or topic.startswith(broker_names.RETRY_PREFIX):
        return None
    try:
        timestamp = str(names.java_long(time_ms) + 1)
    except ValueError:
        return None
    return RecallHandle(topic, broker_name, timestamp, properties.get(names.UNIQUE_KEY, "null")).encode()
