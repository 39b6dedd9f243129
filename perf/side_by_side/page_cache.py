"""Make a log cold while its broker runs.

`posix_fadvise` drops pages of a file from memory, but not those some process has mapped, and both brokers map their
logs. So the mapping process is first asked, from outside (`process_madvise`), to page the range out; then the file is
advised. That needs root or CAP_SYS_NICE; without it the log stays as warm as it is, which the bytes read then show.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYS_PROCESS_MADVISE = 440  # the same number on every architecture since Linux 5.10
MADV_PAGEOUT = 21
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
CHUNK_SIZE = 64 << 20

_libc = ctypes.CDLL(None, use_errno=True)


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


@dataclass(frozen=True)
class Mapping:
    """A piece of a file in the address space of a process."""

    address: int
    size: int
    path: str
    file_position: int


def mappings_below(pid: int, directory: Path) -> Iterator[Mapping]:
    """What process *pid* has mapped of files below *directory*."""
    prefix = f"{directory.resolve()}{os.sep}"
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(prefix):
            begin, _, end = fields[0].partition("-")
            yield Mapping(int(begin, 16), int(end, 16) - int(begin, 16), fields[5], int(fields[2], 16))


def log_pieces(commit_log: Path, end_offset: int) -> Iterator[tuple[Path, int]]:
    """Files of the log that begin below *end_offset*, each with the bytes it holds below it, in whole pages."""
    for path in sorted(commit_log.iterdir()):
        if path.name.isdigit() and int(path.name) < end_offset:
            size = min(path.stat().st_size, end_offset - int(path.name))
            yield path, size // PAGE_SIZE * PAGE_SIZE


def evict_log(pid: int, store: Path, end_offset: int) -> None:
    """Drop the first *end_offset* bytes of the log of the broker *pid* from memory, as far as we may."""
    os.sync()  # a dirty page cannot be dropped
    pieces = {str(path.resolve()): size for path, size in log_pieces(store / "commitlog", end_offset)}
    descriptor = os.pidfd_open(pid)
    try:
        for mapping in mappings_below(pid, store / "commitlog"):
            size = min(mapping.size, pieces.get(mapping.path, 0) - mapping.file_position)
            for at in range(0, max(size, 0), CHUNK_SIZE):
                _page_out(descriptor, mapping.address + at, min(CHUNK_SIZE, size - at))
    finally:
        os.close(descriptor)
    for path, size in pieces.items():
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def _page_out(descriptor: int, address: int, size: int) -> bool:
    """Whether the kernel took the advice."""
    if platform.system() != "Linux":
        return False
    vector = _IoVector(address, size)
    done = _libc.syscall(SYS_PROCESS_MADVISE, descriptor, ctypes.byref(vector), 1, MADV_PAGEOUT, 0)
    return bool(done == size)
