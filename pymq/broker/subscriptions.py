"""What consumers say in heartbeats: subscriptions, and the heartbeat itself, read from RocketMQ's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymq._scan import java_hash

SUBSCRIBE_ALL = "*"
TAG_TYPE = "TAG"
CONSUME_ACTIVELY, CONSUME_PASSIVELY = "CONSUME_ACTIVELY", "CONSUME_PASSIVELY"
BROADCASTING, CLUSTERING = "BROADCASTING", "CLUSTERING"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionData:
    """One topic a group subscribes to, and what of it.

    Attributes:
        tag_hashes: Java's hash of each tag, as the client computed them or, where it did not, computed here.
        sub_version: milliseconds; the newest subscription of a group counts.
    """

    topic: str
    sub_string: str = SUBSCRIBE_ALL
    tags: frozenset[str] = frozenset()
    tag_hashes: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = TAG_TYPE
    class_filter_mode: bool = False

    @property
    def is_all(self) -> bool:
        """Whether every message of the topic is meant."""
        return self.is_tag_type and (self.sub_string in ("", SUBSCRIBE_ALL) or not self.tag_hashes)

    @property
    def is_tag_type(self) -> bool:
        """Whether the expression is a list of tags."""
        return self.expression_type in ("", TAG_TYPE)

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ writes it, in its order."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.tag_hashes),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SubscriptionData:
        """One entry of a heartbeat.

        Clients send the tags and their hashes beside the expression; where one does not, they are read from it, for
        the message it did not ask for is worse than the work.

        Raises:
            ValueError: it names no topic, or separators without a tag between them.
        """
        topic = document.get("topic")
        if not isinstance(topic, str) or not topic:
            raise ValueError(f"a subscription names the topic {topic!r}")
        tags = frozenset(str(tag) for tag in document.get("tagsSet") or ())
        codes = frozenset(whole_number("codeSet", code, 32) for code in document.get("codeSet") or ())
        expression = str(document.get("subString") or SUBSCRIBE_ALL)
        expression_type = str(document.get("expressionType") or TAG_TYPE)
        if not tags and not codes and expression_type == TAG_TYPE and expression != SUBSCRIBE_ALL:
            tags = tags_of(expression)
        return cls(
            topic=topic,
            sub_string=expression,
            tags=tags,
            tag_hashes=codes or frozenset(hash_tag(tag) for tag in tags),
            sub_version=whole_number("subVersion", document.get("subVersion") or 0, 64),
            expression_type=expression_type,
            class_filter_mode=bool(document.get("classFilterMode", False)),
        )

    @classmethod
    def from_expression(cls, topic: str, expression: str, sub_version: int, expression_type: str) -> SubscriptionData:
        """What a pull that brings its own subscription says (FilterAPI.buildSubscriptionData).

        Raises:
            ValueError: separators without a tag between them.
        """
        if expression_type not in ("", TAG_TYPE) or expression in ("", SUBSCRIBE_ALL):
            text = expression or SUBSCRIBE_ALL
            return cls(
                topic=topic, sub_string=text, sub_version=sub_version, expression_type=expression_type or TAG_TYPE
            )
        tags = tags_of(expression)
        return cls(
            topic=topic,
            sub_string=expression,
            tags=tags,
            tag_hashes=frozenset(hash_tag(tag) for tag in tags),
            sub_version=sub_version,
        )


def tags_of(expression: str) -> frozenset[str]:
    """The tags in `red || green`.

    Raises:
        ValueError: separators without a tag between them.
    """
    tags = frozenset(part.strip() for part in expression.split("||") if part.strip())
    if not tags:
        raise ValueError("subString split error")
    return tags


def whole_number(name: str, value: Any, bits: int) -> int:
    """A number of a body, as Java can hold it.

    Raises:
        ValueError: it is none, or larger; names *name*.
    """
    try:
        number = int(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is no number: {str(value)[:40]}") from error
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{name} does not fit {bits} bits")
    return number


def hash_tag(tag: str) -> int:
    """Java's String.hashCode of *tag*."""
    return java_hash(tag.encode("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData:
    """What a heartbeat says of one consumer group."""

    group_name: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """HeartbeatData: who is alive on a connection and what it consumes.

    Attributes:
        fingerprint: not 0 for version 2: a hash of everything below.
        without_sub: version 2's short form: nothing changed, subscriptions were left out.
    """

    client_id: str
    producers: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Heartbeat:
        """A heartbeat's body.

        Raises:
            ValueError, TypeError: it says no client id, or a group is not one.
        """
        client_id = document.get("clientID")
        if not isinstance(client_id, str):
            raise TypeError(f"clientID is {client_id!r}")
        return cls(
            client_id=client_id,
            producers=tuple(str(item["groupName"]) for item in document.get("producerDataSet") or ()),
            consumers=tuple(consumer_from_json(item) for item in document.get("consumerDataSet") or ()),
            fingerprint=whole_number("heartbeatFingerprint", document.get("heartbeatFingerprint") or 0, 64),
            without_sub=bool(document.get("withoutSub", False)),
        )


def consumer_from_json(document: Mapping[str, Any]) -> ConsumerData:
    """One entry of consumerDataSet."""
    return ConsumerData(
        group_name=str(document["groupName"]),
        consume_type=str(document.get("consumeType") or CONSUME_PASSIVELY),
        message_model=str(document.get("messageModel") or CLUSTERING),
        consume_from_where=str(document.get("consumeFromWhere") or "CONSUME_FROM_LAST_OFFSET"),
        subscriptions=tuple(SubscriptionData.from_json(item) for item in document.get("subscriptionDataSet") or ()),
        unit_mode=bool(document.get("unitMode", False)),
    )
