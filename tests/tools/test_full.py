"""`tools/full.py`: what the page of the full run keeps when some of its steps are run again."""

from __future__ import annotations

import datetime

from tools.full import TARGETS, StepResult, render, rows_of

DAY = datetime.datetime(2026, 11, 17, 12, 30, tzinfo=datetime.UTC)


def test_steps_that_were_not_run_again_keep_their_date_and_commit():
    """Goal: no row claims a run it has not had. Method: a page of two steps, one of them run again later, read back."""
    first = {name: StepResult(name, True, 7.4, ["3 passed in 1s"], "aaaa", DAY).row for name in TARGETS[:2]}
    page = render(first)
    assert rows_of(page) == first | {name: f"| make {name} | not run | | | | |" for name in TARGETS[2:]}
    again = StepResult(TARGETS[1], False, 8.0, [], "bbbb", DAY + datetime.timedelta(days=1)).row
    later = rows_of(render(rows_of(page) | {TARGETS[1]: again}))
    assert later[TARGETS[0]] == f"| make {TARGETS[0]} | passed | 2026-11-17 12:30 | aaaa | 7 | 3 passed in 1s |"
    assert later[TARGETS[1]] == f"| make {TARGETS[1]} | **failed** | 2026-11-18 12:30 | bbbb | 8 |  |"
    assert list(later) == list(TARGETS)
