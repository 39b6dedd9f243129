"""Which audits' rules are tested by hand-made tables in this run: a few by a fixed seed, all with PYMQ_FULL=1.

A rule is a dozen of Spark's joins, so all of them take longer than everything else of the Spark jobs together. Whatever
is drawn, `test_detection.py` runs every audit over real stores with seeded faults; PYMQ_SEED draws others, and
naming a file on the command line runs it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DRAWN = 2  # audits a run
GOLDEN = "test_the_golden_store"  # begins what test_end_to_end.py has for all checks at once
FULL = os.environ.get("PYMQ_FULL", "0") not in ("", "0")
SEED = int(os.environ.get("PYMQ_SEED") or 651761822)


def drawn() -> frozenset[str]:
    """The names of the files of this run."""
    files = sorted(path.name for path in HERE.glob("test_a[0-9]*.py"))
    return frozenset(files if FULL else random.Random(SEED).sample(files, DRAWN))


def is_named(config: pytest.Config, path: Path) -> bool:
    """Whether somebody asked for this file by its name."""
    return any(path.name in argument for argument in config.invocation_params.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out; a draw that is left out is no skip: the next one may have it."""
    chosen = drawn()
    left_out = [
        item
        for item in items
        if item.path.parent == HERE
        and item.path.name.startswith("test_a")
        and item.path.name[len("test_a")].isdigit()
        and (item.path.name not in chosen or (item.name.startswith(GOLDEN) and not FULL))
        and not is_named(config, item.path)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        print(f"audits drawn with PYMQ_SEED={SEED}: {', '.join(sorted(chosen))}")
