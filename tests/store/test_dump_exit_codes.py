"""Exit codes of `python -m pymq.store.dump` as docs/dump.md has them, each by running the command."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.store.dumps import ROOT, heeding_interrupts, make_store, run_dump

SMALL = 5_000  # bytes: room for notes, not for a log file
CONTINUES = "; the same command continues the dump\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store that no test changes."""
    path = tmp_path_factory.mktemp("made") / "store"
    make_store(path)
    return path


@pytest.fixture
def store(made, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(made, tmp_path / "store")


def run_cramped(*arguments):
    """The command where no file may become larger than SMALL: a disk that fails in the middle."""
    return subprocess.run(
        [sys.executable, "-m", "pymq.store.dump", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, SMALL)),
    )


def said(done):
    """What it said, which is one line and no traceback."""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("pymq.store.dump: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_0_is_a_whole_dump_also_when_it_was_one_and_one_that_is_equal(store, tmp_path):
    """Goal: 0. Method: take it, take it again, verify it."""
    for arguments in ((store, tmp_path / "dump"), (store, tmp_path / "dump"), ("--verify", tmp_path / "dump")):
        assert run_dump("--quiet", *arguments).returncode == 0


def test_1_is_begun_and_not_whole_and_the_same_command_continues(store, tmp_path):
    """Goal: 1, then 0. Method: a disk that fails in the middle, and then does not."""
    done = run_cramped("--quiet", store, tmp_path / "dump")
    assert done.returncode == 1
    assert said(done).endswith(CONTINUES)
    assert not (tmp_path / "dump" / "manifest.json").exists()
    assert run_dump("--quiet", store, tmp_path / "dump").returncode == 0


def test_1_is_a_dump_that_is_not_equal_or_cannot_be_read(store, tmp_path):
    """Goal: 1. Method: a byte more; then a directory where a file was."""
    assert run_dump("--quiet", store, tmp_path / "dump").returncode == 0
    log = tmp_path / "dump" / "commitlog" / f"{0:020d}"
    with log.open("ab") as stream:
        stream.write(b"x")
    done = run_dump("--quiet", "--verify", tmp_path / "dump")
    assert done.returncode == 1
    assert "1 files differ" in done.stdout
    log.unlink()
    log.mkdir()
    done = run_dump("--quiet", "--verify", tmp_path / "dump")
    assert done.returncode == 1
    assert "Is a directory" in said(done)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("nothing", "dump", "neither a directory nor host:port"),
        ("127.0.0.1:1", "dump", "no broker at 127.0.0.1:1"),
        ("full", "dump", "full"),
        ("store", "file", "is no directory"),
        ("store", "file/dump", "Not a directory; nothing was copied"),
        ("store", "/proc/dump", "; nothing was copied"),
        ("store", "store/dump", "lie in one another"),
        ("store", "full", "neither empty nor a dump"),
        ("store", "unfinished", "notes of a dump"),
    ],
)
def test_2_is_refused_before_anything_is_copied(store, tmp_path, source, target, words):
    """Goal: 2, and nothing is there that was not. Method: sources and targets that cannot be."""
    (tmp_path / "file").write_text("")
    for name in ("full", "unfinished"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "x").write_text("")
    (tmp_path / "unfinished" / "manifest.json.partial").write_text("{}\n")
    before = sorted(tmp_path.rglob("*"))
    given = tmp_path / source if ":" not in source else source
    done = run_dump("--quiet", given, tmp_path / target)
    assert done.returncode == 2
    assert words in said(done)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arguments", [[], ["--rate", "x", "a", "b"], ["--rate=nan", "a", "b"], ["--what"]])
def test_2_is_arguments_that_mean_nothing(arguments):
    """Goal: 2. Method: none, an option that is none, a number that is none."""
    assert run_dump(*arguments).returncode == 2


def test_2_is_a_dump_that_cannot_be_continued_or_verified(store, tmp_path):
    """Goal: 2, again and again. Method: an unfinished dump, verified; then continued with a store that has changed."""
    assert run_cramped("--quiet", store, tmp_path / "dump").returncode == 1
    done = run_dump("--quiet", "--verify", tmp_path / "dump")
    assert done.returncode == 2
    assert "not finished" in said(done)
    log = store / "commitlog" / f"{0:020d}"
    os.utime(log, ns=(1, 1))
    for _ in range(2):
        done = run_dump("--quiet", store, tmp_path / "dump")
        assert done.returncode == 2
        assert "has changed since this dump was begun" in said(done)
    assert run_dump("--verify", tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_told_to_end_it_is_1_and_other_signals_are_the_system_s(store, tmp_path, number, code):
    """Goal: what a shell sees. Method: signals to a dumper that copies slowly; then the same command."""
    command = [sys.executable, "-m", "pymq.store.dump", "--quiet", "--rate", "0.001"]
    command += [store, tmp_path / "dump"]
    with heeding_interrupts(), subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as dumper:
        end_s = time.monotonic() + 60
        while not list((tmp_path / "dump").rglob("0*")):
            assert time.monotonic() < end_s
            time.sleep(0.01)
        dumper.send_signal(number)
        _, text = dumper.communicate(timeout=60)
    assert dumper.returncode == code
    assert text == ("pymq.store.dump: interrupted; the same command continues it\n" if code == 1 else "")
    assert run_dump("--quiet", store, tmp_path / "dump").returncode == 0
