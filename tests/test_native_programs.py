"""The C tests of tests/native, each program one pytest case, so that `make test` is the whole suite."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM_NAMES = sorted(path.stem for path in (ROOT / "tests/native").glob("test_*.c"))


@pytest.fixture(scope="module")
def program_directory() -> Path:
    """The directory of the plain programs, built once through the Makefile, which owns the flags."""
    subprocess.run(["make", "--no-print-directory", "native-build"], cwd=ROOT, check=True)
    return ROOT / "build/native/plain/bin"


@pytest.mark.parametrize("name", PROGRAM_NAMES)
def test_native_program_ends_with_status_zero(name: str, program_directory: Path, tmp_path: Path) -> None:
    """Goal: the core holds without Python. Method: run the program in a scratch directory and read its status."""
    done = subprocess.run(
        [program_directory / name],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
