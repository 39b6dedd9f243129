"""What every test shares: the repository's root, copies of the golden store, and the rule about skips in CI."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of what else runs on the machine, and nothing of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"

# A test that did not run did not pass: in CI these may not be skipped, whatever the machine lacks.
MUST_RUN_DIRECTORIES = ("tests/interop/", "tests/spark_jobs/", "tests/native/")
MUST_RUN_MARKERS = ("interop", "spark", "sanitizer")

skipped_must_run: list[str] = []


@pytest.fixture
def golden_store(tmp_path: Path) -> Path:
    """A private, writable copy of the store Apache RocketMQ 5.5.0 wrote; opening a store writes to it."""
    copy = tmp_path / "golden-store"
    shutil.copytree(DATA / "golden-store" / "store", copy)
    return copy


def in_ci() -> bool:
    """Whether this session is one that decides about a change."""
    return os.environ.get("PYMQ_CI", "0") not in ("", "0")


def must_run(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Whether the skipped thing of *report* is one that CI insists on."""
    path = report.nodeid.replace(os.sep, "/")
    keywords = getattr(report, "keywords", {})
    return path.startswith(MUST_RUN_DIRECTORIES) or any(marker in keywords for marker in MUST_RUN_MARKERS)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember skipped tests that must run."""
    if report.skipped and not hasattr(report, "wasxfail") and must_run(report):
        skipped_must_run.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remember whole modules skipped at collection."""
    if report.skipped and must_run(report):
        skipped_must_run.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With PYMQ_CI=1, fail the session when something that must run was skipped."""
    green = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if in_ci() and skipped_must_run and green:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped, so that the failure explains itself."""
    if in_ci() and skipped_must_run:
        terminalreporter.section("skipped, and PYMQ_CI=1 forbids it", red=True)
        for nodeid in skipped_must_run:
            terminalreporter.line(nodeid)
