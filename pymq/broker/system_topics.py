"""The topics a fresh broker of 5.5.0 has of itself (NS-24): names, queues, permissions."""

from __future__ import annotations

from collections.abc import Iterator

from pymq.broker import names
from pymq.broker.config import BrokerConfig
from pymq.broker.schedule.levels import DelayLevels
from pymq.broker.topic_config import DEFAULT_QUEUES, PERM_INHERIT, PERM_READ_WRITE, TopicConfig

SCHEDULE_QUEUES_MIN = 18  # what Apache says, however many levels there are
BENCHMARK_QUEUES = 1024


def make_system_topics(config: BrokerConfig) -> Iterator[TopicConfig]:
    """All of them, as *config* wants them."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    yield system_topic(names.SELF_TEST_TOPIC, 1)
    if config.auto_create_topic_enable:
        yield system_topic(
            names.AUTO_CREATE_TOPIC, config.default_topic_queue_nums, perm=PERM_INHERIT | PERM_READ_WRITE
        )
    yield system_topic(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES)
    yield system_topic(
        cluster, DEFAULT_QUEUES, perm=PERM_INHERIT | (PERM_READ_WRITE if config.cluster_topic_enable else 0)
    )
    yield system_topic(broker, 1, perm=PERM_INHERIT | (PERM_READ_WRITE if config.broker_topic_enable else 0))
    yield system_topic(names.OFFSET_MOVED_TOPIC, 1)
    levels = DelayLevels(config.store.message_delay_level)
    yield system_topic(names.SCHEDULE_TOPIC, max(levels.level_max, SCHEDULE_QUEUES_MIN))
    if config.trace_topic_enable:
        yield system_topic(config.msg_trace_topic_name, 1)
    yield system_topic(cluster + names.REPLY_TOPIC_SUFFIX, 1)
    yield system_topic(names.REVIVE_PREFIX + cluster, config.revive_queue_num)
    yield system_topic(names.SYNC_MEMBER_PREFIX + broker, 1, perm=PERM_INHERIT)
    for name in (names.HALF_TOPIC, names.OP_HALF_TOPIC, names.ROCKSDB_HALF_TOPIC, names.ROCKSDB_OP_HALF_TOPIC):
        yield system_topic(name, 1)
    if config.timer_wheel_enable:
        yield system_topic(names.TIMER_TOPIC, 1)


def system_topic(name: str, queues: int, *, perm: int = PERM_READ_WRITE) -> TopicConfig:
    """One, with as many queues for readers as for writers."""
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
