"""Whether the members of a consumer group agree, found out at their heartbeats and said loudly when they do not.

A group has one set of subscriptions at the broker: what the newest heartbeat said. Members that subscribe differently
take each other's filters and topics away, and messages are skipped without an error anywhere. Members are told apart by
client id when queues are divided: two that share one get the same queues, and other queues nobody.

Said in the log when it begins, when it changes and every ten minutes while it lasts, each group at most every ten
seconds; shown at any time by GET_CONSUMER_CONNECTION_LIST (`inconsistencies`) and GET_BROKER_RUNTIME_INFO.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pymq.broker import names
from pymq.broker.subscriptions import ConsumerData, SubscriptionData
from pymq.clock import Clock

REPORT_AGAIN_S = 600.0  # while nothing changes
REPORT_LEAST_S = 10.0  # between two reports of one group, whatever changes
SUBSCRIPTIONS, CLIENT_ID = "subscriptions", "clientId"

log = logging.getLogger("pymq.broker")


class Wants(NamedTuple):
    """What one member asks for, apart from its retry topic, which follows from the group's name."""

    message_model: str
    subscriptions: frozenset[tuple[str, str]]  # topic and expression

    def __str__(self) -> str:
        """As it is logged: topic=expression, by name."""
        shown = ", ".join(f"{topic}={expression!r}" for topic, expression in sorted(self.subscriptions))
        return f"{self.message_model} {{{shown}}}"


class Member(NamedTuple):
    """Who a finding is about."""

    client_id: str
    address: str
    wants: Wants | None

    def to_json(self) -> dict[str, Any]:
        """As a program reads it."""
        document: dict[str, Any] = {"clientAddr": self.address, "clientId": self.client_id}
        if self.wants is not None:
            document["messageModel"] = self.wants.message_model
            document["subscriptions"] = dict(sorted(self.wants.subscriptions))
        return document


class Finding(NamedTuple):
    """One disagreement: of its kinds of members, one each."""

    kind: str
    members: tuple[Member, ...]

    def to_json(self) -> dict[str, Any]:
        """As a program reads it."""
        return {"kind": self.kind, "members": [member.to_json() for member in self.members]}

    def __str__(self) -> str:
        """As it is logged."""
        if self.kind == CLIENT_ID:
            shown = ", ".join(member.address for member in self.members)
            return f"client={self.members[0].client_id} connections=[{shown}]"
        return " ".join(
            f"client{number}={member.client_id} subscriptions{number}={member.wants}"
            for number, member in enumerate(self.members, 1)
        )


ADVICE: Mapping[str, str] = {
    SUBSCRIPTIONS: "members of one group subscribe differently: messages will be missed; give every member of a group "
    "the same topics, expressions and message model",
    CLIENT_ID: "connections of one group share a client id: they get the same queues, others nobody; give each client "
    "an instanceName of its own (after a lost connection this ends by itself)",
}


@dataclass(slots=True)
class GroupWatch:
    """One group: its members by connection, and what was said of them last."""

    members: dict[int, Member] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    reported: tuple[Finding, ...] = ()
    reported_s: float | None = None  # monotonic


class Consistency:
    """Watches every group of a broker."""

    def __init__(self, clock: Clock) -> None:
        """Nobody has been heard yet."""
        self._clock = clock
        self._groups: dict[str, GroupWatch] = {}

    def heard(self, connection: int, client_id: str, address: str, data: ConsumerData, *, whole: bool) -> None:
        """A member's heartbeat; not *whole*: its subscriptions were left out, and are as they were."""
        watch = self._groups.setdefault(data.group_name, GroupWatch())
        known = watch.members.get(connection)
        wants = wants_of(data) if whole else (known.wants if known is not None else None)
        member = Member(client_id, address, wants)
        if member != known:
            watch.members[connection] = member
            watch.findings = tuple(find(watch.members))
        self._report(data.group_name, watch)

    def left(self, group: str, connection: int) -> None:
        """A member is gone."""
        watch = self._groups.get(group)
        if watch is None or watch.members.pop(connection, None) is None:
            return
        if not watch.members:
            del self._groups[group]
            return
        watch.findings = tuple(find(watch.members))
        if not watch.findings:
            self._report(group, watch)

    def findings(self, group: str) -> tuple[Finding, ...]:
        """What is wrong with *group* now."""
        watch = self._groups.get(group)
        return watch.findings if watch is not None else ()

    def all_findings(self) -> Iterator[tuple[str, Finding]]:
        """(group, finding) of every group."""
        for group, watch in self._groups.items():
            for finding in watch.findings:
                yield group, finding

    def _report(self, group: str, watch: GroupWatch) -> None:
        """Say it, unless it was said just now."""
        if not watch.findings:
            if watch.reported:
                log.info("members of the group agree again group=%s", group)
                watch.reported = ()
            return
        now_s = self._clock.monotonic_s()
        since_s = float("inf") if watch.reported_s is None else now_s - watch.reported_s
        if since_s < (REPORT_AGAIN_S if watch.findings == watch.reported else REPORT_LEAST_S):
            return
        watch.reported, watch.reported_s = watch.findings, now_s
        for finding in watch.findings:
            log.warning("%s group=%s %s", ADVICE[finding.kind], group, finding)


def wants_of(data: ConsumerData) -> Wants:
    """What a heartbeat asks for; expressions that mean the same are the same."""
    return Wants(
        data.message_model,
        frozenset(
            (subscription.topic, expression_of(subscription))
            for subscription in data.subscriptions
            if not subscription.topic.startswith(names.RETRY_PREFIX)
        ),
    )


def expression_of(subscription: SubscriptionData) -> str:
    """The filter as text: tags in one order."""
    if not subscription.is_tag_type:
        return f"{subscription.expression_type}: {subscription.sub_string}"
    if subscription.is_all:
        return "*"
    return " || ".join(sorted(subscription.tags)) or subscription.sub_string


def find(members: Mapping[int, Member]) -> Iterator[Finding]:
    """What members disagree about; of those that agree, the one that was first stands for all."""
    by_wants: dict[Wants, Member] = {}
    by_id: dict[str, list[Member]] = {}
    for member in members.values():
        if member.wants is not None:
            by_wants.setdefault(member.wants, member)
        by_id.setdefault(member.client_id, []).append(member)
    if len(by_wants) > 1:
        yield Finding(SUBSCRIPTIONS, tuple(by_wants.values()))
    for same in by_id.values():
        if len(same) > 1:
            yield Finding(CLIENT_ID, tuple(same))
