"""The kill loop (R1): SIGKILL while several threads send, then read everything back."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import native_build

pytestmark = pytest.mark.crash

LINE = re.compile(
    r"test_crash_kill: (\w+ flush(?: with pool)?): (\d+) kills, (\d+) messages acknowledged, (.*), [\d.]+ s"
)


def test_kill_loop_loses_no_acknowledged_message(tmp_path: Path) -> None:
    """Goal: acknowledged is found again, whatever the process was doing. Method: 30 kills (PYMQ_KILL_RUNS) at a random
    5 to 500 ms under sync flush, a quarter of that with the pool, under async flush and with both; every
    store is read back whole after each kill. Acknowledged ids travel through a pipe, which outlives the child.
    """
    runs = int(os.environ.get("PYMQ_KILL_RUNS", "30"))
    output = native_build.run("test_crash_kill", tmp_path, timeout_s=240 + runs * 10, settings={"PYMQ_KILL_RUNS": runs})
    lines = LINE.findall(output)
    kills = {mode: int(count) for mode, count, _, _ in lines}
    verdicts = {mode: verdict for mode, _, _, verdict in lines}
    assert kills["sync flush"] >= runs
    assert set(kills) == {"sync flush", "sync flush with pool", "async flush", "async flush with pool"}
    assert all(verdict == "0 lost" for mode, verdict in verdicts.items() if mode != "async flush with pool")
    assert sum(int(acknowledged) for _, _, acknowledged, _ in lines) > runs, "hardly anything was acknowledged"
