"""What a send is checked for, in Apache's order and words (AbstractSendMessageProcessor.msgCheck, HookUtils).

A check that fails raises `SendRefused`, whose answer says MSG_REGION and TRACE_ON; a header that cannot be read is a
`RemotingError` without them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.processors.send_header import SendHeader, needed
from pymq.broker.processors.send_properties import parse
from pymq.broker.topic_config import PERM_INHERIT, PERM_READ, PERM_READ_WRITE, PERM_WRITE, TopicConfig
from pymq.errors import PymqError
from pymq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
UNIT, UNIT_SUBSCRIBED = 1, 2  # TopicSysFlag
TRANSACTION_MASK, TRANSACTION_COMMIT = 3 << 2, 2 << 2  # of sysFlag
INNER_BATCH = 1 << 7
SLAVE = "SLAVE"


TIMER_NAMES = frozenset({"TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"})
WAITING_MARKS = (b"DELAY\x01", b"TIMER_", b"TRAN_MSG\x01")


class SendRefused(PymqError):
    """A send that is not stored.

    Attributes:
        code: the response code.
        remark: the words that go with it.
        has_fields: whether MSG_REGION and TRACE_ON are said: not by what looks at no header.
    """

    def __init__(self, code: int, remark: str, *, has_fields: bool = True) -> None:
        super().__init__(f"{int(code)}: {remark}")
        self.code = int(code)
        self.remark = remark
        self.has_fields = has_fields


def check_accepting(broker: Broker, now_ms: int) -> None:
    """Whether sends are taken at all now.

    Raises:
        SendRefused: a slave, or a broker that is told to begin later.
    """
    if broker.config.broker_role == SLAVE:
        raise SendRefused(
            ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while", has_fields=False
        )
    check_begun(broker, now_ms)


def check_begun(broker: Broker, now_ms: int) -> None:
    """Whether the time has come from which messages are taken.

    Raises:
        SendRefused: not yet.
    """
    begin_ms = broker.config.start_accept_send_request_time_stamp
    if now_ms < begin_ms:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin_ms / 1000))
        raise SendRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {moment},{begin_ms % 1000:03d}")


def check_role(broker: Broker) -> None:
    """Whether this broker stores anything itself.

    Raises:
        SendRefused: a slave.
    """
    if broker.config.broker_role == SLAVE:
        raise SendRefused(
            ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while", has_fields=False
        )


def check_topic(broker: Broker, topic: str) -> None:
    """Whether clients may send to a topic of this name.

    Raises:
        SendRefused: they may not.
    """
    config = broker.topics.get(topic)
    if not broker.config.broker_permission & PERM_WRITE and config is not None and config.order:
        raise SendRefused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_ip1}] sending message is forbidden"
        )
    remark = names.check_topic_name(topic)
    if remark is not None:
        raise SendRefused(ResponseCode.INVALID_PARAMETER, remark)
    if topic in names.NOT_SENT_TO:
        raise SendRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")


async def find_or_create_topic(broker: Broker, header: SendHeader, peer: str) -> TopicConfig:
    """The topic, made on its first send where that is allowed.

    Raises:
        SendRefused: there is none and none can be made.
        RemotingError: it does not say after which image.
    """
    found = broker.topics.get(header.topic)
    if found is not None:
        return found
    is_retry = header.topic.startswith(names.RETRY_PREFIX)
    sys_flag = (UNIT_SUBSCRIBED if is_retry else UNIT) if header.unit_mode else 0
    made = await broker.topics.create_on_send(
        header.topic,
        needed(header.default_topic, "defaultTopic"),
        needed(header.default_topic_queue_nums, "defaultTopicQueueNums"),
        peer,
        sys_flag,
    )
    if made is None and is_retry:
        made = await broker.topics.create_on_send_back(header.topic, 1, PERM_READ_WRITE, sys_flag)
    if made is None:
        raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!{FAQ}")
    return made


def check_queue(topic: TopicConfig, queue_id: int | None, peer: str) -> int:
    """The queue, if the topic has it; below 0 means any.

    Raises:
        SendRefused: it has not.
        RemotingError: none is named.
    """
    queue_id = needed(queue_id, "queueId")
    if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
        raise SendRefused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, {describe(topic)} Producer: {peer}",
        )
    if queue_id < 0 and topic.write_queue_nums <= 0:
        # Differs: Apache divides by zero here and answers with the exception's name.
        raise SendRefused(ResponseCode.SYSTEM_ERROR, f"topic[{topic.topic_name}] has no queue to write to")
    return queue_id


def describe(topic: TopicConfig) -> str:
    """A topic as Java prints it."""
    perm = "".join(
        letter if topic.perm & bit else "-"
        for bit, letter in ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    )
    attributes = ", ".join(f"{key}={value}" for key, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}, topicFilterType={topic.topic_filter_type}, "
        f"topicSysFlag={topic.topic_sys_flag}, order={str(topic.order).lower()}, attributes={{{attributes}}}]"
    )


def check_batch(properties: dict[str, str]) -> None:
    """Whether a batch as a whole asks to be stored elsewhere, which only single messages can be.

    # Differs: Apache ignores the mark of a transaction there, and stores a timed batch where its timer cannot read it.

    Raises:
        SendRefused: it does.
    """
    asked = what_waits(properties)
    if asked:
        raise SendRefused(ResponseCode.SYSTEM_ERROR, f"a batch cannot be transactional or timed ({asked})")


def check_batch_message(raw: bytes) -> None:
    """Whether a message of a batch asks to be stored elsewhere: it would be delivered at once.

    # Differs: Apache stores it as if it had not asked. Its Java client refuses a delay level before it sends.

    Raises:
        SendRefused: it does.
    """
    if not any(mark in raw for mark in WAITING_MARKS):
        return
    properties = parse(raw.decode("utf-8", "replace"))
    asked = "DELAY" if integer(properties.get("DELAY"), 0) > 0 else what_waits(properties)
    if asked:
        raise SendRefused(
            ResponseCode.MESSAGE_ILLEGAL, f"a message of a batch cannot be delayed, timed or transactional ({asked})"
        )


def what_waits(properties: dict[str, str]) -> str:
    """The property by which a message asks for a time or an end of a transaction; "" for none."""
    asked = TIMER_NAMES & properties.keys()
    if properties.get("TRAN_MSG", "").lower() == "true":
        asked |= {"TRAN_MSG"}
    return min(asked, default="")


def integer(text: str | None, default: int) -> int:
    """A number where there is one; Java's callers see an exception otherwise, ours the default."""
    try:
        return default if text is None else int(text)
    except ValueError:
        return default
