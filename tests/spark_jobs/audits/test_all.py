"""The list of audits."""

from __future__ import annotations

from spark_jobs import audits


def test_the_audits_are_a1_to_a24_in_order():
    """Goal: none is forgotten. Method: their names, and that each says what it is about."""
    assert [one.name for one in audits.ALL] == [f"A{number}" for number in range(1, 25)]
    assert all(one.title and one.group in ("store", "meaning") for one in audits.ALL)
