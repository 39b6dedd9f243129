"""Scenarios as test cases: by client version and name, with the facts that are expected of each server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

Facts = dict[str, Any]
Expected = Mapping[str, Facts]


def cases(names: Iterable[str], *, older: Collection[str] = ()) -> pytest.MarkDecorator:
    """Each of *names* with client 5.5.0; those in *older*, where the 4.9 line matters, with 4.9.8 as well."""
    return pytest.mark.parametrize(
        ("kind", "scenario"),
        [
            pytest.param(kind, name, id=f"{kind}-{name}")
            for name in names
            for kind in (("java550", "java498") if name in older else ("java550",))
        ],
    )


def wanted(
    target: str, kind: str, scenario: str, expected: Expected, differs: Expected, of_498: Expected | None = None
) -> Facts:
    """What *scenario* must show: as Apache RocketMQ 5.5.0 does, unless pymq *differs* on purpose.

    *of_498* holds facts that are otherwise with the older client, whoever serves it.
    """
    facts = {**expected[scenario]}
    if kind == "java498" and of_498 is not None:
        facts |= of_498.get(scenario, {})
    return facts | differs.get(scenario, {}) if target == "pymq" else facts
