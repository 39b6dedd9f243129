"""Who is connected: producers and consumers by group, from their heartbeats.

A member is a connection; a group's subscriptions are what the newest heartbeat of any member said, and are published
to the reactors, which serve pulls by them. When membership or topics change, every member is told to rebalance
(NOTIFY_CONSUMER_IDS_CHANGED). A member goes by its own word, by its connection's end, or after 120 s of silence.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymq.broker.consistency import Consistency
from pymq.broker.subscriptions import BROADCASTING, ConsumerData, SubscriptionData
from pymq.remoting.codes import RequestCode
from pymq.remoting.command import Command, next_opaque

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

log = logging.getLogger("pymq.broker")


@dataclass(slots=True)
class ClientChannel:
    """A client of one group on one connection."""

    connection: int
    client_id: str
    language: str
    version: int
    address: str
    last_update_ms: int  # wall clock, shown to tools
    seen_s: float  # monotonic: a step of the wall clock must not expire everybody at once


class ConsumerGroupInfo:
    """The members of one consumer group and what they subscribe to."""

    def __init__(self, name: str, data: ConsumerData) -> None:
        """A group without members yet."""
        self.name = name
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        self.channels: dict[int, ClientChannel] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}

    def subscription(self, topic: str) -> SubscriptionData | None:
        """What the group wants of *topic*."""
        return self.subscriptions.get(topic)

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Its members, as rebalancing counts them."""
        return [channel.client_id for channel in self.channels.values()]

    def find(self, client_id: str) -> ClientChannel | None:
        """The member of that id."""
        return next((channel for channel in self.channels.values() if channel.client_id == client_id), None)

    def put_channel(self, channel: ClientChannel, data: ConsumerData) -> bool:
        """Keep or refresh a member; whether it is a new one."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self.channels.get(channel.connection)
        if known is not None and known.client_id != channel.client_id:
            log.error(
                "client id changed on one connection group=%s old=%s new=%s address=%s",
                self.name, known.client_id, channel.client_id, channel.address,
            )  # fmt: skip
        self.channels[channel.connection] = channel
        return known is None


class ClientManager:
    """Both tables, and what follows from their changes."""

    def __init__(self, broker: Broker) -> None:
        """Nobody is connected yet."""
        self._broker = broker
        self._consumers: dict[str, ConsumerGroupInfo] = {}
        self._producers: dict[str, dict[int, ClientChannel]] = {}
        self._producer_ids: dict[str, ClientChannel] = {}  # by client id: whom a reply is for
        self._fingerprints: dict[str, int] = {}
        self.consistency = Consistency(broker.clock)

    # ---- consumers -----------------------------------------------------------------------------------------------

    def consumer_group(self, name: str) -> ConsumerGroupInfo | None:
        """The group, while it has members."""
        return self._consumers.get(name)

    def consumer_groups(self) -> Mapping[str, ConsumerGroupInfo]:
        """Every group with members; not to be changed."""
        return self._consumers

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups with members that subscribe to *topic*."""
        return {name for name, info in self._consumers.items() if topic in info.subscriptions}

    def register_consumer(
        self, channel: ClientChannel, data: ConsumerData, *, notify: bool, subscriptions_too: bool
    ) -> bool:
        """Take note of a consumer's heartbeat; whether membership or topics changed (then members are told)."""
        info = self._consumers.get(data.group_name)
        if info is None:
            info = self._consumers[data.group_name] = ConsumerGroupInfo(data.group_name, data)
        model = info.message_model
        joined = info.put_channel(channel, data)
        self.consistency.heard(channel.connection, channel.client_id, channel.address, data, whole=subscriptions_too)
        group = self._broker.groups.get(info.name)
        if group is not None and not group.consume_broadcast_enable and (joined or model != info.message_model):
            self._broker.publisher.group(group)  # whether its pulls are special depends on its members
        if joined:
            log.info(
                "consumer joined group=%s client=%s model=%s type=%s address=%s",
                info.name, channel.client_id, info.message_model, info.consume_type, channel.address,
            )  # fmt: skip
        moved = False
        if subscriptions_too:
            filtered = self._broker.filters.register(info.name, data.subscriptions)
            moved = self._update_subscriptions(info, data, channel)
            for topic in filtered & info.subscriptions.keys():
                self._broker.publisher.subscription(info.name, info.subscriptions[topic])
        if (joined or moved) and notify and not info.broadcasting:
            self.notify_members(info)
        return joined or moved

    def _update_subscriptions(self, info: ConsumerGroupInfo, data: ConsumerData, channel: ClientChannel) -> bool:
        """Publish what is newer; whether topics came or went."""
        moved = False
        wanted = {subscription.topic: subscription for subscription in data.subscriptions}
        for topic, new in wanted.items():
            old = info.subscriptions.get(topic)
            if old is None:
                moved = True
                log.info("subscription added group=%s topic=%s expression=%r", info.name, topic, new.sub_string)
            elif new.sub_version <= old.sub_version:
                continue
            info.subscriptions[topic] = new
            self._broker.publisher.subscription(info.name, new)
        for topic in [topic for topic in info.subscriptions if topic not in wanted]:
            moved = True
            log.warning("subscription removed group=%s topic=%s client=%s", info.name, topic, channel.client_id)
            del info.subscriptions[topic]
            self._broker.publisher.remove_subscription(info.name, topic)
        return moved

    def unregister_consumer(self, group: str, connection: int, *, notify: bool) -> None:
        """A consumer says good-bye."""
        info = self._consumers.get(group)
        if info is not None:
            channel = info.channels.pop(connection, None)
            self.consistency.left(group, connection)
            if channel is not None:
                log.info("consumer left group=%s client=%s", group, channel.client_id)
            self._after_leaving(info, notify=notify and channel is not None)

    def _after_leaving(self, info: ConsumerGroupInfo, *, notify: bool) -> None:
        if not info.channels and self._consumers.pop(info.name, None) is not None:
            self._fingerprints.pop(info.name, None)
            self._broker.filters.unregister(info.name)
            for topic in info.subscriptions:
                self._broker.publisher.remove_subscription(info.name, topic)
            log.info("consumer group without members group=%s", info.name)
        elif notify and not info.broadcasting:
            self.notify_members(info)

    def publish_filters(self) -> None:
        """Tell the reactors again what is filtered by expressions: whether that is enabled, and how, has changed."""
        for info in self._consumers.values():
            for subscription in info.subscriptions.values():
                if not subscription.is_tag_type:
                    self._broker.publisher.subscription(info.name, subscription)

    def notify_members(self, info: ConsumerGroupInfo) -> None:
        """Tell every member to rebalance at once."""
        if not self._broker.config.notify_consumer_ids_changed_enable:
            return
        for connection in list(info.channels):
            fields = {"consumerGroup": info.name}
            command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, opaque=next_opaque())
            self._broker.server.push(connection, command)

    def changed_fingerprint(self, group: str, fingerprint: int) -> bool:
        """Remember the heartbeat's fingerprint; whether another one was known."""
        known = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return known is not None and known != fingerprint

    # ---- producers -----------------------------------------------------------------------------------------------

    def register_producer(self, group: str, channel: ClientChannel) -> None:
        """Take note of a producer's heartbeat."""
        channels = self._producers.setdefault(group, {})
        if channel.connection not in channels:
            log.info("producer joined group=%s client=%s address=%s", group, channel.client_id, channel.address)
        channels[channel.connection] = channel
        self._producer_ids[channel.client_id] = channel

    def unregister_producer(self, group: str, connection: int) -> None:
        """A producer says good-bye."""
        channels = self._producers.get(group)
        channel = channels.pop(connection, None) if channels is not None else None
        if channel is None:
            return
        log.info("producer left group=%s", group)
        if not channels:
            del self._producers[group]
        known = self._producer_ids.get(channel.client_id)
        if known is not None and known.connection == connection and not self._produces(connection):
            del self._producer_ids[channel.client_id]

    def _produces(self, connection: int) -> bool:
        """Whether any producer group has a member there: a client in two groups can leave one of them."""
        return any(connection in channels for channels in self._producers.values())

    def find_producer(self, client_id: str) -> ClientChannel | None:
        """Where the producer of that id is, by its newest heartbeat."""
        return self._producer_ids.get(client_id)

    def producers(self, group: str) -> list[ClientChannel]:
        """Members of a producer group."""
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> dict[str, list[ClientChannel]]:
        """Every producer group with its members."""
        return {group: list(channels.values()) for group, channels in self._producers.items()}

    # ---- both ----------------------------------------------------------------------------------------------------

    def connection_closed(self, connection: int) -> None:
        """A connection ended: its members are gone."""
        for group in [group for group, channels in self._producers.items() if connection in channels]:
            self.unregister_producer(group, connection)
        for info in [info for info in self._consumers.values() if connection in info.channels]:
            channel = info.channels.pop(connection)
            self.consistency.left(info.name, connection)
            log.info("consumer's connection closed group=%s client=%s", info.name, channel.client_id)
            self._after_leaving(info, notify=True)

    def expire(self) -> None:
        """Close the connections of clients that have been silent too long, and forget them."""
        oldest_s = self._broker.clock.monotonic_s() - self._broker.config.channel_expired_timeout / 1000
        silent = {
            channel.connection
            for channels in (*self._producers.values(), *(info.channels for info in self._consumers.values()))
            for channel in channels.values()
            if channel.seen_s < oldest_s
        }
        for connection in silent:
            log.warning("client silent for too long connection=%x", connection)
            self._broker.server.close_connection(connection)
            self.connection_closed(connection)
