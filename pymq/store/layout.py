"""The sizes a store directory was made with, read off its files.

RocketMQ's files do not say how large they were meant to be; a store opened with other sizes than it was written with
would be misread. `pymq.open` without a configuration therefore looks at what is there:

    commit log   the distance between two file names, or the length of the only file
    queue        the length of a queue file (all have the same one)
    index        slots and keys share one length (40 + 4 * slots + 20 * keys); which pair it is, is decided by
                 following the chains of the keys inside

Reads only, and only while the store is not yet open.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pymq.errors import StoreMismatchError
from pymq.store.config import CQ_UNIT_SIZE, MIB, StoreConfig

OFFSET_NAME = re.compile(r"[0-9]{20}")
INDEX_NAME = re.compile(r"[0-9]{17}")
INDEX_HEADER_SIZE = 40
INDEX_HEADER = struct.Struct(">qqqqii")  # begin time, end time, begin offset, end offset, slots used, item count
INDEX_SLOT_SIZE = 4
INDEX_ITEM_SIZE = 20
INDEX_SEARCH_SIZE_MAX = 16 * MIB  # larger files are only held against the usual pairs, not searched
QUEUE_FILES_LOOKED_AT = 64
ITEMS_FOLLOWED = 64

# What pymq.open makes when the directory is new: small enough for a laptop, and every file of it is allocated whole.
SMALL_COMMIT_LOG_SIZE = 64 * MIB
SMALL_CONSUME_QUEUE_SIZE = 30_000 * CQ_UNIT_SIZE
SMALL_HASH_SLOT_NUM = 50_000
SMALL_INDEX_NUM = 200_000


@dataclass(frozen=True, slots=True)
class FoundSizes:
    """What the files say; None where there is no file to say it."""

    commit_log: int | None
    consume_queue: int | None
    index: tuple[int, int] | None


def config_for(path: str | os.PathLike[str], **changes: object) -> StoreConfig:
    """The settings `pymq.open` uses without any: sizes as found under *path*, small ones where nothing is found.

    *changes* are settings by name that override the rest, sizes included.

    Raises:
        StoreMismatchError: an index is there and its slots and keys cannot be told from its bytes.
    """
    found = find_sizes(Path(path).absolute(), index=not {"max_hash_slot_num", "max_index_num"} <= changes.keys())
    slots, items = found.index or (SMALL_HASH_SLOT_NUM, SMALL_INDEX_NUM)
    settings: dict[str, object] = {
        "mapped_file_size_commit_log": found.commit_log or SMALL_COMMIT_LOG_SIZE,
        "mapped_file_size_consume_queue": found.consume_queue or SMALL_CONSUME_QUEUE_SIZE,
        "max_hash_slot_num": slots,
        "max_index_num": items,
    }
    return StoreConfig().replace(**(settings | changes))


def find_sizes(path: Path, *, index: bool = True) -> FoundSizes:
    """Sizes of the store under *path*; with *index* False the index is not looked at."""
    return FoundSizes(
        commit_log=find_commit_log_size(path / "commitlog"),
        consume_queue=find_queue_size(path / "consumequeue"),
        index=find_index_counts(path / "index") if index else None,
    )


def named_files(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Files of *directory* whose whole name matches, in order; none when there is no such directory."""
    if not directory.is_dir():
        return []
    return sorted(entry for entry in directory.iterdir() if pattern.fullmatch(entry.name) and entry.is_file())


def regular_files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every regular file below *root*, in order; directories that are links are followed once.

    Operators put `commitlog` on a disk of its own by a link. What cannot be reached, a link to nowhere, is no file.
    """
    seen: set[tuple[int, int]] = set()
    for directory, below, names in os.walk(root, followlinks=True):
        here = Path(directory)
        status = here.stat()
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        below.sort()
        for name in sorted(names):
            path = here / name
            if path.is_file():
                yield path, path.stat()


def find_commit_log_size(directory: Path) -> int | None:
    """Size of one log file. A last file cut short by a crash does not mislead: names are looked at first."""
    files = named_files(directory, OFFSET_NAME)
    steps = {int(second.name) - int(first.name) for first, second in itertools.pairwise(files)}
    if steps:
        return min(steps)
    return (files[0].stat().st_size or None) if files else None


def find_queue_size(directory: Path) -> int | None:
    """Size of one queue file, the largest of the first few met."""
    lengths = [file.stat().st_size for file in itertools.islice(queue_files(directory), QUEUE_FILES_LOOKED_AT)]
    size = max(lengths, default=0)
    return size if size and size % CQ_UNIT_SIZE == 0 else None


def queue_files(directory: Path) -> Iterator[Path]:
    """Every queue file under *directory*, topic by topic."""
    if not directory.is_dir():
        return
    for topic in sorted(directory.iterdir()):
        for queue in sorted(topic.iterdir()) if topic.is_dir() else ():
            if queue.is_dir():
                yield from named_files(queue, OFFSET_NAME)


def find_index_counts(directory: Path) -> tuple[int, int] | None:
    """Slots and keys of one index file; None when there is no index."""
    files = [file for file in named_files(directory, INDEX_NAME) if file.stat().st_size > INDEX_HEADER_SIZE]
    if not files:
        return None
    size = files[0].stat().st_size
    with files[0].open("rb") as stream:
        item_count = INDEX_HEADER.unpack(stream.read(INDEX_HEADER_SIZE))[5]
        for slots, items in index_candidates(size):
            if item_count <= 1 or follows_chains(stream, slots, items, item_count):
                return slots, items
    raise StoreMismatchError(
        f"{files[0]}: {size} bytes, and its keys fit no pair of slots and keys known here; open the store with a "
        "StoreConfig that has the max_hash_slot_num and max_index_num it was written with"
    )


def index_candidates(size: int) -> Iterator[tuple[int, int]]:
    """Pairs of slots and keys that give *size*: the usual ones first, then every other."""
    default = StoreConfig()
    words = (size - INDEX_HEADER_SIZE) // INDEX_SLOT_SIZE
    usual = [
        (default.max_hash_slot_num, default.max_index_num),
        (SMALL_HASH_SLOT_NUM, SMALL_INDEX_NUM),
        (words // 21, words // 21 * 4),  # four keys a slot, as both of the above have it
    ]
    for slots, items in usual:
        if INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + items * INDEX_ITEM_SIZE == size and slots:
            yield slots, items
    if size <= INDEX_SEARCH_SIZE_MAX and (size - INDEX_HEADER_SIZE) % INDEX_SLOT_SIZE == 0:
        for slots in range(words % 5 or 5, words, 5):
            yield slots, (words - slots) // 5


def follows_chains(stream: BinaryIO, slots: int, items: int, item_count: int) -> bool:
    """Whether, with so many slots, the newest keys are found where their hashes say."""
    if item_count > items + 1:
        return False
    newest = range(max(1, item_count - ITEMS_FOLLOWED), item_count)
    return all(is_chained(stream, slots, number, item_count) for number in newest)


def is_chained(stream: BinaryIO, slots: int, number: int, item_count: int) -> bool:
    """Whether key *number* hangs on its slot's chain."""
    hash_code = read_item(stream, slots, number)[0]
    if hash_code < 0:
        return False
    slot_position = INDEX_HEADER_SIZE + hash_code % slots * INDEX_SLOT_SIZE
    current = int.from_bytes(read_at(stream, slot_position, INDEX_SLOT_SIZE), "big", signed=True)
    while number < current < item_count:
        previous = read_item(stream, slots, current)[3]
        if previous >= current:
            return False
        current = previous
    return current == number


def read_item(stream: BinaryIO, slots: int, number: int) -> tuple[int, int, int, int]:
    """Hash, log offset, seconds and previous number of key *number*; items are numbered from 1, and 0 stays empty."""
    position = INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + number * INDEX_ITEM_SIZE
    raw = read_at(stream, position, INDEX_ITEM_SIZE)
    hash_code, offset, seconds, previous = struct.unpack(">iqii", raw)
    return hash_code, offset, seconds, previous


def read_at(stream: BinaryIO, position: int, size: int) -> bytes:
    """*size* bytes at *position*, zeros beyond the end."""
    stream.seek(position)
    data = stream.read(size)
    return data.ljust(size, b"\0")
