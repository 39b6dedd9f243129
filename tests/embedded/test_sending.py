"""Sending: what is stored, what is refused, and what the result says."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time

import pytest

import pymq
from pymq.errors import (
    FlushTimeoutError,
    InvalidArgumentError,
    InvalidTopicError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    StoreReadOnlyError,
)


def test_every_field_of_a_send_comes_back(mq):
    """Goal: nothing is lost between send and read. Method: set each field to something odd and compare."""
    before_ms = time.time_ns() // 1_000_000
    result = mq.send(
        "orders",
        b"one coffee",
        queue_id=3,
        tags="hot",
        keys=["k-1", "k-2"],
        properties={"grün": "wert ü"},
        flag=-7,
        sys_flag=2,
        born_timestamp_ms=1_234_567_890_123,
    )
    (message,) = mq.read("orders", 3)
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 0)
    assert (message.body, message.flag, message.sys_flag) == (b"one coffee", -7, 2)
    assert (message.tags, message.keys) == ("hot", ("k-1", "k-2"))
    assert message.born_timestamp_ms == 1_234_567_890_123
    assert message.born_host == message.store_host == "127.0.0.1:10911"
    assert message.store_timestamp_ms == result.store_timestamp_ms >= before_ms
    assert message.message_id == result.message_id
    assert message.physical_offset == result.physical_offset
    assert message.store_size == result.store_size
    assert message.reconsume_times == message.prepared_transaction_offset == 0
    assert message.properties == {
        "grün": "wert ü",
        "KEYS": "k-1 k-2",
        "TAGS": "hot",
        "UNIQ_KEY": result.unique_key,
    }


def test_properties_of_a_message_are_a_private_copy(mq):
    """Goal: a received message is frozen. Method: change the dict it gave and ask again."""
    mq.send("t", b"x", properties={"a": "1"}, unique_key=False)
    (message,) = mq.read("t")
    message.properties["a"] = "2"
    assert message.properties == {"a": "1"}
    with pytest.raises(AttributeError):
        message.body = b"y"


def test_offsets_count_from_zero_in_each_queue(mq):
    """Goal: queue offsets are per queue. Method: interleave two queues."""
    offsets = [(mq.send("t", b"x", queue_id=n % 2).queue_offset) for n in range(6)]
    assert offsets == [0, 0, 1, 1, 2, 2]


def test_unique_keys_have_rocketmq_s_shape_and_differ(mq):
    """Goal: keys look like a Java client's. Method: pattern, process id, and a thousand of them."""
    keys = [mq.send("t", b"x").unique_key for _ in range(500)]
    keys += [result.unique_key for result in mq.send_many("t", [b"x"] * 500)]
    assert len(set(keys)) == 1000
    assert all(re.fullmatch(r"7F000001[0-9A-F]{24}", key) for key in keys)
    assert {key[8:12] for key in keys} == {f"{mq._store.pid & 0xFFFF:04X}"}
    assert [m.unique_key for m in mq.iterate("t")] == keys


def test_a_given_unique_key_is_kept_and_none_is_added_on_request(mq):
    """Goal: the sender decides. Method: give one, then refuse one."""
    assert mq.send("t", b"x", properties={"UNIQ_KEY": "mine"}).unique_key == "mine"
    assert mq.send("t", b"x", unique_key=False).unique_key is None
    assert [m.unique_key for m in mq.iterate("t")] == ["mine", None]


@pytest.mark.parametrize(
    "body", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]], ids=["bytes", "bytearray", "view"]
)
def test_a_body_may_be_any_buffer(mq, body):
    """Goal: no needless conversion for the caller. Method: three kinds of buffer, one content."""
    mq.send("t", body)
    mq.send_many("t", [body])
    assert [m.body for m in mq.iterate("t")] == [b"abc", b"abc"]


def test_text_is_refused_as_a_body_with_a_hint(mq):
    """Goal: the commonest mistake explains itself. Method: send a str both ways."""
    with pytest.raises(TypeError, match="encode"):
        mq.send("t", "text")
    with pytest.raises(TypeError, match="encode"):
        mq.send_many("t", [b"fine", "text"])
    assert mq.topics() == []


@pytest.mark.parametrize("size", [1023, 1024, 1025])
def test_the_body_limit_is_exact(open_store, size):
    """Goal: max_message_size is inclusive. Method: one below, at, one above."""
    mq = open_store(max_message_size=1024)
    if size > 1024:
        with pytest.raises(MessageTooLargeError, match="1025 bytes; max_message_size is 1024") as caught:
            mq.send("t", b"x" * size)
        assert (caught.value.size, caught.value.size_max, caught.value.status) == (1025, 1024, "PYMQ_ETOOBIG")
        with pytest.raises(MessageTooLargeError):
            mq.send_many("t", [b"x", b"x" * size])
        assert mq.topics() == []
    else:
        mq.send("t", b"x" * size)
        assert [len(m.body) for m in mq.iterate("t")] == [size]


def test_a_record_larger_than_a_log_file_is_refused(mq):
    """Goal: a record never crosses a file. Method: a body under max_message_size, over the file size."""
    with pytest.raises(MessageTooLargeError, match="65537"):
        mq.send("t", b"x" * 70_000)


def test_properties_limit_is_exact(mq):
    """Goal: the length field is a signed short. Method: at 32,767 bytes and one more."""
    room = 32_767 - len("a") - 2
    mq.send("t", b"", properties={"a": "v" * room}, unique_key=False)
    with pytest.raises(PropertiesTooLargeError, match="32768 bytes"):
        mq.send("t", b"", properties={"a": "v" * (room + 1)}, unique_key=False)
    assert len(mq.read("t")) == 1


@pytest.mark.parametrize(
    ("properties", "what"),
    [({"a\x01": "b"}, "name"), ({"a": "b\x02"}, "value"), ({"": "b"}, "empty name"), ({"a": ""}, "empty value")],
)
def test_properties_that_would_not_come_back_are_refused(mq, properties, what):
    """Goal: separators never enter a record. Method: put one in a name, one in a value; empty names and values."""
    with pytest.raises(InvalidArgumentError, match=what):
        mq.send("t", b"x", properties=properties)


def test_a_reserved_property_given_twice_is_refused(mq):
    """Goal: no silent winner. Method: tags as argument and as property."""
    with pytest.raises(InvalidArgumentError, match="TAGS is given twice"):
        mq.send("t", b"x", tags="a", properties={"TAGS": "b"})
    with pytest.raises(InvalidArgumentError, match="KEYS is given twice"):
        mq.send("t", b"x", keys="a", properties={"KEYS": "b"})


@pytest.mark.parametrize("topic", ["", "a/b", "..", "x" * 32_768], ids=["empty", "slash", "dots", "long"])
def test_a_topic_that_is_no_directory_is_refused(mq, topic):
    """Goal: a topic cannot leave the store's directory. Method: names that would."""
    with pytest.raises(InvalidTopicError):
        mq.send(topic, b"x")


def test_long_topics_are_stored_as_v2_records(mq):
    """Goal: topics above 127 bytes work. Method: one of 127, one of 128 and one of 200 bytes."""
    for size in (127, 128, 200):
        mq.send("t" * size, b"x", keys="k")
    assert [len(topic) for topic in mq.topics()] == [127, 128, 200]
    assert mq.query("t" * 200, "k")[0].topic == "t" * 200


def test_send_many_keeps_order_and_says_where_each_stands(mq):
    """Goal: results match messages. Method: more than several chunks, compare by physical offset."""
    bodies = [b"%d" % number * (number % 50) for number in range(2000)]
    results = mq.send_many("t", bodies)
    messages = list(mq.iterate("t"))
    assert [m.body for m in messages] == bodies
    assert len(results) == 2000
    assert [r.queue_offset for r in results] == list(range(2000))
    assert [(r.physical_offset, r.message_id, r.store_timestamp_ms) for r in results] == [
        (m.physical_offset, m.message_id, m.store_timestamp_ms) for m in messages
    ]
    assert results[-1] == results[1999]
    assert results[5:8] == [results[5], results[6], results[7]]
    assert results.end_offset == messages[-1].physical_offset + messages[-1].store_size
    with pytest.raises(IndexError):
        results[2000]


def test_send_many_takes_messages_and_spreads_queues(mq):
    """Goal: Message carries what a body cannot. Method: mixed list over three queues."""
    results = mq.send_many(
        "t",
        [
            b"plain",
            pymq.Message(body=b"rich", tags="T", keys="k", properties={"p": "q"}, flag=4, born_timestamp_ms=99),
            pymq.Message(body=b"keyed", properties={"UNIQ_KEY": "mine"}),
        ],
        queue_id=[0, 5, 9],
    )
    assert [(r.queue_id, r.queue_offset) for r in results] == [(0, 0), (5, 0), (9, 0)]
    (rich,) = mq.read("t", 5)
    assert (rich.body, rich.tags, rich.keys, rich.flag, rich.born_timestamp_ms) == (b"rich", "T", ("k",), 4, 99)
    assert rich.properties["p"] == "q"
    assert results[2].unique_key == "mine"
    assert mq.read("t", 9)[0].unique_key == "mine"


def test_send_many_of_nothing_stores_nothing(mq):
    """Goal: the empty case is no special case. Method: an empty generator."""
    results = mq.send_many("t", (body for body in ()))
    assert (len(results), list(results)) == (0, [])


def test_together_keeps_a_batch_in_one_file_or_refuses_it(mq):
    """Goal: a batch is all or nothing, in one file. Method: fill most of a file, then send one that rolls."""
    mq.send_many("t", [b"x" * 1000] * 55)
    results = mq.send_many("t", [b"y" * 1000] * 20, together=True)
    file_numbers = {r.physical_offset // 65_537 for r in results}
    assert len(file_numbers) == 1
    gaps = [b.physical_offset - a.physical_offset for a, b in itertools.pairwise(results)]
    assert set(gaps) == {results[0].store_size}
    with pytest.raises(MessageTooLargeError):
        mq.send_many("t", [b"z" * 1000] * 70, together=True)
    assert mq.max_offset("t") == 75


def test_a_refused_chunk_leaves_the_messages_before_it_in_the_result(mq):
    """Goal: the caller knows what was stored. Method: a message in the second chunk that fits no file."""
    messages = [b"a"] * 600 + [b"b" * 70_000]
    with pytest.raises(MessageTooLargeError) as caught:
        mq.send_many("t", messages)
    stored = len(caught.value.result)
    assert 512 <= stored <= 600
    assert mq.max_offset("t") == stored


def test_writes_are_refused_and_accepted_again(mq):
    """Goal: a full disk refuses sends only. Method: the switch that retention uses."""
    mq.send("t", b"before")
    mq._store.set_writable(False)
    with pytest.raises(StoreReadOnlyError, match="disk_space_warning_level_ratio") as caught:
        mq.send("t", b"refused")
    assert caught.value.status == "PYMQ_EREADONLY"
    assert [m.body for m in mq.read("t")] == [b"before"]
    mq._store.set_writable(True)
    assert mq.send("t", b"after").queue_offset == 1


def test_a_send_waits_for_the_replica_and_says_where_it_stands_on_timeout(open_store):
    """Goal: SYNC_MASTER waits for the replica. Method: one that stays behind, then comes."""
    mq = open_store(broker_role="SYNC_MASTER")
    mq._store.set_replica(0)
    with pytest.raises(FlushTimeoutError, match="may still become durable") as caught:
        mq.send("t", b"x", timeout_ms=30)
    result = caught.value.result
    assert result.queue_offset == 0
    assert mq.queues("t")[0].max_offset == 0, "not visible before the replica has it"
    mq._store.set_replica(result.physical_offset + result.store_size)
    mq._store.wait_acknowledged(result.physical_offset + result.store_size)
    assert [m.body for m in mq.read("t")] == [b"x"]


def test_without_a_replica_in_sync_the_gate_opens_locally(open_store):
    """Goal: losing every replica does not stop a master. Method: report in_sync False."""
    mq = open_store(broker_role="SYNC_MASTER")
    mq._store.set_replica(0, in_sync=False)
    assert mq.send("t", b"x", timeout_ms=2000).queue_offset == 0
    assert len(mq.read("t")) == 1


def test_wait_false_returns_before_the_acknowledgement(open_store):
    """Goal: waitStoreMsgOK=false. Method: a replica that never has anything; the send returns all the same."""
    mq = open_store(broker_role="SYNC_MASTER", flush_disk_type="SYNC_FLUSH")
    mq._store.set_replica(0)
    result = mq.send("t", b"x", wait=False)
    many = mq.send_many("t", [b"y"] * 3, wait=False)
    assert mq._store.poll_acknowledged(result.physical_offset + result.store_size) is False
    mq._store.set_replica(many.end_offset)
    mq._store.wait_acknowledged(many.end_offset)
    assert [m.body for m in mq.iterate("t")] == [b"x", b"y", b"y", b"y"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"properties": {"a\0": "v"}},
        {"properties": {"a": "v\0"}},
        {"tags": "a\0b"},
        {"keys": "a\0b"},
        {"keys": ["a", "\0"]},
    ],
    ids=["name", "value", "tags", "keys", "one of the keys"],
)
def test_zeros_outside_the_body_are_refused_because_a_crash_looks_like_them(mq, arguments):
    """Goal: nothing acknowledged is taken for a lost page. Method: a zero in each part, alone and in a batch."""
    with pytest.raises(InvalidArgumentError, match=r"(a|TAGS|KEYS|name) .*byte 0; after a crash"):
        mq.send("t", b"x", **arguments)
    with pytest.raises(InvalidArgumentError, match="byte 0"):
        mq.send_many("t", [pymq.Message(body=b"x", **arguments)])
    assert mq.send("t", b"\0" * 100).queue_offset == 0, "a body has its CRC"


def test_keys_that_would_become_several_or_none_are_refused(mq):
    """Goal: a key given is a key found. Method: a space in one key, an empty one, one that is no text."""
    for keys in (["a b"], ["a", ""], ["", "q"]):
        with pytest.raises(InvalidArgumentError, match="holds no space"):
            mq.send("t", b"x", keys=keys)
    with pytest.raises(TypeError, match="a key is a str, not int"):
        mq.send("t", b"x", keys=["a", 5])
    assert mq.send("t", b"x", keys="a b").queue_offset == 0, "one text may still hold several"
    assert len(mq.query("t", "b")) == 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computed(pymq.Message):
    """A message whose body is made anew each time it is asked for."""

    number: int = 0

    def __getattribute__(self, name):
        if name == "body":
            return (b"%d-" % object.__getattribute__(self, "number")) * 300
        return object.__getattribute__(self, name)


def test_a_body_that_is_computed_is_held_while_it_is_stored(mq):
    """Goal: no pointer into freed memory. Method: bodies that nobody else holds, many of one size, read back."""
    mq.send_many("t", [b"plain", *(Computed(body=b"", number=number) for number in range(20)), bytearray(b"last")])
    bodies = [message.body for message in mq.iterate("t")]
    assert bodies == [b"plain", *(b"%d-" % number * 300 for number in range(20)), b"last"]


def test_timeouts_beyond_any_clock_do_not_overflow(mq):
    """Goal: a wait is never negative by accident. Method: the largest timeouts, and negative ones."""
    assert mq.send("t", b"x", timeout_ms=2**62).queue_offset == 0
    assert mq.send("t", b"x", timeout_ms=-1).queue_offset == 1
    assert mq._store.wait_arrival("t", 0, 0, 2**62)
    assert not mq._store.wait_arrival("t", 0, 2, -5)
