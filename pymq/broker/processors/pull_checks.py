"""Whether a pull may be made, and what of its queue it wants; refused in Apache's words and order."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.filters import Compiled, compile_typed
from pymq.broker.groups import SubscriptionGroup
from pymq.broker.processors.send_checks import FAQ
from pymq.broker.publishing import TAGS_MAX, many_tags
from pymq.broker.request_fields import text_field
from pymq.broker.subscriptions import CONSUME_ACTIVELY, TAG_TYPE, SubscriptionData
from pymq.broker.topic_config import TopicConfig
from pymq.filter import FilterError
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.dispatch import address_of
from pymq.remoting.errors import RemotingError
from pymq.remoting.headers.base import read_number
from pymq.remoting.server import Request

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

PERMISSION_READ = 4
FILTER_NOT_SUPPORTED = "The broker does not support consumer to filter message by"
CLASS_FILTER_GONE = "which needs a filter server and is not supported; subscribe by tags or by SQL92"
FORBIDDEN_READ = 1 << 2  # PermName.INDEX_PERM_READ
OWN_SUBSCRIPTION = 1 << 2  # of sysFlag: the request brings its own expression
# ForbiddenType: what it is that refuses.
BROKER_FORBIDDEN, GROUP_FORBIDDEN, TOPIC_FORBIDDEN, BROADCAST_FORBIDDEN, SUBSCRIPTION_FORBIDDEN = range(1, 6)

NUMBERS = {
    "queueId": 32,
    "queueOffset": 64,
    "maxMsgNums": 32,
    "sysFlag": 32,
    "commitOffset": 64,
    "suspendTimeoutMillis": 64,
    "subVersion": 64,
    "maxMsgBytes": 32,
    "requestSource": 32,
}  # and their bits

log = logging.getLogger("pymq.broker")


class Pull:
    """A pull, its fields, and how to refuse it.

    Compat: 5.5.0 misses a field only where it needs it, after every check that comes before; one that is no number it
    refuses at once. So fields are read here on their first use.
    """

    def __init__(self, request: Request) -> None:
        """Read the numbers.

        Raises:
            RemotingError: one is none.
        """
        fields = request.command.fields
        self.request = request
        self._numbers = {
            name: None if fields.get(name) is None else read_number(name, fields[name], bits=bits)
            for name, bits in NUMBERS.items()
        }

    def text(self, name: str) -> str:
        """A field that is needed now.

        Raises:
            RemotingError: it is missing.
        """
        return text_field(self.request.command, name)

    def number(self, name: str) -> int:
        """A number that is needed now.

        Raises:
            RemotingError: it is missing.
        """
        value = self._numbers[name]
        if value is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
        return value

    @property
    def group(self) -> str:
        """Whose pull it is."""
        return self.text("consumerGroup")

    @property
    def topic(self) -> str:
        """What is pulled."""
        return self.text("topic")

    @property
    def queue_id(self) -> int:
        """Of which queue."""
        return self.number("queueId")

    @property
    def offset(self) -> int:
        """From where on."""
        return self.number("queueOffset")

    @property
    def sys_flag(self) -> int:
        """PullSysFlag's bits."""
        return self.number("sysFlag")

    def refuse(self, code: int, remark: str, forbidden: int | None = None) -> Command:
        """The answer that says no."""
        fields = {} if forbidden is None else {"forbiddenType": str(forbidden)}
        return self.request.command.reply(code, remark, fields)


async def check_pull(broker: Broker, pull: Pull) -> Command | tuple[SubscriptionGroup, TopicConfig]:
    """The group and topic of a pull that may be made, or the refusal."""
    if not broker.config.broker_permission & PERMISSION_READ:
        remark = f"the broker[{broker.config.broker_ip1}] pulling message is forbidden"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, BROKER_FORBIDDEN)
    if pull.request.command.code == RequestCode.LITE_PULL_MESSAGE and not broker.config.lite_pull_message_enable:
        remark = f"the broker[{broker.config.broker_ip1}] for lite pull consumer is forbidden"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, BROKER_FORBIDDEN)
    group = await broker.groups.find(pull.group)
    if group is None:
        remark = f"subscription group [{pull.group}] does not exist, {FAQ}"
        return pull.refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group.consume_enable:
        remark = f"subscription group no permission, {pull.group}"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, GROUP_FORBIDDEN)
    topic = broker.topics.get(pull.topic)
    if topic is None:
        log.warning("pull of an unknown topic topic=%s group=%s", pull.topic, pull.group)
        return pull.refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{pull.topic}] not exist, apply first please! {FAQ}")
    if not topic.perm & PERMISSION_READ:
        remark = f"the topic[{pull.topic}] pulling message is forbidden"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, TOPIC_FORBIDDEN)
    if not 0 <= pull.queue_id < topic.read_queue_nums:
        remark = (
            f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{address_of(pull.request.peer)}]"
        )
        return pull.refuse(ResponseCode.INVALID_PARAMETER, remark)
    return group, topic


def find_subscription(broker: Broker, pull: Pull, group: SubscriptionGroup) -> Command | SubscriptionData:
    """What the group wants of the topic, or the refusal."""
    if pull.sys_flag & OWN_SUBSCRIPTION:
        try:
            found = own_subscription(pull)
        except ValueError:
            return pull.refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    else:
        known = known_subscription(broker, pull, group)
        if isinstance(known, Command):
            return known
        found = known
    if not found.is_tag_type and not broker.config.enable_property_filter:
        return pull.refuse(ResponseCode.SYSTEM_ERROR, f"{FILTER_NOT_SUPPORTED} {found.expression_type}")
    if found.class_filter_mode:
        # Differs: 5.5.0, whose filter servers are long gone, lets every message pass.
        remark = f"topic[{pull.topic}] is subscribed with a class filter, {CLASS_FILTER_GONE}"
        return pull.refuse(ResponseCode.SYSTEM_ERROR, remark)
    if broker.config.reject_pull_consumer_enable and not may_pull_actively(broker, pull):
        remark = f"the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}"
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    return found


def own_subscription(pull: Pull) -> SubscriptionData:
    """The expression a pull brings along.

    Raises:
        ValueError: it is none.
    """
    fields = pull.request.command.fields
    kind, expression = fields.get("expressionType"), fields.get("subscription") or ""
    if kind is not None and kind != TAG_TYPE and not expression:
        raise ValueError(f"no expression of type {kind}")
    return SubscriptionData.from_expression(pull.topic, expression, 0, TAG_TYPE if kind is None else kind)


def known_subscription(broker: Broker, pull: Pull, group: SubscriptionGroup) -> Command | SubscriptionData:
    """What the group's heartbeats said about the topic."""
    info = broker.clients.consumer_group(pull.group)
    if info is None:
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
    if not group.consume_broadcast_enable and info.broadcasting:
        remark = f"the consumer group[{pull.group}] can not consume by broadcast way"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, BROADCAST_FORBIDDEN)
    if broker.groups.forbidden(group.group_name, pull.topic) & FORBIDDEN_READ:
        remark = f"the consumer group[{pull.group}] is forbidden for topic[{pull.topic}]"
        return pull.refuse(ResponseCode.NO_PERMISSION, remark, SUBSCRIPTION_FORBIDDEN)
    found = info.subscription(pull.topic)
    if found is None:
        log.warning("pull without a subscription group=%s topic=%s", pull.group, pull.topic)
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
    if found.sub_version < pull.number("subVersion"):
        return pull.refuse(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if not found.is_tag_type:
        known = broker.filters.get(pull.topic, pull.group)
        if known is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            return pull.refuse(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if known.client_version < pull.number("subVersion"):
            return pull.refuse(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages a pull gets: by tag hashes (None: all), or by a filter program."""

    tag_hashes: tuple[int, ...] | None = None
    program: bytes | None = None


def wanted_messages(broker: Broker, pull: Pull, subscription: SubscriptionData) -> Command | Wanted:
    """What *subscription* lets through, or the refusal of an expression that the pull brings along."""
    if subscription.is_tag_type:
        program = many_tags(subscription)
        if subscription.is_all or program is not None:
            return Wanted(program=program)
        if len(subscription.tag_hashes) > TAGS_MAX:
            return Wanted()  # hashes without their tags: clients look at the tag themselves anyway
        return Wanted(tag_hashes=tuple(subscription.tag_hashes))
    if pull.sys_flag & OWN_SUBSCRIPTION:
        try:
            compiled: Compiled | None = compile_typed(subscription.sub_string, subscription.expression_type)
        except FilterError as error:
            # Differs: 5.5.0 means to refuse it by an assertion that is off, and lets every message pass.
            remark = f"parse the consumer's subscription failed: {error}"
            return pull.refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
    else:
        known = broker.filters.get(pull.topic, pull.group)
        compiled = known.compiled if known is not None else None
    return Wanted(program=broker.filters.program(pull.topic, pull.group, compiled))


def may_pull_actively(broker: Broker, pull: Pull) -> bool:
    """With rejectPullConsumerEnable: whether this is a push consumer's pull, or one that is registered."""
    info = broker.clients.consumer_group(pull.group)
    if info is not None and info.consume_type != CONSUME_ACTIVELY:
        return True
    registered = info is not None and pull.request.connection in info.channels
    return registered or pull.group in names.SYSTEM_GROUPS
