"""How a table is cut into the parts that tasks read: few enough to be worth a task each, small enough to share.

    log files      at record boundaries into ranges of about 128 MiB; many small ranges share a part
    queue files    packed up to about 64 MiB: ten thousand queues are not ten thousand tasks
    index files    one each, unless they are small
    small files    one part for all of them

A part is a plain tuple of where to read what. It travels to the executors, which see the same paths: a store is read
from a disk that everybody has mounted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from pymq.errors import ConfigError
from pymq.store.config import parse_delay_levels
from spark_jobs.rocketmq_store.decoded import DECODERS, topics_of
from spark_jobs.rocketmq_store.files import LogFile, QueueFile, StoreFiles
from spark_jobs.rocketmq_store.pushdown import ALL_ROWS, Wanted
from spark_jobs.rocketmq_store.queues import QueueRange
from spark_jobs.rocketmq_store.records import DELAY_LEVELS, LogRange, split_points

MIB: Final = 1 << 20
LOG_RANGE_SIZE: Final = 128 * MIB
QUEUE_PART_SIZE: Final = 64 * MIB
LEAF_PART_SIZE: Final = 256 * MIB
ITEMS_PER_PART_MAX: Final = 4096  # however small they are
SMALL_FILE_COST: Final = 64 << 10  # opening a file counts like so many bytes
UNIT_SIZE: Final = 20

Item = TypeVar("Item")
Span = tuple[str, int, int]  # store, begin, end: physical offsets


class LogPart(NamedTuple):
    """Ranges of log files, of stores that have the rest in common.

    Attributes:
        delay_levels: their messageDelayLevel.
        topics: what a decoded table is decoded from.
    """

    ranges: tuple[LogRange, ...]
    delay_levels: str
    topics: frozenset[str] = frozenset()


class QueuePart(NamedTuple):
    """Queue files; those of one queue in order."""

    files: tuple[QueueRange, ...]


class IndexFile(NamedTuple):
    """One index file; the arguments of `index.read_items`."""

    store: str
    path: str
    slots: int
    items: int


class IndexPart(NamedTuple):
    """Index files."""

    files: tuple[IndexFile, ...]


class LeafFile(NamedTuple):
    """One file; the arguments of `leaves.read_leaves`."""

    store: str
    root: str
    path: str
    written: int


class LeafPart(NamedTuple):
    """Files to be digested."""

    files: tuple[LeafFile, ...]


class TimerLogPart(NamedTuple):
    """One file of a timer log; *is_last* that no later one is there."""

    store: str
    path: str
    base: int
    is_last: bool


class SmallPart(NamedTuple):
    """Stores whose small files are read: (name, directory) of each."""

    stores: tuple[tuple[str, str], ...]


Part = LogPart | QueuePart | IndexPart | LeafPart | TimerLogPart | SmallPart


def plan(
    table: str,
    stores: Sequence[StoreFiles],
    wanted: Wanted = ALL_ROWS,
    spans: Sequence[Span] | None = None,
    delay_levels: str | None = None,
) -> list[Part]:
    """The parts of *table*.

    *spans*, when given, are all of the log that is asked for; *delay_levels* what all stores are taken to have.
    """
    stores = [store for store in stores if wanted.stores is None or store.name in wanted.stores]
    if table == "commitlog":
        return list(plan_log(stores, wanted, spans, delay_levels))
    if table in DECODERS:
        return list(plan_decoded(table, stores, wanted, delay_levels))
    if table == "consumequeue":
        return list(plan_queues(stores, wanted))
    if table == "index":
        return list(plan_index(stores))
    if table == "scan":
        log = plan_log(stores, ALL_ROWS, None, delay_levels)
        return [*log, *plan_queues(stores), *plan_index(stores)]
    if table == "leaves":
        return list(plan_leaves(stores))
    if table == "timerlog":
        return list(plan_timer_log(stores))
    return [SmallPart(tuple((store.name, str(store.root)) for store in stores))] if stores else []


# ---- the log -----------------------------------------------------------------------------------------------------


def plan_log(
    stores: Sequence[StoreFiles], wanted: Wanted, spans: Sequence[Span] | None = None, delay_levels: str | None = None
) -> Iterator[LogPart]:
    """Ranges of the log that may hold what is wanted, packed."""
    if wanted.topics is not None and not wanted.topics:
        return
    levels = [delay_levels or configured_delay_levels(store) for store in stores]
    for common, group in itertools.groupby(zip(stores, levels, strict=True), lambda pair: pair[1]):
        ranges = [one for store, _ in group for one in log_ranges(store, wanted, spans)]
        for packed in pack(ranges, [one.end - one.begin for one in ranges], LOG_RANGE_SIZE):
            yield LogPart(packed, common)


def plan_decoded(
    table: str, stores: Sequence[StoreFiles], wanted: Wanted, delay_levels: str | None
) -> Iterator[LogPart]:
    """The whole log of every store that has the topics *table* is decoded from."""
    topics = [topics_of(table, store) for store in stores]
    for common, group in itertools.groupby(zip(stores, topics, strict=True), lambda pair: pair[1]):
        if common:
            for part in plan_log([store for store, _ in group], wanted, None, delay_levels):
                yield part._replace(topics=common)


def configured_delay_levels(store: StoreFiles) -> str:
    """What a dump's manifest says the broker had; RocketMQ's own levels otherwise."""
    configured = (store.manifest or {}).get("configuration")
    text = configured.get("messageDelayLevel") if isinstance(configured, dict) else None
    try:
        return text if isinstance(text, str) and parse_delay_levels(text) else DELAY_LEVELS
    except ConfigError:
        return DELAY_LEVELS


def log_ranges(store: StoreFiles, wanted: Wanted, spans: Sequence[Span] | None) -> Iterator[LogRange]:
    """The ranges of one store, in order and apart from each other."""
    asked = [(wanted.begin, wanted.end)]
    if spans is not None:
        own = [(begin, end) for name, begin, end in spans if name == store.name]
        asked = [(max(begin, wanted.begin), min(end, wanted.end)) for begin, end in merged(own)]
    log_end = -1 if store.log_end is None else store.log_end
    for file in store.log_files:
        end = file.base + file.size if store.log_end is None else min(file.base + file.size, store.log_end)
        pieces = [(max(begin, file.base), min(stop, end)) for begin, stop in asked]
        pieces = [(begin, stop) for begin, stop in pieces if begin < stop]
        if pieces:
            yield from cut(store, file, end, log_end, pieces)


def cut(
    store: StoreFiles, file: LogFile, end: int, log_end: int, pieces: Sequence[tuple[int, int]]
) -> Iterator[LogRange]:
    """Ranges of one file that cover *pieces*, none much longer than LOG_RANGE_SIZE."""
    points: list[int] = []
    if any(stop - begin > LOG_RANGE_SIZE for begin, stop in pieces):
        points = split_points(str(file.path), file.base, end - file.base, LOG_RANGE_SIZE)
    for begin, stop in pieces:
        bounds = [begin, *(point for point in points if begin < point < stop), stop]
        for low, high in itertools.pairwise(bounds):
            yield LogRange(store.name, str(file.path), file.base, low, high, file.base + file.size, log_end)


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in as few spans as possible, so that no row comes twice."""
    whole: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if whole and begin <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(end, whole[-1][1])
        elif begin < end:
            whole.append((begin, end))
    return whole


# ---- the other files ---------------------------------------------------------------------------------------------


def plan_queues(stores: Sequence[StoreFiles], wanted: Wanted = ALL_ROWS) -> Iterator[QueuePart]:
    """Queue files that may hold what is wanted, packed."""
    found = [units for store in stores for units in queue_units(store) if may_hold(units, wanted)]
    for packed in pack(found, [units.size for units in found], QUEUE_PART_SIZE):
        yield QueuePart(packed)


def queue_units(store: StoreFiles) -> Iterator[QueueRange]:
    """Every queue file of a store, knowing whether a later one of its queue has units."""
    for (topic, queue_id), group in itertools.groupby(store.queue_files(), lambda file: (file.topic, file.queue_id)):
        files = list(group)
        used = [number for number, file in enumerate(files) if number == 0 or is_begun(file)]
        for number, file in enumerate(files):
            yield QueueRange(
                store.name,
                topic,
                queue_id,
                str(file.path),
                file.base,
                file.size,
                number >= used[-1],
                store.queue_file_size,
            )


def is_begun(file: QueueFile) -> bool:
    """Whether anything was written at the beginning of a queue file; one made ahead is zeros."""
    with file.path.open("rb") as stream:
        return any(stream.read(UNIT_SIZE))


def may_hold(units: QueueRange, wanted: Wanted) -> bool:
    """Whether a queue file can have what is wanted: its queue, and its queue offsets, are known from its name."""
    begin, end = units.base // UNIT_SIZE, (units.base + units.size) // UNIT_SIZE
    return wanted.wants_queue(units.topic, units.queue_id) and begin < wanted.queue_end and end > wanted.queue_begin


def plan_index(stores: Sequence[StoreFiles]) -> Iterator[IndexPart]:
    """All index files, packed."""
    files = [
        IndexFile(store.name, str(path), store.index_slots, store.index_items)
        for store in stores
        for path in store.index_files
    ]
    for packed in pack(files, [Path(file.path).stat().st_size for file in files], QUEUE_PART_SIZE):
        yield IndexPart(packed)


def plan_leaves(stores: Sequence[StoreFiles]) -> Iterator[LeafPart]:
    """All files, packed."""
    files = [
        LeafFile(store.name, str(store.root), path, written)
        for store in stores
        for path, _, written in store.all_files()
    ]
    for packed in pack(files, [file.written for file in files], LEAF_PART_SIZE):
        yield LeafPart(packed)


def plan_timer_log(stores: Sequence[StoreFiles]) -> Iterator[TimerLogPart]:
    """Each file of the timer log."""
    for store in stores:
        files = store.timer_log_files()
        for file in files:
            yield TimerLogPart(store.name, str(file.path), file.base, file is files[-1])


def pack(items: Sequence[Item], sizes: Sequence[int], limit: int) -> Iterator[tuple[Item, ...]]:
    """*items* in order, in tuples of at most *limit* bytes; one that is larger stands alone."""
    packed: list[Item] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        cost = size + SMALL_FILE_COST
        if packed and (total + cost > limit or len(packed) >= ITEMS_PER_PART_MAX):
            yield tuple(packed)
            packed, total = [], 0
        packed.append(item)
        total += cost
    if packed:
        yield tuple(packed)
