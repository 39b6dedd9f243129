"""What the generator sends, as a broker sees it: frames, properties, bodies, batches."""

from __future__ import annotations

import re
import struct
import time

import pytest

from tests.perf_tools.fake_broker import FakeBroker, Request
from tests.perf_tools.generator import run

SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320
CODECS = ("json", "rocketmq")
UNIQ_KEY = re.compile(r"UNIQ_KEY\x01([0-9A-F]{32})\x02")
STAMP = struct.Struct(">4sIQq")


def sent(broker: FakeBroker, code: int) -> list[Request]:
    """The send requests the broker got."""
    return [request for request in broker.requests if request.code == code]


@pytest.mark.parametrize("codec", CODECS)
def test_fields_of_a_send_are_those_of_a_java_producer(codec: str):
    """Goal: brokers do the work a client gives them. Method: names, order and values of the fields of every send."""
    with FakeBroker() as broker:
        arguments = ("--codec", codec, "--count", 40, "--queues", 12, "--properties", "java")
        run("send", "--broker", broker.address, "--topic", "Fields", *arguments)
    requests = sent(broker, SEND_MESSAGE_V2)
    assert len(requests) == 40
    for number, request in enumerate(requests):
        assert list(request.fields) == list("abcdefghijkmn")
        assert request.fields["b"] == "Fields"
        assert request.fields["e"] == str(number % 12)
        assert abs(int(request.fields["g"]) - time.time() * 1000) < 120_000
        assert (request.fields["c"], request.fields["d"], request.fields["k"]) == ("TBW102", "4", "false")
    assert broker.topics == {"Fields": 12}


@pytest.mark.parametrize(
    ("properties", "pattern"),
    [
        ("none", r""),
        ("java", r"UNIQ_KEY\x01[0-9A-F]{32}\x02WAIT\x01true\x02"),
        ("java-tags", r"UNIQ_KEY\x01[0-9A-F]{32}\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
        ("java-keys", r"KEYS\x01\d{16}\x02UNIQ_KEY\x01[0-9A-F]{32}\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("batch", [1, 7])
def test_properties_have_a_clients_shape_and_are_unique(codec: str, properties: str, pattern: str, batch: int):
    """Goal: index and tag work is real. Method: every message's properties against a pattern; no UNIQ_KEY twice."""
    with FakeBroker() as broker:
        arguments = ("--codec", codec, "--count", 70, "--properties", properties, "--batch", batch, "--queues", 3)
        result = run(
            "send", "--broker", broker.address, "--topic", "P", "--connections", 2, "--window", 4, *arguments
        ).result
    assert result["acknowledged"] == 70
    found = [stored.properties for stored in broker.messages("P")]
    assert len(found) == 70
    assert all(re.fullmatch(pattern, text) for text in found), found[0]
    code = SEND_MESSAGE_V2 if batch == 1 else SEND_BATCH_MESSAGE
    outer = [request.fields["i"] for request in sent(broker, code)] if batch > 1 else []
    keys = [key for text in [*found, *outer] for key in UNIQ_KEY.findall(text)]
    assert len(keys) == (0 if properties == "none" else 70 + len(outer))
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("size", [24, 25, 128, 1024, 70_001])
@pytest.mark.parametrize("batch", [1, 5])
def test_bodies_say_who_sent_them_and_which_they_are(size: int, batch: int):
    """Goal: a receiver can account for every message. Method: stamps of all bodies: one sender, all numbers."""
    before_ns = time.monotonic_ns()
    with FakeBroker() as broker:
        arguments = ("--body-size", size, "--count", 20, "--batch", batch, "--sender-id", 77)
        run("send", "--broker", broker.address, "--topic", "B", *arguments)
    bodies = [stored.body for stored in broker.messages("B")]
    stamps = [STAMP.unpack_from(body) for body in bodies]
    assert {len(body) for body in bodies} == {size}
    assert {(magic, sender) for magic, sender, _, _ in stamps} == {(b"PyLd", 77)}
    assert sorted(sequence for _, _, sequence, _ in stamps) == list(range(20))
    assert all(before_ns < intended < time.monotonic_ns() for _, _, _, intended in stamps)
    assert {body[STAMP.size :] for body in bodies} == {bodies[0][STAMP.size :]}


def test_a_body_without_room_for_its_stamp_is_refused():
    """Goal: a clear sentence, not a broken message. Method: one byte less than the stamp."""
    ended = run("send", "--broker", "127.0.0.1:1", "--topic", "B", "--body-size", 23)
    assert ended.status == 2
    assert "--body-size" in ended.err


@pytest.mark.parametrize("codec", CODECS)
def test_pulls_are_those_of_a_push_consumer(codec: str):
    """Goal: the broker serves pulls as it would a client's. Method: flags, offsets and the heartbeat before them."""
    with FakeBroker() as broker:
        common = ("--broker", broker.address, "--topic", "T", "--codec", codec, "--queues", 2)
        run("send", *common, "--count", 100)
        run("pull", *common, "--group", "readers")
    pulls = [request.fields for request in broker.requests if request.code == 11]
    assert [pull["queueOffset"] for pull in pulls] == ["0", "32", "0", "32"]
    assert [pull["sysFlag"] for pull in pulls] == ["2", "3", "2", "3"]
    assert {pull["maxMsgNums"] for pull in pulls} == {"32"}
    consumer = broker.heartbeats[0]["consumerDataSet"][0]
    assert consumer["groupName"] == "readers"
    assert consumer["subscriptionDataSet"][0]["topic"] == "T"
