"""Run the tests in two processes side by side: those that meet other people's programs, and all others.

The first mostly wait, for virtual machines to start and for consumers to be rebalanced, so the second cost little extra
time. The output of the others is shown as it comes, that of the first when it has ended. Usage: run_tests.py [pytest's
arguments]; with any argument there is one process, and pytest decides.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
APART = "tests/interop"
APART_PRIORITY = 5  # less than the others', whose tests look at clocks more often
NO_TESTS = 5  # pytest's status for nothing collected


def pytest_command(*arguments: str) -> list[str]:
    """The command line of one process."""
    return [sys.executable, "-m", "pytest", *arguments]


def run_side_by_side(apart: Sequence[str], others: Sequence[str]) -> int:
    """Run both commands; the status of the first that failed, or 0."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        with subprocess.Popen(
            ["nice", "-n", str(APART_PRIORITY), *apart], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        ) as waiting:
            status = subprocess.run(others, cwd=ROOT, check=False).returncode
            print(f"=== the tests of {APART}, which ran meanwhile", flush=True)
            apart_status = waiting.wait()
        output.seek(0)
        for line in output:
            sys.stdout.write(line)
    sys.stdout.flush()
    return next((code for code in (status, apart_status) if code not in (0, NO_TESTS)), 0)


def main(arguments: Sequence[str]) -> int:
    """One process or two."""
    if arguments or not (ROOT / APART).is_dir():
        return subprocess.run(pytest_command(*arguments), cwd=ROOT, check=False).returncode
    return run_side_by_side(pytest_command(APART), pytest_command("tests", f"--ignore={APART}"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
