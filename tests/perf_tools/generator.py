"""The load generator for tests: as a program built with sanitizers, and its pure parts as a library for ctypes."""

from __future__ import annotations

import ctypes
import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perf.side_by_side.build import OUTPUT, SOURCES, compile_program, generator_sources

SANITIZE = ("-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PURE_SOURCES = ("histogram.c", "encode.c", "decode.c", "message.c", "records.c")
RUN_TIMEOUT_S = 60


@cache
def program() -> Path:
    """`load`, under ASan and UBSan."""
    return compile_program(OUTPUT / "load-sanitized", generator_sources(), SANITIZE)


@cache
def library() -> ctypes.CDLL:
    """What has no sockets, callable from Python."""
    sources = [SOURCES / name for name in PURE_SOURCES]
    return ctypes.CDLL(str(compile_program(OUTPUT / "libload.so", sources, ("-O2", "-shared", "-fPIC"))))


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    status: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object it printed; the run must have succeeded."""
        assert self.status == 0, f"status {self.status}: {self.err}"
        document: dict[str, Any] = json.loads(self.out)
        return document


def run(mode: str, *arguments: str | int | float) -> Ended:
    """Run the program to its end."""
    done = subprocess.run(
        [str(program()), mode, *map(str, arguments)], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)
