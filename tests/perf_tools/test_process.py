"""Processes as the harness sees them: serving, memory, mapped files."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

import pytest

from perf.side_by_side.memory import Ballast, fresh_page_us
from perf.side_by_side.page_cache import PAGE_SIZE, evict_log, log_pieces, mappings_below
from perf.side_by_side.process import ProcessEndedError, free_port, spawn, write_properties
from perf.side_by_side.wire import PROBE_TOPIC, NotServingError, await_serving
from tests.perf_tools.fake_broker import Behaviour, FakeBroker

HOLD_MIB = 48
SLEEP = "print('ready', flush=True); import time; time.sleep(60)"
HOLDER = f"held = b'x' * ({HOLD_MIB} << 20); {SLEEP}"
MAPPER = """
import mmap
file = open({path!r}, 'r+b')
mapped = mmap.mmap(file.fileno(), 0)
total = sum(mapped[::4096])
"""


def test_serving_means_one_acknowledged_message():
    """Goal: an open port is not a broker. Method: a broker that keeps the message; one that refuses all of them."""
    with FakeBroker() as broker:
        await_serving(broker.address, 10, lambda: True)
        assert len(broker.messages(PROBE_TOPIC)) == 1
    with FakeBroker(Behaviour(refuse_every=1)) as broker, pytest.raises(NotServingError, match="refused"):
        await_serving(broker.address, 0.2, lambda: True)


def test_a_process_that_ended_is_not_waited_for():
    """Goal: a crash at the start is reported at once. Method: nobody listens, and the process is said to be gone."""
    with pytest.raises(NotServingError, match="ended"):
        await_serving(f"127.0.0.1:{free_port()}", 60, lambda: False)


def test_output_that_never_comes_is_an_error_with_what_was_said(tmp_path: Path):
    """Goal: a server that dies explains itself. Method: a program that prints a reason and ends."""
    server = spawn("short", [sys.executable, "-c", "print('no such store')"], tmp_path / "out")
    with pytest.raises(ProcessEndedError, match="no such store"):
        server.await_line("boot success", timeout_s=30)
    server.stop()


def test_anonymous_memory_is_counted_and_mapped_files_are_not(tmp_path: Path):
    """Goal: memory is what a process holds for itself. Method: one idle, one holding 48 MiB, one mapping as much."""
    (tmp_path / "file").write_bytes(b"f" * (HOLD_MIB << 20))
    codes = {"idle": SLEEP, "holder": HOLDER, "mapper": MAPPER.format(path=str(tmp_path / "file")) + SLEEP}
    servers = {name: spawn(name, [sys.executable, "-c", code], tmp_path / name) for name, code in codes.items()}
    try:
        for server in servers.values():
            server.await_line("ready", timeout_s=60)
        held = {name: server.anonymous_mib() for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.stop()
    assert held["holder"] - held["idle"] == pytest.approx(HOLD_MIB, abs=4)
    assert held["mapper"] - held["idle"] == pytest.approx(0, abs=4)


def test_settings_are_written_as_properties(tmp_path: Path):
    """Goal: both brokers read the same file. Method: names and values, one a line."""
    path = write_properties(tmp_path / "conf" / "broker.conf", {"listenPort": "10911", "brokerName": "broker-a"})
    assert path.read_text(encoding="utf-8") == "listenPort=10911\nbrokerName=broker-a\n"


def log_file(directory: Path, offset: int, size: int) -> Path:
    """A log file named by its first offset."""
    path = directory / f"{offset:020d}"
    path.write_bytes(b"l" * size)
    return path


def test_only_the_cold_part_of_the_log_is_dropped(tmp_path: Path):
    """Goal: the end that is written stays warm. Method: three files and an offset in the middle of the second."""
    size = 4 * PAGE_SIZE
    first, second, _ = (log_file(tmp_path, number * size, size) for number in range(3))
    (tmp_path / "lock").write_bytes(b"")
    assert list(log_pieces(tmp_path, size + 2 * PAGE_SIZE + 1)) == [(first, size), (second, 2 * PAGE_SIZE)]


def test_mappings_of_a_log_are_found_and_survive_the_eviction(tmp_path: Path):
    """Goal: a mapped log can be made cold without harm. Method: map a file, evict it, read the same bytes again."""
    commit_log = tmp_path / "commitlog"
    commit_log.mkdir()
    path = log_file(commit_log, 0, 64 * PAGE_SIZE)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert mapped[:] == b"l" * len(mapped)
        found = list(mappings_below(os.getpid(), commit_log))
        assert [(mapping.path, mapping.size, mapping.file_position) for mapping in found] == [
            (str(path.resolve()), 64 * PAGE_SIZE, 0)
        ]
        evict_log(os.getpid(), tmp_path, 64 * PAGE_SIZE)
        assert mapped[:] == b"l" * len(mapped)


def first_page_is_resident(path: Path) -> bool:
    """Whether the page cache has the first page of a file; asking does not bring it there."""
    libc, flags = ctypes.CDLL(None, use_errno=True), (ctypes.c_ubyte * 1)()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), PAGE_SIZE) as mapped:
        page = ctypes.c_char.from_buffer(mapped)
        assert libc.mincore(ctypes.byref(page), ctypes.c_size_t(PAGE_SIZE), flags) == 0
        del page
    return bool(flags[0] & 1)


@pytest.mark.parametrize(("free_min", "resident"), [(0, True), (1 << 62, False)])
def test_ballast_fills_memory_unless_too_little_is_free(tmp_path: Path, free_min: int, resident: bool):
    """Goal: memory is filled, never all of it. Method: a small file; the kernel says if its first page is there."""
    ballast = Ballast(tmp_path / "ballast", size=8 << 20, free_min=free_min)
    ballast.fill()
    assert first_page_is_resident(ballast.path) is resident
    ballast.drop()
    assert not ballast.path.exists()


def test_the_price_of_a_fresh_page_is_measured():
    """Goal: the head of a table names what memory costs. Method: it is more than nothing."""
    assert fresh_page_us() > 0
