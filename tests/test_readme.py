"""The examples of README.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run_example(number: int, directory: Path) -> list[str]:
    """The lines the example prints; it must end well, without a warning."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_readme_has_two_examples():
    """Goal: no example goes untested. Method: count them."""
    assert len(EXAMPLES) == 2


def test_the_broker_example_runs_and_says_where_it_listens(tmp_path: Path):
    """Goal: a newcomer can paste it. Method: run it twice in an empty directory; the second time finds the store."""
    for _ in range(2):
        (line,) = run_example(0, tmp_path)
        assert re.fullmatch(r"127\.0\.0\.1:\d+ 127\.0\.0\.1:\d+", line)


def test_the_embedded_example_runs_and_prints_what_it_promises(tmp_path: Path):
    """Goal: a newcomer can paste it. Method: run it in an empty directory, twice."""
    for run_number in range(2):
        found_by_key = [b"one coffee"] * (run_number + 1)
        expected = ["b'one coffee' hot", str(found_by_key), "b'one coffee'", "to bill: b'one coffee'"]
        assert run_example(1, tmp_path) == expected
