"""What pymq writes, Apache RocketMQ opens, and every message and every look-up is the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.answers import acknowledged, assert_answers_rightly
from tests.interop.apache import ApacheStore
from tests.interop.apache_toolchain import Toolchain
from tests.interop.files import assert_files_follow_from_the_log
from tests.interop.pymq_side import PymqStore
from tests.interop.workloads import WORKLOADS, Workload, taken


def workloads(exchange: int) -> pytest.MarkDecorator:
    """Those of a kind of exchange."""
    return pytest.mark.parametrize("workload", taken(exchange), ids=lambda workload: workload.name)


@workloads(0)
def test_apache_opens_what_pymq_closed(apache: Toolchain, tmp_path: Path, workload: Workload) -> None:
    """Goal: a clean pymq store is an Apache store. Method: write, close, open there, ask everything, reopen here."""
    ours = PymqStore(tmp_path / "store", workload.settings)
    written = acknowledged(workload.messages(), ours.write(workload.steps()))
    assert_files_follow_from_the_log(ours.directory, workload.settings, written)
    with ours.open_reader() as reader:
        assert_answers_rightly(reader, written)
        before = reader.messages()

    theirs = ApacheStore(apache, ours.directory, workload.settings.for_apache())
    with theirs.open_reader(end="shutdown") as reader:
        assert_answers_rightly(reader, written)
        assert reader.messages() == before

    with ours.open_reader() as reader:
        assert_answers_rightly(reader, written)
        assert reader.messages() == before
    assert_files_follow_from_the_log(ours.directory, workload.settings, written)


@workloads(1)
def test_apache_recovers_what_a_killed_pymq_left(apache: Toolchain, tmp_path: Path, workload: Workload) -> None:
    """Goal: nothing acknowledged is lost to Apache by a kill. Method: SIGKILL the writer, recover a copy each side."""
    ours = PymqStore(tmp_path / "store", workload.settings)
    written = acknowledged(workload.messages(), ours.write_and_kill(workload))
    assert (ours.directory / "abort").exists()
    shutil.copytree(ours.directory, tmp_path / "copy")

    theirs = ApacheStore(apache, tmp_path / "copy", workload.settings.for_apache())
    with theirs.open_reader() as reader:
        assert_answers_rightly(reader, written)
        recovered = reader.messages()
    with ours.open_reader() as reader:
        assert_answers_rightly(reader, written)
        assert reader.messages() == recovered
    assert_files_follow_from_the_log(ours.directory, workload.settings, written, recovered=True)


@workloads(2)
def test_apache_goes_on_where_pymq_stopped_and_back(apache: Toolchain, tmp_path: Path, workload: Workload) -> None:
    """Goal: a store can change hands for good. Method: four rounds of writing by turns, clean stops and kills mixed."""
    ours = PymqStore(tmp_path / "store", workload.settings)
    theirs = ApacheStore(apache, ours.directory, workload.settings.for_apache())
    puts = [
        *ours.write(workload.steps(0)),
        *theirs.write_and_kill(workload.steps(1)),
        *ours.write_and_kill(workload, 2),
        *theirs.write(workload.steps(3)),
    ]
    messages = [message for round_number in range(4) for message in workload.messages(round_number)]
    written = acknowledged(messages, puts)
    with ours.open_reader() as reader:
        assert_answers_rightly(reader, written)
        seen_by_us = reader.messages()
    with theirs.open_reader() as reader:
        assert_answers_rightly(reader, written)
        assert reader.messages() == seen_by_us


@pytest.mark.parametrize("stopped_by", ["pymq", "apache"])
def test_keys_from_before_a_run_that_pymq_was_killed_in_are_found_by_apache(
    apache: Toolchain, tmp_path: Path, stopped_by: str
) -> None:
    """Goal: no keys are lost with the index file that was open. Method: stop cleanly, go on, SIGKILL, open there."""
    workload = WORKLOADS[0]
    ours = PymqStore(tmp_path / "store", workload.settings)
    theirs = ApacheStore(apache, ours.directory, workload.settings.for_apache())
    before = (ours if stopped_by == "pymq" else theirs).write(workload.steps(0))
    puts = [*before, *ours.write_and_kill(workload, 1)]
    written = acknowledged([*workload.messages(0), *workload.messages(1)], puts)
    with theirs.open_reader() as reader:
        assert_answers_rightly(reader, written)
