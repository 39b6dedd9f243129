"""Part 5: a message that is there only when its sender says so.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "transaction-check-by-another-member": {"given": ["m"], "checks": True},
    "transaction-check-commits": {
        "asked": True,
        "given": ["m"],
        "checks": 1,
        "checkedTopic": True,
        "checkedId": True,
        "checkedBody": "body of m",
        "properties": [["PGROUP", "TRANSACTION_CHECK_TIMES", "TRAN_MSG", "__transactionId__"]],
    },
    "transaction-check-rolls-back": {
        "asked": True,
        "given": [],
        "checks": 1,
        "checkedTopic": True,
        "checkedId": True,
        "checkedBody": "body of m",
        "properties": [],
    },
    "transaction-commit": {
        "status": "SEND_OK",
        "state": "COMMIT_MESSAGE",
        "given": ["m"],
        "checks": 0,
        "sameUniqueKey": [True],
        "queue": [True],
        "properties": [["PGROUP", "TRAN_MSG", "__transactionId__"]],
    },
    "transaction-executor-throws": {"state": "UNKNOW", "given": ["m"], "checks": 1},
    "transaction-gives-up": {"checks": 6, "given": 0, "aside": True, "body": "body of m"},
    "transaction-half-is-invisible": {
        "offsetBefore": 0,
        "readBefore": 0,
        "offsetAfter": 1,
        "readAfter": 1,
        "prepared": [True],
        "sysFlag": [8],
    },
    "transaction-immunity-time": {"given": ["m"], "tooSoon": False, "checks": 1},
    "transaction-producer-returns": {"givenWhileAway": 0, "askedWhileAway": 0, "given": ["m"], "checks": True},
    "transaction-refused": {"transaction": "MQClientException 16", "plain": "ok"},
    "transaction-rollback": {
        "status": "SEND_OK",
        "state": "ROLLBACK_MESSAGE",
        "given": [],
        "checks": 0,
        "sameUniqueKey": [],
        "queue": [],
        "properties": [],
    },
    "transaction-second-check-commits": {"given": ["m"], "checks": 2, "checkTimes": "2"},
}

# Where pymq differs on purpose (docs/guarantees.md): nowhere here.
DIFFERS: Expected = {}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "transaction-commit",
    "transaction-rollback",
    "transaction-check-commits",
    "transaction-check-rolls-back",
    "transaction-executor-throws",
    "transaction-refused",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_transaction_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: committed once or never. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
