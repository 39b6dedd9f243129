"""Half and op messages, POP's check-points and acks, and delayed messages, decoded from the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.rocketmq_store.decoded import decoded_rows, op_rows, pop_offsets, pop_rows, read_decoded
from spark_jobs.rocketmq_store.files import open_stores
from spark_jobs.rocketmq_store.planner import plan
from spark_jobs.rocketmq_store.records import RowFilter
from spark_jobs.rocketmq_store.schema import arrow_schema
from tests.golden import golden_layout

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def rows(table: str, root: Path) -> list[dict[str, Any]]:
    """All rows of a decoded table."""
    return [
        row
        for part in plan(table, open_stores([root]))
        for one in part.ranges
        for batch in read_decoded(table, one, part.topics, RowFilter(), part.delay_levels)
        for row in batch.to_pylist()
    ]


def golden_messages(topic: str) -> list[golden_layout.GoldenMessage]:
    """The golden store's messages of one topic."""
    return [message for message in golden_layout.messages() if message.topic == topic]


def test_half_messages_of_the_golden_store(golden_shared: Path):
    """Goal: what a half message says of itself. Method: every one of them as Apache's decoder saw it."""
    expected = [
        (
            message.physical_offset,
            message.queue_offset,
            message.properties["REAL_TOPIC"],
            int(message.properties["REAL_QID"]),
            message.properties["__transactionId__"],
            message.properties["PGROUP"],
            int(message.properties["TRANSACTION_CHECK_TIMES"])
            if "TRANSACTION_CHECK_TIMES" in message.properties
            else None,
            "ok",
        )
        for message in golden_messages("RMQ_SYS_TRANS_HALF_TOPIC")
    ]
    found = rows("half", golden_shared)
    columns = (
        "physical_offset", "queue_offset", "real_topic", "real_queue_id", "transaction_id", "producer_group",
        "check_times", "status",
    )  # fmt: skip
    assert [tuple(row[column] for column in columns) for row in found] == expected
    assert {row["check_times"] for row in found} > {None}


def test_op_messages_of_the_golden_store_name_the_halves_that_are_done(golden_shared: Path):
    """Goal: a row for each. Method: two messages with the bodies "1,0,2," and "4,"."""
    found = [
        (row["queue_offset"], row["tags"], row["half_queue_offset"], row["status"]) for row in rows("op", golden_shared)
    ]
    assert found == [(0, "d", 1, "ok"), (0, "d", 0, "ok"), (0, "d", 2, "ok"), (1, "d", 4, "ok")]


def test_pop_messages_of_the_golden_store(golden_shared: Path):
    """Goal: check-points and acks as a real broker wrote them. Method: every body of the topic, read by json."""
    found = rows("popck", golden_shared)
    messages = golden_messages(REVIVE)
    assert len(found) == len(messages) == 51
    for row, message in zip(found, messages, strict=True):
        body = json.loads(message.body)
        kind = message.properties["TAGS"]
        assert (row["kind"], row["topic"], row["consumer_group"], row["queue_id"]) == (
            kind,
            body["t"],
            body["c"],
            body["q"],
        )
        assert (row["start_offset"], row["pop_timestamp"], row["broker_name"]) == (body["so"], body["pt"], body["bn"])
        assert (row["revive_queue_id"], row["status"]) == (message.queue_id, "ok")
        assert row["deliver_timestamp"] == int(message.properties["TIMER_DELIVER_MS"])
        if kind == "ck":
            assert row["offsets"] == [body["so"] + step for step in body["d"]]
            assert (row["invisible_ms"], row["count"], row["bit_map"]) == (body["it"], body["n"], body["bm"])
        else:
            assert row["offsets"] == [body["ao"]]
            assert row["invisible_ms"] is None


def test_delayed_messages_of_the_golden_store(golden_shared: Path):
    """Goal: level and due time. Method: the units of the delay queues, which hold the due time instead of a tag."""
    found = rows("delay", golden_shared)
    units = golden_layout.queue_units()
    assert len(found) == 5
    for row in found:
        physical_offset, _, due = units["SCHEDULE_TOPIC_XXXX", row["level"] - 1][row["queue_offset"]]
        assert (row["physical_offset"], row["due_timestamp"], row["status"]) == (physical_offset, due, "ok")
    assert {row["real_topic"] for row in found} == {"GoldenDelay", "%RETRY%golden_cg"}


BATCH_ACK = {"t": "T", "c": "G", "q": 2, "so": 40, "pt": 5, "bn": "b", "aol": [40, 42]}
CHECK_POINT = {"so": 40, "pt": 5, "it": 60, "bm": 3, "n": 3, "q": 2, "t": "T", "c": "G", "ro": 0, "bn": "b"}


def record(body: bytes, tags: str | None, **changes: Any) -> dict[str, Any]:
    """A record as the log's reader gives it."""
    names = arrow_schema("commitlog", body="bytes", properties="map").names
    known = {"store": "s", "physical_offset": 7, "queue_offset": 1, "queue_id": 0, "status": "ok", "properties": {}}
    return dict.fromkeys(names) | known | {"body": body, "tags": tags} | changes


def one_pop(body: Any, tags: str | None) -> dict[str, Any]:
    """The row of one POP message."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    (row,) = pop_rows(record(data, tags))
    return dict(zip(arrow_schema("popck").names, row, strict=True))


def test_batch_of_acks_and_old_check_points_are_read():
    """Goal: what the golden store has none of. Method: a batch, a check-point without differences, long names."""
    batch = one_pop(BATCH_ACK, "bAck")
    assert (batch["kind"], batch["offsets"], batch["topic"], batch["status"]) == ("batch_ack", [40, 42], "T", "ok")
    assert one_pop(CHECK_POINT, "ck")["offsets"] == [40, 41, 42]
    assert one_pop(CHECK_POINT | {"d": [0, 5]}, "ck")["offsets"] == [40, 45]
    long_names = {"ackOffset": 9, "startOffset": 8, "consumerGroup": "G", "topic": "T", "queueId": 1, "popTime": 3}
    row = one_pop(long_names, "ack")
    assert (row["offsets"], row["start_offset"], row["consumer_group"], row["queue_id"]) == ([9], 8, "G", 1)


@pytest.mark.parametrize(
    ("body", "tags"),
    [
        (b"\xff\xfe", "ck"),
        (b"", "ack"),
        (b"[]", "ack"),
        (b'{"so":', "ck"),
        ({}, "ck"),
        (CHECK_POINT | {"n": 300}, "ck"),
        (CHECK_POINT | {"n": -1}, "ck"),
        (CHECK_POINT | {"d": ["x"]}, "ck"),
        (CHECK_POINT | {"so": 2**63 - 1, "d": [1]}, "ck"),
        (BATCH_ACK | {"aol": [1, None]}, "bAck"),
        (BATCH_ACK | {"aol": "1"}, "bAck"),
        (CHECK_POINT, "other"),
        (CHECK_POINT, None),
    ],
    ids=repr,
)
def test_body_that_no_broker_writes_is_a_row_with_a_status(body: Any, tags: str | None):
    """Goal: damage is seen and stops nothing. Method: what is no JSON, what lacks a field, what cannot be."""
    row = one_pop(body, tags)
    assert (row["status"], row["offsets"]) == ("bad_body", None)


def test_ack_is_not_looked_for_in_a_check_point():
    """Goal: the tag says what a body is. Method: a check-point's body under the tag of an ack."""
    assert pop_offsets("ack", CHECK_POINT) is None
    assert pop_offsets(None, CHECK_POINT) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"1,22,", [(1, "ok"), (22, "ok")]),
        (b"7", [(7, "ok")]),
        (b"", [(None, "bad_body")]),
        (b",", [(None, "bad_body")]),
        (b"1,x,", [(None, "bad_body")]),
        (b"-1,", [(None, "bad_body")]),
        (b"\xff", [(None, "bad_body")]),
        (b"9" * 19 + b",", [(None, "bad_body")]),
    ],
)
def test_op_bodies(body: bytes, expected: list[tuple[int | None, str]]):
    """Goal: only what a broker writes is believed. Method: good and bad bodies."""
    assert [row[-2:] for row in op_rows(record(body, "d"))] == expected


def test_record_keeps_its_own_status():
    """Goal: a wrong CRC explains a wrong body. Method: the same bad body in a record whose CRC is wrong."""
    (row,) = op_rows(record(b"1,x,", "d", status="bad_crc"))
    assert row[-1] == "bad_crc"
    (row,) = pop_rows(record(b"{", "ck", status="bad_crc"))
    assert row[-1] == "bad_crc"


def test_damaged_log_gives_rows_of_its_topics_only(golden: Path):
    """Goal: what is no record belongs to no topic. Method: overwrite the magic of one half message."""
    offset = golden_messages("RMQ_SYS_TRANS_HALF_TOPIC")[0].physical_offset
    path = golden / "commitlog" / "00000000000000065536"
    data = bytearray(path.read_bytes())
    data[offset - 65_536 + 28 : offset - 65_536 + 40] = b"\xaa" * 12
    data[offset - 65_536 : offset - 65_536 + 8] = b"\xaa" * 8
    path.write_bytes(data)
    assert len(rows("half", golden)) == 10


def test_filters_reach_the_log(golden_shared: Path):
    """Goal: a look at one place costs one place. Method: offsets and times of one half message."""
    message = golden_messages("RMQ_SYS_TRANS_HALF_TOPIC")[3]
    (part,) = plan("half", open_stores([golden_shared]))
    at = message.physical_offset
    time = message.store_timestamp_ms
    for wanted in (RowFilter(begin=at, end=at + 1), RowFilter(store_timestamp_min=time, store_timestamp_max=time)):
        found = [
            row[1]
            for one in part.ranges
            for row in decoded_rows("half", one, part.topics, wanted._replace(topics=part.topics), part.delay_levels)
        ]
        assert found == [at]
