"""What a page of memory costs on this machine before anybody wrote to it, and how to take that cost out.

A virtual machine is given its memory piece by piece: the first write to a page that the host has not yet backed costs a
fault over there, several times what zeroing it costs, charged to the process that happens to write. A broker whose log
only grows pays it for every page of its log on a machine that has just been started; on one that has been up for long
the page cache is full and new pages are old ones. `Ballast` makes the second out of the first: it fills free memory
with clean pages of an empty file, which the kernel gives away as soon as somebody wants them.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

MAP_POPULATE = 0x8000
SAMPLE_SIZE = 128 << 20
CHUNK_SIZE = 2 << 20
LOOK_EVERY = 64  # chunks
FREE_MIN = 512 << 20


def fresh_page_us() -> float:
    """CPU time of writing to a page for the first time, in microseconds, averaged over 128 MiB.

    About 0.2 where the memory is there; several where a host has to find it.
    """
    begin = time.process_time()
    with mmap.mmap(-1, SAMPLE_SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_POPULATE):
        spent_s = time.process_time() - begin
    return spent_s * 1e6 / (SAMPLE_SIZE / mmap.PAGESIZE)


def free_bytes() -> int:
    """Memory nobody uses for anything, the page cache included."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass
class Ballast:
    """An empty file as large as the memory, for its pages."""

    path: Path
    size: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free_min: int = FREE_MIN

    def fill(self) -> int:
        """Read the file into the page cache until little is free; the bytes that were taken.

        Pages of it that are still there are not touched again, so that they stay the first the kernel gives away.
        """
        before = free_bytes()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, self.size)
            for number, at in enumerate(range(0, self.size, CHUNK_SIZE)):
                if number % LOOK_EVERY == 0 and free_bytes() < self.free_min:
                    break
                os.posix_fadvise(file, at, CHUNK_SIZE, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(file)
        return max(0, before - free_bytes())

    def drop(self) -> None:
        """Give the memory back."""
        self.path.unlink(missing_ok=True)
