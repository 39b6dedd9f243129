"""The table: ratios, marks and verdicts."""

from __future__ import annotations

import pytest

from perf.side_by_side.plan import FULL, HEADLINE, PIPELINED, QUICK
from perf.side_by_side.stages import key
from perf.side_by_side.table import Mark, ratio_text, render, rows, table

RATE = key("pipelined.rate", HEADLINE)
CPU = key("pipelined.cpu", HEADLINE)


@pytest.mark.parametrize(
    ("theirs", "ours", "met"),
    [(50_000.0, 249_999.0, False), (50_000.0, 250_000.0, True), (50_000.0, 250_001.0, True)],
)
def test_a_rate_is_met_from_the_multiple_on(theirs: float, ours: float, met: bool):
    """Goal: 5 times means 5 times. Method: one below, at, and above the edge."""
    line = next(line for line in table({RATE: [theirs]}, {RATE: [ours]}) if line["key"] == RATE)
    assert line["met"] is met
    assert line["mark"] == "≥ 5×"


@pytest.mark.parametrize(("theirs", "ours", "met"), [(24.0, 3.0, True), (24.0, 3.01, False)])
def test_a_cost_is_met_up_to_the_fraction(theirs: float, ours: float, met: bool):
    """Goal: an eighth means an eighth. Method: at the edge and above it."""
    line = next(line for line in table({CPU: [theirs]}, {CPU: [ours]}) if line["key"] == CPU)
    assert line["met"] is met
    assert line["mark"] == "≤ 1/8"


def test_rounds_are_compared_by_their_medians_and_shown_with_their_range():
    """Goal: one odd round decides nothing unseen. Method: three rounds with an outlier."""
    line = table({RATE: [50_000.0, 52_000.0, 90_000.0]}, {RATE: [300_000.0]})[0]
    assert line["ratio"] == pytest.approx(300_000 / 52_000)
    assert line["theirs_text"] == "52,000 (50,000–90,000)"


def test_a_mark_of_our_own_needs_no_other_side():
    """Goal: shares and growth are judged by themselves. Method: only ours measured."""
    line = next(line for line in table({}, {"sync.share": [0.49]}) if line["key"] == "sync.share")
    assert (line["met"], line["mark"]) == (False, "≥ 50%")
    assert Mark(at_least=5).is_met(None, 1.0) is None


def test_what_was_not_measured_is_not_printed():
    """Goal: no invented line. Method: one figure on one side gives one line without a verdict."""
    lines = table({RATE: [53_000.0]}, {})
    assert [line["key"] for line in lines] == [RATE]
    assert (lines[0]["met"], lines[0]["ours_text"], lines[0]["ratio_text"]) == (None, "-", "-")
    assert "53,000" in render(lines)


@pytest.mark.parametrize(
    ("theirs", "ours", "higher", "text"),
    [
        (10.0, 61.0, True, "6.10×"),
        (61.0, 10.0, True, "0.16×"),
        (24.0, 2.4, False, "1/10.0"),
        (2.0, 3.0, False, "1.50×"),
    ],
)
def test_ratios_read_as_people_say_them(theirs: float, ours: float, higher: bool, text: str):
    """Goal: more is a multiple, less is a fraction. Method: both directions of both kinds."""
    assert ratio_text(theirs, ours, higher_is_better=higher) == text


def test_every_row_has_a_key_of_its_own():
    """Goal: no figure overwrites another. Method: keys and titles of all rows are distinct per figure."""
    keys = [row.key for row in rows()]
    assert len(set(keys)) == len(keys)


def test_quick_runs_are_shorter_in_every_respect():
    """Goal: --quick is a smoke run. Method: each duration, count and size of it against the full plan."""
    assert all(getattr(QUICK, name) <= value for name, value in vars(FULL).items())
    assert QUICK.count_for(PIPELINED[0]) * 10 < FULL.count_for(PIPELINED[0]) * 10 / 2
