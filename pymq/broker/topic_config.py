"""What a topic is: its queues, permission and attributes, in `topics.json`, in requests and at the name server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PERM_PRIORITY, PERM_READ, PERM_WRITE, PERM_INHERIT = 8, 4, 2, 1
PERM_READ_WRITE = PERM_READ | PERM_WRITE
DEFAULT_QUEUES = 16
SINGLE_TAG = "SINGLE_TAG"
FILTER_TYPES = (SINGLE_TAG, "MULTI_TAG")
QUEUES_MAX = 65535  # of a topic, so that each has an id
NAME_BYTES_MAX = 255  # PYMQ_TABLE_NAME_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic; RocketMQ's TopicConfig.

    Attributes:
        read_queue_nums, write_queue_nums: separate, so that a topic can shrink: first writers stop, then readers.
        perm: 4 read, 2 write, 1 inherit (topics may be made after its image).
        topic_sys_flag: 1 unit, 2 unit subscribed.
        order: whether its sends are ordered while the broker refuses writes.
    """

    topic_name: str
    read_queue_nums: int = DEFAULT_QUEUES
    write_queue_nums: int = DEFAULT_QUEUES
    perm: int = PERM_READ_WRITE
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        """Whether pulls are allowed."""
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether sends are allowed."""
        return bool(self.perm & PERM_WRITE)

    @property
    def inherited(self) -> bool:
        """Whether other topics may be made after its image."""
        return bool(self.perm & PERM_INHERIT)

    def problem(self) -> str | None:
        """Why no broker could serve this topic; None when one can.

        # Differs: 5.5.0 takes negative counts and counts beyond what a queue id holds.
        """
        if len(self.topic_name.encode()) > NAME_BYTES_MAX:
            return f"the topic {self.topic_name} has a name of more than {NAME_BYTES_MAX} bytes"
        for count in (self.read_queue_nums, self.write_queue_nums):
            if not 0 <= count <= QUEUES_MAX:
                return f"the topic {self.topic_name} cannot have {count} queues; 0 to {QUEUES_MAX} can be"
        return None

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ writes it, in its order."""
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TopicConfig:
        """One entry of a table.

        Raises:
            ValueError, TypeError: it is not one; the text says which field.
        """
        name = document.get("topicName")
        if not isinstance(name, str) or not name:
            raise ValueError(f"topicName is {name!r}")
        return cls(
            topic_name=name,
            read_queue_nums=integer(document, "readQueueNums", DEFAULT_QUEUES),
            write_queue_nums=integer(document, "writeQueueNums", DEFAULT_QUEUES),
            perm=integer(document, "perm", PERM_READ_WRITE),
            topic_filter_type=str(document.get("topicFilterType") or SINGLE_TAG),
            topic_sys_flag=integer(document, "topicSysFlag", 0),
            order=bool(document.get("order", False)),
            attributes={str(key): str(value) for key, value in (document.get("attributes") or {}).items()},
        )


def integer(document: Mapping[str, Any], name: str, default: int, *, bits: int = 32) -> int:
    """A whole number of *document* that Java's int (or, with 64 *bits*, long) can hold.

    Raises:
        TypeError: it is something else.
    """
    value = document.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not a number")
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise TypeError(f"{name} is {value}, which {bits} bits do not hold")
    return value
