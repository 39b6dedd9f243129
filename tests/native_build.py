"""Build and run one program of tests/native for the tests that look at what it says.

The Makefile owns the flags; a file lock keeps two workers from building at the same time. test_native_programs.py runs
every program as it is; the tests of tests/crash and tests/fault run some of them again at the sizes the project
promises and read the figures they print.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "build" / ".native-build.lock"


def build(name: str) -> Path:
    """The plain variant of tests/native/*name*.c, built when it is not up to date."""
    program = Path("build/native/plain/bin") / name
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "--no-print-directory", "--silent", str(program)], cwd=ROOT, check=True)
    return ROOT / program


def run(name: str, directory: Path, *, timeout_s: float, settings: Mapping[str, str | int] | None = None) -> str:
    """Run *name* with its scratch files in *directory* and *settings* in its environment; what it printed.

    Settings of the caller's own environment win, so that a failure is repeated with PYMQ_SEED=… pytest ….
    """
    environment = {key: str(value) for key, value in (settings or {}).items()}
    done = subprocess.run(
        [build(name)],
        cwd=ROOT,
        env={**environment, **os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    print(done.stdout)
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout
