"""The API is typed: what users write is checked, and wrong uses are found before they run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

GOOD = """
import pymq
from pymq import PhysicalOffset, QueueOffset

def use(mq: pymq.EmbeddedStore) -> None:
    result = mq.send("t", b"x", keys=["a"], properties={"a": "b"})
    offset: QueueOffset = result.queue_offset
    place: PhysicalOffset = result.physical_offset
    body: bytes = mq.read("t")[0].body
    for message in mq.group("g").consume("t", timeout=0):
        text: str | None = message.tags
        print(text, offset, place, body)

async def follow(mq: pymq.EmbeddedStore) -> None:
    async for message in mq.atail("t"):
        print(message.queue_offset)
"""

BAD = """
import pymq

def use(mq: pymq.EmbeddedStore) -> None:
    mq.send("t", "text")
    offset: pymq.QueueOffset = mq.send("t", b"x").physical_offset
    mq.offset_by_time("t", 0, 0, "middle")
    mq.read("t")[0].body = b""
"""


def run_mypy(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """mypy --strict over *code*, with the repository's package."""
    file = tmp_path / "use.py"
    file.write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_ordinary_use_is_clean_and_mistakes_are_found(tmp_path):
    """Goal: types that help. Method: mypy --strict over good code, then over four mistakes, each on its line."""
    good = run_mypy(tmp_path, GOOD)
    assert good.returncode == 0, good.stdout
    bad = run_mypy(tmp_path, BAD)
    lines = {int(line.split(":")[1]) for line in bad.stdout.splitlines() if ": error:" in line}
    assert lines == {5, 6, 7, 8}, bad.stdout


def test_examples_are_typed(tmp_path):
    """Goal: examples pass the user's own checks. Method: mypy --strict over the directory."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "examples"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
