"""What a store says it holds: one shape for both sides, so that "the same" is `==`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredMessage:
    """A message as read back from a store. Hosts are "address:port", IPv6 in brackets."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body: bytes
    body_crc: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    properties: dict[str, str]
    message_id: str

    @property
    def index_keys(self) -> set[str]:
        """The keys a look-up finds this message by."""
        keys = {key for key in self.properties.get("KEYS", "").split(" ") if key}
        unique = self.properties.get("UNIQ_KEY")
        return keys | {unique} if unique else keys


@dataclass(frozen=True)
class QueueUnit:
    """One entry of a consume queue."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


@dataclass(frozen=True)
class QueueContents:
    """A queue's range and its messages. `units` is None where the reader shows no units."""

    min_offset: int
    max_offset: int
    messages: list[StoredMessage]
    units: list[QueueUnit] | None = None


Queue = tuple[str, int]


@dataclass(frozen=True)
class PutResult:
    """What a writer acknowledged for one message."""

    queue_offset: int
    physical_offset: int
    message_id: str
    store_timestamp_ms: int


def tags_hash(tags: str) -> int:
    """Java's String.hashCode over UTF-16 units, as a signed 32-bit number."""
    encoded = tags.encode("utf-16-be")
    value = 0
    for position in range(0, len(encoded), 2):
        value = (value * 31 + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value
