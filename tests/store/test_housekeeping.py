"""Retention applied to a real store: files go, queues follow, sends are refused and accepted again."""

from __future__ import annotations

import logging
import os
import threading
import time
from datetime import UTC, datetime

import pytest

import pymq
from pymq.clock import ManualClock, SystemClock
from pymq.embedded import EmbeddedStore
from pymq.errors import StoreReadOnlyError
from pymq.store.config import StoreConfig
from pymq.store.housekeeping import disk_ratio, existing

SIZES = {
    "mapped_file_size_commit_log": 20_011,
    "mapped_file_size_consume_queue": 20 * 11,
    "max_hash_slot_num": 53,
    "max_index_num": 61,
    "flush_disk_type": "ASYNC_FLUSH",
    "delete_commit_log_files_interval_ms": 0,
}


class Disk:
    """A disk whose fill level the test sets; it frees `per_file` for each log file that went."""

    def __init__(self, directory, ratio=0.1, per_file=0.0):
        self.directory = directory
        self.ratio = ratio
        self.per_file = per_file
        self.files_at_start = None

    def __call__(self, path):
        if self.ratio is None:
            raise OSError(5, "cannot say")
        count = len(list((self.directory / "commitlog").iterdir()))
        if self.files_at_start is None:
            self.files_at_start = count
        return self.ratio - self.per_file * max(0, self.files_at_start - count)


@pytest.fixture
def clock():
    """Noon, and it stands still."""
    return ManualClock(datetime.now(UTC).replace(hour=12, minute=0))


@pytest.fixture
def disk(tmp_path):
    """A disk with room."""
    return Disk(tmp_path / "data")


@pytest.fixture
def store(tmp_path, clock, disk):
    """A store of many small files whose clock and disk are the test's."""
    with EmbeddedStore(tmp_path / "data", StoreConfig(**SIZES), clock=clock, disk_probe=disk) as mq:
        yield mq


def fill(mq, count=200):
    """Ten or so log files of messages with keys."""
    results = mq.send_many("t", [pymq.Message(body=b"x" * 1000, keys=f"k{n}") for n in range(count)])
    mq.flush()
    mq._store.wait_dispatched(10_000)
    return results


def age(mq, file_count, hours=100):
    """Make the first files look old."""
    for path in sorted((mq.path / "commitlog").iterdir())[:file_count]:
        then = time.time() - hours * 3600
        os.utime(path, (then, then))


def test_expired_files_go_and_queues_and_index_follow(store, caplog):
    """Goal: EXP-1..4, 10. Method: three old files; ask by hand at noon; look at every directory."""
    results = fill(store)
    index_files = len(list((store.path / "index").iterdir()))
    queue_files = len(list((store.path / "consumequeue/t/0").iterdir()))
    age(store, 3)
    with caplog.at_level(logging.INFO, "pymq.store"):
        removed = store.delete_expired()
    assert [file.base_offset for file in removed.log_files] == [0, 20_011, 40_022]
    assert removed.other_files > 0
    kept = [r for r in results if r.physical_offset >= 60_033]
    assert store.min_offset("t") == kept[0].queue_offset
    assert [m.queue_offset for m in store.iterate("t")] == [r.queue_offset for r in kept]
    assert len(list((store.path / "consumequeue/t/0").iterdir())) < queue_files
    assert len(list((store.path / "index").iterdir())) < index_files
    assert store.query("t", "k0") == []
    assert len(store.query("t", "k199")) == 1
    assert caplog.text.count("log file removed") == 3
    assert store.watermarks().min == 60_033


def test_whose_lag_it_was_is_logged(store, caplog):
    """Goal: EXP-2, told. Method: three groups at different places; only those behind are named, with the count."""
    fill(store)
    store.group("slow").commit("t", 0, 5)
    store.group("fast").commit("t", 0, 200)
    age(store, 2)
    with caplog.at_level(logging.WARNING, "pymq.store"):
        store.delete_expired()
    lines = [record.getMessage() for record in caplog.records if "unread messages removed" in record.getMessage()]
    (line,) = lines
    assert "group=slow topic=t queue=0" in line
    assert f"messages={store.min_offset('t') - 5}" in line


def test_the_hour_of_deletion_is_the_clock_s(store, clock):
    """Goal: EXP-4 by the given clock. Method: a pass at noon, then sixteen hours later."""
    fill(store)
    age(store, 2)
    assert store._housekeeper.clean().log_files == ()
    clock.advance(16 * 3600 + 60)
    assert clock.local_time().hour == 4
    assert len(store._housekeeper.clean().log_files) == 2


def test_a_full_disk_refuses_sends_and_recovers_by_itself(store, disk, caplog):
    """Goal: EXP-7, EXP-11. Method: above the warning level, at it, and down again; a pass after each."""
    fill(store, 10)
    disk.ratio = 0.95
    with caplog.at_level(logging.WARNING, "pymq.store"):
        store._housekeeper.clean()
    assert "sends refused" in caplog.text
    assert not store._store.writable
    with pytest.raises(StoreReadOnlyError, match="accepted again once space returns"):
        store.send("t", b"x")
    assert len(store.read("t", 0, store.min_offset("t"))) > 0, "reads go on"
    disk.ratio = 0.90
    store._housekeeper.clean()
    assert store.send("t", b"y").queue_offset == 10
    assert caplog.text.count("sends accepted again") == 1


def test_a_role_that_refuses_sends_is_not_overruled(store, disk):
    """Goal: retention only takes back what it did. Method: refuse by hand, run passes with room on the disk."""
    store._store.set_writable(False)
    store._housekeeper.clean()
    assert not store._store.writable


def test_short_space_takes_young_files_only_while_it_lasts(store, disk):
    """Goal: no more history goes than is needed. Method: a disk that gains 2 % with each file, 4 % above the limit."""
    fill(store)
    disk.files_at_start = None
    disk.ratio, disk.per_file = 0.889, 0.02
    removed = store._housekeeper.clean()
    assert len(removed.log_files) == 2
    assert store._housekeeper.disk_use().log_ratio <= 0.85


def test_an_unknown_disk_is_told_once_per_directory_and_removes_expired_files(store, disk, caplog):
    """Goal: unknown is a value. Method: a probe that fails for three passes; statistics say None."""
    fill(store)
    age(store, 1)
    disk.ratio = None
    with caplog.at_level(logging.WARNING, "pymq.store"):
        assert len(store._housekeeper.clean().log_files) == 1
        store._housekeeper.clean()
        store._housekeeper.clean()
    for name in ("commitlog", "consumequeue"):
        assert caplog.text.count(f"directory={name}") == 1
    assert store.stats().disk == (None, None)
    assert store.stats().runtime_info()["commitLogDiskRatio"] == "unknown"
    assert store._store.writable


def test_delete_expired_takes_more_than_one_batch(tmp_path, clock, disk):
    """Goal: the manual trigger finishes. Method: more expired files than one pass removes."""
    config = StoreConfig(**SIZES, delete_file_batch_max=3)
    with EmbeddedStore(tmp_path / "data", config, clock=clock, disk_probe=disk) as mq:
        fill(mq)
        age(mq, 8)
        assert len(mq.delete_expired().log_files) == 8


def test_files_not_flushed_yet_are_kept(store):
    """Goal: nothing goes that nobody could have seen. Method: old files that are not flushed."""
    store.send_many("t", [b"x" * 1000] * 100)
    age(store, 2)
    flushed = store.watermarks().flushed
    removed = store.delete_expired()
    assert len(removed.log_files) <= flushed // 20_011


def test_the_thread_works_by_itself_and_ends_with_the_store(tmp_path, disk):
    """Goal: nothing to call. Method: a short interval, a disk that fills and empties; close ends the thread."""
    config = StoreConfig(**SIZES, clean_resource_interval_ms=20)
    mq = EmbeddedStore(tmp_path / "data", config, clock=SystemClock(), disk_probe=disk)
    fill(mq, 5)
    disk.ratio = 0.99
    deadline = time.monotonic() + 20
    while mq._store.writable and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not mq._store.writable
    disk.ratio = 0.1
    while not mq._store.writable and time.monotonic() < deadline:
        time.sleep(0.01)
    assert mq._store.writable
    mq.close()
    assert not [thread for thread in threading.enumerate() if thread is mq._housekeeper._thread]


def test_a_failing_pass_is_counted_and_the_next_one_runs(store, monkeypatch, caplog):
    """Goal: housekeeping survives an error. Method: offsets that cannot be saved once."""
    calls = []

    def fail_once():
        calls.append(1)
        if len(calls) == 1:
            raise OSError(28, "no space")

    store._housekeeper._attempt("saving offsets", fail_once)
    store._housekeeper._attempt("saving offsets", fail_once)
    assert store.stats().housekeeping_failures == 1
    assert "task=saving offsets" in caplog.text


def test_the_real_probe_answers_between_0_and_1(tmp_path):
    """Goal: psutil is asked rightly. Method: a directory that exists and one that does not yet."""
    assert 0 <= disk_ratio(tmp_path) <= 1
    assert existing(tmp_path / "not" / "yet") == tmp_path
