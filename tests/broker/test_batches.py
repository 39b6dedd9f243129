"""Batches and compressed bodies: limits and errors as Apache's, bodies and flags kept as they were sent, natively."""

from __future__ import annotations

import struct
import zlib

import pytest

from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import until
from tests.broker.wire import send_fields

COMPRESSED = 1
TYPES = {"lz4": 1 << 8, "zstd": 2 << 8, "zlib": 3 << 8, "as before 5.0": 0}
ILLEGAL = ResponseCode.MESSAGE_ILLEGAL


def item(body, properties=b""):
    """One message of a batch."""
    return struct.pack(">iiiii", 0, 0, 0, 7, len(body)) + body + struct.pack(">h", len(properties)) + properties


def send(side, body, code=RequestCode.SEND_BATCH_MESSAGE, topic=None, **more):
    """A batch's answer."""
    fields = send_fields(topic or side.topic, 0, m="true" if code == RequestCode.SEND_BATCH_MESSAGE else "false")
    return side.wire.call(code, fields | more, body)


def test_batch_is_as_many_records_with_ids_in_order(side):
    """BATCH-3, BATCH-6: each message a record of its own, its flag and properties kept, ids joined by commas."""
    answer = send(side, b"".join(item(b"%d" % number, b"TAGS\x01t%d\x02" % number) for number in range(10)))
    assert (answer.code, answer.fields["queueOffset"]) == (0, "0")
    assert len(answer.fields["msgId"].split(",")) == 10
    until(lambda: side.maximum() == 10)
    found = side.broker.store.read(side.topic, 0, 0, 10)
    assert [message.body for message in found] == [b"%d" % number for number in range(10)]
    assert [message.tags for message in found] == [f"t{number}" for number in range(10)]
    ids = [int(part[-16:], 16) for part in answer.fields["msgId"].split(",")]
    assert [message.physical_offset for message in found] == ids


def test_batch_beyond_the_limits_is_refused_whole(side):
    """BATCH-1, BATCH-4: all of it beyond maxMessageSize; one that is cut; sizes below zero; an empty one."""
    size = side.broker.config.max_message_size
    words = f"msg body length limit {size}B, msg properties length limit 32KB."
    for body in (
        item(b"x" * (size // 2)) + item(b"x" * (size // 2)),
        item(b"x", b"p" * 40) + item(b"y")[:-1],
        item(b"x") + struct.pack(">iiiii", 0, 0, 0, 0, -1),
        item(b"x") + struct.pack(">iiiii", 0, 0, 0, 0, 1) + b"y" + struct.pack(">h", -5),
    ):
        answer = send(side, body)
        assert (answer.code, words in answer.remark) == (ILLEGAL, True), answer
    assert send(side, b"").code == ResponseCode.SYSTEM_ERROR
    assert side.maximum() == 0


def test_batch_for_a_retry_topic_is_refused(side):
    """A batch for a retry topic is refused in Apache's words."""
    topic = f"%RETRY%{side.group}"
    answer = send(side, item(b"x"), topic=topic)
    assert (answer.code, answer.remark) == (ILLEGAL, f"batch request does not support retry group {topic}")


def test_batch_that_asks_for_a_delay_is_refused(side):
    """A batch that asks for a delay is refused: its messages would be stored as if they had not."""
    answer = send(side, item(b"x"), i="DELAY\x013\x02")
    assert answer.code != ResponseCode.SUCCESS
    assert side.maximum() == 0


@pytest.mark.parametrize(
    "asked", ["DELAY\x013", "TIMER_DELAY_MS\x0160000", "TIMER_DELIVER_MS\x014102444800000", "TRAN_MSG\x01true"]
)
def test_a_message_of_a_batch_that_asks_to_wait_is_not_delivered_at_once(side, asked):
    """Goal: never early, no half message visible. Method: such a message behind a plain one: both are refused."""
    answer = send(side, item(b"plain", b"a\x01b\x02") + item(b"later", f"KEYS\x01k\x02{asked}\x02".encode()))
    assert answer.code == ILLEGAL
    assert asked.partition("\x01")[0] in answer.remark
    assert side.maximum() == 0


def test_a_batch_whose_messages_only_look_like_waiting_is_stored(side):
    """A level of 0, a transaction that is none and values that contain a name."""
    body = (
        item(b"0", b"DELAY\x010\x02") + item(b"1", b"TRAN_MSG\x01false\x02") + item(b"2", b"KEYS\x01TIMER_DELAY_MS\x02")
    )
    assert send(side, body).code == ResponseCode.SUCCESS
    until(lambda: side.maximum() == 3)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
def test_compressed_bodies_and_their_flags_are_kept_as_sent(side, kind, batch):
    """The broker neither looks into a body nor changes sysFlag; a pull hands out what was sent."""
    flag = COMPRESSED | TYPES[kind]
    body = zlib.compress(b"whatever it is " * 100) if kind == "zlib" else bytes(range(256))
    if batch:
        answer = send(side, item(body), f=str(flag))
    else:
        answer = send(side, body, RequestCode.SEND_MESSAGE_V2, f=str(flag))
    assert answer.code == ResponseCode.SUCCESS
    offset = int(answer.fields["queueOffset"])
    until(lambda: side.maximum() > offset)
    record = side.ask(offset).body
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    (size,) = struct.unpack_from(">i", record, 84)
    assert (sys_flag & 0x701, record[88 : 88 + size]) == (flag, body)


def test_compressed_sends_are_served_natively(side):
    """A flag of compression is no reason to leave the reactor."""
    if side.broker.config.data_plane != "native":
        return
    before = side.served_by(310)
    for flag in TYPES.values():
        send(side, b"x", RequestCode.SEND_MESSAGE_V2, f=str(flag | COMPRESSED))
    native, python = side.served_by(310)
    assert (native - before[0], python - before[1]) == (4, 0)
