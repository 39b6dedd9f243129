"""Names with a meaning: system topics, retry and dead-letter topics, system groups, and which names are allowed."""

from __future__ import annotations

import re

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    }
)

# TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET
# Differs: the timer topic is in it. Who writes there writes, a moment later, into any topic, also the others here.
NOT_SENT_TO = frozenset(
    {
        TIMER_TOPIC,
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    }
)

SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

ALLOWED_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
TOPIC_SIZE_MAX = 127
RETRY_TOPIC_SIZE_MAX = 255
GROUP_SIZE_MAX = 120


def retry_topic(group: str) -> str:
    """The topic a group's messages come back through."""
    return RETRY_PREFIX + group


def is_system_group(group: str) -> bool:
    """Whether RocketMQ keeps *group* for itself (MixAll.isSysConsumerGroup)."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def check_topic_name(topic: str) -> str | None:
    """Why *topic* cannot be the name of a topic, in TopicValidator's words; None when it can."""
    if not topic.strip():
        return "The specified topic is blank."
    if not ALLOWED_NAME.fullmatch(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > RETRY_TOPIC_SIZE_MAX:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max length: "
                f"{RETRY_TOPIC_SIZE_MAX}"
            )
    elif len(topic) > TOPIC_SIZE_MAX:
        return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_SIZE_MAX}"
    return None


def check_group_name(group: str) -> str | None:
    """Why *group* cannot be the name of a group, in TopicValidator's words; None when it can."""
    if not group.strip():
        return "The specified group is blank."
    if not ALLOWED_NAME.fullmatch(group):
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > GROUP_SIZE_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_SIZE_MAX}"
    return None
