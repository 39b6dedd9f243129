"""Part 2: what becomes of a message that could not be consumed.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "retry-dead-letters-are-consumed": {"keys": ["m-0", "m-1", "m-2"], "topic": [True, True, True]},
    "retry-default-maximum-is-16": {"given": 17, "last": 16, "dead": [17]},
    "retry-delay-level-in-context": {"second": "in time", "reconsumeTimes": [0, 1]},
    "retry-exception": {
        "reconsumeTimes": [0, 1, 2],
        "topic": [True, True, True],
        "sameUniqueKey": [True, True, True],
        "retryTopic": [False, True, True],
        "originIsTheFirst": [False, True, True],
        "tag": ["tag", "tag", "tag"],
        "second": "in time",
        "third": "in time",
        "properties": ["DELAY", "ORIGIN_MESSAGE_ID", "REAL_QID", "REAL_TOPIC", "RETRY_TOPIC"],
    },
    "retry-keeps-the-tag-filter": {"given": ["green 0", "green 1", "red 0", "red 1"]},
    "retry-later": {
        "reconsumeTimes": [0, 1, 2],
        "topic": [True, True, True],
        "sameUniqueKey": [True, True, True],
        "retryTopic": [False, True, True],
        "originIsTheFirst": [False, True, True],
        "tag": ["tag", "tag", "tag"],
        "second": "in time",
        "third": "in time",
        "properties": ["DELAY", "ORIGIN_MESSAGE_ID", "REAL_QID", "REAL_TOPIC", "RETRY_TOPIC"],
    },
    "retry-maximum-of-the-consumer": {
        "given": [0, 1, 2],
        "letter": {
            "count": 1,
            "reconsumeTimes": 3,
            "body": "body of m-0",
            "origin": True,
            "retryTopic": True,
            "deadOriginTopic": False,
            "deadOriginId": False,
            "permission": 6,
            "queues": 1,
            "properties": ["DELAY", "ORIGIN_MESSAGE_ID", "REAL_QID", "REAL_TOPIC", "RETRY_TOPIC"],
        },
    },
    "retry-negative-level-to-dead-letters": {
        "given": 1,
        "letter": {
            "count": 1,
            "reconsumeTimes": 1,
            "body": "body of m-0",
            "origin": True,
            "retryTopic": True,
            "deadOriginTopic": False,
            "deadOriginId": False,
            "permission": 6,
            "queues": 1,
            "properties": ["DELAY", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC"],
        },
    },
    "retry-null": {
        "reconsumeTimes": [0, 1, 2],
        "topic": [True, True, True],
        "sameUniqueKey": [True, True, True],
        "retryTopic": [False, True, True],
        "originIsTheFirst": [False, True, True],
        "tag": ["tag", "tag", "tag"],
        "second": "in time",
        "third": "in time",
        "properties": ["DELAY", "ORIGIN_MESSAGE_ID", "REAL_QID", "REAL_TOPIC", "RETRY_TOPIC"],
    },
    "retry-of-a-consumer-that-left": {"second": ["m-0 0"]},
    "retry-part-of-a-batch": {"given": ["m-0 0", "m-1 0", "m-2 0", "m-2 1", "m-3 0", "m-3 1"]},
    "retry-reaches-another-member": {"first": [0], "second": [1]},
    "retry-topic-is-subscribed-by-its-group-only": {"badly": [0, 1], "well": [0]},
}

# Where pymq differs on purpose (docs/guarantees.md): nowhere here.
DIFFERS: Expected = {}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "retry-dead-letters-are-consumed",
    "retry-delay-level-in-context",
    "retry-exception",
    "retry-keeps-the-tag-filter",
    "retry-later",
    "retry-maximum-of-the-consumer",
    "retry-negative-level-to-dead-letters",
    "retry-null",
    "retry-of-a-consumer-that-left",
    "retry-part-of-a-batch",
    "retry-reaches-another-member",
    "retry-topic-is-subscribed-by-its-group-only",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_retry_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: a failed message comes again, then is put aside. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
