"""A failing fsync (R5), and how few of them group commit needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import native_build

pytestmark = pytest.mark.fault


def test_failed_fsync_ends_acknowledging_and_restart_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """Goal: no acknowledgement rests on a retried fsync. Method: fail the n-th sync of the log, n = 1…50, once with EIO
    and once with ENOSPC; later puts and waits fail, the failure names the file, a reopened store has every message.
    """
    output = native_build.run("test_faults", tmp_path, timeout_s=280)
    assert re.search(r"50 failing syncs with EIO and with ENOSPC, 5 under async flush, 16 of other files: ok", output)


def test_group_commit_costs_at_most_three_syncs_for_256_senders(tmp_path: Path) -> None:
    """Goal: a thousand waiters cost one fsync. Method: 256 threads append, then wait together, with an fsync of 2 ms;
    syncs of the log are counted round by round.
    """
    output = native_build.run("test_fault_group_commit", tmp_path, timeout_s=280)
    figures = re.search(r"(\d+) senders, (\d+) rounds, at most (\d+) syncs a round", output)
    assert figures is not None, output
    senders, rounds, syncs = map(int, figures.groups())
    assert senders == 256
    assert rounds >= 5
    assert 1 <= syncs <= 3
