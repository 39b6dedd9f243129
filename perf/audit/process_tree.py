"""What a process and all it started take: a driver, its virtual machine and its Python workers share pages.

A driver that ends does not wait for its virtual machine, nor that one for its workers. So that their time is counted,
this process adopts what is left behind (PR_SET_CHILD_SUBREAPER) and waits for it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_S = 2.0  # a look at all pages of a large process is not free
ORPHANS_S = 30.0  # a virtual machine whose driver has gone ends by itself, in less
PR_SET_CHILD_SUBREAPER = 36
COUNTED = ("Pss_Anon:", "Pss_Shmem:")  # what is theirs alone; the page cache would be there without them


@dataclass(frozen=True)
class Cost:
    """One run."""

    status: int
    elapsed_s: float
    cpu_s: float
    memory_max: int


def memory_of(process: psutil.Process) -> int:
    """Bytes of memory a process holds, shared pages by halves; 0 when it has gone."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except (OSError, psutil.Error):
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(COUNTED)) * 1024


def tree_memory(root: psutil.Process) -> int:
    """The sum over *root* and everything below it."""
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(memory_of(process) for process in processes)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own has gone.

    Raises:
        OSError: the kernel does not do that.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def await_orphans() -> None:
    """Wait for everything that was left behind, for at most ORPHANS_S: what has not ended then is not counted."""
    deadline = time.monotonic() + ORPHANS_S
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.05)


def run_and_watch(command: list[str], timeout_s: float, log: Path) -> Cost:
    """Run *command*, its output into *log*; time, processor time and the largest memory seen.

    Raises:
        subprocess.TimeoutExpired: it took longer than *timeout_s*, and was ended.
    """
    adopt_orphans()
    before = psutil.Process().cpu_times()
    begin = time.monotonic()
    highest = 0
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        root, ended = psutil.Process(process.pid), threading.Event()

        def watch() -> None:
            nonlocal highest
            while not ended.wait(SAMPLE_S):
                highest = max(highest, tree_memory(root))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            ended.set()
            watcher.join()
    elapsed_s = time.monotonic() - begin
    await_orphans()
    after = psutil.Process().cpu_times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(status, elapsed_s, cpu_s, highest)
