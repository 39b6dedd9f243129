"""The scenarios in other modes: both data planes, both kinds of flush, with and without the transient pool.

With the usual mode, in which all scenarios are played anyway, the modes of `PAIRWISE` contain each pair of choices at
least once; they are played with a part of the scenarios. `make interop-modes` plays all scenarios in all modes.
"""

from __future__ import annotations

import itertools
import os

import pytest

from tests.interop.scenarios import (
    test_delay,
    test_filters,
    test_groups,
    test_order,
    test_queries,
    test_restarts,
    test_retry,
    test_sending,
    test_starts,
    test_transactions,
)
from tests.interop.scenarios.cases import Expected, wanted
from tests.interop.scenarios.conftest import Play
from tests.interop.scenarios.stage import Mode

PARTS = (
    test_groups,
    test_retry,
    test_order,
    test_delay,
    test_transactions,
    test_filters,
    test_sending,
    test_queries,
    test_starts,
    test_restarts,
)
EXPECTED: Expected = {name: facts for part in PARTS for name, facts in part.EXPECTED.items()}
DIFFERS: Expected = {name: facts for part in PARTS for name, facts in part.DIFFERS.items()}

USUAL = Mode("native", "ASYNC_FLUSH", pool=False)
PAIRWISE = (
    Mode("native", "SYNC_FLUSH", pool=True),
    Mode("python", "ASYNC_FLUSH", pool=True),
    Mode("python", "SYNC_FLUSH", pool=False),
)
EVERY = tuple(
    mode
    for mode in itertools.starmap(
        Mode, itertools.product(("native", "python"), ("ASYNC_FLUSH", "SYNC_FLUSH"), (False, True))
    )
    if mode != USUAL
)
SOME = (
    "retry-later",
    "retry-negative-level-to-dead-letters",
    "order-within-each-queue",
    "order-suspend",
    "delay-level-1",
    "delay-order-within-a-level",
    "timer-delay-seconds",
    "transaction-commit",
    "transaction-check-commits",
    "filter-several-tags",
    "filter-sql-push",
    "broadcast-each-is-given-all",
    "batch-arrives-in-order",
    "request-reply",
    "compressed-zlib",
    "query-by-key",
    "query-by-unique-key",
    "start-first",
    "start-reset-by-time",
)
# Python's plane waits a moment for a buffer of the pool and finds one (docs/guarantees.md); reactors never wait.
OF_PYTHON_PLANE: Expected = {"flow-control-pool-exhausted": {"outcomes": ["ok"]}}

# Apache looks for the half message in the files, where it is not before the pool is next written out: a commit that
# comes sooner is not carried out, and checks decide. How often they ask is chance.
OF_APACHES_POOL = "transaction-"

IN_FULL = os.environ.get("PYMQ_INTEROP_MODES") == "all"


@pytest.mark.parametrize("kind", ["java550"])
@pytest.mark.parametrize("scenario", EXPECTED if IN_FULL else SOME)
@pytest.mark.parametrize("mode", EVERY if IN_FULL else PAIRWISE, ids=str)
def test_scenario_in_another_mode(play: Play, target: str, kind: str, scenario: str, mode: Mode) -> None:
    """Goal: what users rely on does not depend on how the broker works. Method: the same facts in another mode."""
    if target == "apache" and mode.pool and scenario.startswith(OF_APACHES_POOL):
        pytest.skip("Apache does not find a half message that is still in its pool")
    differs = {**DIFFERS, **OF_PYTHON_PLANE} if mode.plane == "python" else DIFFERS
    assert play(kind, scenario, mode) == wanted(target, kind, scenario, EXPECTED, differs)


def test_pairwise_modes_contain_each_pair() -> None:
    """Goal: the few modes stand for the many. Method: look for every pair of choices among them."""

    def pairs(mode: Mode) -> set[tuple[tuple[str, object], tuple[str, object]]]:
        choices = (("plane", mode.plane), ("flush", mode.flush), ("pool", mode.pool))
        return set(itertools.combinations(choices, 2))

    every = set().union(*map(pairs, (USUAL, *EVERY)))
    assert set().union(*map(pairs, (USUAL, *PAIRWISE))) == every


def test_there_are_enough_scenarios_for_every_part() -> None:
    """Goal: no part is forgotten. Method: count them."""
    assert len(EXPECTED) >= 40
    assert all(len(part.EXPECTED) >= 5 for part in PARTS)
