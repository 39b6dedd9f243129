"""Part 1: what a subscription group's configuration does to its consumers, and who tells whom about a change.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "group-broadcast-refused": {"code": 16, "received": 0},
    "group-consume-disabled": {"code": 16, "whileOff": 0, "afterwards": ["m-0", "m-1", "m-2", "m-3", "m-4"]},
    "group-notify-on-change": {"alone": True, "told": True},
    "group-notify-switched-off": {"alone": True, "told": False},
    "group-retry-max-client-wins": {"given": [0, 1, 2], "dead": 1},
    "group-retry-max-of-the-group": {"codes": [0, 0], "retried": [1], "dead": [2]},
    "group-retry-queues": {"read": 3, "write": 3, "permission": 6},
    "group-slow-reader-sent-elsewhere": {"code": 0, "broker": "0"},
    "group-unknown-refused": {"pull": 26, "sendBack": 26},
}

# Where pymq differs on purpose (docs/guarantees.md): nowhere here.
DIFFERS: Expected = {}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "group-notify-on-change",
    "group-retry-max-client-wins",
    "group-consume-disabled",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_group_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: a group's configuration counts. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
