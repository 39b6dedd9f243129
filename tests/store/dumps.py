"""Stores to be dumped, and what tests ask of dumps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymq
from pymq.store.config import StoreConfig

ROOT = Path(__file__).resolve().parents[2]
SIZES = {
    "mapped_file_size_commit_log": 20_011,
    "mapped_file_size_consume_queue": 20 * 11,
    "max_hash_slot_num": 53,
    "max_index_num": 61,
}


def make_store(path: Path, count: int = 150, **sizes: int) -> dict[tuple[str, int, int], bytes]:
    """A store of three topics with keys and tags, stopped; its bodies by topic, queue and offset."""
    bodies = {}
    with pymq.open(path, config=StoreConfig(**{**SIZES, "flush_disk_type": "ASYNC_FLUSH", **sizes})) as store:
        for number in range(count):
            topic, queue_id = f"T{number % 3}", number % 2
            body = b"%d " % number * (1 + number % 40)
            sent = store.send(topic, body, queue_id=queue_id, keys=f"key{number}", tags=f"tag{number % 4}")
            bodies[topic, queue_id, int(sent.queue_offset)] = body
        store._offsets.commit("group", "T0", 0, 3)
    return bodies


def read_store(path: Path) -> dict[tuple[str, int, int], bytes]:
    """All bodies of a store, by topic, queue and offset; opening writes to it."""
    with pymq.open(path) as store:
        core = store._store
        found = {}
        for topic, queue_id, low, high in core.queues():
            offset = int(low)
            while offset < high:
                messages = core.read(topic, queue_id, offset, 1000)
                assert messages, (topic, queue_id, offset)
                found |= {(topic, queue_id, int(message.queue_offset)): message.body for message in messages}
                offset = int(messages[-1].queue_offset) + 1
        return found


def files_of(path: Path) -> dict[str, bytes]:
    """Every file's content by its path, but what is not a store's."""
    beside = {"lock", "manifest.json", "manifest.json.partial"}
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and str(file.relative_to(path)) not in beside
    }


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """What is started within heeds Ctrl-C, also when a shell runs the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_dump(*arguments: object, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """`python -m pymq.store.dump` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "pymq.store.dump", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def dump_json(*arguments: object) -> dict:
    """The result of a dump that must succeed."""
    done = run_dump("--json", "--quiet", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KILLED = """
import os, signal, sys
from pathlib import Path
from pymq.store.dump import copier, taking

class Killer(copier.Silent):
    left = int(sys.argv[4])
    def {event}(self, *_):
        Killer.left -= 1
        if Killer.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

copier.NOTE_LEAVES = int(sys.argv[3])
taking.take_dump(sys.argv[1], Path(sys.argv[2]), report=Killer())
"""


def dump_and_die(source: object, target: Path, *, after: int, event: str = "file_done", note_leaves: int = 64) -> int:
    """Dump in a process that kills itself at the *after*-th *event* of its report; its exit code (-9, or 0)."""
    script = KILLED.replace("{event}", event)
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(target), str(note_leaves), str(after)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode in (0, -9), done.stderr
    return done.returncode
