"""What tests of the Spark jobs share: one Spark session, and copies of the golden store as a broker left it."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import golden_layout


@pytest.fixture(scope="session")
def spark() -> Iterator:
    """The one session; errors of Python workers show where they arose."""
    from spark_jobs.session import session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYMQ_SPARK_TRACEBACK", "1")
        running = session(memory="1g", settings={"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"})
    yield running
    running.stop()


def copy_golden(target: Path) -> Path:
    """The golden store at *target*, its timer wheel unpacked: it lies gzipped in the repository."""
    shutil.copytree(golden_layout.STORE, target)
    packed = target / "timerwheel.gz"
    (target / "timerwheel").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return target


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A private copy of the golden store, as Apache RocketMQ left it."""
    return copy_golden(tmp_path / "golden")


@pytest.fixture(scope="session")
def golden_shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy for all tests that only read."""
    return copy_golden(tmp_path_factory.mktemp("golden") / "golden")
