"""Run every tier at its long size and write what happened, with date, machine and durations, to a Markdown page.

A failing step does not stop the following ones: one night's run tells about all of them. The exit status is 1 when
any step failed. Usage: full.py docs/full-result.md
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TARGETS = (
    "lint", "test", "sanitize", "kill-loop", "crash-sweep", "full-sizes", "interop-exchange", "interop-modes",
    "differential", "audit-full", "fuzz", "bench",
)  # fmt: skip
# The last line of pytest, of the native runner and of libFuzzer that says how much was done.
FIGURE = re.compile(
    r"^=+ (.* in [\d.]+s.*?) =+$|^(\w+: \d+ of \d+ programs passed)$|^stat::(number_of_executed_units:\s*\d+)$"
)


class StepResult(NamedTuple):
    """One make target: whether it passed, how long it took, and the counts it printed."""

    target: str
    passed: bool
    duration_s: float
    figures: list[str]


def run_step(target: str) -> StepResult:
    """Run one make target, showing its output while collecting the figures in it."""
    begin = time.monotonic()
    figures: list[str] = []
    environment = {**os.environ, "PYMQ_CI": "1"}
    with subprocess.Popen(
        ["make", target], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            found = FIGURE.match(re.sub(r"\x1b\[[\d;]*m", "", line.rstrip()))
            if found:
                figures.append(next(group for group in found.groups() if group))
    return StepResult(target, process.returncode == 0, time.monotonic() - begin, figures)


def commit_name() -> str:
    """The commit that was tested, with a mark when the tree differs from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def render(results: list[StepResult], commit: str, started: datetime.datetime) -> str:
    """The page, as Markdown."""
    failed = [result.target for result in results if not result.passed]
    lines = [
        "# The last full run",
        "",
        "Written by `make full`; not edited by hand.",
        "",
        f"- date: {started:%Y-%m-%d %H:%M} UTC",
        f"- commit: {commit}",
        f"- machine: {platform.machine()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
        f"- Python {platform.python_version()}",
        f"- result: {'failed: ' + ', '.join(failed) if failed else 'all passed'}",
        "",
        "| step | result | seconds | counts |",
        "|---|---|---:|---|",
    ]
    lines += [
        f"| make {result.target} | {'passed' if result.passed else '**failed**'} | {result.duration_s:.0f} "
        f"| {'; '.join(result.figures)} |"
        for result in results
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run every target, write the page, say how it went."""
    page = ROOT / sys.argv[1]
    started = datetime.datetime.now(datetime.UTC)
    commit = commit_name()
    results = [run_step(target) for target in TARGETS]
    page.write_text(render(results, commit, started), encoding="utf-8")
    print(f"full: written to {page.relative_to(ROOT)}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
