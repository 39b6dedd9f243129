"""From clients to a verdict: a broker under load and kills, dumped while it runs, audited, damaged, audited again.

The audit is the one people run (`python -m spark_jobs.audit`), in this process so that the tests share one Spark. What
is expected of it is what it promises: exit code 0 and no finding for what pymq or Apache RocketMQ wrote, exit code 1
and the place for one flipped byte.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit import main
from tests.broker.wire import ROOT, BrokerProcess
from tests.golden.golden_layout import STORE as GOLDEN
from tests.spark_jobs.faults.patch import copy_store
from tests.spark_jobs.stores.client import Client
from tests.spark_jobs.stores.runs import broker, stop
from tests.spark_jobs.stores.story import Story
from tests.spark_jobs.verdicts import assert_clean, assert_found, flipped

KILLS = 2
STORM_S = 0.8
DUMP_TIMEOUT_S = 60.0
# Of a damaged store, the checks of its files; what the others make of damage is seen with PYMQ_FULL=1.
CHECKS = () if os.environ.get("PYMQ_FULL") == "1" else ("--checks", "store")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Lived:
    """Two dumps of one broker's store, the later some time behind the earlier, and all that its clients know."""

    earlier: Path
    later: Path
    ledgers: tuple[Path, ...]


def take_dump(running: BrokerProcess, target: Path) -> Path:
    """A dump of a running broker, asked for over the wire."""
    done = subprocess.run(
        [sys.executable, "-m", "pymq.store.dump", f"127.0.0.1:{running.port}", str(target)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DUMP_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return target


class Load:
    """Producers that go on while something else is looked at."""

    def __init__(self, story: Story, port: int) -> None:
        self._over = threading.Event()
        self._problems: list[BaseException] = []
        works = (
            (lambda client: story.plain(client, 8), story.producer(port)),
            (lambda client: story.batches(client, 2), story.producer(port)),
            (story.decide, story.producer(port)),
            (lambda client: story.delays(client, 4), story.producer(port)),
        )
        self._threads = [threading.Thread(target=self._run, args=work) for work in works]

    def _run(self, work: Any, client: Client) -> None:
        try:
            with client:
                while not self._over.is_set():
                    work(client)
                    time.sleep(0.01)
        except (AssertionError, OSError, EOFError) as problem:
            self._problems.append(problem)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)
        assert not self._problems, self._problems[0]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """A broker that was killed twice under transactions, delays, timers and retries, and dumped twice under load."""
    directory = tmp_path_factory.mktemp("lived")
    story = Story(directory / "books", seed=20_261_117)
    with broker(directory) as running:
        story.tell(running.port)
        story.storm(running.port, lambda: running.stop(9), STORM_S)
    for _ in range(KILLS - 1):
        with broker(directory) as running:
            story.storm(running.port, lambda running=running: running.stop(9), STORM_S)
    with broker(directory) as running:
        with Load(story, running.port):
            earlier = take_dump(running, directory / "earlier")
            story.tell(running.port)
            later = take_dump(running, directory / "later")
        stop(running)
    return Lived(earlier, later, story.ledgers)


def audited(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Exit code and result of the audit's command line."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--json", "--quiet"])
    printed = capsys.readouterr()
    assert printed.out, printed.err
    return code, json.loads(printed.out)


def test_a_broker_that_was_killed_and_dumped_hot_is_clean(
    spark: SparkSession, lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Goal: no false alarm on what pymq does. Method: all checks, with the earlier dump and all clients' ledgers."""
    output = tmp_path / "report"
    code, result = audited(
        capsys, lived.later, "--against", lived.earlier, "--ledger", *lived.ledgers, "--output", output
    )
    assert_clean(code, result)
    assert {check["check"] for check in result["checks"] if check["needs"]} == set()
    assert "</html>" in (output / "report.html").read_text(encoding="utf-8")


def test_one_flipped_byte_of_a_dump_is_found_and_located(
    spark: SparkSession, lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Goal: no silence about damage. Method: one bit of one body, somewhere in the middle of the dump."""
    path, one = flipped(lived.later, tmp_path / "flipped")
    code, result = audited(capsys, path, *CHECKS)
    assert_found(code, result, one)


def test_what_apache_wrote_is_clean_and_a_flipped_byte_of_it_is_found(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Goal: the same audit for Apache's stores. Method: the golden store, POP included, whole and with one bit off."""
    code, result = audited(capsys, copy_store(GOLDEN, tmp_path / "golden"))
    assert_clean(code, result)
    path, one = flipped(tmp_path / "golden", tmp_path / "flipped")
    code, result = audited(capsys, path, *CHECKS)
    assert_found(code, result, one)
