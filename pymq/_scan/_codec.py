"""Single things: a checksum, a hash, a record, its properties, a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Final, NamedTuple, NoReturn

from pymq._scan._native import ffi, lib
from pymq.errors import STATUS_ERRORS, StoreError

Source = bytes | bytearray | memoryview
"""Bytes in memory, contiguous. They must not change while a function reads them."""

MAGIC_V1: Final[int] = lib.PYMQ_RECORD_MAGIC_V1
MAGIC_V2: Final[int] = lib.PYMQ_RECORD_MAGIC_V2
MAGIC_BLANK: Final[int] = lib.PYMQ_RECORD_MAGIC_BLANK


class Check(IntFlag):
    """What a record must satisfy beyond its structure, which is always checked."""

    STRUCTURE = lib.PYMQ_CHECK_STRUCTURE
    BODY_CRC = lib.PYMQ_CHECK_BODY_CRC
    OFFSET = lib.PYMQ_CHECK_OFFSET
    HOLES = lib.PYMQ_CHECK_HOLES
    RECORD_CRC = lib.PYMQ_CHECK_RECORD_CRC  # the CRC over the record (__CRC32#), where there is one
    RECORD_CRC_REQUIRED = lib.PYMQ_CHECK_RECORD_CRC_REQUIRED  # and there is


class RecordCrc(IntEnum):
    """What a record says about itself by its last property, `__CRC32#`."""

    ABSENT = lib.PYMQ_RECORD_CRC_ABSENT
    MATCHES = lib.PYMQ_RECORD_CRC_MATCHES
    DIFFERS = lib.PYMQ_RECORD_CRC_DIFFERS


def raise_status(status: int, text: str, **details: Any) -> NoReturn:
    """Raise the class of pymq.errors that stands for the core's *status*."""
    name = ffi.string(lib.pymq_status_name(status)).decode("ascii")
    raise STATUS_ERRORS.get(name, StoreError)(f"{text} ({name})", status=name, **details)


def pointer(source: Source) -> Any:
    """The address of *source*; it stays valid as long as the returned object lives."""
    return ffi.from_buffer("uint8_t[]", source)


def crc32(source: Source, seed: int = 0) -> int:
    """CRC-32 as zlib computes it; records keep its lower 31 bits."""
    return int(lib.pymq_crc32(seed, pointer(source), memoryview(source).nbytes))


def crc32_table(source: Source, seed: int = 0) -> int:
    """The same by tables, whatever the processor offers."""
    return int(lib.pymq_crc32_table(seed, pointer(source), memoryview(source).nbytes))


def crc32_is_accelerated() -> bool:
    """Whether `crc32` uses carry-less multiply on this machine."""
    return bool(lib.pymq_crc32_is_accelerated())


def java_hash(source: Source) -> int:
    """Java's hashCode of new String(source, UTF_8): a tag's code in the consume queue."""
    return int(lib.pymq_java_hash(0, pointer(source), memoryview(source).nbytes))


def index_key_hash(topic: Source, key: Source) -> int:
    """The index file's hash of `topic#key`, never negative."""
    return int(lib.pymq_index_key_hash(pointer(topic), memoryview(topic).nbytes, pointer(key), memoryview(key).nbytes))


# ---- properties ----------------------------------------------------------------------------------------------


def slice_bytes(piece: Any) -> bytes:
    """A copy of a C slice."""
    return bytes(ffi.buffer(piece.data, piece.size)) if piece.size else b""


def iterate_properties(source: Source) -> Iterator[tuple[bytes, bytes]]:
    """The pairs Apache's decoder would take, in order."""
    start, size = pointer(source), memoryview(source).nbytes
    position, found = ffi.new("size_t *"), ffi.new("struct pymq_property *")
    while lib.pymq_properties_next(start, size, position, found):
        yield slice_bytes(found.name), slice_bytes(found.value)


def decode_properties(source: Source) -> dict[str, str]:
    """Properties as text; the last of two equal names wins, malformed UTF-8 is shown with U+FFFD."""
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in iterate_properties(source)
    }


def find_property(source: Source, name: bytes) -> bytes | None:
    """The value of *name*, or None; the last one if it is repeated."""
    start = pointer(source)
    found = lib.pymq_properties_find(start, memoryview(source).nbytes, name, len(name))
    return None if found.data == ffi.NULL else slice_bytes(found)


def properties_are_well_formed(source: Source) -> bool:
    """Whether some writer can have left this behind."""
    return bool(lib.pymq_properties_are_well_formed(pointer(source), memoryview(source).nbytes))


def encode_properties(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The string of *pairs*, each closed by 0x02.

    Raises:
        InvalidArgumentError: a name or value holds one of the two separator bytes.
        PropertiesTooLargeError: the string would exceed 32,767 bytes.
    """
    target = ffi.new("uint8_t[]", lib.PYMQ_PROPERTIES_SIZE_MAX)
    size = ffi.new("size_t *")
    for name, value in pairs:
        name_piece, name_owner = c_slice(name)
        value_piece, value_owner = c_slice(value)
        status = lib.pymq_properties_append(target, lib.PYMQ_PROPERTIES_SIZE_MAX, size, name_piece[0], value_piece[0])
        del name_owner, value_owner
        if status < 0:
            raise_status(status, f"property {name!r}")
    return bytes(ffi.buffer(target, size[0]))


def c_slice(source: Source) -> tuple[Any, Any]:
    """A C slice over *source*, and what keeps its bytes alive."""
    owner = pointer(source)
    return ffi.new("struct pymq_slice *", {"data": owner, "size": memoryview(source).nbytes}), owner


# ---- records -------------------------------------------------------------------------------------------------


class Host(NamedTuple):
    """An address of 4 or 16 bytes, and a port."""

    address: bytes
    port: int


class BlankTail(NamedTuple):
    """What ends a log file when the next record did not fit: it covers *size* bytes."""

    size: int


NO_HOST: Final = Host(bytes(4), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message record. `magic` asks for v2 when it is MAGIC_V2; `body_crc` and `total_size` are for reading."""

    topic: bytes
    body: bytes
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = NO_HOST
    store_timestamp_ms: int = 0
    store_host: Host = NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    magic: int = MAGIC_V1
    body_crc: int = 0
    total_size: int = 0


NUMBERS: Final = (
    "queue_id",
    "flag",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "born_timestamp_ms",
    "store_timestamp_ms",
    "reconsume_times",
    "prepared_transaction_offset",
    "magic",
)


def encode_record(record: Record) -> bytes:
    """The record's bytes; CRC, total size and the two IPv6 bits of the system flag are computed.

    Raises:
        InvalidTopicError, PropertiesTooLargeError, MessageTooLargeError: a part exceeds the format.
        InvalidArgumentError: a host's address has neither 4 nor 16 bytes.
    """
    native = ffi.new("struct pymq_record *")
    owners = []
    for name in NUMBERS:
        setattr(native, name, getattr(record, name))
    for name in ("born_host", "store_host"):
        host: Host = getattr(record, name)
        if len(host.address) not in (4, 16):
            raise_status(lib.PYMQ_EINVAL, f"{name}: an address has 4 or 16 bytes, not {len(host.address)}")
        target = getattr(native, name)
        target.address[0 : len(host.address)] = host.address
        target.size, target.port = len(host.address), host.port
    for name in ("body", "topic", "properties"):
        piece, owner = c_slice(getattr(record, name))
        setattr(native, name, piece[0])
        owners.append(owner)
    size = lib.pymq_record_size(native)
    if size < 0:
        raise_status(size, f"topic of {len(record.topic)}, properties of {len(record.properties)} bytes")
    encoded = ffi.new("uint8_t[]", size)
    written = lib.pymq_record_encode(native, encoded, size)
    assert written == size
    return bytes(ffi.buffer(encoded, size))


def decode_record(
    source: Source, *, at: int = 0, checks: Check = Check.BODY_CRC, physical_offset: int = 0
) -> Record | BlankTail:
    """The record at byte *at* of *source*, or the blank tail that begins there.

    With Check.OFFSET the record's own physical offset must equal *physical_offset*; Check.HOLES needs it too.

    Raises:
        TruncatedRecordError: the record goes on beyond *source*.
        CorruptRecordError: there is no record, or a check failed.
    """
    size = memoryview(source).nbytes
    if not 0 <= at <= size:
        raise_status(lib.PYMQ_EINVAL, f"position {at} of {size} bytes")
    start = pointer(source)
    native = ffi.new("struct pymq_record *")
    status = lib.pymq_record_decode(start + at, size - at, checks, physical_offset, native)
    if status < 0:
        raise_status(
            status, f"at byte {at} of {size}{_crc_trouble(start, size, at, checks)}", physical_offset=physical_offset
        )
    if status == 0:
        return BlankTail(native.total_size)
    return Record(
        topic=slice_bytes(native.topic),
        body=slice_bytes(native.body),
        properties=slice_bytes(native.properties),
        born_host=host_of(native.born_host),
        store_host=host_of(native.store_host),
        body_crc=native.body_crc,
        total_size=native.total_size,
        **{name: getattr(native, name) for name in NUMBERS},
    )


def _crc_trouble(start: Any, size: int, at: int, checks: Check) -> str:
    """Say that it is the CRC over the record which kept *checks* from passing, if so."""
    native = ffi.new("struct pymq_record *")
    if not checks & (Check.RECORD_CRC | Check.RECORD_CRC_REQUIRED):
        return ""
    if lib.pymq_record_decode(start + at, size - at, Check.STRUCTURE, 0, native) <= 0:
        return ""
    state = RecordCrc(lib.pymq_record_crc_state(start + at, native))
    if state is RecordCrc.ABSENT:
        return ": the record carries no CRC over itself (__CRC32#)" if checks & Check.RECORD_CRC_REQUIRED else ""
    return ": the CRC over the record (__CRC32#) does not match" if state is RecordCrc.DIFFERS else ""


def record_crc(source: Source) -> RecordCrc:
    """What the record that *source* begins with says about itself. Raises as `decode_record` without checks."""
    size = memoryview(source).nbytes
    start, native = pointer(source), ffi.new("struct pymq_record *")
    status = lib.pymq_record_decode(start, size, Check.STRUCTURE, 0, native)
    if status <= 0:
        raise_status(status or lib.PYMQ_ECORRUPT, f"no record in {size} bytes")
    return RecordCrc(lib.pymq_record_crc_state(start, native))


def append_record_crc(record: Source) -> bytes:
    """A copy of an encoded record with the CRC over it behind its properties, in place of any it had.

    Raises:
        PropertiesTooLargeError: the properties leave no room for its 20 bytes.
        CorruptRecordError: these bytes are no encoded record.
    """
    size = memoryview(record).nbytes
    target = ffi.new("uint8_t[]", size + lib.PYMQ_RECORD_CRC_ROOM_MAX)
    ffi.memmove(target, record, size)
    prepared = lib.pymq_record_crc_prepare(target, size)
    if prepared < 0:
        raise_status(prepared, f"a record of {size} bytes")
    return bytes(ffi.buffer(target, lib.pymq_record_crc_append(target, prepared)))


def host_of(native: Any) -> Host:
    """A C host as a Python one."""
    return Host(bytes(native.address[0 : native.size]), native.port)


# ---- batches -------------------------------------------------------------------------------------------------


class BatchItem(NamedTuple):
    """One message of a client's batch body."""

    flag: int
    body: bytes
    properties: bytes


def decode_batch(source: Source) -> list[BatchItem]:
    """The messages of a batch body. Raises CorruptRecordError."""
    start, size = pointer(source), memoryview(source).nbytes
    position, item = ffi.new("size_t *"), ffi.new("struct pymq_batch_item *")
    items = []
    while (status := lib.pymq_batch_next(start, size, position, item)) == 1:
        items.append(BatchItem(item.flag, slice_bytes(item.body), slice_bytes(item.properties)))
    if status < 0:
        raise_status(status, f"message {len(items)} of a batch, at byte {position[0]} of {size}")
    return items


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """A batch body as Apache's client writes it. Raises PropertiesTooLargeError."""
    made: list[bytes] = []
    for item in items:
        body, body_owner = c_slice(item.body)
        properties, properties_owner = c_slice(item.properties)
        native = ffi.new("struct pymq_batch_item *", [item.flag, body[0], properties[0]])
        capacity = BATCH_OVERHEAD + len(item.body) + len(item.properties)
        target, size = ffi.new("uint8_t[]", capacity), ffi.new("size_t *")
        status = lib.pymq_batch_append(target, capacity, size, native)
        del body_owner, properties_owner
        if status < 0:
            raise_status(status, f"message {len(made)} of a batch")
        made.append(bytes(ffi.buffer(target, size[0])))
    return b"".join(made)


BATCH_OVERHEAD: Final = 22  # total size 4, magic 4, CRC 4, flag 4, body size 4, properties size 2
