"""The examples of README.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_python_examples_of_the_readme_run_and_print_what_they_promise(tmp_path: Path):
    """Goal: a newcomer can paste the first screen. Method: run each Python block in an empty directory, twice."""
    examples = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) == 1
    for run_number in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", examples[0]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found_by_key = [b"one coffee"] * (run_number + 1)
        expected = ["b'one coffee' hot", str(found_by_key), "b'one coffee'", "to bill: b'one coffee'"]
        assert done.stdout.splitlines() == expected
