"""Whether a pull may be made, and what of its queue it wants; refused in Apache's words and order."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.groups import SubscriptionGroup
from pymq.broker.processors.send_checks import FAQ
from pymq.broker.subscriptions import CONSUME_ACTIVELY, TAG_TYPE, SubscriptionData
from pymq.broker.topic_config import TopicConfig
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.dispatch import address_of
from pymq.remoting.headers.pull import PullMessageRequestHeader
from pymq.remoting.server import Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

PERMISSION_READ = 4
FORBIDDEN_READ = 1 << 2  # PermName.INDEX_PERM_READ
OWN_SUBSCRIPTION = 1 << 2  # of sysFlag: the request brings its own expression
# ForbiddenType: what it is that refuses.
BROKER_FORBIDDEN, GROUP_FORBIDDEN, TOPIC_FORBIDDEN, BROADCAST_FORBIDDEN, SUBSCRIPTION_FORBIDDEN = range(1, 6)

log = logging.getLogger("pymq.broker")


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull and how to refuse it."""

    request: Request
    header: PullMessageRequestHeader

    def refuse(self, code: int, remark: str, forbidden: int | None = None) -> Command:
        """The answer that says no."""
        fields = {} if forbidden is None else {"forbiddenType": str(forbidden)}
        return self.request.command.reply(code, remark, fields)


async def check_pull(broker: Broker, pull: Pull) -> Command | tuple[SubscriptionGroup, TopicConfig]:
    """The group and topic of a pull that may be made, or the refusal."""
    header = pull.header
    if not broker.config.broker_permission & PERMISSION_READ:
        remark = f"the broker[{broker.config.broker_ip1}] pulling message is forbidden"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, BROKER_FORBIDDEN)
    if pull.request.command.code == RequestCode.LITE_PULL_MESSAGE and not broker.config.lite_pull_message_enable:
        remark = f"the broker[{broker.config.broker_ip1}] for lite pull consumer is forbidden"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, BROKER_FORBIDDEN)
    group = await broker.groups.find(header.consumer_group)
    if group is None:
        remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
        return pull.refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group.consume_enable:
        remark = f"subscription group no permission, {header.consumer_group}"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, GROUP_FORBIDDEN)
    topic = broker.topics.get(header.topic)
    if topic is None:
        log.warning("pull of an unknown topic topic=%s group=%s", header.topic, header.consumer_group)
        return pull.refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}")
    if not topic.perm & PERMISSION_READ:
        remark = f"the topic[{header.topic}] pulling message is forbidden"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, TOPIC_FORBIDDEN)
    if not 0 <= header.queue_id < topic.read_queue_nums:
        remark = (
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{address_of(pull.request.peer)}]"
        )
        return pull.refuse(ResponseCode.INVALID_PARAMETER, remark)
    return group, topic


def find_subscription(broker: Broker, pull: Pull, group: SubscriptionGroup) -> Command | SubscriptionData:
    """What the group wants of the topic, or the refusal."""
    header = pull.header
    if header.sys_flag & OWN_SUBSCRIPTION:
        try:
            found = own_subscription(header)
        except ValueError:
            return pull.refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    else:
        known = known_subscription(broker, pull, group)
        if isinstance(known, Command):
            return known
        found = known
    if not found.is_tag_type:
        # Differs while expressions are not evaluated: enablePropertyFilter=true does not help.
        remark = f"The broker does not support consumer to filter message by {found.expression_type}"
        return pull.refuse(ResponseCode.SYSTEM_ERROR, remark)
    if broker.config.reject_pull_consumer_enable and not may_pull_actively(broker, pull):
        remark = f"the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}"
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    return found


def own_subscription(header: PullMessageRequestHeader) -> SubscriptionData:
    """The expression a pull brings along.

    Raises:
        ValueError: it is none.
    """
    kind = header.expression_type
    if kind is not None and kind != TAG_TYPE and not header.subscription:
        raise ValueError(f"no expression of type {kind}")
    return SubscriptionData.from_expression(
        header.topic, header.subscription or "", header.sub_version, TAG_TYPE if kind is None else kind
    )


def known_subscription(broker: Broker, pull: Pull, group: SubscriptionGroup) -> Command | SubscriptionData:
    """What the group's heartbeats said about the topic."""
    header = pull.header
    info = broker.clients.consumer_group(header.consumer_group)
    if info is None:
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
    if not group.consume_broadcast_enable and info.broadcasting:
        remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, BROADCAST_FORBIDDEN)
    if broker.groups.forbidden(group.group_name, header.topic) & FORBIDDEN_READ:
        remark = f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, SUBSCRIPTION_FORBIDDEN)
    found = info.subscription(header.topic)
    if found is None:
        log.warning("pull without a subscription group=%s topic=%s", header.consumer_group, header.topic)
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
    if found.sub_version < header.sub_version:
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    return found


def may_pull_actively(broker: Broker, pull: Pull) -> bool:
    """With rejectPullConsumerEnable: whether this is a push consumer's pull, or one that is registered."""
    info = broker.clients.consumer_group(pull.header.consumer_group)
    if info is not None and info.consume_type != CONSUME_ACTIVELY:
        return True
    registered = info is not None and pull.request.connection in info.channels
    return registered or pull.header.consumer_group in names.SYSTEM_GROUPS
