"""The helper that loops in C, and how two things are compared in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perf.micro import _bench_build

ROUNDS = 9  # alternating, so that a slow moment of the machine meets both sides


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The compiled helper: `bench.lib` and `bench.ffi`."""
    return _bench_build.build(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a figure past pytest's capture."""

    def print_line(text: str) -> None:
        with capsys.disabled():
            print(f"\n    {text}", end="", flush=True)

    return print_line


@pytest.fixture(scope="session")
def alternate() -> Callable[..., list[float]]:
    """Seconds of each function, the best of several alternating rounds."""

    def best_of_each(*functions: Callable[[], float]) -> list[float]:
        best = [float("inf")] * len(functions)
        for _ in range(ROUNDS):
            for index, function in enumerate(functions):
                best[index] = min(best[index], function())
        return best

    return best_of_each
