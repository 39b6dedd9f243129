"""Reading RocketMQ's files without a store: what dumps, audits, Spark executors and tests call.

Everything here is stateless and read-only: bytes in, values or columns out. Importing it starts no thread and opens
no file, so a process may fork at any time. The C functions run without the GIL.

    >>> from pymq import _scan
    >>> record = _scan.encode_record(_scan.Record(topic=b"T", body=b"hello", physical_offset=300))
    >>> walk = _scan.walk_log(record, base_offset=300, checks=_scan.Check.BODY_CRC | _scan.Check.OFFSET)
    >>> walk.count, bytes(walk.piece("body", 0)), walk.end.name
    (1, b'hello', 'DONE')

Codec (one thing at a time): `crc32`, `java_hash`, `index_key_hash`, `encode_record`, `decode_record`,
`record_crc`, `append_record_crc`, `encode_properties`, `decode_properties`, `encode_batch`, `decode_batch`.

Columns (many at once): `walk_log`, `iterate_log`, `verify_log`, `decode_queue`, `read_queue`, `scan_tags`,
`decode_index`, `read_index`.

Filters: `FilterProgram` evaluates what `pymq.filter` compiles.
"""

from __future__ import annotations

from pymq._scan._codec import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    BatchItem,
    BlankTail,
    Check,
    Host,
    Record,
    RecordCrc,
    Source,
    append_record_crc,
    crc32,
    crc32_is_accelerated,
    crc32_table,
    decode_batch,
    decode_properties,
    decode_record,
    encode_batch,
    encode_properties,
    encode_record,
    find_property,
    index_key_hash,
    iterate_properties,
    java_hash,
    properties_are_well_formed,
    record_crc,
)
from pymq._scan._columns import (
    INDEX_COLUMNS,
    LOG_COLUMNS,
    QUEUE_COLUMNS,
    Columns,
    Index,
    IndexHeader,
    LogWalk,
    Verification,
    WalkEnd,
    decode_index,
    decode_queue,
    iterate_log,
    read_index,
    read_queue,
    scan_tags,
    verify_log,
    walk_log,
)
from pymq._scan._filter import FilterProgram, Verdict, java_double, java_int

__all__ = [
    "INDEX_COLUMNS",
    "LOG_COLUMNS",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "QUEUE_COLUMNS",
    "BatchItem",
    "BlankTail",
    "Check",
    "Columns",
    "FilterProgram",
    "Host",
    "Index",
    "IndexHeader",
    "LogWalk",
    "Record",
    "RecordCrc",
    "Source",
    "Verdict",
    "Verification",
    "WalkEnd",
    "append_record_crc",
    "crc32",
    "crc32_is_accelerated",
    "crc32_table",
    "decode_batch",
    "decode_index",
    "decode_properties",
    "decode_queue",
    "decode_record",
    "encode_batch",
    "encode_properties",
    "encode_record",
    "find_property",
    "index_key_hash",
    "iterate_log",
    "iterate_properties",
    "java_double",
    "java_hash",
    "java_int",
    "properties_are_well_formed",
    "read_index",
    "read_queue",
    "record_crc",
    "scan_tags",
    "verify_log",
    "walk_log",
]
