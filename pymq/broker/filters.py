"""Consumers' SQL92 filters by topic and group: `config/consumerFilter.json`, in RocketMQ's format.

A filter is registered by heartbeats and dies when its group has no member left, or no longer subscribes to the topic;
a day later it is forgotten. Of two versions the newer counts; a newer one that cannot be compiled removes the older, so
that pulls are refused instead of being filtered by what nobody asks for any more (FILTER_DATA_NOT_EXIST).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pymq.broker import names
from pymq.broker.bloom import BloomData, BloomShape
from pymq.broker.config_file import ConfigFile
from pymq.broker.subscriptions import SubscriptionData
from pymq.errors import CorruptFileError
from pymq.filter import SQL92, FilterError, Parsed, compile_parsed, compile_retry, parse

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

FILTERS_FILE = "consumerFilter.json"
RETRY_TOPIC_PROPERTY = "RETRY_TOPIC"
LOAD_DEAD_MS = 30_000  # a file's living filters count as dead since half a minute before the start
CACHE_MAX = 1000  # expressions kept compiled

log = logging.getLogger("pymq.filter")


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression that has been read and compiled."""

    parsed: Parsed
    program: bytes


@functools.lru_cache(CACHE_MAX)
def compile_filter(expression: str) -> Compiled:
    """Read and compile *expression*, once.

    Raises:
        FilterError: it is refused.
    """
    parsed = parse(expression)
    return Compiled(parsed, compile_parsed(parsed, expression))


def compile_typed(expression: str, expression_type: str) -> Compiled:
    """The same for an expression of any type.

    Raises:
        FilterError: it is refused, also because nobody knows its type.
    """
    if expression_type != SQL92:
        raise FilterError(f"no filter is of type {expression_type}; TAG and {SQL92} are known", expression, 0)
    return compile_filter(expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilter:
    """RocketMQ's ConsumerFilterData; *compiled* is None for one of a file that nobody can read."""

    topic: str
    group: str
    expression: str
    expression_type: str
    client_version: int
    born_ms: int
    dead_ms: int = 0
    bloom: BloomData | None = None
    compiled: Compiled | None = None

    @property
    def is_dead(self) -> bool:
        """Whether nobody uses it."""
        return self.dead_ms >= self.born_ms

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ writes it, in its order."""
        document: dict[str, Any] = {} if self.bloom is None else {"bloomFilterData": self.bloom.to_json()}
        return document | {
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class FilterManager:
    """Filters by (topic, group), kept on disk and told to the reactors through the publisher."""

    def __init__(self, broker: Broker) -> None:
        """Begin with nothing; see load()."""
        self._broker = broker
        self._filters: dict[tuple[str, str], ConsumerFilter] = {}
        self._bloom = BloomShape(
            broker.config.max_error_rate_of_bloom_filter, broker.config.expect_consumer_num_use_filter
        )
        self._changed = False
        self._file = ConfigFile(broker.config_directory / FILTERS_FILE, self._document, broker.config_executor)

    # ---- asking --------------------------------------------------------------------------------------------------

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """The group's filter on the topic, dead or alive."""
        return self._filters.get((topic, group))

    def program(self, topic: str, group: str, compiled: Compiled | None) -> bytes | None:
        """What messages of *topic* are put through for *group*, whose expression is *compiled*; None lets all pass.

        With filterSupportRetry a message of a retry topic meets the expression of the topic it came from.
        """
        if self._broker.config.filter_support_retry and topic.startswith(names.RETRY_PREFIX):
            own = topic[len(names.RETRY_PREFIX) :]
            trees = {
                item.topic: item.compiled.parsed.root
                for item in self._filters.values()
                if item.group == own and item.compiled is not None
            }
            return compile_retry(RETRY_TOPIC_PROPERTY, trees)
        return None if compiled is None else compiled.program

    # ---- heartbeats ----------------------------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> set[str]:
        """Take note of what a heartbeat subscribes to; the topics whose filter is another one now."""
        changed: set[str] = set()
        topics: set[str] = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not subscription.is_tag_type and subscription.sub_string and self._register(group, subscription):
                changed.add(subscription.topic)
        for key, known in list(self._filters.items()):
            if key[1] == group and key[0] not in topics and not known.is_dead:
                self._put(key, dataclasses.replace(known, dead_ms=self._broker.clock.now_ms()))
                log.info("filter dead, its topic is not subscribed any more group=%s topic=%s", group, key[0])
        if changed and self._broker.config.filter_support_retry:
            changed.add(names.retry_topic(group))
        return changed

    def _register(self, group: str, subscription: SubscriptionData) -> bool:
        """Whether what pulls go by is another filter, or another version of it, now."""
        key = (subscription.topic, group)
        expression, kind, version = subscription.sub_string, subscription.expression_type, subscription.sub_version
        known = self._filters.get(key)
        bloom = self._bloom.data(group, subscription.topic)
        if known is not None and version <= known.client_version:
            if (kind, expression) != (known.expression_type, known.expression):
                log.info(
                    "filter ignored, not newer group=%s topic=%s version=%d known=%d expression=%r kept=%r",
                    group, subscription.topic, version, known.client_version, expression, known.expression,
                )  # fmt: skip
            if version == known.client_version and known.is_dead:
                self._put(key, dataclasses.replace(known, dead_ms=0))
            return False
        if known is not None and (known.expression, known.expression_type, known.bloom) == (expression, kind, bloom):
            self._put(key, dataclasses.replace(known, client_version=version, dead_ms=0))
            return True
        compiled = self._compile(group, subscription)
        if compiled is None:
            self._changed |= known is not None
            return self._filters.pop(key, None) is not None
        fresh = ConsumerFilter(
            topic=subscription.topic, group=group, expression=expression, expression_type=kind, client_version=version,
            born_ms=self._broker.clock.now_ms(), bloom=bloom, compiled=compiled,
        )  # fmt: skip
        self._put(key, fresh)
        log.info("filter registered group=%s topic=%s expression=%r", group, subscription.topic, expression)
        return True

    def _compile(self, group: str, subscription: SubscriptionData) -> Compiled | None:
        expression = subscription.sub_string
        try:
            compiled = compile_typed(expression, subscription.expression_type)
        except FilterError as error:
            log.error(
                "filter refused group=%s topic=%s expression=%r: %s", group, subscription.topic, expression, error
            )
            return None
        ignored = compiled.parsed.ignored_from
        if ignored is not None:
            log.warning(
                "filter ends early, as it does in RocketMQ group=%s topic=%s expression=%r ignored=%r",
                group, subscription.topic, expression, expression[ignored:],
            )  # fmt: skip
        return compiled

    def unregister(self, group: str) -> None:
        """The group has no members left."""
        for key, known in list(self._filters.items()):
            if key[1] == group and not known.is_dead:
                self._put(key, dataclasses.replace(known, dead_ms=self._broker.clock.now_ms()))

    def _put(self, key: tuple[str, str], value: ConsumerFilter) -> None:
        self._filters[key] = value
        self._changed = True

    # ---- the file ------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file. Filters of a broker with another Bloom filter are kept, with bits of ours.

        Raises:
            CorruptFileError: the file and its backup are unreadable.
        """
        document = self._file.load() or {}
        longest_dead_ms = self._broker.clock.now_ms() - LOAD_DEAD_MS
        try:
            loaded = [self._loaded(*entry, longest_dead_ms) for entry in entries_of(document)]
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CorruptFileError(f"{self._file.path}: {error}; repair or remove it") from error
        for item in loaded:
            try:
                compiled: Compiled | None = compile_typed(item.expression, item.expression_type)
            except FilterError as error:
                log.error("filter of the file cannot be used group=%s topic=%s: %s", item.group, item.topic, error)
                compiled = None
            self._filters[item.topic, item.group] = dataclasses.replace(item, compiled=compiled)

    def _loaded(self, topic: str, group: str, fields: Mapping[str, Any], longest_dead_ms: int) -> ConsumerFilter:
        """An entry of the file, not yet compiled."""
        # Differs: where Apache drops the whole file because its Bloom filter has changed, nothing is lost here.
        bloom = bloom_of(fields.get("bloomFilterData"))
        born_ms, dead_ms = int(fields.get("bornTime") or 0), int(fields.get("deadTime") or 0)
        return ConsumerFilter(
            topic=topic,
            group=group,
            expression=str(fields.get("expression") or ""),
            expression_type=str(fields.get("expressionType") or SQL92),
            client_version=int(fields.get("clientVersion") or 0),
            born_ms=born_ms,
            dead_ms=dead_ms or max(born_ms, longest_dead_ms),
            bloom=bloom if self._bloom.fits(bloom) else self._bloom.data(group, topic),
        )

    def clean(self) -> None:
        """Forget filters that have been dead for too long."""
        oldest_ms = self._broker.clock.now_ms() - self._broker.config.filter_data_clean_time_span
        for key, known in list(self._filters.items()):
            if known.is_dead and known.dead_ms <= oldest_ms:
                log.info("filter forgotten group=%s topic=%s", known.group, known.topic)
                del self._filters[key]
                self._changed = True

    async def save(self) -> bool:
        """Write the file if anything changed since the last time; whether it did.

        Raises:
            OSError: the disk refused.
        """
        self.clean()
        if not self._changed:
            return False
        self._changed = False
        try:
            await self._file.save()
        except OSError:
            self._changed = True
            raise
        return True

    def _document(self) -> dict[str, Any]:
        topics: dict[str, dict[str, Any]] = {}
        for (topic, group), known in self._filters.items():
            topics.setdefault(topic, {})[group] = known.to_json()
        return {
            "filterDataByTopic": {
                topic: {"groupFilterData": groups, "topic": topic} for topic, groups in topics.items()
            }
        }


def entries_of(document: Mapping[str, Any]) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
    """(topic, group, fields) of a file's filters."""
    for topic, by_group in (document.get("filterDataByTopic") or {}).items():
        for group, fields in ((by_group or {}).get("groupFilterData") or {}).items():
            if fields is not None:
                yield str(topic), str(group), fields


def bloom_of(document: Any) -> BloomData | None:
    """A filter's Bloom data, if it has some."""
    if not isinstance(document, Mapping) or not isinstance(document.get("bitPos"), list):
        return None
    return BloomData(int(document.get("bitNum") or 0), tuple(int(position) for position in document["bitPos"]))
