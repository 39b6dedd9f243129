"""The load generator as a function: options in, the numbers of its JSON object out."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRACE_S = 15.0

Result = dict[str, Any]


class LoadError(Exception):
    """The generator ended without a figure; the message is its own sentence."""


def command(program: Path, mode: str, options: dict[str, Any]) -> list[str]:
    """The command line: `body_size=128` becomes `--body-size 128`, `True` a bare flag, `None` nothing."""
    line = [str(program), mode]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            line.append(flag)
        elif value is not None:
            line += [flag, str(value)]
    return line


def _result(status: int, out: str, err: str) -> Result:
    if status != 0:
        raise LoadError(err.strip() or f"the load generator ended with status {status}")
    result: Result = json.loads(out)
    return result


@dataclass
class Running:
    """A generator in the background."""

    process: subprocess.Popen[str]

    def is_alive(self) -> bool:
        """Whether it is still at it."""
        return self.process.poll() is None

    def finish(self, timeout_s: float) -> Result:
        """Its result, once it ends by itself."""
        out, err = self.process.communicate(timeout=timeout_s)
        return _result(self.process.returncode, out, err)

    def end(self, timeout_s: float) -> Result:
        """Ask it to end its load now; its result."""
        self.process.send_signal(signal.SIGTERM)
        return self.finish(timeout_s)


@dataclass(frozen=True)
class Load:
    """The compiled generator."""

    program: Path

    def run(self, mode: str, *, timeout_s: float = 60, **options: Any) -> Result:
        """Run to the end.

        Raises:
            LoadError: it timed out, lost the broker or was refused.
        """
        line = command(self.program, mode, {"timeout_s": timeout_s, **options})
        done = subprocess.run(line, capture_output=True, text=True, timeout=timeout_s + GRACE_S, check=False)
        return _result(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def background(self, mode: str, *, timeout_s: float = 60, **options: Any) -> Iterator[Running]:
        """Run beside something else; killed at the end of the block if it is still there."""
        line = command(self.program, mode, {"timeout_s": timeout_s, **options})
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
