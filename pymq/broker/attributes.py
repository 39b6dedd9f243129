"""Attributes of topics and groups: which there are, what they may say, and how a request alters them.

A request writes `+name` to set and `-name` to remove; a creation can only set. Refusals are worded as RocketMQ's
AttributeUtil words them, because administrators search for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

INT64_MAX = 2**63 - 1
MINUTES_OF_30_DAYS = 30 * 24 * 60


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its words, or its bounds, or (neither) any text."""

    changeable: bool = True
    words: frozenset[str] = frozenset()
    bounds: tuple[int, int] | None = None

    def verify(self, name: str, value: str) -> None:
        """Refuse what it cannot say.

        Raises:
            ValueError: outside its words or bounds.
        """
        if self.words and value not in self.words:
            raise ValueError(f"value is not in set: {sorted(self.words)} ({name}={value})")
        if self.bounds is not None:
            low, high = self.bounds
            if not value.lstrip("-").isdigit() or not low <= int(value) <= high:
                raise ValueError(f"value is not in range({low}, {high}) ({name}={value})")


MESSAGE_TYPES = frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"})
BOOLEANS = frozenset({"true", "false"})

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(changeable=False, words=frozenset({"BatchCQ", "SimpleCQ"})),
    "cleanup.policy": Attribute(changeable=False, words=frozenset({"DELETE", "COMPACTION"})),
    "message.type": Attribute(words=MESSAGE_TYPES),
    "reserve.time": Attribute(bounds=(-1, INT64_MAX)),
    "lite.topic.expiration": Attribute(bounds=(-1, MINUTES_OF_30_DAYS)),
}

GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Attribute(bounds=(0, 100)),
    "lite.bind.topic": Attribute(),
    "lite.sub.model": Attribute(words=frozenset({"Shared", "Exclusive"})),
    "lite.sub.reset.offset.exclusive": Attribute(words=BOOLEANS),
    "lite.sub.reset.offset.unsubscribe": Attribute(words=BOOLEANS),
    "lite.sub.client.quota": Attribute(bounds=(-1, INT64_MAX)),
    "lite.sub.client.max.event.cnt": Attribute(bounds=(10, INT64_MAX)),
    "lite.sub.wildcard": Attribute(),
}


def alter_attributes(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """*current* with *changes* (`+name`, `-name`) made to it; None for something that is being created.

    Raises:
        ValueError: a change that is not possible.
    """
    result = dict(current or {})
    seen: set[str] = set()
    for key, value in changes.items():
        sign, name = key[:1], key[1:]
        if not name or "+" in name or "-" in name:
            raise ValueError("kv string format wrong.")
        if name in seen:
            raise ValueError(f"alter duplication key. key: {name}")
        seen.add(name)
        if current is None and sign != "+":
            raise ValueError(f"only add attribute is supported while creating topic. key: {name}")
        if sign not in ("+", "-"):
            raise ValueError(f"wrong format key: {name}")
        if sign == "-" and name not in result:
            raise ValueError(f"attempt to delete a nonexistent key: {name}")
        attribute = known.get(name)
        if attribute is None:
            raise ValueError(f"unsupported key: {name}")
        if current is not None and not attribute.changeable:
            raise ValueError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "+":
            attribute.verify(name, value)
            result[name] = value
        else:
            del result[name]
    return result
