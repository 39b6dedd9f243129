"""The harness by itself: what Apache writes, Apache reads back, and plain Python agrees about the files."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.answers import (
    acknowledged,
    assert_answers_rightly,
    assert_holds_exactly,
    key_questions,
    right_key_answer,
)
from tests.interop.apache import ApacheOpenFailedError, ApacheStore
from tests.interop.apache_toolchain import Toolchain
from tests.interop.files import assert_files_follow_from_the_log
from tests.interop.workloads import (
    TRANSACTION_PREPARED,
    WORKLOADS,
    OutMessage,
    Pause,
    Send,
    StoreSettings,
    Workload,
    taken,
)
from tests.reference.record import MAGIC_V2


@pytest.mark.parametrize("stop", ["shutdown", "hang"])
@pytest.mark.parametrize("workload", taken(1, count=1), ids=lambda workload: workload.name)
def test_apache_reads_back_what_apache_wrote(apache: Toolchain, tmp_path: Path, workload: Workload, stop: str) -> None:
    """Goal: the harness is a fair judge. Method: write, stop cleanly or by SIGKILL, reopen, ask everything."""
    store = ApacheStore(apache, tmp_path / "store", workload.settings.for_apache(index_safe=True))
    messages = workload.messages()
    written = acknowledged(messages, store.write(workload.steps(), end="hang" if stop == "hang" else "shutdown"))
    assert (tmp_path / "store" / "abort").exists() == (stop == "hang")

    with store.open_reader() as reader:
        assert_answers_rightly(reader, written)

    records = assert_files_follow_from_the_log(store.directory, workload.settings, written, recovered=stop == "hang")
    assert [record.magic == MAGIC_V2 for record in records] == [len(one.message.topic) > 127 for one in written]


def test_a_killed_apache_may_forget_keys_unless_told_to_be_safe(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: show why recoveries of Apache's own kills run with messageIndexSafe. Method: the same store, both ways.

    The queues are flushed, and so the checkpoint moves on, while the newest index file is not full. A kill then makes
    Apache drop that file and begin its recovery after the messages it indexed.
    """
    workload = WORKLOADS[0]
    settings = replace(workload.settings, checkpoint_often=True)
    steps = [*workload.steps(), Pause(500)]
    killed = ApacheStore(apache, tmp_path / "store", settings.for_apache())
    written = acknowledged(workload.messages(), killed.write_and_kill(steps))
    shutil.copytree(killed.directory, tmp_path / "copy")

    with killed.open_reader() as reader:
        assert_holds_exactly(reader.queues, written)
        assert [q for q in key_questions(written) if not reader.by_key(q.topic, q.key) and right_key_answer(written, q)]
    safe = ApacheStore(apache, tmp_path / "copy", settings.for_apache(index_safe=True))
    with safe.open_reader() as reader:
        assert_answers_rightly(reader, written)


def test_workloads_do_what_their_names_say() -> None:
    """Goal: the exchange meets the hard cases. Method: count them in the generated steps."""
    by_name = {workload.name: workload for workload in WORKLOADS}
    rolling = by_name["rolling_files"]
    assert sum(len(m.body) for m in rolling.messages()) > 12 * rolling.settings.commit_log_file_size
    long_topics = [m for m in by_name["batches_and_long_topics"].messages() if len(m.topic) > 127]
    assert len(long_topics) > 100
    keyed = by_name["keys_and_tags"].messages()
    assert sum(len(m.keys) for m in keyed) > 3 * by_name["keys_and_tags"].settings.index_item_count
    assert any(not m.queued for m in keyed)
    assert all(workload.messages() == workload.messages() for workload in WORKLOADS)


def test_ipv6_hosts_and_prepared_messages_are_stored(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: records no pymq API writes can still be made for pymq to read. Method: write them, look them up."""
    plain = OutMessage("hosts", 0, b"payload", keys=("k",))
    messages = [
        replace(plain, born_host="[2001:db8::7]:4567"),
        replace(plain, born_host="[2001:db8::7]:4567", store_host="[::1]:10911"),
        replace(plain, sys_flag=TRANSACTION_PREPARED),
    ]
    store = ApacheStore(apache, tmp_path / "store", StoreSettings().for_apache())
    puts = store.write([Send(message) for message in messages], end="hang")
    with store.open_reader() as reader:
        assert [message.born_host for message in reader.messages()] == ["[2001:db8:0:0:0:0:0:7]:4567"] * 2
        prepared = reader.by_offset(puts[2].physical_offset)
        assert prepared is not None
        assert prepared.sys_flag == TRANSACTION_PREPARED
        assert len(reader.by_key("hosts", "k")) == 3


def test_apache_refuses_a_store_that_apache_has_open(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: the refusal the lock tests look for is Apache's own. Method: open the same directory twice."""
    store = ApacheStore(apache, tmp_path / "store", StoreSettings().for_apache())
    with store.hold(end="halt"):
        second = ApacheStore(apache, tmp_path / "store", StoreSettings().for_apache())
        with pytest.raises(ApacheOpenFailedError, match="Lock failed, MQ already started") as refusal, second.hold():
            pass
        assert refusal.value.stage == "start"


def test_an_unknown_setting_is_an_error_not_a_default(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: a misspelt setting cannot quietly make a test weaker. Method: misspell one."""
    store = ApacheStore(apache, tmp_path / "store", {"mappedFileSizeCommitlog": "4096"})
    with pytest.raises(Exception, match="mappedFileSizeCommitlog"), store.hold():
        pass


def test_nothing_lands_in_the_home_directory(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: a test run leaves no trace. Method: compare the home directory's RocketMQ places before and after."""
    places = [Path.home() / "logs" / "rocketmqlogs", Path.home() / "store"]
    before = [sorted(os.listdir(place)) if place.exists() else None for place in places]
    with ApacheStore(apache, tmp_path / "store", StoreSettings().for_apache()).hold(end="halt"):
        pass
    assert [sorted(os.listdir(place)) if place.exists() else None for place in places] == before
    assert (tmp_path / "store-apache-home" / "logs").is_dir()
