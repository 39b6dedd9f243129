"""The tables of a store: which there are, and the columns of each, as Arrow types and as Spark's.

One definition, two outputs: readers build Arrow batches with these schemas, and Spark is told the same. Spark demands
that a batch's schema equals the declared one, types included, so nobody else spells a type.

Offsets are longs and say which they are: `physical_offset` is a byte of the commit log, `queue_offset` a unit of a
queue, `position` a byte of one file. Times are milliseconds since the epoch. A digest is XXH3-64 as a signed long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TEXT: Final = pa.string()
BYTES: Final = pa.binary()
INT: Final = pa.int32()
LONG: Final = pa.int64()
BOOL: Final = pa.bool_()
MAP: Final = pa.map_(pa.string(), pa.string())

STORE: Final = ("store", TEXT)

# Every record of the log, and every stretch of it that is none. `physical_offset` is where it stands, `own_offset`
# where it says it stands. Fields that could not be read are null; `size` of damage is what it covers.
COMMITLOG: Final = (
    STORE,
    ("file", TEXT),
    ("physical_offset", LONG),
    ("size", LONG),
    ("status", TEXT),  # one of STATUSES
    ("magic", LONG),
    ("topic", TEXT),
    ("queue_id", INT),
    ("queue_offset", LONG),
    ("own_offset", LONG),
    ("tags_code", LONG),  # what dispatch puts into the queue's unit
    ("flag", INT),
    ("sys_flag", INT),
    ("born_timestamp", LONG),
    ("born_host", TEXT),
    ("store_timestamp", LONG),
    ("store_host", TEXT),
    ("reconsume_times", INT),
    ("prepared_transaction_offset", LONG),
    ("body_size", INT),
    ("body_crc", INT),
    ("uniq_key", TEXT),
    ("keys", TEXT),
    ("tags", TEXT),
)

STATUSES: Final = (
    "ok",
    "bad_crc",  # the body has another CRC than the record says
    "bad_record_crc",  # the record carries a CRC over itself, and has another
    "bad_offset",  # a whole record that says it stands elsewhere
    "bad_magic",  # no record begins here; `size` bytes up to the next one, or to the end of the file
    "bad_size",
    "bad_structure",  # sizes, topic or properties contradict each other
    "bad_blank",  # a blank tail that does not cover the rest of its file
    "truncated",  # the record goes on beyond the end of its file
)

BODY_COLUMNS: Final = {"none": (), "digest": (("body_digest", LONG),), "bytes": (("body", BYTES),)}
PROPERTIES_COLUMNS: Final = {"raw": (("properties", BYTES),), "map": (("properties", MAP),)}

TABLES: Final = {
    "commitlog": COMMITLOG,
    "consumequeue": (
        STORE,
        ("topic", TEXT),
        ("queue_id", INT),
        ("queue_offset", LONG),
        ("physical_offset", LONG),
        ("size", INT),
        ("tags_code", LONG),
        ("file", TEXT),
        ("position", LONG),
        ("status", TEXT),  # ok | filler (stands for an offset without a message) | hole (zeros before a later unit)
    ),
    "index": (
        STORE,
        ("file", TEXT),
        ("item", INT),  # its number, from 1
        ("key_hash", INT),
        ("physical_offset", LONG),
        ("store_timestamp", LONG),  # the file's begin plus the item's seconds
        ("seconds", INT),
        ("previous", INT),
        ("slot", INT),
        ("status", TEXT),  # ok | bad_chain | bad_header (one row, item 0, for the whole file)
    ),
    "offsets": (STORE, ("topic", TEXT), ("consumer_group", TEXT), ("queue_id", INT), ("queue_offset", LONG)),
    # `pymqResetTable` of the same file: resets a group has not followed yet. They excuse an offset that went back.
    "offset_resets": (STORE, ("topic", TEXT), ("consumer_group", TEXT), ("queue_id", INT), ("queue_offset", LONG)),
    "topics": (
        STORE,
        ("topic", TEXT),
        ("read_queue_nums", INT),
        ("write_queue_nums", INT),
        ("perm", INT),
        ("order", BOOL),
        ("topic_sys_flag", INT),
        ("attributes", MAP),
    ),
    "groups": (
        STORE,
        ("consumer_group", TEXT),
        ("consume_enable", BOOL),
        ("consume_broadcast_enable", BOOL),
        ("retry_queue_nums", INT),
        ("retry_max_times", INT),
        ("broker_id", LONG),
        ("notify_consumer_ids_changed_enable", BOOL),
        ("settings", TEXT),  # the whole entry, as JSON
    ),
    "checkpoint": (  # one row a store, with what else says how the store was left
        STORE,
        ("physic_msg_timestamp", LONG),
        ("logics_msg_timestamp", LONG),
        ("index_msg_timestamp", LONG),
        ("master_flushed_offset", LONG),
        ("confirm_phy_offset", LONG),
        ("logics_physical_offset", LONG),
        ("pymq_safe_offset", LONG),  # null unless pymq wrote the page last
        ("pymq_flushed_offset", LONG),
        ("pymq_clean_end", LONG),
        ("abort", BOOL),  # not stopped cleanly: recovery is still to come
        ("log_begin", LONG),  # first physical offset of the files
        ("log_end", LONG),  # a dump's stated position; for a plain directory the end of the last file
        ("status", TEXT),  # ok | missing | bad_size | bad_crc
        ("pymq_last_record", LONG),  # null as pymq_safe_offset is
        ("pymq_unit_total", LONG),
        ("pymq_index_end", LONG),
        ("dump", TEXT),  # a dump's kind ("stopped", "running"); null for a plain directory
    ),
    # What `removedTopics` says: records of the topic below the offset belong to no queue. Apache keeps no such list.
    "removed_topics": (STORE, ("topic", TEXT), ("physical_offset", LONG)),
    "half": (
        STORE,
        ("physical_offset", LONG),
        ("queue_offset", LONG),
        ("store_timestamp", LONG),
        ("born_timestamp", LONG),
        ("real_topic", TEXT),
        ("real_queue_id", INT),
        ("transaction_id", TEXT),
        ("uniq_key", TEXT),
        ("producer_group", TEXT),
        ("check_times", INT),
        ("first_queue_offset", LONG),  # of the first copy, where a check put it again and says so
        ("status", TEXT),
    ),
    "op": (  # one row for each half offset an op message names
        STORE,
        ("physical_offset", LONG),
        ("queue_offset", LONG),
        ("store_timestamp", LONG),
        ("tags", TEXT),
        ("half_queue_offset", LONG),  # null where the body names none
        ("status", TEXT),  # ok | bad_body
    ),
    "popck": (
        STORE,
        ("physical_offset", LONG),
        ("queue_offset", LONG),
        ("revive_queue_id", INT),
        ("store_timestamp", LONG),
        ("deliver_timestamp", LONG),  # TIMER_OUT_MS or the like: when revive looks at it
        ("kind", TEXT),  # ck | ack | batch_ack
        ("topic", TEXT),
        ("consumer_group", TEXT),
        ("queue_id", INT),
        ("start_offset", LONG),
        ("pop_timestamp", LONG),
        ("invisible_ms", LONG),
        ("count", INT),  # of a check-point
        ("bit_map", INT),
        ("offsets", pa.list_(pa.int64())),  # queue offsets a check-point covers, or an ack acknowledges
        ("broker_name", TEXT),
        ("status", TEXT),  # ok | bad_body
    ),
    "delay": (  # the records of SCHEDULE_TOPIC_XXXX
        STORE,
        ("physical_offset", LONG),
        ("level", INT),
        ("queue_offset", LONG),
        ("store_timestamp", LONG),
        ("due_timestamp", LONG),
        ("real_topic", TEXT),
        ("real_queue_id", INT),
        ("uniq_key", TEXT),
        ("status", TEXT),
    ),
    "delay_offsets": (STORE, ("level", INT), ("queue_offset", LONG)),
    "timerlog": (
        STORE,
        ("file", TEXT),
        ("log_position", LONG),  # byte of the timer log
        ("previous", LONG),
        ("magic", INT),
        ("slot_timestamp", LONG),
        ("written_timestamp", LONG),
        ("physical_offset", LONG),
        ("size", INT),
        ("topic_hash", INT),
        ("status", TEXT),  # ok | bad_unit
    ),
    "timerwheel": (
        STORE,
        ("slot", INT),
        ("slot_timestamp", LONG),
        ("first_position", LONG),
        ("last_position", LONG),
        ("count", INT),
        ("precision_ms", INT),
    ),
    "timercheck": (STORE, ("read_timestamp", LONG), ("log_flushed", LONG), ("queue_offset", LONG), ("status", TEXT)),
    "config": (  # the broker's JSON files and their .bak: whether they can be read
        STORE,
        ("path", TEXT),
        ("size", LONG),
        ("status", TEXT),  # ok | missing | bad_json
        ("detail", TEXT),
    ),
    "manifest": (  # one row a leaf; size is how much of the file belongs to the dump
        STORE,
        ("path", TEXT),
        ("size", LONG),
        ("position", LONG),
        ("leaf_size", INT),
        ("digest", LONG),
    ),
    "leaves": (  # the same, computed from the files as they are now
        STORE,
        ("path", TEXT),
        ("size", LONG),
        ("position", LONG),
        ("leaf_size", INT),
        ("digest", LONG),
    ),
    # One pass over log, queues and index with everything that checks of single things and of pairs need: see scan.py.
    "scan": (
        STORE,
        ("kind", TEXT),
        ("file", TEXT),
        ("topic", TEXT),
        ("queue_id", INT),
        ("bucket", LONG),
        ("count", LONG),
        ("digest", LONG),  # wrapping sum of the members' digests: equal sets, equal sums, in any order
        ("queue_offset_min", LONG),
        ("queue_offset_max", LONG),
        ("physical_offset_min", LONG),
        ("physical_offset_end", LONG),
        ("store_timestamp_min", LONG),
        ("store_timestamp_max", LONG),
        ("bytes", LONG),
        ("status", TEXT),
        ("detail", TEXT),
    ),
}


def arrow_schema(table: str, *, body: str = "none", properties: str = "raw") -> pa.Schema:
    """The Arrow schema of *table*; body and properties matter to the commit log alone.

    Raises:
        ValueError: no such table or option, with those there are.
    """
    columns = pick("table", table, TABLES)
    if table == "commitlog":
        columns = (
            *columns,
            *pick("properties", properties, PROPERTIES_COLUMNS),
            *pick("body", body, BODY_COLUMNS),
        )
    return pa.schema([pa.field(name, kind) for name, kind in columns])


Columns = tuple[tuple[str, pa.DataType], ...]


def pick(option: str, value: str, choices: Mapping[str, Columns]) -> Columns:
    """The choice called *value*, or an error that names all of them."""
    if value not in choices:
        raise ValueError(f"{option}={value!r}: it is one of {', '.join(choices)}")
    return choices[value]


def spark_schema(schema: pa.Schema) -> StructType:
    """The same for Spark."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, spark_type(field.type), True) for field in schema])


def spark_type(kind: pa.DataType) -> DataType:
    """Spark's name for an Arrow type used above."""
    from pyspark.sql import types

    if pa.types.is_map(kind):
        return types.MapType(spark_type(kind.key_type), spark_type(kind.item_type), True)
    if pa.types.is_list(kind):
        return types.ArrayType(spark_type(kind.value_type), True)
    return {
        TEXT: types.StringType(),
        BYTES: types.BinaryType(),
        INT: types.IntegerType(),
        LONG: types.LongType(),
        BOOL: types.BooleanType(),
    }[kind]
