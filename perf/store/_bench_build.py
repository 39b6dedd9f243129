"""Builds the suite's C helper: its own files and the counting io table, linked with the core archive of `make build`.

The archive is the one inside pymq's own modules, so what is measured is what is shipped, flags included.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

import cffi

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MODULE_NAME = "_pymq_bench_store"
FLAGS = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion", "-Wno-sign-conversion"]
TESTING = ("fault_io.c", "scratch.c")


def archive() -> Path:
    """The core as setup.py archived it for this Python."""
    directory = f"build/temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    path = ROOT / directory / "libpymqcore.a"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; build the core first: make build")
    return path


def declarations() -> str:
    """bench_store.h without its preprocessor lines, which cffi does not read."""
    text = (HERE / "bench_store.h").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def build(directory: Path) -> Any:
    """Compile the helper below *directory* and return the module, with `ffi` and `lib`."""
    builder = cffi.FFI()
    builder.cdef(declarations())
    # What cffi generates is not held to our warnings; what we wrote is, by going through an object file each.
    compiled = [*sorted(HERE.glob("*.c")), *(ROOT / "csrc/testing" / name for name in TESTING)]
    objects = compile_strictly(compiled, directory)
    builder.set_source(
        MODULE_NAME,
        '#include "bench_store.h"',
        include_dirs=[str(HERE), str(ROOT / "csrc/include")],
        extra_objects=[*objects, str(archive())],
        libraries=["pthread"],
    )
    path = builder.compile(tmpdir=str(directory), verbose=False)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_strictly(sources: list[Path], directory: Path) -> list[str]:
    """Object files of *sources*, compiled as csrc/ is."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    compiler = new_compiler()
    customize_compiler(compiler)
    objects: list[str] = []
    for source in sources:
        objects += compiler.compile(
            [str(source)],
            output_dir=str(directory),
            include_dirs=[str(ROOT / "csrc/include")],
            extra_postargs=[*FLAGS, "-fPIC", "-pthread"],
        )
    return objects
