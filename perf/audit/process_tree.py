"""What a process and all it started take: a driver, its virtual machine and its Python workers share pages."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_S = 0.5
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


def run_and_watch(command: list[str], timeout_s: float, log: Path) -> Cost:
    """Run *command*, its output into *log*; time, processor time and the largest memory seen.

    Raises:
        subprocess.TimeoutExpired: it took longer than *timeout_s*, and was ended.
    """
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
    after = psutil.Process().cpu_times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(status, time.monotonic() - begin, cpu_s, highest)
