"""Run native test programs under one variant and fail on any exit status, time-out or sanitizer report.

A sanitizer can report and still exit with 0 when a program installs its own handlers, so the output is read as well.
Usage: run_native.py --variant plain|asan|tsan --timeout-s SECONDS [--jobs N] [--show] PROGRAM ...
N programs run at once (1 unless said) and are reported as they end. With --show the output of programs that passed is
printed too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPORT = re.compile(rb"ERROR: \w*Sanitizer|WARNING: \w*Sanitizer|runtime error:|SUMMARY: \w*Sanitizer")
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=66:second_deadlock_stack=1",
}


def run(program: Path, timeout_s: float, directory: Path) -> tuple[str, bytes]:
    """Run *program* in a private temporary directory; return ("ok" or the reason of failure, its output)."""
    environment = {**os.environ, **OPTIONS, "TMPDIR": str(directory)}
    try:
        done = subprocess.run(
            [program.resolve()],
            check=False,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as expired:
        return f"no end after {timeout_s:g} s", expired.stdout or b""
    if done.returncode != 0:
        return f"exit status {done.returncode}", done.stdout
    if REPORT.search(done.stdout):
        return "sanitizer report", done.stdout
    return "ok", done.stdout


def run_reported(program: Path, variant: str, timeout_s: float, *, show: bool) -> bool:
    """Run *program* and say how it went, in one piece; whether it passed."""
    directory = Path(tempfile.mkdtemp(prefix="pymq-native-"))
    begin = time.monotonic()
    verdict, output = run(program, timeout_s, directory)
    text = f"{variant:6} {program.name:32} {time.monotonic() - begin:7.2f} s  {verdict}\n".encode()
    if verdict == "ok":
        shutil.rmtree(directory)
    else:
        text += f"its files are kept in {directory}\n".encode()
    if verdict != "ok" or show:
        text += output + b"\n"
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
    return verdict == "ok"


def main() -> int:
    """Run every program given; the exit status is 1 when any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--timeout-s", type=float, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("programs", nargs="*", type=Path)
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        passed = pool.map(
            lambda program: run_reported(program, arguments.variant, arguments.timeout_s, show=arguments.show),
            arguments.programs,
        )
    failed = list(passed).count(False)
    print(f"{arguments.variant}: {len(arguments.programs) - failed} of {len(arguments.programs)} programs passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
