"""Digests and sums: XXH3-64, and groups of records, units, keys and items as pymq/scan_digest.h defines them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pymq._scan._codec import Source, pointer
from pymq._scan._native import ffi, lib
from pymq._scan._rows import Buffer, LogRows, Pieces, gather, ints, longs

GROUP_KINDS: Final[dict[str, int]] = {
    "records": lib.PYMQ_GROUP_RECORDS,
    "traffic": lib.PYMQ_GROUP_TRAFFIC,
    "keys": lib.PYMQ_GROUP_KEYS,
    "units": lib.PYMQ_GROUP_UNITS,
    "fillers": lib.PYMQ_GROUP_FILLERS,
    "holes": lib.PYMQ_GROUP_HOLES,
    "items": lib.PYMQ_GROUP_ITEMS,
}
"""What a group can be of; see enum pymq_group_kind."""

GROUP_LONGS: Final = (
    "bucket",
    "count",
    "digest",
    "queue_offset_min",
    "queue_offset_max",
    "physical_offset_min",
    "physical_offset_end",
    "store_timestamp_min",
    "store_timestamp_max",
    "bytes",
)
FOLD_COLUMNS: Final = (
    "physical_offset",
    "total_size",
    "queue_id",
    "queue_offset",
    "sys_flag",
    "store_timestamp_ms",
    "tags_code",
    "topic_position",
    "topic_size",
    "unique_key_position",
    "unique_key_size",
    "keys_position",
    "keys_size",
    "tags_position",
    "tags_size",
    "status",
)
"""The columns `Groups.fold` needs of a walk."""

UNIT_SIZE: Final[int] = lib.PYMQ_CQ_UNIT_SIZE
NAMES_SIZE: Final = 1 << 20
FAULTS_MAX: Final = 1024


class UnitFault(NamedTuple):
    """A unit that breaks its queue: a hole, or one out of order, which should lie behind *before*."""

    kind: str  # "hole" or "descent"
    queue_offset: int
    physical_offset: int
    size: int
    before: int


def xxh3_64(source: Source) -> int:
    """XXH3-64 with seed 0, unsigned."""
    return int(lib.pymq_xxh3_64(pointer(source), memoryview(source).nbytes))


def mix(*words: int) -> int:
    """The digest of one member, unsigned: of a record or unit (queue offset, physical offset, size, tags code), of a
    key or item (key hash, physical offset)."""
    return int(lib.pymq_mix(ffi.new("int64_t[]", list(words)), len(words)))


def digest_pieces(source: Source, positions: Buffer, sizes: Buffer, count: int, first: int = 0) -> bytearray:
    """XXH3-64 of the pieces of rows [first, count), eight bytes each."""
    digests = bytearray(8 * (count - first))
    target = ffi.from_buffer("uint64_t[]", digests)
    lib.pymq_scan_digests(pointer(source), longs(positions) + first, ints(sizes) + first, count - first, target)
    return digests


def digest_leaves(source: Source, leaf_size: int) -> bytearray:
    """XXH3-64 of each *leaf_size* bytes, the last leaf shorter; eight bytes each."""
    size = memoryview(source).nbytes
    count = -(-size // leaf_size)
    digests = bytearray(8 * count)
    lib.pymq_scan_leaves(pointer(source), size, leaf_size, ffi.from_buffer("uint64_t[]", digests), count)
    return digests


class Groups:
    """Sums on their way: a table of groups and one of topic names, both of fixed size.

    `fold`, `fold_units` and `fold_items` say how far they came; when that is not the end, take `columns` of each kind
    and `clear` before going on.
    """

    def __init__(self, capacity: int = 1 << 13) -> None:
        self._groups = ffi.new("struct pymq_group[]", capacity)
        self._table = ffi.new("struct pymq_group_table *", {"groups": self._groups, "capacity": capacity})
        self._places = ffi.new("struct pymq_topic[]", capacity)
        self._names = ffi.new("uint8_t[]", NAMES_SIZE)
        self._topics = ffi.new(
            "struct pymq_topic_table *",
            {"topics": self._places, "capacity": capacity, "names": self._names, "names_capacity": NAMES_SIZE},
        )
        self._order = ffi.new("struct pymq_unit_order *")
        self._faults = ffi.new("struct pymq_unit_fault[]", FAULTS_MAX)
        self._capacity = capacity

    def __len__(self) -> int:
        return int(self._table.count)

    def fold(self, source: Source, rows: LogRows, first: int) -> int:
        """Sum up rows of a walk of *source* from *first* on; the row to go on with."""
        return int(lib.pymq_scan_fold(pointer(source), rows.native, first, rows.count, self._topics, self._table))

    def start_queue(self) -> None:
        """Forget the order of the queue before."""
        self._order.count = 0

    def fold_units(self, source: Source, first_queue_offset: int) -> tuple[int, list[UnitFault]]:
        """Sum up whole units; how many were taken, and which of them break the queue."""
        found = ffi.new("size_t *")
        taken = lib.pymq_scan_fold_units(
            pointer(source),
            memoryview(source).nbytes // UNIT_SIZE,
            first_queue_offset,
            self._order,
            self._table,
            self._faults,
            FAULTS_MAX,
            found,
        )
        names = {lib.PYMQ_UNIT_FAULT_HOLE: "hole", lib.PYMQ_UNIT_FAULT_DESCENT: "descent"}
        faults = self._faults[0 : found[0]]
        return int(taken), [
            UnitFault(names[one.kind], one.queue_offset, one.physical_offset, one.size, one.before) for one in faults
        ]

    def fold_items(self, key_hash: Buffer, physical_offset: Buffer, count: int, first: int = 0) -> int:
        """Sum up index items from *first* on; the item to go on with."""
        taken = lib.pymq_scan_fold_items(
            ints(key_hash) + first, longs(physical_offset) + first, count - first, self._table
        )
        return int(taken) + first

    def columns(self, kind: str) -> tuple[int, dict[str, bytearray]]:
        """How many groups of *kind* there are, and their columns: GROUP_LONGS, and int32 topic and queue_id."""
        held = len(self)
        target = ffi.new("struct pymq_group_columns *")
        made: dict[str, bytearray] = {}
        owners: list[Any] = []
        for name in (*GROUP_LONGS, "topic", "queue_id"):
            made[name] = bytearray((8 if name in GROUP_LONGS else 4) * held)
            owner = longs(made[name]) if name in GROUP_LONGS else ints(made[name])
            setattr(target, name, owner)
            owners.append(owner)
        return int(lib.pymq_scan_groups(self._table, GROUP_KINDS[kind], target)), made

    def topic_names(self) -> Pieces:
        """Names by number; none where a number has no topic."""
        positions, sizes = bytearray(8 * self._capacity), bytearray(4 * self._capacity)
        lib.pymq_scan_topics(self._topics, longs(positions), ints(sizes))
        return gather(ffi.buffer(self._names), positions, sizes, self._capacity)

    def clear(self) -> None:
        """Forget groups and topics."""
        lib.pymq_scan_groups_clear(self._table)
        lib.pymq_scan_topics_clear(self._topics)


def unit_statuses(physical_offset: Buffer, size: Buffer, count: int) -> bytearray:
    """0 ok, 1 filler, 2 hole, a byte each."""
    status = bytearray(count)
    columns = ffi.new("struct pymq_queue_columns *")
    owners = longs(physical_offset), ints(size)
    columns.physical_offset, columns.size = owners
    lib.pymq_scan_unit_status(columns, count, pointer(status))
    return status
