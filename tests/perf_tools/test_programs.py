"""The programs around the generator: the bare loop, the build, the C rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.side_by_side.build import SOURCES, BuildError, build, compile_program
from perf.side_by_side.load import Load, LoadError, command
from perf.side_by_side.process import spawn
from tools.c_lint import check_file


@pytest.mark.parametrize("name", sorted(path.name for path in SOURCES.glob("*.[ch]")))
def test_the_c_rules_hold_here_too(name: str):
    """Goal: one style for all C of the project. Method: tools/c_lint.py over the generator's files."""
    assert list(check_file(SOURCES / name)) == []


def test_nothing_of_the_broker_is_included():
    """Goal: a bug of ours is not mirrored in the ruler. Method: includes are the generator's own headers."""
    own = {path.name for path in SOURCES.glob("*.h")}
    for path in SOURCES.glob("*.[ch]"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith('#include "')]
        assert {line.split('"')[1] for line in lines} <= own, path.name


def test_the_bare_loop_answers_the_generator(tmp_path: Path):
    """Goal: the floor is measured with the same load. Method: a bounded run, pipelined and one at a time."""
    programs = build()
    server = spawn("bare-loop", [str(programs.bare_loop), str(tmp_path)], tmp_path / "out")
    try:
        server.await_line("listening on")
        address = server.output.read_text(encoding="ascii").split()[-1]
        common = {"broker": address, "topic": "T", "no_settle": True, "timeout_s": 30, "watch_pid": server.pid}
        for shape in ({"connections": 4, "window": 16}, {"connections": 1, "properties": "java-keys"}):
            result = Load(programs.load).run("send", count=2000, **shape, **common)
            assert (result["acknowledged"], result["refused"]) == (2000, 0)
    finally:
        server.stop()


def test_a_failed_run_raises_with_the_generators_sentence():
    """Goal: the harness passes reasons on. Method: an address nobody can resolve."""
    with pytest.raises(LoadError, match="not host:port"):
        Load(build().load).run("send", broker="nowhere", topic="T")


def test_options_become_flags():
    """Goal: Python names map to the command line. Method: a value, a flag, and one left out."""
    line = command(Path("load"), "send", {"body_size": 128, "no_settle": True, "ledger": None})
    assert line == ["load", "send", "--body-size", "128", "--no-settle"]


def test_a_source_that_does_not_compile_is_reported(tmp_path: Path):
    """Goal: the compiler's words reach the reader. Method: a broken file."""
    broken = tmp_path / "broken.c"
    broken.write_text("int main(void) { return undeclared_thing; }\n", encoding="utf-8")
    with pytest.raises(BuildError, match="undeclared_thing"):
        compile_program(tmp_path / "broken", [broken])


def test_a_second_build_does_nothing(tmp_path: Path):
    """Goal: a run does not compile what is compiled. Method: the same call twice, and once with other flags."""
    source = tmp_path / "empty.c"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    first = compile_program(tmp_path / "empty", [source]).stat().st_mtime_ns
    assert compile_program(tmp_path / "empty", [source]).stat().st_mtime_ns == first
    assert compile_program(tmp_path / "empty", [source], ("-O0",)).stat().st_mtime_ns != first
