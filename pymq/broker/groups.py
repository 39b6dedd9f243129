"""The consumer groups of this broker: `config/subscriptionGroup.json`, system groups, creation on first use.

A group is answered for once it is published to the reactors; its file follows before `find` returns. What a file of
5.5.0 says beyond the fields below (retry policy, attributes, fixed subscriptions) is kept and written back.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pymq.broker import names
from pymq.broker.attributes import GROUP_ATTRIBUTES, alter_attributes
from pymq.broker.config_file import ConfigFile
from pymq.broker.data_version import DataVersion
from pymq.broker.topic_config import NAME_BYTES_MAX, integer

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

GROUPS_FILE = "subscriptionGroup.json"

log = logging.getLogger("pymq.broker")


def default_retry_policy() -> dict[str, Any]:
    """GroupRetryPolicy of a new group."""
    return {"type": "CUSTOMIZED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroup:
    """One group; RocketMQ's SubscriptionGroupConfig."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: Mapping[str, Any] = field(default_factory=default_retry_policy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ writes it, in its order."""
        document = {
            "attributes": dict(self.attributes),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.group_name,
            "groupRetryPolicy": dict(self.group_retry_policy),
            "groupSysFlag": self.group_sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }
        return document if not self.others else dict(sorted((document | dict(self.others)).items()))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SubscriptionGroup:
        """One entry of a table.

        Raises:
            ValueError, TypeError: it is not one; the text says which field.
        """
        name = document.get("groupName")
        if not isinstance(name, str) or not name:
            raise ValueError(f"groupName is {name!r}")
        known = cls(group_name=name).to_json()
        policy = document.get("groupRetryPolicy")
        return cls(
            group_name=name,
            consume_enable=bool(document.get("consumeEnable", True)),
            consume_from_min_enable=bool(document.get("consumeFromMinEnable", True)),
            consume_broadcast_enable=bool(document.get("consumeBroadcastEnable", True)),
            consume_message_orderly=bool(document.get("consumeMessageOrderly", False)),
            retry_queue_nums=integer(document, "retryQueueNums", 1),
            retry_max_times=integer(document, "retryMaxTimes", 16),
            group_retry_policy=policy if isinstance(policy, Mapping) else default_retry_policy(),
            broker_id=integer(document, "brokerId", 0, bits=64),
            which_broker_when_consume_slowly=integer(document, "whichBrokerWhenConsumeSlowly", 1, bits=64),
            notify_consumer_ids_changed_enable=bool(document.get("notifyConsumerIdsChangedEnable", True)),
            group_sys_flag=integer(document, "groupSysFlag", 0),
            consume_timeout_minute=integer(document, "consumeTimeoutMinute", 15),
            attributes={str(key): str(value) for key, value in (document.get("attributes") or {}).items()},
            others={key: value for key, value in document.items() if key not in known},
        )


class GroupManager:
    """Name to `SubscriptionGroup`, kept on disk and at the reactors."""

    def __init__(self, broker: Broker) -> None:
        """Begin with nothing; see load()."""
        self._broker = broker
        self._table: dict[str, SubscriptionGroup] = {}
        self._left_out: dict[str, Any] = {}  # what the file says of groups that cannot be served, to be kept there
        self._forbidden: dict[str, dict[str, int]] = {}
        self._others: dict[str, Any] = {}
        self._creating: dict[str, asyncio.Task[None]] = {}
        self.version = DataVersion(timestamp_ms=broker.clock.now_ms())
        self._file = ConfigFile(broker.config_directory / GROUPS_FILE, self._file_document, broker.config_executor)

    def load(self) -> None:
        """System groups, then what the file says, which wins.

        Raises:
            CorruptFileError: the file and its backup are unreadable.
        """
        for name in names.SYSTEM_GROUPS:
            self._table[name] = SubscriptionGroup(group_name=name)
        document = self._file.load() or {}
        for name, entry in (document.get("subscriptionGroupTable") or {}).items():
            try:
                if len(name.encode()) > NAME_BYTES_MAX:
                    raise ValueError(f"its name has more than {NAME_BYTES_MAX} bytes")
                self._table[name] = SubscriptionGroup.from_json({"groupName": name, **entry})
            except (TypeError, ValueError) as error:
                self._left_out[name] = entry
                log.error("group left out path=%s group=%s because=%s", self._file.path, name, error)
        for group, topics in (document.get("forbiddenTable") or {}).items():
            try:
                bits = {str(topic): integer(topics, topic, 0) for topic in topics or ()}
            except (AttributeError, TypeError, ValueError) as error:
                log.error("what is forbidden left out path=%s group=%s because=%s", self._file.path, group, error)
                continue
            if bits:
                self._forbidden[group] = bits
        known = {"dataVersion", "forbiddenTable", "subscriptionGroupTable"}
        self._others = {key: value for key, value in document.items() if key not in known}
        self.version = DataVersion.from_json(document.get("dataVersion")) or self.version

    def publish_all(self) -> None:
        """Tell the reactors of every group."""
        for group in self._table.values():
            self._broker.publisher.group(group)

    def get(self, name: str) -> SubscriptionGroup | None:
        """The group, if there is one."""
        return self._table.get(name)

    def all(self) -> Mapping[str, SubscriptionGroup]:
        """Every group by name; not to be changed."""
        return self._table

    async def find(self, name: str) -> SubscriptionGroup | None:
        """The group, made with defaults on first use where that is allowed; None when it is not.

        Raises:
            OSError: the file could not be written; the group is there until the next start.
        """
        found = self._table.get(name)
        if found is None:
            config = self._broker.config
            allowed = config.auto_create_subscription_group or (
                config.enable_create_sys_group and names.is_system_group(name)
            )
            if not allowed or names.check_group_name(name) is not None:
                return None
            log.info("group created group=%s", name)
            found = self._put(SubscriptionGroup(group_name=name))
            self._creating[name] = asyncio.ensure_future(self._file.save())
            try:
                await asyncio.shield(self._creating[name])
            finally:
                self._creating.pop(name, None)
        elif name in self._creating:
            await asyncio.wait([self._creating[name]])
        return found

    async def update(self, groups: Iterable[SubscriptionGroup]) -> None:
        """Create or change groups by an administrator's word; attributes as for topics.

        Raises:
            ValueError: an attribute that is not possible; nothing has changed.
        """
        changed = []
        for group in groups:
            old = self._table.get(group.group_name)
            current = None if old is None else old.attributes
            attributes = alter_attributes(GROUP_ATTRIBUTES, current, group.attributes)
            changed.append(dataclasses.replace(group, attributes=attributes))
            log.info("group updated old=%s new=%s", old, changed[-1])
        for group in changed:
            self._put(group)
        await self._file.save()

    async def delete(self, name: str, *, offsets_too: bool) -> bool:
        """Remove the group; False when there is none."""
        self._forbidden.pop(name, None)
        self._left_out.pop(name, None)
        if self._table.pop(name, None) is None:
            return False
        self._broker.publisher.remove_group(name, offsets_too=offsets_too)
        self.version.advance(self._broker.clock)
        await self._file.save()
        log.info("group deleted group=%s offsets_too=%s", name, offsets_too)
        return True

    def forbidden(self, group: str, topic: str) -> int:
        """Bits of what *group* is kept from with *topic*; bit 0 is SubscriptionForbidden."""
        return max(0, self._forbidden.get(group, {}).get(topic, 0))

    async def set_forbidden(self, group: str, topic: str, bits: int) -> None:
        """Replace those bits.

        # Differs: clearing one topic leaves the group's other topics; 5.5.0 drops them all.
        """
        topics = self._forbidden.setdefault(group, {})
        if bits > 0:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self.version.advance(self._broker.clock)
        found = self._table.get(group)
        if found is not None:
            self._broker.publisher.group(found)
        await self._file.save()

    def has_forbidden(self, group: str) -> bool:
        """Whether anything is forbidden to *group*: its pulls are then looked at one by one."""
        return group in self._forbidden

    async def save(self) -> None:
        """Write the file."""
        await self._file.save()

    def _put(self, group: SubscriptionGroup) -> SubscriptionGroup:
        self._table[group.group_name] = group
        self._broker.publisher.group(group)
        self.version.advance(self._broker.clock)
        return group

    def document(self) -> dict[str, Any]:
        """What GET_ALL_SUBSCRIPTIONGROUP_CONFIG answers."""
        return {
            "dataVersion": self.version.to_json(),
            "forbiddenTable": {group: dict(topics) for group, topics in self._forbidden.items()},
            "subscriptionGroupTable": {name: group.to_json() for name, group in self._table.items()},
            **self._others,
        }

    def _file_document(self) -> dict[str, Any]:
        """The same with what was left out of it at the start."""
        document = self.document()
        return document | {"subscriptionGroupTable": self._left_out | document["subscriptionGroupTable"]}
