"""The side-by-side tool's command line."""

from __future__ import annotations

import inspect
import re

import pytest

from perf.side_by_side import __main__ as tool


def test_every_option_that_is_read_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: AttributeError 'warm_memory' after all set-up. Method: what the source reads against what is parsed."""
    monkeypatch.setattr("sys.argv", ["side_by_side"])
    declared = set(vars(tool.arguments()))
    read = set(re.findall(r"\boptions\.(\w+)", inspect.getsource(tool)))
    assert read
    assert read <= declared
