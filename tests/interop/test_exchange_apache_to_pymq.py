"""What Apache RocketMQ writes, pymq opens, and every message and every look-up is the same."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.answers import acknowledged, assert_answers_rightly, carriers
from tests.interop.apache import ApacheStore
from tests.interop.apache_toolchain import Toolchain
from tests.interop.files import assert_files_follow_from_the_log
from tests.interop.pymq_side import PymqStore
from tests.interop.workloads import TRANSACTION_PREPARED, OutMessage, Send, StoreSettings, Workload, taken


def workloads(exchange: int) -> pytest.MarkDecorator:
    """Those of a kind of exchange."""
    return pytest.mark.parametrize("workload", taken(exchange), ids=lambda workload: workload.name)


@workloads(3)
def test_pymq_opens_what_apache_shut_down(apache: Toolchain, tmp_path: Path, workload: Workload) -> None:
    """Goal: a clean Apache store is a pymq store. Method: write there, ask everything here, reopen there."""
    theirs = ApacheStore(apache, tmp_path / "store", workload.settings.for_apache())
    written = acknowledged(workload.messages(), theirs.write(workload.steps()))
    with PymqStore(theirs.directory, workload.settings).open_reader() as reader:
        assert_answers_rightly(reader, written)
        seen_by_us = reader.messages()
    assert_files_follow_from_the_log(theirs.directory, workload.settings, written)
    with theirs.open_reader() as reader:
        assert_answers_rightly(reader, written)
        assert reader.messages() == seen_by_us


@workloads(4)
def test_pymq_recovers_what_a_killed_apache_left(apache: Toolchain, tmp_path: Path, workload: Workload) -> None:
    """Goal: nothing Apache acknowledged is lost to pymq by a kill. Method: SIGKILL the JVM, recover on both sides."""
    theirs = ApacheStore(apache, tmp_path / "store", workload.settings.for_apache(index_safe=True))
    written = acknowledged(workload.messages(), theirs.write_and_kill(workload.steps()))
    assert (theirs.directory / "abort").exists()
    shutil.copytree(theirs.directory, tmp_path / "copy")

    with PymqStore(tmp_path / "copy", workload.settings).open_reader() as reader:
        assert_answers_rightly(reader, written)
        recovered = reader.messages()
    assert_files_follow_from_the_log(tmp_path / "copy", workload.settings, written, recovered=True)
    with theirs.open_reader() as reader:
        assert_answers_rightly(reader, written)
        assert reader.messages() == recovered


def test_pymq_reads_ipv6_hosts_and_prepared_messages(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: records no embedded sender makes are read all the same. Method: have Apache write them, compare fields."""
    plain = OutMessage("hosts", 0, b"payload", keys=("k",))
    messages = [
        replace(plain, born_host="[2001:db8::7]:4567"),
        replace(plain, born_host="[2001:db8::7]:4567", store_host="[::1]:10911"),
        replace(plain, sys_flag=TRANSACTION_PREPARED),
    ]
    settings = StoreSettings()
    theirs = ApacheStore(apache, tmp_path / "store", settings.for_apache())
    puts = theirs.write([Send(message) for message in messages])
    everything = [put.physical_offset for put in puts]
    with PymqStore(theirs.directory, settings).open_reader() as ours:
        assert carriers(ours.by_key("hosts", "k", 32), "k") == everything
        seen_by_us = [ours.messages(), ours.by_offset(puts[2].physical_offset)]
    with theirs.open_reader() as reader:
        # Apache indexes a last message that is in no queue again at every start, so it may come more than once.
        assert carriers(reader.by_key("hosts", "k", 32), "k") == everything
        assert [reader.messages(), reader.by_offset(puts[2].physical_offset)] == seen_by_us
