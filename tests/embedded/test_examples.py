"""What the pages show runs: examples/, the blocks of docs/embedded.md, the doctests, the demonstration."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pymq.demo
import pymq.embedded
import pymq.store.config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE = ROOT / "docs" / "embedded.md"

EXPECTED = {
    "send_and_read": "by key: [b'one coffee']\n",
    "consumer_group": "billed: bill for table 3\nnext offset: 3\n",
    "follow_async": "sent 100, received 100,",
    "fast_import": "in the queues: [50000, 50000, 50000, 50000]\n",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    """Goal: an example is a promise. Method: run it as its docstring says and look for its last words."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), str(tmp_path / "data")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert EXPECTED[example.stem] in done.stdout


def test_the_group_example_goes_on_the_second_time(tmp_path):
    """Goal: its docstring says to run it twice. Method: do."""
    for expected in ("to do: 3", "to do: 3"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "consumer_group.py"), str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert expected in done.stdout, done.stderr
    assert "next offset: 6" in done.stdout


def test_the_blocks_of_the_page_run_in_order(tmp_path, monkeypatch, capsys):
    """Goal: docs/embedded.md is true. Method: its Python blocks, one after another, in an empty directory."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 8
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name} block {number}", "exec"), names)
    assert "to bill: b'one coffee'" in capsys.readouterr().out


@pytest.mark.parametrize("module", [pymq.embedded, pymq.store.config], ids=lambda module: module.__name__)
def test_doctests(module, tmp_path):
    """Goal: examples in docstrings run. Method: doctest, with the one fixture they use."""
    globals_ = {**vars(module), "getfixture": lambda _: tmp_path}
    result = doctest.testmod(module, extraglobs=globals_)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_demonstration_finds_everything_again(tmp_path, capsys):
    """Goal: `make run` shows a working store. Method: run it twice over one directory: old data does not confuse it."""
    for _ in range(2):
        assert pymq.demo.main(["--data", str(tmp_path / "demo")]) == 0
        output = capsys.readouterr().out
        assert "SYNC_FLUSH: acknowledged messages are on stable storage" in output
        assert "[b'bill 2', b'bill 3', b'bill 4', b'bill 5']" in output
        assert "Everything was found again" in output


def test_importing_starts_no_thread_and_loads_no_native_module():
    """Goal: Spark forks its workers after importing. Method: a fresh interpreter; threads and modules counted."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, threading, os, pymq; print(threading.active_count(), len(os.listdir('/proc/self/task')), "
            "[name for name in sys.modules if name.startswith('pymq.')], 'open' in dir(pymq))",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "1 1 [] True\n", done.stderr


def test_names_of_the_package_are_all_there():
    """Goal: what __all__ says can be used. Method: get each; a wrong one is an AttributeError."""
    for name in pymq.__all__:
        assert getattr(pymq, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = pymq.nope
