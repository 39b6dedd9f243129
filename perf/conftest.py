"""What every figure carries: the machine, the kernel, the file system and the build it was measured on."""

from __future__ import annotations

import os
import platform
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pytest


def file_system_of(path: Path) -> str:
    """The type of the file system that *path* lies on, from the longest matching mount point, or "unknown"."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    best = ("", "unknown")
    for line in mounts:
        _, mount_point, kind, *_ = line.split(" ")
        covers = path.resolve().is_relative_to(mount_point)
        if covers and len(mount_point) >= len(best[0]):
            best = (mount_point, kind)
    return best[1]


def cpu_model() -> str:
    """The processor's name as the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def machine_facts() -> dict[str, str]:
    """What a reader needs to judge a figure."""
    switches = [name for name in ("PYMQ_DEBUG", "PYMQ_SANITIZE", "PYMQ_COVERAGE") if os.environ.get(name)]
    return {
        "cpu": f"{cpu_model()} x {os.cpu_count()}",
        "kernel": platform.release(),
        "file_system": file_system_of(Path(tempfile.gettempdir())),
        "python": platform.python_version(),
        "compiler": str(sysconfig.get_config_var("CC")),
        "switches": ",".join(switches) or "none",
    }


def pytest_report_header() -> list[str]:
    """Print the facts above the figures."""
    return [f"{name}: {value}" for name, value in machine_facts().items()]


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Keep the facts in a saved result."""
    machine_info["pymq"] = machine_facts()


@pytest.fixture
def perf_directory(tmp_path: Path) -> Path:
    """A directory for the store under measurement."""
    return tmp_path / "store"
