"""Part 3: order within a queue, and what keeps it: locks, suspension, one queue for all.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "order-global": {"inversions": 0, "distinct": 60},
    "order-locks": {
        "first": [0, 1, 2],
        "contested": [3],
        "again": [0, 1, 2],
        "otherGroup": [0, 1],
        "unlockedByAnother": [],
        "freed": [0, 1, 3],
    },
    "order-maximum-to-dead-letters": {
        "given": ["0-0 0", "0-0 1", "0-0 2", "0-1 0", "0-2 0"],
        "dead": ["0-0 3"],
        "letterTopic": [True],
    },
    "order-member-joins-and-leaves": {"shared": True, "taken": True, "distinct": 320, "inversions": 0},
    "order-queues-grow-and-shrink": {"grown": True, "shrunk": True, "refused": 0, "missing": 0},
    "order-suspend": {"suspended": ["0-0 0", "0-0 1", "0-0 2", "0-1 0", "0-2 0"], "other": ["1-0 0", "1-1 0", "1-2 0"]},
    "order-topic-config-in-the-route": {"code": 0, "queues": [0, 1, 2]},
    "order-within-each-queue": {"count": 100, "distinct": 100, "inversions": 0},
}

# Where pymq differs on purpose (docs/guarantees.md): nowhere here.
DIFFERS: Expected = {}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "order-within-each-queue",
    "order-member-joins-and-leaves",
    "order-suspend",
    "order-maximum-to-dead-letters",
    "order-global",
)
OF_498: Expected = {
    "order-maximum-to-dead-letters": {"dead": ["0-0 2"]},
}


@cases(EXPECTED, older=OLDER)
def test_order_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: order within a queue is kept. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
