"""Part 8: finding a message again.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "query-by-key": {"all": 5, "one": 1, "atMost": 2, "earlier": 0, "otherTopic": 0},
    "query-by-offset-id": {
        "found": {
            "key": "wanted",
            "tag": "tag",
            "body": "body of wanted",
            "queue": True,
            "queueOffset": True,
            "word": "Schirm ☂",
        },
        "id": True,
    },
    "query-by-queue-offset": {
        "keys": ["m-7", "m-8"],
        "next": 9,
        "min": 0,
        "max": 10,
        "end": "NO_NEW_MSG",
        "beyond": "OFFSET_ILLEGAL",
        "corrected": 10,
        "negative": "MQClientException -1",
        "minOffset": 0,
        "maxOffset": 10,
    },
    "query-by-time": {"before each": [0, 3, 6], "exact": True, "later": 9, "earlier": 0, "earliest": True},
    "query-by-unique-key": {
        "found": {
            "key": "wanted",
            "tag": "tag",
            "body": "body of wanted",
            "queue": True,
            "queueOffset": True,
            "word": "Schirm ☂",
        },
        "id": True,
    },
    "query-what-is-not-there": {
        "key": "MQClientException 208",
        "uniqueKey": "MQClientException 208",
        "offset": "MQClientException 208",
    },
}

# Where pymq differs on purpose (docs/guarantees.md): nowhere here.
DIFFERS: Expected = {}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "query-by-offset-id",
    "query-by-unique-key",
    "query-by-key",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_query_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: a message is found again. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
