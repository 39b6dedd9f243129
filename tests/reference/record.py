"""The message record of the commit log, and the batch a client sends.

field                      offset  size   RocketMQ's name
total size                      0     4   TOTALSIZE
magic                           4     4   MAGICCODE
body CRC, 31 bits               8     4   BODYCRC
queue id                       12     4   QUEUEID
flag                           16     4   FLAG
queue offset                   20     8   QUEUEOFFSET
physical offset                28     8   PHYSICALOFFSET
system flag                    36     4   SYSFLAG
born timestamp, ms             40     8   BORNTIMESTAMP
born host                      48  8|20   BORNHOST
store timestamp, ms             +     8   STORETIMESTAMP
store host                      +  8|20   STOREHOSTADDRESS
reconsume times                 +     4   RECONSUMETIMES
prepared transaction offset     +     8   PREPAREDTRANSACTIONOFFSET
body size, body                 + 4 + n   BODYLENGTH, BODY
topic size, topic               + 1|2+n   TOPICLENGTH, TOPIC
properties size, properties     + 2 + n   PROPERTIESLENGTH, PROPERTIES
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from tests.reference.properties import are_well_formed

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BORN_HOST_V6 = 1 << 4
STORE_HOST_V6 = 1 << 5
RECORD_SIZE_MIN = 91
BLANK_SIZE_MIN = 8
TOPIC_V1_SIZE_MAX = 127
SIZE_MAX_SHORT = 32767

HEAD = struct.Struct(">iIiiiqqiq")
MIDDLE = struct.Struct(">iq")
BATCH_HEAD = struct.Struct(">iiiii")


class CorruptError(ValueError):
    """Bytes that no writer of this format leaves behind."""


class TruncatedError(ValueError):
    """The bytes end before the record does."""


@dataclass(frozen=True)
class Host:
    """An address of 4 or 16 bytes, and a port."""

    address: bytes
    port: int

    def to_bytes(self) -> bytes:
        """As the record holds it."""
        return self.address + struct.pack(">i", self.port)


@dataclass(frozen=True)
class Record:
    """A record's fields; `magic` asks for v2 when it is MAGIC_V2, `body_crc` and `total_size` are for reading."""

    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes
    magic: int = MAGIC_V1
    body_crc: int = 0
    total_size: int = 0


def body_crc(body: bytes) -> int:
    """What BODYCRC holds."""
    return zlib.crc32(body) & 0x7FFFFFFF


def topic_is_storable(topic: bytes) -> bool:
    """Whether a topic can name a directory."""
    return 0 < len(topic) <= SIZE_MAX_SHORT and topic not in (b".", b"..") and not set(topic) & {0, ord("/")}


def encode_record(record: Record) -> bytes:
    """The record's bytes. Raises ValueError when a part exceeds the format."""
    if not topic_is_storable(record.topic):
        raise ValueError("topic")
    if len(record.properties) > SIZE_MAX_SHORT:
        raise ValueError("properties")
    v2 = record.magic == MAGIC_V2 or len(record.topic) > TOPIC_V1_SIZE_MAX
    sys_flag = record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if len(record.born_host.address) == 16 else 0
    sys_flag |= STORE_HOST_V6 if len(record.store_host.address) == 16 else 0
    tail = (
        record.born_host.to_bytes()
        + struct.pack(">q", record.store_timestamp_ms)
        + record.store_host.to_bytes()
        + MIDDLE.pack(record.reconsume_times, record.prepared_transaction_offset)
        + struct.pack(">i", len(record.body))
        + record.body
        + struct.pack(">h" if v2 else ">b", len(record.topic))
        + record.topic
        + struct.pack(">h", len(record.properties))
        + record.properties
    )
    head = HEAD.pack(
        HEAD.size + len(tail),
        MAGIC_V2 if v2 else MAGIC_V1,
        body_crc(record.body),
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp_ms,
    )
    return head + tail


class Reader:
    """Takes pieces of a record whose end is known; running over it is corruption."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.at = 0

    def take(self, size: int) -> bytes:
        """The next *size* bytes."""
        if size < 0 or self.at + size > len(self.source):
            raise CorruptError("a length runs over the end")
        self.at += size
        return self.source[self.at - size : self.at]

    def number(self, code: str) -> int:
        """The next big-endian number of struct code *code*."""
        value: int
        (value,) = struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))
        return value

    def host(self, v6: bool) -> Host:
        """The next host."""
        address = self.take(16 if v6 else 4)
        return Host(address, self.number("i"))


def decode_record(source: bytes, *, check_crc: bool = True, physical_offset: int | None = None) -> Record | int:
    """The record at the beginning of *source*, or the size of a blank tail.

    Raises:
        TruncatedError: the record goes on beyond *source*.
        CorruptError: this is no record, or one whose checks fail.
    """
    if len(source) < 8:
        raise TruncatedError("no room for size and magic")
    total_size, magic = struct.unpack_from(">iI", source)
    if magic == MAGIC_BLANK:
        if total_size < BLANK_SIZE_MIN:
            raise CorruptError("a blank tail is never below 8 bytes")
        return int(total_size)
    if magic not in (MAGIC_V1, MAGIC_V2) or total_size < RECORD_SIZE_MIN:
        raise CorruptError("neither record nor blank tail")
    if total_size > len(source):
        raise TruncatedError("the record goes on")
    _, _, crc, queue_id, flag, queue_offset, own_offset, sys_flag, born = HEAD.unpack_from(source)
    reader = Reader(source[:total_size])
    reader.take(HEAD.size)
    born_host = reader.host(bool(sys_flag & BORN_HOST_V6))
    stored = reader.number("q")
    store_host = reader.host(bool(sys_flag & STORE_HOST_V6))
    reconsume_times = reader.number("i")
    prepared = reader.number("q")
    body = reader.take(reader.number("i"))
    topic = reader.take(reader.number("h" if magic == MAGIC_V2 else "b"))
    properties = reader.take(reader.number("h"))
    if reader.at != total_size or not topic_is_storable(topic) or not are_well_formed(properties):
        raise CorruptError("the parts do not make up the record")
    if physical_offset is not None and own_offset != physical_offset:
        raise CorruptError(f"the record says it lies at {own_offset}")
    if check_crc and body and body_crc(body) != crc:
        raise CorruptError("body CRC")
    return Record(
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=own_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=born,
        born_host=born_host,
        store_timestamp_ms=stored,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body=body,
        topic=topic,
        properties=properties,
        magic=magic,
        body_crc=crc,
        total_size=total_size,
    )


@dataclass(frozen=True)
class BatchItem:
    """One message of a client's batch."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: list[BatchItem]) -> bytes:
    """A batch body as Apache's client writes it: magic and CRC are zero."""
    made = b""
    for item in items:
        size = BATCH_HEAD.size + len(item.body) + 2 + len(item.properties)
        made += BATCH_HEAD.pack(size, 0, 0, item.flag, len(item.body)) + item.body
        made += struct.pack(">h", len(item.properties)) + item.properties
    return made


def decode_batch(source: bytes) -> list[BatchItem]:
    """The messages of a batch; total size, magic and CRC are not looked at. Raises CorruptError."""
    reader = Reader(source)
    items = []
    while reader.at < len(source):
        _, _, _, flag, body_size = BATCH_HEAD.unpack(reader.take(BATCH_HEAD.size))
        body = reader.take(body_size)
        items.append(BatchItem(flag, body, reader.take(reader.number("h"))))
    return items
