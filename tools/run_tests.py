"""Run the tests in processes side by side: those that meet other people's programs, in two groups, C's, and all others.

The first mostly wait, for virtual machines to start and for consumers to be rebalanced, so they cost the others little
time. Spark's come last and alone: they want all processors, and beside them the others would wait for theirs. Output
of the groups is shown when they have ended, all other as it comes. Usage: run_tests.py [pytest's arguments]; with any
argument there is one process, and pytest decides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INTEROP = "tests/interop"
# Programs that go on for the whole run; the others of INTEROP start one a test.
CLIENTS = tuple(f"{INTEROP}/{name}" for name in ("clients", "scenarios", "differential"))
NATIVE = "tests/test_native_programs.py"
SPARK = "tests/spark_jobs"
APART_PRIORITY = 5  # less than the others', whose tests look at clocks more often
SLOWEST = "--durations=10"
NO_TESTS = 5  # pytest's status for nothing collected


def pytest_command(*arguments: str) -> list[str]:
    """The command line of one process."""
    return [sys.executable, "-m", "pytest", *arguments]


def run_side_by_side(apart: Mapping[str, Sequence[str]], others: Sequence[str]) -> int:
    """Run all commands; the status of the first that failed, or 0."""
    with ExitStack() as stack:
        running = []
        for name, command in apart.items():
            output = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
            process = subprocess.Popen(
                ["nice", "-n", str(APART_PRIORITY), *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            running.append((name, stack.enter_context(process), output))
        statuses = [subprocess.run(others, cwd=ROOT, check=False).returncode]
        for name, process, output in running:
            statuses.append(process.wait())
            print(f"=== {name}, which ran meanwhile", flush=True)
            output.seek(0)
            sys.stdout.writelines(output)
            sys.stdout.flush()
    return next((status for status in statuses if status not in (0, NO_TESTS)), 0)


def groups() -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Pytest's arguments for the groups apart, by what they are, for the others, and for those that come last."""
    apart = {
        f"the tests of {', '.join(CLIENTS)}": [*CLIENTS],
        f"the other tests of {INTEROP}": [INTEROP, *(f"--ignore={path}" for path in CLIENTS)],
        "the tests in C": [NATIVE],
    }
    return apart, ["tests", *(f"--ignore={path}" for path in (INTEROP, NATIVE, SPARK))], [SPARK]


def main(arguments: Sequence[str]) -> int:
    """One process or several."""
    if arguments or not (ROOT / INTEROP).is_dir():
        return subprocess.run(pytest_command(*arguments), cwd=ROOT, check=False).returncode
    apart, others, last = groups()
    commands = {name: pytest_command(SLOWEST, *words) for name, words in apart.items()}
    statuses = [run_side_by_side(commands, pytest_command(SLOWEST, *others))]
    statuses.append(run_side_by_side({}, pytest_command(SLOWEST, *last)))
    return next((status for status in statuses if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
