"""The compiled helper, and a directory whose gigabytes go when a test ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.micro.conftest import say
from perf.store import _bench_build
from perf.store.native import NativeBench

__all__ = ["native", "scratch", "say"]


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> NativeBench:
    """The helper that drives stores from C."""
    return NativeBench(_bench_build.build(tmp_path_factory.mktemp("bench_store")))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory on the machine's disk, removed with everything in it."""
    path = tmp_path_factory.mktemp("stores")
    yield path
    shutil.rmtree(path)
