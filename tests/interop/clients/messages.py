"""Messages as tests send and receive them, and the identity by which the one is found in the other."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# A message's identity: its key, and the SHA-256 of its body before compression.
Identity = tuple[str, str]

# Clients compress bodies of 4 KiB and more.
COMPRESS_OVER_BYTES = 4096


@dataclass(frozen=True)
class OutMessage:
    """A message to send. `queue_id` matters to the mode `selector` only."""

    topic: str
    key: str
    body: bytes
    tag: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    queue_id: int | None = None

    @property
    def identity(self) -> Identity:
        """What a receiver must see, whoever it is."""
        return self.key, hashlib.sha256(self.body).hexdigest()

    def line(self) -> dict[str, Any]:
        """The message as the client programs read it."""
        return {
            "topic": self.topic,
            "key": self.key,
            "tag": self.tag,
            "bodyBase64": base64.b64encode(self.body).decode(),
            "properties": self.properties,
            "queueId": self.queue_id,
        }


@dataclass(frozen=True)
class SendResult:
    """What the client told about a sent message, or about a batch (`msg_id` and `offset_msg_id` comma-joined)."""

    status: str
    msg_id: str
    offset_msg_id: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @classmethod
    def parse(cls, line: dict[str, Any]) -> SendResult:
        """From the client programs' line."""
        return cls(
            line["status"],
            line["msgId"],
            line["offsetMsgId"],
            line["brokerName"],
            line["queueId"],
            line["queueOffset"],
        )


@dataclass(frozen=True)
class Received:
    """A message as a consumer was given it."""

    topic: str
    key: str
    tag: str | None
    digest: str
    body_size: int
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    store_size: int
    properties: dict[str, str]

    @property
    def identity(self) -> Identity:
        """See `OutMessage.identity`."""
        return self.key, self.digest

    @classmethod
    def parse(cls, line: dict[str, Any]) -> Received:
        """From the client programs' line."""
        return cls(
            topic=line["topic"],
            key=line["key"],
            tag=line["tag"] or None,
            digest=line["digest"],
            body_size=line["bodySize"],
            queue_id=line["queueId"],
            queue_offset=line["queueOffset"],
            msg_id=line["msgId"],
            offset_msg_id=line["offsetMsgId"],
            store_size=line["storeSize"],
            properties=line["properties"],
        )


def identities(messages: Iterable[OutMessage | Received]) -> list[Identity]:
    """Sorted, duplicates kept: two lists are equal when each message arrived once and nothing else did."""
    return sorted(message.identity for message in messages)


def numbered(topic: str, prefix: str, count: int, *, tag: str | None = None) -> list[OutMessage]:
    """*count* small messages with keys and properties of their own; those who select ask for every queue in turn."""
    return [
        OutMessage(
            topic,
            f"{prefix}-{number}",
            f"{prefix} says {number} ☂".encode(),
            tag=tag,
            properties={"number": str(number), "weather": "Schirm ☂ 𝄞 = : , { }"},
            queue_id=number,
        )
        for number in range(count)
    ]
