"""Run every tier at its long size and write what happened, with date, commit and durations, to a Markdown page.

A failing step does not stop the following ones: one night's run tells about all of them. The exit status is 1 when
any step failed. All steps together take hours, so some can be run by name: each row has the date and the commit it was
run at, and those of the other steps stay as they were.

Usage: full.py docs/full-result.md [STEP …]
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


ROW = re.compile(r"^\| make (?P<target>[\w-]+) \|(?:[^|]*\|){5}$")


class StepResult(NamedTuple):
    """One make target: whether it passed, how long it took, the counts it printed, and of what and when."""

    target: str
    passed: bool
    duration_s: float
    figures: list[str]
    commit: str
    started: datetime.datetime

    @property
    def row(self) -> str:
        """As the page has it."""
        return (
            f"| make {self.target} | {'passed' if self.passed else '**failed**'} | {self.started:%Y-%m-%d %H:%M} "
            f"| {self.commit} | {self.duration_s:.0f} | {'; '.join(self.figures)} |"
        )


def run_step(target: str) -> StepResult:
    """Run one make target, showing its output while collecting the figures in it."""
    begin, started = time.monotonic(), datetime.datetime.now(datetime.UTC)
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
    passed, duration_s = process.returncode == 0, time.monotonic() - begin
    return StepResult(target, passed, duration_s, figures, commit_name(), started)


def commit_name() -> str:
    """The commit that was tested, with a mark when the tree differs from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def rows_of(page: str) -> dict[str, str]:
    """The rows a page has, by step."""
    return {found["target"]: line for line in page.splitlines() if (found := ROW.match(line))}


def render(rows: dict[str, str]) -> str:
    """The page, as Markdown: every step there is, in order, also those that have never been run."""
    lines = [
        "# The last full run",
        "",
        'Written by `make full` (some steps: `make full STEPS="fuzz bench"`); not edited by hand. Times are UTC.',
        "",
        f"- machine: {platform.machine()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
        f"- Python {platform.python_version()}",
        "",
        "| step | result | date | commit | seconds | counts |",
        "|---|---|---|---|---:|---|",
        *(rows.get(target, f"| make {target} | not run | | | | |") for target in TARGETS),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Run the steps, write the page after each, say how it went."""
    page, steps = ROOT / arguments[0], arguments[1:] or list(TARGETS)
    if unknown := [step for step in steps if step not in TARGETS]:
        print(f"full: no step is called {', '.join(unknown)}; there are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    rows = rows_of(page.read_text(encoding="utf-8")) if page.exists() and arguments[1:] else {}
    passed = True
    for step in steps:
        result = run_step(step)
        passed = passed and result.passed
        rows[step] = result.row
        page.write_text(render(rows), encoding="utf-8")
    print(f"full: written to {page.relative_to(ROOT)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
