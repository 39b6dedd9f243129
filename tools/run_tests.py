"""Run the tests in processes side by side: those that meet other people's programs, in three groups, and all others.

The first mostly wait, for virtual machines to start, for consumers to be rebalanced and for delays to be over, so they
cost the others little time. Spark's and C's come last: Spark wants nearly all processors, and beside it others would
wait for theirs. Output of groups apart is shown when they have ended, all other as it comes. Usage: run_tests.py
[pytest's arguments]; with any argument there is one process, and pytest decides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
INTEROP = "tests/interop"
# Programs that go on for the whole run; the others of INTEROP start one a test.
CLIENTS = tuple(f"{INTEROP}/{name}" for name in ("clients", "scenarios", "differential"))
# Delays and timers of a minute that outlive a change of brokers: five of them, nearly without work.
WAITING = tuple(f"{INTEROP}/test_exchange_{name}.py" for name in ("delays", "timers"))
# These go with groups that end before the others.
CONTRACT, CRASH = "tests/contract", "tests/crash"
NATIVE = "tests/test_native_programs.py"
SPARK = "tests/spark_jobs"
APART_PRIORITY = 5  # less than the others', whose tests look at clocks more often
SLOWEST = "--durations=10"
NO_TESTS = 5  # pytest's status for nothing collected


class Turn(NamedTuple):
    """What runs side by side: pytest's arguments for the groups apart, by what they are, and for the others."""

    apart: dict[str, list[str]]
    others: list[str]


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


def groups() -> tuple[Turn, Turn]:
    """The two turns, one after the other."""
    first = {
        f"the tests of {', '.join(CLIENTS)}": [*CLIENTS],
        f"the tests of {', '.join((*WAITING, CONTRACT))}": [*WAITING, CONTRACT],
        f"the other tests of {INTEROP}, and {CRASH}": [
            *(INTEROP, CRASH),
            *(f"--ignore={path}" for path in (*CLIENTS, *WAITING)),
        ],
    }
    others = ["tests", *(f"--ignore={path}" for path in (INTEROP, CONTRACT, CRASH, NATIVE, SPARK))]
    return Turn(first, others), Turn({"the tests in C": [NATIVE]}, [SPARK])


def main(arguments: Sequence[str]) -> int:
    """One process or several."""
    if arguments or not (ROOT / INTEROP).is_dir():
        return subprocess.run(pytest_command(*arguments), cwd=ROOT, check=False).returncode
    statuses = []
    for turn in groups():
        commands = {name: pytest_command(SLOWEST, *words) for name, words in turn.apart.items()}
        statuses.append(run_side_by_side(commands, pytest_command(SLOWEST, *turn.others)))
    return next((status for status in statuses if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
