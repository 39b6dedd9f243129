"""Full disks, short and interrupted calls (R6); memory, descriptors and privilege refused (R7)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import native_build

pytestmark = pytest.mark.fault

FULL = os.environ.get("PYMQ_FULL", "0") not in ("", "0")


def test_full_disk_refuses_puts_and_the_store_goes_on_when_space_returns(tmp_path: Path) -> None:
    """Goal: a full disk is an error code, not a loss and not a restart. Method: ENOSPC for good at each early
    allocation of log, queue and index files, then cleared; ENOSPC, EINTR and short transfers once at each of the last
    writes.
    """
    output = native_build.run("test_fault_space", tmp_path, timeout_s=3600 if FULL else 280)
    assert re.search(r"\d+ places: ok", output), output


def test_refused_memory_descriptors_and_locks_neither_crash_nor_leak(tmp_path: Path) -> None:
    """Goal: every failing call has an answer. Method: fail the n-th call of fifteen kinds until none fails;
    descriptors and mappings are counted, acknowledged messages are read back. mlock refused for good: the store runs
    and reports it.
    """
    output = native_build.run("test_fault_memory", tmp_path, timeout_s=3600 if FULL else 280)
    figures = re.search(r"(\d+) lives with one failing call each: ok", output)
    assert figures is not None, output
    assert int(figures.group(1)) >= 50


def test_fault_table_fails_exactly_what_it_is_told(tmp_path: Path) -> None:
    """Goal: the other tests of this directory test what they say. Method: rules with known outcomes on plain files."""
    assert "test_fault_io: ok" in native_build.run("test_fault_io", tmp_path, timeout_s=120)
