"""The index file: header, slots, items.

Items are numbered from 1 and item n lies at position n behind the slots, so position 0 is never used and the header's
count is one more than the items. A slot holds the number of its newest item; each item holds the previous one's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tests.reference.java_hash import index_key_hash

HEADER = struct.Struct(
    ">"
    "q"  # beginTimestamp: store time of the first item's record, ms
    "q"  # endTimestamp
    "q"  # beginPhyOffset
    "q"  # endPhyOffset
    "i"  # hashSlotCount: slots in use
    "i"  # indexCount: items + 1
)
SLOT = struct.Struct(">i")
ITEM = struct.Struct(
    ">"
    "i"  # key hash
    "q"  # physical offset
    "i"  # seconds after beginTimestamp
    "i"  # number of the previous item of the slot, 0 for none
)
SECONDS_MAX = 2**31 - 1


class Header(NamedTuple):
    """The header's fields, in file order."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_offset: int
    end_offset: int
    slot_used: int
    item_count: int


class Item(NamedTuple):
    """One item's fields, in file order."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


class IndexFile:
    """An index file in memory: put keys, query them, turn it into bytes and back."""

    def __init__(self, slot_count: int, item_max: int) -> None:
        self.slots = [0] * slot_count
        self.item_max = item_max
        self.items: list[Item] = []  # item number n is items[n - 1]
        self.begin_timestamp_ms = self.end_timestamp_ms = 0
        self.begin_offset = self.end_offset = 0

    @property
    def item_count(self) -> int:
        """What the header says: one more than the items."""
        return len(self.items) + 1

    def put(self, topic: bytes, key: bytes, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add an item; False when the file is full."""
        if self.item_count >= self.item_max:
            return False
        key_hash = index_key_hash(topic, key)
        slot = key_hash % len(self.slots)
        seconds = 0
        if self.begin_timestamp_ms > 0:
            # Java divides towards zero, and what lies before the beginning counts as 0 either way.
            seconds = min(max((store_timestamp_ms - self.begin_timestamp_ms) // 1000, 0), SECONDS_MAX)
        self.items.append(Item(key_hash, physical_offset, seconds, self.slots[slot]))
        self.slots[slot] = len(self.items)
        if len(self.items) == 1:
            self.begin_offset, self.begin_timestamp_ms = physical_offset, store_timestamp_ms
        self.end_offset, self.end_timestamp_ms = physical_offset, store_timestamp_ms
        return True

    def put_tags(self, topic: bytes, tags: bytes, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add a record's tags as 5.5.0 does, under `topic#T#tags`."""
        return self.put(topic, b"T#" + tags, physical_offset, store_timestamp_ms)

    def candidates(self, topic: bytes, key: bytes, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Offsets of items with the key's hash and a time inside, newest first; the record decides about the key."""
        key_hash = index_key_hash(topic, key)
        number = self.slots[key_hash % len(self.slots)]
        while 0 < number <= len(self.items):
            item = self.items[number - 1]
            time_ms = self.begin_timestamp_ms + item.seconds * 1000
            if item.key_hash == key_hash and begin_ms <= time_ms <= end_ms:
                yield item.physical_offset
            if time_ms < begin_ms or item.previous == number:
                return
            number = item.previous

    def to_bytes(self) -> bytes:
        """The whole file, preallocated as Apache makes it."""
        used = sum(1 for slot in self.slots if slot)
        header = HEADER.pack(
            self.begin_timestamp_ms, self.end_timestamp_ms, self.begin_offset, self.end_offset, used, self.item_count
        )
        slots = b"".join(SLOT.pack(slot) for slot in self.slots)
        items = bytes(ITEM.size) + b"".join(ITEM.pack(*item) for item in self.items)
        return header + slots + items.ljust(self.item_max * ITEM.size, b"\x00")

    @classmethod
    def from_bytes(cls, source: bytes, slot_count: int) -> IndexFile:
        """Read a whole file of *slot_count* slots. Raises ValueError when it is short."""
        items_at = HEADER.size + slot_count * SLOT.size
        if len(source) < items_at:
            raise ValueError(f"{len(source)} bytes hold no {slot_count} slots")
        header = Header(*HEADER.unpack_from(source))
        if header.item_count > 1 and len(source) < items_at + header.item_count * ITEM.size:
            raise ValueError(f"{len(source)} bytes hold no {header.item_count - 1} items")
        made = cls(slot_count, (len(source) - items_at) // ITEM.size)
        made.begin_timestamp_ms, made.end_timestamp_ms = header.begin_timestamp_ms, header.end_timestamp_ms
        made.begin_offset, made.end_offset = header.begin_offset, header.end_offset
        made.slots = [SLOT.unpack_from(source, HEADER.size + n * SLOT.size)[0] for n in range(slot_count)]
        made.items = [
            Item(*ITEM.unpack_from(source, items_at + number * ITEM.size)) for number in range(1, header.item_count)
        ]
        return made
