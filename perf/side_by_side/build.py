"""Compile the load generator and the bare loop, when their sources are newer than what was built."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent / "load"
OUTPUT = ROOT / "build" / "side_by_side"
BARE_LOOP_SOURCE = "bare_loop.c"

FLAGS = (
    "-std=gnu11", "-D_GNU_SOURCE=", "-g", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion",
    "-Wno-sign-conversion",
)  # fmt: skip


class BuildError(Exception):
    """The C compiler is missing or refused the sources; the message carries its output."""


@dataclass(frozen=True)
class Programs:
    """What was built."""

    load: Path
    bare_loop: Path


def generator_sources() -> list[Path]:
    """The sources of the load generator, all but the bare loop, which is a program of its own."""
    return sorted(path for path in SOURCES.glob("*.c") if path.name != BARE_LOOP_SOURCE)


def compile_program(target: Path, sources: Sequence[Path], extra_flags: Sequence[str] = ("-O2",)) -> Path:
    """Compile *sources* into *target* unless that is what *target* already is.

    Raises:
        BuildError: no compiler, or it found something.
    """
    command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, *extra_flags]
    digest = hashlib.sha256("\0".join(command).encode())
    for path in [*sources, *sorted(SOURCES.glob("*.h"))]:
        digest.update(path.read_bytes())
    stamp = target.with_name(f"{target.name}.stamp")
    if target.is_file() and stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be building, or running, the same program: it is replaced in one step.
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        built = subprocess.run(
            [*command, *map(str, sources), "-o", str(fresh)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as problem:
        raise BuildError(f"no C compiler ({problem}); apt-get install build-essential, or set CC") from problem
    if built.returncode != 0:
        raise BuildError(f"{' '.join(command)}:\n{built.stderr}")
    fresh.replace(target)
    stamp.write_text(digest.hexdigest())
    return target


def build() -> Programs:
    """Both programs, ready to run."""
    return Programs(
        load=compile_program(OUTPUT / "load", generator_sources()),
        bare_loop=compile_program(OUTPUT / "bare_loop", [SOURCES / BARE_LOOP_SOURCE, SOURCES / "decode.c"]),
    )
