"""Part 9: where a group starts, and being sent back in time.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "start-first": {
        "given": [
            "before-0",
            "before-1",
            "before-2",
            "before-3",
            "before-4",
            "later-0",
            "later-1",
            "later-2",
            "later-3",
            "later-4",
        ]
    },
    "start-last-of-a-young-topic": {
        "given": [
            "before-0",
            "before-1",
            "before-2",
            "before-3",
            "before-4",
            "later-0",
            "later-1",
            "later-2",
            "later-3",
            "later-4",
        ]
    },
    "start-reset-by-time": {"offsets": [5], "again": ["young-0", "young-1", "young-2", "young-3", "young-4"]},
    "start-reset-of-lite-pull": {
        "first": 10,
        "committed": True,
        "offsets": [5],
        "again": ["young-0", "young-1", "young-2", "young-3", "young-4"],
        "later": ["later-0", "later-1", "later-2", "later-3", "later-4"],
        "committedInTheEnd": True,
    },
    "start-reset-then-old-commit": {
        "first": 10,
        "committed": True,
        "offsets": [5],
        "next": ["later-0", "later-1", "later-2", "later-3", "later-4"],
    },
    "start-reset-under-load": {"backAtTheOffset": True, "allSinceThenAgain": True, "committed": True},
    "start-time-of-a-young-topic": {
        "given": [
            "before-0",
            "before-1",
            "before-2",
            "before-3",
            "before-4",
            "later-0",
            "later-1",
            "later-2",
            "later-3",
            "later-4",
        ]
    },
    "start-where-it-was": {"given": ["while away-0", "while away-1", "while away-2", "while away-3", "while away-4"]},
}

# Where pymq differs on purpose (docs/guarantees.md): what was consumed before a reset does not win later.
DIFFERS: Expected = {
    "start-reset-then-old-commit": {
        "first": 10,
        "committed": True,
        "offsets": [5],
        "next": [f"{when}-{number}" for when in ("young", "later") for number in range(5)],
    },
}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = (
    "start-first",
    "start-last-of-a-young-topic",
)
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_start_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: a group starts where RocketMQ starts it. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
