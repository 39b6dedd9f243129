"""In CI a skipped interop, Spark or sanitizer test fails the session: what did not run did not pass."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parent / "conftest.py"
SKIPPING = "import pytest\n\ndef test_it():\n    pytest.skip('no such tool here')\n"
MARKED = "import pytest\n\n@pytest.mark.{marker}\ndef test_it():\n    pytest.skip('no such tool here')\n"
SKIPPING_MODULE = "import pytest\n\npytest.skip('no such tool here', allow_module_level=True)\n"


def run_session(directory: Path, name: str, text: str, ci: str) -> subprocess.CompletedProcess[str]:
    """Run pytest over a little repository that holds our conftest and one test file *name*."""
    (directory / "tests").mkdir()
    shutil.copy(CONFTEST, directory / "tests/conftest.py")
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n  interop: x\n  spark: x\n  sanitizer: x\n  slow: x\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "PYMQ_CI": ci},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tests/interop/test_a.py", SKIPPING),
        ("tests/interop/test_a.py", SKIPPING_MODULE),
        ("tests/spark_jobs/test_a.py", SKIPPING),
        ("tests/test_a.py", MARKED.format(marker="interop")),
        ("tests/test_a.py", MARKED.format(marker="sanitizer")),
    ],
    ids=["directory", "module", "spark", "interop-mark", "sanitizer-mark"],
)
def test_skip_of_what_must_run_fails_in_ci_only(name: str, text: str, tmp_path: Path):
    """Goal: the rule bites, and only in CI. Method: the same session with and without the switch."""
    (tmp_path / "ci").mkdir()
    (tmp_path / "desk").mkdir()
    in_ci = run_session(tmp_path / "ci", name, text, ci="1")
    at_desk = run_session(tmp_path / "desk", name, text, ci="0")
    assert in_ci.returncode == pytest.ExitCode.TESTS_FAILED, in_ci.stdout
    assert "PYMQ_CI=1 forbids it" in in_ci.stdout
    assert at_desk.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), at_desk.stdout


def test_other_skips_stay_skips_in_ci(tmp_path: Path):
    """Goal: the rule names its scope. Method: a skip elsewhere under the switch."""
    done = run_session(tmp_path, "tests/test_a.py", MARKED.format(marker="slow"), ci="1")
    assert done.returncode == pytest.ExitCode.OK, done.stdout
