"""The Apache side, given to tests as the `apache` fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.apache_toolchain import Toolchain, ToolchainMissingError, toolchain

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory, so that `-m 'not interop'` leaves a run without a JVM."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def apache() -> Iterator[Toolchain]:
    """Apache RocketMQ, ready to start. Skips without a JDK and Maven; under PYMQ_CI=1 their absence is a failure."""
    try:
        yield toolchain()
    except ToolchainMissingError as problem:
        if os.environ.get("PYMQ_CI") == "1":
            pytest.fail(f"PYMQ_CI=1 and {problem}")
        pytest.skip(str(problem))
