"""What tests of the Spark jobs share: one Spark session, and copies of the golden store as a broker left it."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.golden import golden_layout

PAGE_SIZE = 4096


# A virtual machine that lives for minutes and sees little data mostly compiles: half as much with these.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator:
    """The one session; errors of Python workers show where they arose."""
    from spark_jobs.session import session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYMQ_SPARK_TRACEBACK", "1")
        # The tables are tiny: code that Spark compiles for a query runs for a moment, and costs a third of everything.
        settings = {
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.python.sql.dataFrameDebugging.enabled": "false",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
        }
        running = session(memory="1g", settings=settings)
    yield running
    running.stop()


@cache
def wheel_pages() -> tuple[int, dict[int, bytes]]:
    """The golden store's timer wheel, gzipped in the repository: its size, and its pages that are not zeros."""
    data = gzip.decompress((golden_layout.STORE / "timerwheel.gz").read_bytes())
    pages = {at: data[at : at + PAGE_SIZE] for at in range(0, len(data), PAGE_SIZE)}
    return len(data), {at: page for at, page in pages.items() if any(page)}


def copy_golden(target: Path) -> Path:
    """The golden store at *target*, its timer wheel unpacked."""
    shutil.copytree(golden_layout.STORE, target, ignore=shutil.ignore_patterns("timerwheel.gz"))
    size, pages = wheel_pages()
    with (target / "timerwheel").open("wb") as file:
        file.truncate(size)
        for at, page in pages.items():
            file.seek(at)
            file.write(page)
    return target


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A private copy of the golden store, as Apache RocketMQ left it."""
    return copy_golden(tmp_path / "golden")


@pytest.fixture(scope="session")
def golden_shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy for all tests that only read."""
    return copy_golden(tmp_path_factory.mktemp("golden") / "golden")
