"""The runner of the groups of tests: what any says counts, and every test is in one of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.run_tests import NO_TESTS, ROOT, groups, run_side_by_side


def ends_with(status: int, text: str = "") -> list[str]:
    """A program that prints and ends."""
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({status})"]


@pytest.mark.parametrize(
    ("apart", "others", "expected"),
    [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 1, 1), (0, NO_TESTS, 0), (3, NO_TESTS, 3)],
)
def test_a_failure_on_either_side_fails_the_run(apart: int, others: int, expected: int) -> None:
    """Goal: no half is green for the other. Method: two programs with all kinds of ends."""
    assert run_side_by_side({"apart": ends_with(apart), "more": ends_with(0)}, ends_with(others)) == expected


def test_the_output_of_both_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """Goal: a failure apart can be read. Method: what both programs print, the one apart last."""
    run_side_by_side({"apart": ends_with(1, "apart failed")}, ends_with(0, "others passed"))
    shown = capfd.readouterr().out
    assert shown.index("others passed") < shown.index("apart failed")


def takes(words: list[str], path: Path) -> bool:
    """Whether pytest with these arguments looks into *path*."""
    ignored = [ROOT / word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    given = [ROOT / word for word in words if not word.startswith("--")]
    within = [path, *path.parents]
    return any(place in within for place in given) and not any(place in within for place in ignored)


def test_every_test_file_is_in_exactly_one_group() -> None:
    """Goal: none is left out, none runs twice. Method: each file with tests, against each group's arguments."""
    groups_words = [words for turn in groups() for words in (*turn.apart.values(), turn.others)]
    files = set((ROOT / "tests").rglob("test_*.py"))
    counts = {path: sum(takes(words, path) for words in groups_words) for path in files}
    assert len(counts) > 200
    assert {str(path): count for path, count in counts.items() if count != 1} == {}
