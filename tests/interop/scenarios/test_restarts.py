"""What is under way when the broker is stopped in order and started again.

Expected is what Apache RocketMQ 5.5.0 showed.
"""

from __future__ import annotations

from tests.interop.scenarios.cases import Expected, cases, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

EXPECTED: Expected = {
    "restart-keeps-delayed-messages": {"given": ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"]},
    "restart-keeps-half-messages": {"given": ["committed", "half"]},
    "restart-keeps-order": {"distinct": 250, "inversions": 0},
    "restart-keeps-retries": {
        "given": ["m-0 0", "m-0 1", "m-1 0", "m-1 1", "m-2 0", "m-2 1", "m-3 0", "m-3 1", "m-4 0", "m-4 1"]
    },
    "restart-keeps-timers": {"given": ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"]},
}

# Where pymq differs on purpose (docs/guarantees.md): nowhere here.
DIFFERS: Expected = {}

# Scenarios that are played with client 4.9.8 too, and what is otherwise then, whoever serves it.
OLDER = ()
OF_498: Expected = {}


@cases(EXPECTED, older=OLDER)
def test_restart_scenario(play: Play, target: str, kind: str, scenario: str) -> None:
    """Goal: a restart loses nothing that is under way. Method: play it with Apache's client, compare facts."""
    assert play(kind, scenario, Mode()) == wanted(target, kind, scenario, EXPECTED, DIFFERS, OF_498)
