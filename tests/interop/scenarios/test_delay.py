"""Part 4: delay levels and exact times.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "delay-level-0-is-none": {
        "count": 1,
        "came": "in time",
        "message": {"topic": True, "queue": 2, "reconsumeTimes": 0, "body": "body of m", "properties": ["DELAY"]},
    },
    "delay-level-1": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": ["DELAY", "REAL_QID", "REAL_TOPIC"],
        },
    },
    "delay-level-2": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": ["DELAY", "REAL_QID", "REAL_TOPIC"],
        },
    },
    "delay-level-beyond-the-last": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": ["DELAY", "REAL_QID", "REAL_TOPIC"],
        },
    },
    "delay-level-last": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": ["DELAY", "REAL_QID", "REAL_TOPIC"],
        },
    },
    "delay-levels-side-by-side": {"order": ["level-0", "level-1", "level-2", "level-18"]},
    "delay-order-within-a-level": {"atFirst": 0, "count": 40, "inversions": 0},
    "timer-and-level-level-wins": {
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 0,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": ["DELAY", "REAL_QID", "REAL_TOPIC"],
        },
    },
    "timer-beyond-the-maximum": {
        "seconds": "MQBrokerException 13",
        "milliseconds": "MQBrokerException 13",
        "time": "MQBrokerException 13",
    },
    "timer-delay-milliseconds": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": [
                "REAL_QID",
                "REAL_TOPIC",
                "TIMER_DELAY_MS",
                "TIMER_DEQUEUE_MS",
                "TIMER_ENQUEUE_MS",
                "TIMER_OUT_MS",
            ],
        },
    },
    "timer-delay-seconds": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": [
                "REAL_QID",
                "REAL_TOPIC",
                "TIMER_DELAY_SEC",
                "TIMER_DEQUEUE_MS",
                "TIMER_ENQUEUE_MS",
                "TIMER_OUT_MS",
            ],
        },
    },
    "timer-deliver-time": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": [
                "REAL_QID",
                "REAL_TOPIC",
                "TIMER_DELIVER_MS",
                "TIMER_DEQUEUE_MS",
                "TIMER_ENQUEUE_MS",
                "TIMER_OUT_MS",
            ],
        },
    },
    "timer-not-a-number": {"outcome": "MQBrokerException 13"},
    "timer-past-time": {
        "count": 1,
        "came": "in time",
        "message": {
            "topic": True,
            "queue": 2,
            "reconsumeTimes": 0,
            "body": "body of m",
            "properties": ["TIMER_DELIVER_MS"],
        },
    },
    "timer-recall": {"handle": True, "id": True, "given": ["kept"], "handleOfAPlainOne": False},
    "timer-recall-of-nonsense": {"outcome": "MQClientException -1"},
}

# Where pymq differs on purpose (docs/guarantees.md): nowhere here.
DIFFERS: Expected = {}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "delay-level-1",
    "delay-level-beyond-the-last",
    "delay-order-within-a-level",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_delay_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: never early, in time, once. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
