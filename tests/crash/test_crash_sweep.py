"""Crash states (R2): what recovery makes of the disks a power cut may leave."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import native_build

pytestmark = pytest.mark.crash


def test_crash_sweep_recovers_every_state_it_draws(tmp_path: Path) -> None:
    """Goal: no acknowledged message is lost to a power cut, none is made up. Method: 300 disks (PYMQ_CRASH_STATES)
    drawn from images of small workloads, each opened, judged, written to, killed and opened again.
    """
    states = int(os.environ.get("PYMQ_CRASH_STATES", "300"))
    output = native_build.run(
        "test_crash_sweep", tmp_path, timeout_s=120 + states / 5, settings={"PYMQ_CRASH_STATES": states}
    )
    figures = re.search(r"(\d+) states of (\d+) images of (\d+) workloads, (\d+) recoveries crashed", output)
    assert figures is not None, output
    swept, images, workloads, recoveries = map(int, figures.groups())
    assert swept >= states
    assert images >= workloads >= 1
    assert recoveries >= 1, "no recovery was crashed"
    assert "PYMQ_SEED=" in output, "the seed is not printed"


def test_crash_disk_keeps_what_is_durable_and_varies_the_rest(tmp_path: Path) -> None:
    """Goal: the sweep's model is neither too kind nor too harsh. Method: hand-made workloads with known outcomes."""
    assert "test_crash_disk: ok" in native_build.run("test_crash_disk", tmp_path, timeout_s=120)
