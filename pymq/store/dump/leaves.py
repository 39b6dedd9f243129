"""Copying a file leaf by leaf: a MiB is read, its digest taken, what is not zeros written, and noted.

Blocks of zeros are not written: what is sparse stays so, by its content, whatever the file system tells of holes. Where
it can the kernel copies (copy_file_range), which on some file systems shares the blocks instead.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import xxhash

from pymq.store.dump.manifest import LEAF_SIZE

BLOCK = 64 << 10  # zeros of this size and alignment are not written
ZEROS = bytes(LEAF_SIZE)
NO_RANGE_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF})


def leaf_digest(data: bytes) -> str:
    """XXH3-64 of a leaf, as the manifest has it."""
    return f"{xxhash.xxh3_64_intdigest(data):016x}"


def read_full(descriptor: int, count: int, at: int) -> bytes:
    """*count* bytes at *at*; fewer only where the file ends."""
    data = os.pread(descriptor, count, at)
    if len(data) == count or not data:
        return data
    pieces = [data]
    got = len(data)
    while got < count:
        data = os.pread(descriptor, count - got, at + got)
        if not data:
            break
        pieces.append(data)
        got += len(data)
    return b"".join(pieces)


def write_full(descriptor: int, data: bytes, at: int) -> None:
    """All of *data* at *at*."""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], at + done)


def digests_of(descriptor: int, written: int) -> Iterator[str]:
    """The digest of each leaf of a file's first *written* bytes; of what is there, where the file ends earlier."""
    for at in range(0, written, LEAF_SIZE):
        yield leaf_digest(read_full(descriptor, min(LEAF_SIZE, written - at), at))


def is_zero(data: bytes) -> bool:
    """Whether all of a leaf or less is zeros."""
    return data == ZEROS if len(data) == LEAF_SIZE else data == ZEROS[: len(data)]


def data_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where in *data* blocks lie that are not zeros, neighbours as one."""
    begin = -1
    for at in range(0, len(data), BLOCK):
        if is_zero(data[at : at + BLOCK]):
            if begin >= 0:
                yield begin, at
            begin = -1
        elif begin < 0:
            begin = at
    if begin >= 0:
        yield begin, len(data)


def nonzero_end(descriptor: int, size: int) -> int:
    """Behind the last byte of a file that is not zero; 0 when there is none."""
    at = size
    while at > 0:
        begin = (at - 1) // LEAF_SIZE * LEAF_SIZE
        data = read_full(descriptor, at - begin, begin)
        if not is_zero(data):
            return begin + len(data.rstrip(b"\0"))
        at = begin
    return 0


class LeafWriter:
    """Writes leaves; remembers whether the kernel can copy between these two file systems."""

    def __init__(self) -> None:
        """Believe so at first."""
        self._range_copy = True

    def write(self, source: int | None, target: int, data: bytes, at: int, *, fresh: bool = True) -> None:
        """Put the leaf *data* of *source* at *at*; in a *fresh* place there are zeros already."""
        runs = data_runs(data) if fresh else iter([(0, len(data))])
        for begin, end in runs:
            done = begin
            while self._range_copy and source is not None and done < end:
                copied = self._copy(source, target, end - done, at + done)
                if not copied:
                    break
                done += copied
            if done < end:
                write_full(target, data[done:end], at + done)

    def _copy(self, source: int, target: int, count: int, at: int) -> int:
        try:
            return os.copy_file_range(source, target, count, at, at)
        except OSError as error:
            if error.errno not in NO_RANGE_COPY:
                raise
            self._range_copy = False
            return 0
