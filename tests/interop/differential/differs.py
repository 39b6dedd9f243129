"""Where pymq answers otherwise than Apache RocketMQ 5.5.0, each with its reason. Nothing else may differ.

A rule looks at the request and both answers and says whether the difference is this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.interop.differential.sequences import (
    CONSUME_STATS,
    DELETE_GROUP,
    HEART_BEAT,
    PULL,
    QUERY_OFFSET,
    SEND_BATCH,
    TOPIC_CONSUMERS,
    UPDATE_OFFSET,
    Step,
)

QUEUES_MAX = 65536

Normal = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One listed difference."""

    name: str
    reason: str
    applies: Callable[[Step, Normal, Normal, Sequence[Step]], bool]


def same_code(apache: Normal, pymq: Normal) -> bool:
    """Both say the same code, fields and body."""
    return all(apache[part] == pymq[part] for part in ("code", "fields", "body"))


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "error-wording",
        "An error made of a Java exception's text is worded by us: code, fields and body are the same.",
        lambda _step, apache, pymq, _before: (
            same_code(apache, pymq)
            and apache["code"] == 1
            and is_exception_text(apache["remark"])
            and bool(pymq["remark"])
        ),
    ),
    Difference(
        "broken-batch",
        "A batch body that ends early is MESSAGE_ILLEGAL (13), not a SYSTEM_ERROR made of a Java exception.",
        lambda step, apache, pymq, _before: (
            step.code == SEND_BATCH
            and apache["code"] == 1
            and is_exception_text(apache["remark"])
            and pymq["code"] == 13
        ),
    ),
    Difference(
        "commit-to-no-queue",
        "An offset for a queue that cannot exist is INVALID_PARAMETER (29); Apache keeps it for ever.",
        lambda step, apache, pymq, _before: (
            step.code == UPDATE_OFFSET and names_no_queue(step) and (apache["code"], pymq["code"]) == (0, 29)
        ),
    ),
    Difference(
        "deleted-group-stays-deleted",
        "5.5.0 makes a group again while it deletes it and then takes commits for it; here it is gone (26).",
        lambda step, apache, pymq, before: (
            (
                (step.code == UPDATE_OFFSET and (apache["code"], pymq["code"]) in ((0, 26), (17, 26)))
                or (step.code == QUERY_OFFSET and apache["code"] == 0)  # what such a commit left behind
            )
            and any(
                past.code == DELETE_GROUP and past.fields.get("groupName") == step.fields["consumerGroup"]
                for past in before
            )
        ),
    ),
    Difference(
        "pull-offset-of-strangers",
        "CONSUME_STATS says 0 for pullOffset of a group that pulls without ever having subscribed or committed.",
        lambda step, apache, pymq, _before: (
            step.code == CONSUME_STATS and without_pull_offsets(apache) == without_pull_offsets(pymq)
        ),
    ),
    Difference(
        "offsets-only-apache-has",
        "CONSUME_STATS is of no topic for which only Apache keeps an offset: it took a commit of a group that it had "
        "just deleted, or for a queue that cannot exist.",
        lambda step, apache, pymq, before: more_topics(
            step, apache, pymq, [past for past in before if only_apache_takes(past, before)]
        ),
    ),
    Difference(
        "read-but-not-subscribed",
        "CONSUME_STATS of a group that subscribes to some topics is of those; 5.5.0 adds, for ten minutes, what the "
        "group pulled with a subscription of the pull's own.",
        lambda step, apache, pymq, before: more_topics(
            step, apache, pymq, [past for past in before if past.code == PULL]
        ),
    ),
    Difference(
        "groups-of-the-past",
        "A group that was deleted, has unsubscribed, or committed only to a queue that cannot exist, is no consumer of "
        "a topic; 5.5.0 goes on naming it.",
        lambda step, apache, pymq, before: (
            step.code == TOPIC_CONSUMERS and names_groups_of_the_past(step, apache, pymq, before)
        ),
    ),
    Difference(
        "unknown-filter-type",
        "A pull that brings an expression of a type there is none of is refused (23); Apache gives it every message.",
        lambda step, apache, pymq, _before: (
            step.code == PULL
            and step.fields.get("expressionType") not in (None, "", "TAG", "SQL92")
            and apache["code"] != 23
            and pymq["code"] == 23
        ),
    ),
    Difference(
        "apache-is-silent",
        "A request Apache never answers (an exception on a thread of its own) is answered here.",
        lambda _step, apache, pymq, _before: apache["code"] == "silent" and pymq["code"] not in ("silent", "closed"),
    ),
)


def is_exception_text(remark: str | None) -> bool:
    """Whether a remark is the name or the trace of a Java exception."""
    signs = ("Exception", "org.apache.rocketmq", "java.", "Cannot invoke ")
    return remark is not None and any(sign in remark for sign in signs)


def names_groups_of_the_past(step: Step, apache: Normal, pymq: Normal, before: Sequence[Step]) -> bool:
    """Whether Apache names the groups we do, and besides them only such as were deleted, told of in a heartbeat, or
    have an offset that only Apache took."""
    theirs, ours = (set((answer["body"] or {}).get("groupList", ())) for answer in (apache, pymq))
    deleted = {past.fields.get("groupName") for past in before if past.code == DELETE_GROUP}
    beats = b"".join(past.body for past in before if past.code == HEART_BEAT)
    topic = step.fields.get("topic")
    taken = {
        past.fields.get("consumerGroup")
        for past in before
        if only_apache_takes(past, before) and past.fields.get("topic") == topic
    }
    known = deleted | taken
    return ours < theirs and all(group in known or f'"{group}"'.encode() in beats for group in theirs - ours)


def more_topics(step: Step, apache: Normal, pymq: Normal, because_of: Sequence[Step]) -> bool:
    """Whether Apache's consume statistics are ours, and besides of topics that the group used in *because_of*."""
    if step.code != CONSUME_STATS or (apache["code"], pymq["code"]) != (0, 0):
        return False
    theirs, ours = (without_pull_offsets(answer)["body"]["offsetTable"] for answer in (apache, pymq))
    group = step.fields.get("consumerGroup")
    used = {past.fields.get("topic") for past in because_of if past.fields.get("consumerGroup") == group}
    return ours.items() < theirs.items() and all(
        json.loads(queue)["topic"] in used for queue in theirs.keys() - ours.keys()
    )


def only_apache_takes(past: Step, before: Sequence[Step]) -> bool:
    """Whether *past* is a commit that is refused here: of a deleted group, or for a queue that cannot exist."""
    if past.code != UPDATE_OFFSET:
        return False
    group = past.fields.get("consumerGroup")
    deleted = any(other.code == DELETE_GROUP and other.fields.get("groupName") == group for other in before)
    return deleted or names_no_queue(past)


def names_no_queue(step: Step) -> bool:
    """Whether the number of the queue is one that no topic can have."""
    found = re.fullmatch(r"-?\d+", step.fields.get("queueId") or "")
    return found is not None and not 0 <= int(found[0]) < QUEUES_MAX


def without_pull_offsets(answer: Normal) -> Any:
    """Consume statistics with every pullOffset taken out."""
    table = (answer["body"] or {}).get("offsetTable", {})
    queues = {queue: {**offsets, "pullOffset": None} for queue, offsets in table.items()}
    return {**answer, "body": {**(answer["body"] or {}), "offsetTable": queues}}


def listed(step: Step, apache: Normal, pymq: Normal, before: Sequence[Step]) -> Difference | None:
    """The difference that explains *apache* against *pymq* after the steps *before*, or None."""
    return next((item for item in DIFFERENCES if item.applies(step, apache, pymq, before)), None)
