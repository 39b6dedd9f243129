"""The topics of this broker: `config/topics.json`, system topics, creation by sends and by administrators.

A topic is answered for only once it is safe: on stable storage, published to the reactors, and told to the name
servers (those that answer in time). Until then it stands in `_coming`, where nobody but the file sees it, and whoever
else wants it waits for the one creation.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pymq.broker import names
from pymq.broker.attributes import TOPIC_ATTRIBUTES, alter_attributes
from pymq.broker.config_file import ConfigFile
from pymq.broker.data_version import DataVersion
from pymq.broker.system_topics import make_system_topics
from pymq.broker.topic_config import PERM_INHERIT, QUEUES_MAX, TopicConfig

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

TOPICS_FILE = "topics.json"

log = logging.getLogger("pymq.broker")


class TopicManager:
    """Name to `TopicConfig`, kept on disk, at the reactors and at the name servers."""

    def __init__(self, broker: Broker) -> None:
        """Begin with nothing; see load()."""
        self._broker = broker
        self._table: dict[str, TopicConfig] = {}
        self._left_out: dict[str, Any] = {}  # what the file says of topics that cannot be served, to be kept there
        self._coming: dict[str, TopicConfig] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._system: set[str] = set(names.SYSTEM_TOPICS)
        self.version = DataVersion(timestamp_ms=broker.clock.now_ms())
        self._file = ConfigFile(broker.config_directory / TOPICS_FILE, self._document, broker.config_executor)

    # ---- loading -------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """System topics, then what the file says, which wins.

        Raises:
            CorruptFileError: the file and its backup are unreadable.
        """
        for config in make_system_topics(self._broker.config):
            self._system.add(config.topic_name)
            self._table[config.topic_name] = config
        document = self._file.load() or {}
        for name, entry in (document.get("topicConfigTable") or {}).items():
            try:
                config = TopicConfig.from_json({"topicName": name, **entry})
                if problem := config.problem():
                    raise ValueError(problem)
                self._table[name] = config
            except (TypeError, ValueError) as error:
                self._left_out[name] = entry
                log.error("topic left out path=%s topic=%s because=%s", self._file.path, name, error)
        self.version = DataVersion.from_json(document.get("dataVersion")) or self.version

    def publish_all(self) -> None:
        """Tell the reactors of every topic."""
        for config in self._table.values():
            self._broker.publisher.topic(config)

    # ---- looking up ----------------------------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        """The topic, once it is durable and published."""
        return self._table.get(topic)

    def all(self) -> Mapping[str, TopicConfig]:
        """Every topic by name; not to be changed."""
        return self._table

    def is_system(self, topic: str) -> bool:
        """Whether RocketMQ or this broker keeps *topic* for itself."""
        return topic in self._system or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    def system_topics(self) -> list[str]:
        """Their names."""
        return sorted(self._system)

    # ---- creation ------------------------------------------------------------------------------------------------

    async def create_on_send(
        self, topic: str, default_topic: str, queue_nums: int, peer: str, topic_sys_flag: int
    ) -> TopicConfig | None:
        """The topic, made after *default_topic*'s image if that allows it; None when it does not.

        Returns once a send to it may be acknowledged.

        Raises:
            OSError: the file could not be written; there is no such topic then.
        """
        found = await self._settled(topic)
        if found is not None:
            return found
        default = self._table.get(default_topic)
        if default is None:
            log.warning("topic not created topic=%s because=no default topic %s peer=%s", topic, default_topic, peer)
            return None
        allowed = default.inherited and (
            default_topic != names.AUTO_CREATE_TOPIC or self._broker.config.auto_create_topic_enable
        )
        if not allowed or names.check_topic_name(topic) is not None:
            log.warning(
                "topic not created topic=%s default=%s perm=%d peer=%s", topic, default_topic, default.perm, peer
            )
            return None
        queues = max(0, min(queue_nums, default.write_queue_nums))
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=default.perm & ~PERM_INHERIT,
            topic_filter_type=default.topic_filter_type,
            topic_sys_flag=topic_sys_flag,
        )
        log.info("topic created topic=%s queues=%d default=%s peer=%s", topic, queues, default_topic, peer)
        await self._bring([config])
        return self._table.get(topic)

    async def create_on_send_back(
        self, topic: str, queue_nums: int, perm: int, topic_sys_flag: int, *, order: bool = False
    ) -> TopicConfig | None:
        """The topic (a retry or dead-letter one), made as said when it is not there.

        Raises:
            OSError: the file could not be written.
        """
        found = await self._settled(topic)
        queue_nums = max(0, min(queue_nums, QUEUES_MAX))  # a group in a file of Apache's may ask for any number
        if found is not None:
            if found.order == order:
                return found
            config = dataclasses.replace(found, order=order)
        else:
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
                order=order,
            )
            log.info("topic created topic=%s queues=%d perm=%d", topic, queue_nums, perm)
        await self._bring([config])
        return self._table.get(topic)

    async def update(self, configs: Iterable[TopicConfig]) -> None:
        """Create or change topics by an administrator's word; attributes are given as `+name=value` and `-name`.

        Raises:
            ValueError: an attribute that is not possible.
            OSError: the file could not be written; nothing has changed.
        """
        changed = []
        for config in configs:
            old = await self._settled(config.topic_name)
            current = None if old is None else old.attributes
            attributes = alter_attributes(TOPIC_ATTRIBUTES, current, config.attributes)
            changed.append(dataclasses.replace(config, attributes=attributes))
            log.info("topic updated old=%s new=%s", old, changed[-1])
            if old is not None and config.read_queue_nums < old.read_queue_nums:
                log.warning(
                    "queues without readers topic=%s from=%d to=%d: what is in them, or waits to be, is "
                    "read again with readQueueNums=%d",
                    config.topic_name, config.read_queue_nums, old.read_queue_nums - 1, old.read_queue_nums,
                )  # fmt: skip
        await self._bring(changed)

    async def mark_ordered(self, topics: Iterable[str]) -> None:
        """Make topics ordered that name servers have an order configuration for.

        Raises:
            OSError: the file could not be written; nothing has changed.
        """
        found = [config for config in map(self._table.get, topics) if config is not None and not config.order]
        if found:
            log.info("topics ordered topics=%s", [config.topic_name for config in found])
            await self._bring([dataclasses.replace(config, order=True) for config in found])

    async def delete(self, topic: str) -> bool:
        """Remove the topic from table, reactors (with its offsets), file and store; False when there is none.

        Whoever wants to make it again meanwhile waits: its queues would be taken away under the new topic.

        Raises:
            OSError, StoreError: file or queues could not be removed; the topic is not served any more.
        """
        found = await self._settled(topic) is not None
        await self._exclusively(topic, self._remove_now(topic))
        return found

    async def _remove_now(self, topic: str) -> None:
        self._left_out.pop(topic, None)
        if self._table.pop(topic, None) is not None:
            self._broker.publisher.remove_topic(topic, offsets_too=True)
            self.version.advance(self._broker.clock)
            await self._file.save()
            log.info("topic deleted topic=%s", topic)
        await self._broker.remove_queues(topic)

    async def _exclusively(self, topic: str, work: Coroutine[Any, Any, None]) -> None:
        """Do *work* while nothing else is done to the topic; a cancelled caller does not stop it."""
        while topic in self._tasks:
            await asyncio.wait([self._tasks[topic]])
        task = self._tasks[topic] = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._tasks.pop(topic, None))
        await asyncio.shield(task)

    async def save(self) -> None:
        """Write the file, whether anything changed or not."""
        await self._file.save()

    async def _settled(self, topic: str) -> TopicConfig | None:
        """The topic once nothing about it is under way."""
        while topic in self._tasks:
            await asyncio.wait([self._tasks[topic]])
        return self._table.get(topic)

    async def _bring(self, configs: list[TopicConfig]) -> None:
        """Make *configs* durable, published and registered, together; a cancelled caller does not stop it.

        Raises:
            ValueError: one that cannot be: in the file it would keep the broker from starting.
        """
        if problem := next(filter(None, (config.problem() for config in configs)), None):
            raise ValueError(problem)
        while busy := [self._tasks[config.topic_name] for config in configs if config.topic_name in self._tasks]:
            await asyncio.wait(busy)
        task = asyncio.ensure_future(self._bring_now(configs))
        for config in configs:
            self._coming[config.topic_name] = config
            self._tasks[config.topic_name] = task
        await asyncio.shield(task)

    async def _bring_now(self, configs: list[TopicConfig]) -> None:
        try:
            self.version.advance(self._broker.clock)
            await self._file.save()
            for config in configs:
                self._table[config.topic_name] = config
                self._broker.publisher.topic(config)
            await self._broker.registration.register_topics(configs)
        finally:
            for config in configs:
                del self._coming[config.topic_name]
                del self._tasks[config.topic_name]

    # ---- documents -----------------------------------------------------------------------------------------------

    def _document(self) -> dict[str, Any]:
        """`topics.json`, with what is on its way into it."""
        everything = {**self._table, **self._coming}
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": {
                **self._left_out,
                **{name: config.to_json() for name, config in everything.items()},
            },
        }

    def wrapper(self) -> dict[str, Any]:
        """TopicConfigSerializeWrapper, as GET_ALL_TOPIC_CONFIG answers."""
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": {name: config.to_json() for name, config in self._table.items()},
        }
