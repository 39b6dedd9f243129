"""What the control loop knows, told to the reactors: the rows of csrc/serve's tables.

One place decides what is special, that is, what the reactors are to leave to Python. A call returns once no reactor can
still be working with the older row, so a request may be answered right behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.config import PERM_WRITE
from pymq.broker.groups import SubscriptionGroup
from pymq.broker.subscriptions import SubscriptionData
from pymq.broker.topic_config import SINGLE_TAG, TopicConfig
from pymq.filter import compile_tags

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

TAGS_MAX = 64  # PYMQ_TAGS_MAX: more tags than a row holds


def many_tags(subscription: SubscriptionData) -> bytes | None:
    """The program of a subscription to more tags than a row of hashes holds; None when the hashes do."""
    if subscription.is_all or len(subscription.tag_hashes) <= TAGS_MAX or not subscription.tags:
        return None
    return compile_tags(subscription.tags)


class Publisher:
    """Publishes for one broker."""

    def __init__(self, broker: Broker) -> None:
        """Into the serving of *broker*."""
        self._broker = broker

    def topic(self, config: TopicConfig) -> None:
        """Insert or replace a topic."""
        self._broker.serve.publish_topic(
            config.topic_name,
            permission=config.perm,
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            sys_flag=config.topic_sys_flag,
            send_special=self._is_send_special(config),
            pull_special=False,
        )

    def _is_send_special(self, config: TopicConfig) -> bool:
        """Whether sends are refused, re-routed or checked in ways only Python knows."""
        attributes = config.attributes
        return (
            config.topic_name in names.NOT_SENT_TO
            or config.topic_name.startswith(names.SYSTEM_TOPIC_PREFIX)
            or attributes.get("cleanup.policy") == "COMPACTION"
            or attributes.get("queue.type") == "BatchCQ"
            or config.topic_filter_type != SINGLE_TAG
            or (config.order and not self._broker.config.broker_permission & PERM_WRITE)
        )

    def remove_topic(self, topic: str, *, offsets_too: bool) -> None:
        """Take a topic away; pulls held on it are answered."""
        self._broker.serve.remove_topic(topic, offsets_too)
        if offsets_too:
            self._broker.new_groups.forget(topic=topic)

    def group(self, group: SubscriptionGroup) -> None:
        """Insert or replace a group."""
        self._broker.serve.publish_group(
            group.group_name,
            disabled=not group.consume_enable,
            special=self._is_group_special(group),
            sys_flag=group.group_sys_flag,
            broker_id=group.broker_id,
            broker_id_when_slow=group.which_broker_when_consume_slowly,
            retry_queues=group.retry_queue_nums,
            retry_max_times=group.retry_max_times,
        )

    def _is_group_special(self, group: SubscriptionGroup) -> bool:
        """Whether a pull has to be looked at: something forbidden, a kind of pull refused.

        A group that may not broadcast is made so by mqadmin as a matter of course; it counts only once its members do.
        """
        config = self._broker.config
        members = self._broker.clients.consumer_group(group.group_name)
        return (
            (not group.consume_broadcast_enable and members is not None and members.broadcasting)
            or not config.lite_pull_message_enable
            or config.reject_pull_consumer_enable
            or self._broker.groups.has_forbidden(group.group_name)
        )

    def remove_group(self, group: str, *, offsets_too: bool) -> None:
        """Take a group away; pulls it holds are answered."""
        self._broker.serve.remove_group(group, offsets_too)
        if offsets_too:
            self._broker.new_groups.forget(group=group)

    def subscription(self, group: str, subscription: SubscriptionData) -> None:
        """What a group wants of a topic: all, by tags, or by a program, which many tags are turned into as well."""
        if not subscription.is_tag_type:
            self._filtered(group, subscription)
            return
        hashes = () if subscription.is_all else tuple(sorted(subscription.tag_hashes))
        program = many_tags(subscription)
        special = subscription.class_filter_mode or (len(hashes) > TAGS_MAX and program is None)
        self._broker.serve.publish_subscription(
            group,
            subscription.topic,
            version=subscription.sub_version,
            all=subscription.is_all,
            special=special,
            tag_hashes=() if special or program is not None else hashes,
            program=program,
        )

    def _filtered(self, group: str, subscription: SubscriptionData) -> None:
        """By an expression: natively when it is enabled and known, and as far as its newest known version goes."""
        filters = self._broker.filters
        known = filters.get(subscription.topic, group)
        usable = known is not None and not subscription.class_filter_mode and self._broker.config.enable_property_filter
        program = filters.program(subscription.topic, group, known.compiled) if usable and known is not None else None
        self._broker.serve.publish_subscription(
            group,
            subscription.topic,
            version=min(subscription.sub_version, known.client_version) if known is not None else 0,
            special=program is None,
            program=program,
            expression=known.expression if known is not None else "",
        )

    def remove_subscription(self, group: str, topic: str) -> None:
        """A group wants nothing more of a topic."""
        self._broker.serve.remove_subscription(group, topic)
