"""The runner of native programs fails on whatever a sanitizer or a program can say, and passes what is well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[2] / "tools/run_native.py"

PROGRAMS = {
    "well": ("echo fine", 0, "1 of 1 programs passed"),
    "status": ("exit 3", 1, "exit status 3"),
    "signal": ("kill -SEGV $$", 1, "exit status -11"),
    "report": ("echo 'WARNING: ThreadSanitizer: data race' >&2", 1, "sanitizer report"),
    "undefined": ("echo 'a.c:3: runtime error: shift exponent 40'", 1, "sanitizer report"),
    "endless": ("exec sleep 60", 1, "no end after 0.5 s"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_verdict_follows_status_output_and_time(name: str, tmp_path: Path):
    """Goal: no report goes unseen. Method: shell scripts that behave like good and bad programs."""
    script, status, text = PROGRAMS[name]
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, RUNNER, "--variant", "plain", "--timeout-s", "0.5" if name == "endless" else "60", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == status, done.stdout
    assert text in done.stdout


def test_programs_run_as_many_at_once_as_asked_for(tmp_path: Path):
    """Goal: processors are not left idle. Method: two programs, each of which waits for the other to have begun."""
    programs = []
    for mine, other in (("a", "b"), ("b", "a")):
        program = tmp_path / mine
        program.write_text(
            f"#!/bin/sh\n: > {program}.begun\nuntil [ -e {tmp_path / other}.begun ]; do sleep 0.01; done\n"
        )
        program.chmod(0o755)
        programs.append(program)
    command = [sys.executable, RUNNER, "--variant", "plain", "--timeout-s", "30", "--jobs", "2", *programs]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    assert "2 of 2 programs passed" in done.stdout
