"""Opening: what it says, shows and raises; the clock it is given."""

from __future__ import annotations

import io
import logging
import resource
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pymq
from pymq.clock import ManualClock, SystemClock
from pymq.file_limit import raise_file_limit
from pymq.store.message_store import ProgressReport, budget_line

SMALL = {
    "mapped_file_size_commit_log": 65_537,
    "mapped_file_size_consume_queue": 1_020,
    "max_hash_slot_num": 101,
    "max_index_num": 307,
    "flush_disk_type": "ASYNC_FLUSH",
}


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_only_when_asked_for(monkeypatch):
    """Goal: libraries are silent. Method: asked on a terminal, asked elsewhere, not asked."""
    for stream, asked, shown in ((Terminal(), True, True), (io.StringIO(), True, False), (Terminal(), False, False)):
        monkeypatch.setattr("sys.stderr", stream)
        report = ProgressReport(Path("data"), terminal=asked)
        report("commitlog", 512 * 1024, 1024 * 1024)
        report("commitlog", 1024 * 1024, 1024 * 1024)
        report.finish()
        text = stream.getvalue()
        assert ("50.0% of 1 MiB" in text) is shown
        assert "\n" not in text
        assert text.endswith("\r\x1b[K") is shown


def test_progress_of_nothing_divides_by_nothing(monkeypatch, caplog):
    """Goal: an empty log is 100 % recovered. Method: a total of zero; each phase is logged once."""
    monkeypatch.setattr("sys.stderr", Terminal())
    report = ProgressReport(Path("data"), terminal=True)
    with caplog.at_level(logging.INFO, "pymq.store"):
        report("commitlog", 0, 0)
        report("commitlog", 0, 0)
        report("index", 0, 0)
    assert caplog.text.count("recovering") == 2


def test_the_open_says_whether_the_last_stop_was_clean(tmp_path, caplog):
    """Goal: an operator sees recoveries. Method: a crash and a clean stop."""
    config = pymq.StoreConfig(**SMALL)
    with pymq.open(tmp_path, config) as mq:
        mq.send_many("t", [b"x"] * 10)
    crashed = pymq.open(tmp_path, config)
    crashed.send_many("t", [b"y"] * 10)
    crashed.abandon()
    with caplog.at_level(logging.INFO, "pymq.store"), pymq.open(tmp_path, config) as mq:
        assert mq.max_offset("t") == 20
    assert "last_stop=unclean" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "pymq.store"), pymq.open(tmp_path, config) as mq:
        assert mq.stats().recovered_clean
    assert "last_stop=clean" in caplog.text
    assert "store closed" in caplog.text


def test_the_limit_on_open_files_is_raised_and_printed(caplog):
    """Goal: the budget is known. Method: lower the soft limit, raise it, read the line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = min(soft, 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        with caplog.at_level(logging.INFO, "pymq.store"):
            assert raise_file_limit(logging.getLogger("pymq.store")) == (hard, hard)
        if lowered < hard:
            assert f"open files limit raised from={lowered} to={hard}" in caplog.text
        line = budget_line(pymq.StoreConfig(transient_store_pool_enable=True, transient_store_pool_size=3))
        assert f"open_files={hard}" in line
        assert "transient_pool_mib=3072" in line
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, lowered), hard))


def test_clocks():
    """Goal: time is handed in. Method: the manual clock moves when told, in every face; the system's by itself."""
    start = datetime(2026, 5, 1, 3, 59, 59, tzinfo=UTC)
    clock = ManualClock(start)
    assert clock.now_ms() == int(start.timestamp() * 1000)
    clock.advance(1)
    assert clock.local_time().hour == 4
    assert clock.monotonic_s() == 1
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="zone"):
        ManualClock(datetime(2026, 5, 1))
    system = SystemClock()
    assert system.monotonic_s() <= system.monotonic_s()
    assert abs(system.now_ms() - system.local_time().timestamp() * 1000) < 60_000
