"""setup.py holds csrc/ to strict warnings, links every extension with it, and rebuilds exactly what changed.

Each test builds a toy repository with the real setup.py: one C function in each core directory and a cffi module.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TOY = {
    "csrc/include/pymq/toy.h": "int pymq_one(int x);\nint pymq_two(int x);\n",
    "csrc/codec/one.c": '#include "pymq/toy.h"\nint pymq_one(int x) { return x + 1; }\n',
    "csrc/store/two.c": '#include "pymq/toy.h"\nint pymq_two(int x) { return 2 * pymq_one(x); }\n',
    "pymq/__init__.py": "",
    "pymq/_scan/__init__.py": "",
    "pymq/_scan/_build.py": "import cffi\n"
    "ffibuilder = cffi.FFI()\n"
    "ffibuilder.cdef('int pymq_two(int);')\n"
    "ffibuilder.set_source('pymq._scan._toy', '#include \"pymq/toy.h\"', sources=['csrc/codec/one.c'],\n"
    "                      include_dirs=['csrc/include'])\n",
    "README.md": "toy\n",
    "LICENSE": "toy\n",
    "NOTICE": "toy\n",
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The toy repository."""
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def build(toy: Path, **switches: str) -> subprocess.CompletedProcess[str]:
    """Build in place and return the finished process with its compiler lines."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYMQ_")}
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=toy,
        env={**environment, **switches},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )


def compiled(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Names of the core's sources that the compiler was called for."""
    lines = [line.split() for line in done.stdout.splitlines() if " -c " in line]
    return sorted(word for words in lines for word in words if word.startswith("csrc/") and word.endswith(".c"))


def test_extension_calls_the_core_and_exports_none_of_it(toy: Path):
    """Goal: the archive is linked in, hidden. Method: call a C function that calls another; look at the symbols."""
    done = build(toy)
    assert done.returncode == 0, done.stdout
    code = "from pymq._scan._toy import lib; print(lib.pymq_two(3))"
    called = subprocess.run([sys.executable, "-c", code], cwd=toy, stdout=subprocess.PIPE, text=True)
    assert called.stdout == "8\n"
    (library,) = (toy / "pymq/_scan").glob("_toy*.so")
    exported = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True)
    assert "pymq_" not in exported.stdout


def test_only_what_changed_is_compiled_again(toy: Path):
    """Goal: a quick loop that is never stale. Method: build, touch nothing, a source, a header, the switches."""
    assert compiled(build(toy)) == ["csrc/codec/one.c", "csrc/store/two.c"]
    assert compiled(build(toy)) == []
    later = (toy / "csrc/codec/one.c").stat().st_mtime + 10
    os.utime(toy / "csrc/codec/one.c", (later, later))
    assert compiled(build(toy)) == ["csrc/codec/one.c"]
    os.utime(toy / "csrc/include/pymq/toy.h", (later + 10, later + 10))
    assert compiled(build(toy)) == ["csrc/codec/one.c", "csrc/store/two.c"]
    debug = build(toy, PYMQ_DEBUG="1")
    assert compiled(debug) == ["csrc/codec/one.c", "csrc/store/two.c"]
    assert "-O0 -g3" in debug.stdout


def test_warning_in_the_core_stops_the_build(toy: Path):
    """Goal: -Werror holds for our C. Method: an implicit narrowing, which only the strict flags see."""
    (toy / "csrc/codec/one.c").write_text('#include "pymq/toy.h"\nint pymq_one(int x) { char c = x; return c; }\n')
    strict = build(toy)
    assert strict.returncode != 0
    assert "-Werror=conversion" in strict.stdout
    assert build(toy, PYMQ_WERROR="0").returncode == 0


def test_unknown_or_contradicting_sanitizers_are_refused_by_name(toy: Path):
    """Goal: a typing error is not a plain build. Method: one unknown name, one impossible pair."""
    unknown = build(toy, PYMQ_SANITIZE="adress")
    assert unknown.returncode != 0
    assert "unknown adress; known are address, thread, undefined" in unknown.stdout
    assert "exclude each other" in build(toy, PYMQ_SANITIZE="address,thread").stdout
