"""A broker's surroundings without sockets or native tables: what the managers are tested against."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from pymq._core._serve import OffsetState
from pymq.broker.clients import ClientManager
from pymq.broker.config import BrokerConfig
from pymq.broker.filters import FilterManager
from pymq.broker.groups import GroupManager
from pymq.broker.new_groups import NewGroups
from pymq.broker.offsets import OffsetManager
from pymq.broker.publishing import Publisher
from pymq.broker.topics import TopicManager
from pymq.clock import ManualClock


class FakeServe:
    """Remembers what was published and keeps offsets in a dict."""

    def __init__(self) -> None:
        self.topics: dict[str, dict] = {}
        self.groups: dict[str, dict] = {}
        self.subscriptions: dict[tuple[str, str], dict] = {}
        self.table: dict[tuple[str, str, int], int] = {}
        self.pending: dict[tuple[str, str, int], int] = {}
        self.ended: list[tuple[str, str]] = []

    def publish_topic(self, name, **row):
        self.topics[name] = row

    def remove_topic(self, name, offsets_too):
        self.topics.pop(name, None)
        if offsets_too:
            self.offset_remove("", name)

    def publish_group(self, name, **row):
        self.groups[name] = row

    def remove_group(self, name, offsets_too):
        self.groups.pop(name, None)
        if offsets_too:
            self.offset_remove(name, "")

    def publish_subscription(self, group, topic, **row):
        self.subscriptions[group, topic] = row

    def remove_subscription(self, group, topic):
        self.subscriptions.pop((group, topic), None)

    def offset_commit(self, group, topic, queue_id, offset, connection=0):
        self.table[group, topic, queue_id] = offset
        return True

    def offset_reset(self, group, topic, queue_id, offset):
        self.table[group, topic, queue_id] = self.pending[group, topic, queue_id] = offset

    def offset_remove(self, group, topic):
        for key in list(self.table):
            if (not group or key[0] == group) and (not topic or key[1] == topic):
                del self.table[key]

    def offsets(self):
        return [(group, topic, queue_id, offset) for (group, topic, queue_id), offset in self.table.items()]

    def offset_states(self):
        return [OffsetState(*key, offset, self.pending.get(key), None) for key, offset in self.table.items()]

    def end_holds(self, topic="", group=""):
        self.ended.append((topic, group))
        return 0


class FakeStore:
    """Has queues with ends and nothing else."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}

    def queues(self, settle=True):
        return [(topic, queue_id, 0, end) for (topic, queue_id), end in self.ends.items()]


class FakeServer:
    """Remembers what was pushed to whom."""

    def __init__(self) -> None:
        self.pushed: list[tuple[int, object]] = []
        self.closed: list[int] = []
        self.peers: dict[int, tuple[str, int]] = {}

    def push(self, connection, command):
        self.pushed.append((connection, command))
        return True

    def close_connection(self, connection):
        self.closed.append(connection)

    def peer(self, connection):
        return self.peers.get(connection)


class FakeRegistration:
    """Remembers which topics name servers were told of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def register_topics(self, configs):
        self.told += [config.topic_name for config in configs]


class FakeBroker:
    """Everything a manager asks its broker for."""

    def __init__(self, directory: Path, **settings) -> None:
        self.config = BrokerConfig(broker_name="broker-a", store_path_root_dir=str(directory), **settings)
        self.config_directory = directory / "config"
        self.clock = ManualClock(datetime(2026, 11, 16, 4, tzinfo=UTC))
        self.executor = self.config_executor = ThreadPoolExecutor(2)
        self.serve = FakeServe()
        self.removed: list[str] = []
        self.server = FakeServer()
        self.store = FakeStore()
        self.registration = FakeRegistration()
        self.publisher = Publisher(self)
        self.topics = TopicManager(self)
        self.groups = GroupManager(self)
        self.new_groups = NewGroups(self)
        self.offsets = OffsetManager(self)
        self.filters = FilterManager(self)
        self.clients = ClientManager(self)

    async def remove_queues(self, topic):
        """Remembered; the fake store has none."""
        self.removed.append(topic)

    def load(self):
        """As a start does."""
        self.topics.load()
        self.groups.load()
        self.filters.load()
        self.topics.publish_all()
        self.groups.publish_all()
        self.offsets.load()
        return self
