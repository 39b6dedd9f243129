"""Finding single messages, with and without the transient pool: by id, key, unique key, tag, queue offset and time."""

from __future__ import annotations

import struct

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import Side, heartbeat, offsets_in, until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire, send_fields
from tests.embedded.test_pool_table import NEVER

FOR_EVER_MS = 2**62
PHYSICAL_OFFSET_AT = 28  # in a record
POOL = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}


def run(directory, **store):
    """A running broker."""
    config = pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, store_path_root_dir=str(directory), store=SMALL.replace(**store)
    )
    return pymq.Broker(config).running()


@pytest.fixture(params=[{}, POOL, POOL | {"flush_disk_type": "SYNC_FLUSH"}], ids=["no pool", "pool", "pool, sync"])
def side(request, tmp_path):
    """A broker with a topic and a member of a group."""
    with (
        run(tmp_path, **({"flush_disk_type": "ASYNC_FLUSH"} | request.param)) as broker,
        Wire(broker.config.listen_port) as wire,
    ):
        create_topic(wire, "t")
        heartbeat(wire, "g", "t")
        yield Side(broker, wire, "g", "t")


def send(side, body, **properties):
    """One message; the answer's fields."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    answer = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 0, text), body)
    assert answer.code == ResponseCode.SUCCESS
    return answer.fields


def view(side, message_id):
    """VIEW_MESSAGE_BY_ID."""
    return side.wire.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(int(message_id[-16:], 16))})


def query(side, key, count=32, begin=0, end=FOR_EVER_MS, **more):
    """QUERY_MESSAGE."""
    fields = {
        "topic": "t", "key": key, "maxNum": str(count), "beginTimestamp": str(begin), "endTimestamp": str(end), **more
    }  # fmt: skip
    return side.wire.call(RequestCode.QUERY_MESSAGE, fields)


def bodies(records):
    """The bodies of records, which are those of one length and without an address of IPv6."""
    found, at = [], 0
    while at < len(records):
        (size,) = struct.unpack_from(">i", records, at)
        (body_size,) = struct.unpack_from(">i", records, at + 84)
        found.append(records[at + 88 : at + 88 + body_size])
        at += size
    return found


def visible(side, count):
    """Wait until so many messages can be consumed; the index comes with them."""
    until(lambda: side.maximum() >= count)


def test_message_is_found_in_every_way_there_is(side):
    """QRY-1 to QRY-4: one message, six questions."""
    first = send(side, b"first", KEYS="k1 shared", TAGS="red")
    unique = "0123456789ABCDEF" * 2
    second = send(side, b"second", KEYS="k2 shared", TAGS="blue", UNIQ_KEY=unique)
    visible(side, 2)
    assert bodies(view(side, first["msgId"]).body) == [b"first"]
    assert bodies(view(side, second["msgId"]).body) == [b"second"]
    until(lambda: query(side, "k2").code == ResponseCode.SUCCESS)
    assert bodies(query(side, "k1").body) == [b"first"]
    assert bodies(query(side, "shared").body) == [b"first", b"second"]
    assert bodies(query(side, unique, _UNIQUE_KEY_QUERY="true").body) == [b"second"]
    assert second["transactionId"] == unique
    assert bodies(query(side, first["transactionId"], _UNIQUE_KEY_QUERY="true").body) == [b"first"]
    assert bodies(side.ask(1, maxMsgNums=1).body) == [b"second"]
    (stored_ms,) = struct.unpack_from(">q", view(side, first["msgId"]).body, 56)
    fields = {"topic": "t", "queueId": "0", "timestamp": str(stored_ms)}
    assert side.wire.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields).fields == {"offset": "0"}
    assert bodies(query(side, "shared", begin=stored_ms, end=stored_ms).body)[0] == b"first"
    for begin, end in ((0, stored_ms - 1), (stored_ms + 3_600_000, FOR_EVER_MS)):
        assert query(side, "k1", begin=begin, end=end).code == ResponseCode.QUERY_NOT_FOUND


def test_what_is_not_there_is_not_found(side):
    """A key of nobody, an id behind the end, an id in the middle of a record, an id below zero."""
    first = send(side, b"first", KEYS="k1")
    visible(side, 1)
    missing = query(side, "nobody")
    assert (missing.code, missing.remark) == (
        ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct"
    )  # fmt: skip
    for offset in (1 << 40, int(first["msgId"][-16:], 16) + 4, -1):
        answer = side.wire.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")


def test_index_of_every_kind_of_5_5_0_is_asked_for_by_key(side):
    """indexType K (keys), U (unique key) and T (the tag); a tag is no key, and a key no tag."""
    unique = "FEDCBA9876543210" * 2
    send(side, b"one", KEYS="k1", TAGS="red", UNIQ_KEY=unique)
    until(lambda: query(side, "k1").code == ResponseCode.SUCCESS)
    assert bodies(query(side, "k1", indexType="K").body) == [b"one"]
    assert bodies(query(side, unique, indexType="U").body) == [b"one"]
    assert bodies(query(side, "red", indexType="T").body) == [b"one"]
    for key, kind in (("red", "K"), ("k1", "T"), ("re", "T"), ("redd", "T"), ("red", "")):
        assert query(side, key, indexType=kind).code == ResponseCode.QUERY_NOT_FOUND


def test_message_only_in_the_pool_is_found_once_it_is_committed_and_never_before(tmp_path):
    """Nothing is committed: no question finds the message, none finds other bytes. A commit makes it visible."""
    with (
        run(tmp_path, flush_disk_type="ASYNC_FLUSH", **POOL, **NEVER) as broker,
        Wire(broker.config.listen_port) as wire,
    ):
        create_topic(wire, "t")
        heartbeat(wire, "g", "t")
        side = Side(broker, wire, "g", "t")
        sent = send(side, b"in the pool", KEYS="k1")
        for _ in range(3):
            assert view(side, sent["msgId"]).code == ResponseCode.SYSTEM_ERROR
            assert query(side, "k1").code == ResponseCode.QUERY_NOT_FOUND
            assert side.maximum() == 0
            assert side.ask(0).code == ResponseCode.PULL_NOT_FOUND
        broker.store.flush()
        visible(side, 1)
        assert bodies(view(side, sent["msgId"]).body) == [b"in the pool"]
        until(lambda: query(side, "k1").code == ResponseCode.SUCCESS)
        assert bodies(query(side, "k1").body) == [b"in the pool"]
        found = side.ask(0)
        assert offsets_in(found.body) == [0]
        assert struct.unpack_from(">q", found.body, PHYSICAL_OFFSET_AT)[0] == int(sent["msgId"][-16:], 16)
