"""Tables decoded from the commit log's records of a few system topics: half, op, popck, delay.

    half    RMQ_SYS_TRANS_HALF_TOPIC       what a half message says of itself, in its properties
    op      RMQ_SYS_TRANS_OP_HALF_TOPIC    body "17,18,": a row for each half queue offset that is done
    popck   rmq_sys_REVIVE_LOG_<cluster>   body in JSON by tag: ck (a check-point), ack, bAck (a batch of them)
    delay   SCHEDULE_TOPIC_XXXX            what waits for a delay level

RocketMQ's names in a check-point: so start offset, pt pop time, it invisible time, bm bit map, n count, q queue, t
topic, c group, bn broker, d differences to the start offset (none: the n offsets from it on); in an ack: ao its offset,
aol a list of them. Acks once had the long names, which are still read.

Whoever writes to these topics is the broker, so a body that cannot be read is damage: a row `bad_body`. Records with a
status of their own keep it; stretches of the log that are no record belong to no topic and are no row here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from pymq.broker import names
from pymq.remoting import json_dialect
from pymq.remoting.errors import CodecError
from spark_jobs.rocketmq_store.files import StoreFiles, as_text, subdirectories
from spark_jobs.rocketmq_store.records import LogRange, RowFilter, read_records
from spark_jobs.rocketmq_store.small_tables import TOPICS_FILE, UnreadableFileError, integer, load_json, long, table_of
from spark_jobs.rocketmq_store.timers import batches

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_ID: Final = "__transactionId__"
PRODUCER_GROUP: Final = "PGROUP"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
DELIVER_MS: Final = "TIMER_DELIVER_MS"
SLOT_MS: Final = "TIMER_OUT_MS"
POP_KINDS: Final = {"ck": "ck", "ack": "ack", "bAck": "batch_ack"}
OP_BODY: Final = re.compile(r"(?:[0-9]{1,18},)*[0-9]{0,18}")
COUNT_MAX: Final = 127  # a check-point counts in a byte
OFFSETS_MAX: Final = 1 << 16  # in one body; more would be no broker's

Row = tuple[Any, ...]
Record = dict[str, Any]


def half_rows(record: Record) -> Iterator[Row]:
    """A half message."""
    has = record["properties"]
    yield (
        record["store"],
        record["physical_offset"],
        record["queue_offset"],
        record["store_timestamp"],
        record["born_timestamp"],
        has.get(REAL_TOPIC),
        integer(has.get(REAL_QUEUE_ID)),
        has.get(TRANSACTION_ID),
        record["uniq_key"],
        has.get(PRODUCER_GROUP),
        integer(has.get(CHECK_TIMES)),
        long(has.get(FIRST_OFFSET)),
        record["status"],
    )


def op_rows(record: Record) -> Iterator[Row]:
    """One op message: a row for each half it ends."""
    head = (
        record["store"],
        record["physical_offset"],
        record["queue_offset"],
        record["store_timestamp"],
        record["tags"],
    )
    body = record["body"].decode("utf-8", "replace")
    offsets = [word for word in body.split(",") if word]
    if not OP_BODY.fullmatch(body) or not offsets:
        yield *head, None, damaged(record)
        return
    for word in offsets:
        yield *head, int(word), record["status"]


def pop_rows(record: Record) -> Iterator[Row]:
    """A check-point, an ack, or several acks in one."""
    kind = POP_KINDS.get(record["tags"] or "")
    body = parse_body(record["body"])
    offsets = pop_offsets(kind, body)
    has = record["properties"]
    is_check_point = kind == "ck"
    yield (
        record["store"],
        record["physical_offset"],
        record["queue_offset"],
        record["queue_id"],
        record["store_timestamp"],
        long(has.get(DELIVER_MS, has.get(SLOT_MS))),
        kind,
        word(body, "t", "topic"),
        word(body, "c", "consumerGroup"),
        integer(field(body, "q", "queueId")),
        long(field(body, "so", "startOffset")),
        long(field(body, "pt", "popTime")),
        long(body.get("it")) if is_check_point else None,
        integer(body.get("n")) if is_check_point else None,
        integer(body.get("bm")) if is_check_point else None,
        offsets,
        word(body, "bn", "brokerName"),
        record["status"] if offsets is not None else damaged(record),
    )


def pop_offsets(kind: str | None, body: dict[Any, Any]) -> list[int] | None:
    """Queue offsets a check-point covers or an ack acknowledges; None when the body does not say."""
    if kind == "ck":
        start, count, steps = long(body.get("so")), integer(body.get("n")), body.get("d") or []
        if start is None or count is None or not 0 <= count <= COUNT_MAX or not isinstance(steps, list):
            return None
        found = [integer(step) for step in steps] if steps else list(range(count))
        return bounded([None if step is None else start + step for step in found])
    if kind == "batch_ack":
        listed = field(body, "aol", "ackOffsetList")
        return bounded([long(one) for one in listed]) if isinstance(listed, list) else None
    return bounded([long(field(body, "ao", "ackOffset"))]) if kind == "ack" else None


def bounded(offsets: list[int | None]) -> list[int] | None:
    """*offsets* when each is one and there are not too many."""
    whole = [one for one in offsets if one is not None and -(2**63) <= one < 2**63]
    return whole if len(whole) == len(offsets) <= OFFSETS_MAX else None


def parse_body(body: bytes) -> dict[Any, Any]:
    """The object in a body; empty when there is none."""
    try:
        value = json_dialect.loads(body, forgiven_size_max=None)
    except CodecError:
        return {}
    return value if isinstance(value, dict) else {}


def field(body: dict[Any, Any], short: str, full: str) -> Any:
    """A field by its short name or, of older writers, the long one."""
    return body[short] if short in body else body.get(full)


def word(body: dict[Any, Any], short: str, full: str) -> str | None:
    """A field that is text."""
    value = field(body, short, full)
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def delay_rows(record: Record) -> Iterator[Row]:
    """A message that waits: queue *n* is level *n* + 1, and dispatch files it under its due time."""
    has = record["properties"]
    yield (
        record["store"],
        record["physical_offset"],
        None if record["queue_id"] is None else record["queue_id"] + 1,
        record["queue_offset"],
        record["store_timestamp"],
        record["tags_code"],
        has.get(REAL_TOPIC),
        integer(has.get(REAL_QUEUE_ID)),
        record["uniq_key"],
        record["status"],
    )


def damaged(record: Record) -> str:
    """The status of a record whose body cannot be read: its own when that says why."""
    return "bad_body" if record["status"] == "ok" else str(record["status"])


DECODERS: Final[dict[str, Callable[[Record], Iterator[Row]]]] = {
    "half": half_rows,
    "op": op_rows,
    "popck": pop_rows,
    "delay": delay_rows,
}
TOPICS: Final = {"half": names.HALF_TOPIC, "op": names.OP_HALF_TOPIC, "delay": names.SCHEDULE_TOPIC}


def topics_of(table: str, store: StoreFiles) -> frozenset[str]:
    """The topics *table* is decoded from. The one of POP has the cluster's name in it: see which there are."""
    if table in TOPICS:
        return frozenset({TOPICS[table]})
    return frozenset(topic for topic in known_topics(store) if topic.startswith(names.REVIVE_PREFIX))


def known_topics(store: StoreFiles) -> set[str]:
    """Topics with queues, and configured ones as far as that can be read."""
    found = {as_text(path.name) for path in subdirectories(store.root / "consumequeue")}
    try:
        return found | {str(name) for name in table_of(load_json(store.root, TOPICS_FILE), "topicConfigTable")}
    except UnreadableFileError:  # the table `topics` says so; the queues name the topics that matter here
        return found


def read_decoded(
    table: str, one: LogRange, topics: frozenset[str], wanted: RowFilter, delay_levels: str
) -> Iterator[pa.RecordBatch]:
    """The rows of *table* in a range of the log."""
    return batches(table, decoded_rows(table, one, topics, wanted._replace(topics=topics), delay_levels))


def decoded_rows(
    table: str, one: LogRange, topics: frozenset[str], wanted: RowFilter, delay_levels: str
) -> Iterator[Row]:
    """The same, row by row: there are few, and each is another."""
    decode = DECODERS[table]
    for batch in read_records(one, body="bytes", properties="map", row_filter=wanted, delay_levels=delay_levels):
        for record in batch.to_pylist():
            if record["topic"] in topics:
                record["properties"] = dict(record["properties"] or ())
                record["body"] = record["body"] or b""
                yield from decode(record)
