"""Parts 7 and 10: broadcasting, batches, request and reply, compressed bodies; a broker that cannot take more.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "batch-arrives-in-order": {
        "status": "SEND_OK",
        "ids": 20,
        "offsetIds": 20,
        "queueOffset": 0,
        "numbers": [
            "0",
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
            "7",
            "8",
            "9",
            "10",
            "11",
            "12",
            "13",
            "14",
            "15",
            "16",
            "17",
            "18",
            "19",
        ],
        "uniqueKeys": True,
    },
    "batch-limits": {
        "twoTopics": "MQClientException -1",
        "delayed": "MQClientException -1",
        "retry": "MQClientException -1",
        "waiting": "MQClientException -1",
        "empty": "MQClientException -1",
    },
    "batch-too-large-for-the-broker": {
        "client": "MQClientException 13",
        "broker": "MQClientException 1",
        "half": "ok",
        "stored": 2,
    },
    "broadcast-does-not-retry": {"given": ["m-0 0", "m-1 0"]},
    "broadcast-each-is-given-all": {"members": [20, 20, 20]},
    "broadcast-resumes-from-its-own-offsets": {
        "before": ["before-0", "before-1", "before-2", "before-3", "before-4"],
        "after": ["after-0", "after-1", "after-2", "after-3", "after-4"],
    },
    "compressed-lz4": {"sysFlag": 257, "smaller": True, "given": True},
    "compressed-zlib": {"sysFlag": 769, "smaller": True, "given": True},
    "compressed-zstd": {"sysFlag": 513, "smaller": True, "given": True},
    "flow-control-pool-exhausted": {"outcomes": ["code 2", "ok"]},
    "message-too-large-for-the-broker": {
        "client": "MQClientException -1",
        "broker": "MQBrokerException 13",
        "half": "ok",
        "stored": 2,
    },
    "request-reply": {
        "replies": ["body of one, answered", "body of two, answered", "body of three, answered"],
        "replyTopic": "cluster-main_REPLY_TOPIC",
        "request": ["CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"],
        "reply": [
            "-CLUSTER",
            "-KEYS",
            "-TAGS",
            "-WAIT",
            "ARRIVE_TIME",
            "CORRELATION_ID",
            "MSG_TYPE",
            "PUSH_REPLY_TIME",
            "REPLY_TO_CLIENT",
            "TTL",
        ],
    },
    "request-reply-after-the-requester-left": {"reply": ["MQClientException 1"]},
    "request-reply-asynchronous": {"reply": "body of m, answered"},
    "request-times-out": {"outcome": "RequestTimeoutException 10006", "stored": 1},
}

# A batch beyond maxMessageSize: an exception's text and SYSTEM_ERROR from Apache, the limit by name from pymq.
DIFFERS: Expected = {"batch-too-large-for-the-broker": {"broker": "MQBrokerException 13"}}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "broadcast-each-is-given-all",
    "broadcast-resumes-from-its-own-offsets",
    "batch-arrives-in-order",
    "request-reply",
    "request-reply-asynchronous",
    "request-times-out",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_sending_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: sent as meant, refused as documented. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
