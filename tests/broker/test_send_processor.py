"""Sends to a broker, natively and the Python way: order, special messages, refusals, waiting for the disk."""

from __future__ import annotations

import json
import struct
import threading

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode, SerializeType
from pymq.remoting.command import FLAG_ONEWAY, Command
from tests.broker.test_admin import SMALL
from tests.broker.wire import Wire, send_fields

PLANES = ("native", "python")
ADDED = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
KEY = "UNIQ_KEY\x01" + "0123456789ABCDEF" * 2 + "\x02"


def run(directory, plane, **more):
    """A running broker on *plane*; `store` settings may be given as store=…."""
    return pymq.Broker(
        pymq.BrokerConfig(
            listen_port=0,
            namesrv_listen_port=0,
            store_path_root_dir=str(directory),
            data_plane=plane,
            broker_fast_failure_enable=False,  # a slow machine is not what is tested
            **({"store": SMALL} | more),
        )
    ).running()


@pytest.fixture(scope="module", params=PLANES)
def broker(request, tmp_path_factory):
    """One broker for each plane."""
    with run(tmp_path_factory.mktemp(request.param), request.param) as running:
        yield running


def send(wire, topic, body=b"body", queue_id=0, properties="", code=RequestCode.SEND_MESSAGE_V2, **more):
    """One send and its answer."""
    return wire.call(code, send_fields(topic, queue_id, properties, **more), body)


def stored(broker, topic, queue_id, offset):
    """A message as it is in the store."""
    (message,) = broker.store.read(topic, queue_id, offset, 1)
    return message


def batch_of(*messages, properties=b""):
    """A batch's body."""
    return b"".join(
        struct.pack(">iiiii", 0, 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
        for body in messages
    )


# ---- order -----------------------------------------------------------------------------------------------------------


def test_pipelined_first_sends_of_a_topic_keep_their_order(broker, wire):
    """The first waits for the topic's creation, later ones must not overtake it: not in Python, not natively."""
    opaques = [
        wire.post(Command(RequestCode.SEND_MESSAGE_V2, send_fields("FirstSends", 0), str(number).encode()))
        for number in range(600)
    ]
    answers = {}
    while len(answers) < len(opaques):
        answer = wire.receive()
        answers[answer.opaque] = answer
    assert {answer.code for answer in answers.values()} == {ResponseCode.SUCCESS}
    offsets = [int(answers[opaque].fields["queueOffset"]) for opaque in opaques]
    assert offsets == list(range(600))
    bodies = [stored(broker, "FirstSends", 0, offset).body for offset in (0, 1, 2, 299, 598, 599)]
    assert bodies == [b"0", b"1", b"2", b"299", b"598", b"599"]


def test_special_messages_between_ordinary_ones_keep_their_place(broker, wire):
    """A message with a priority goes through Python; those behind it wait for it."""
    assert send(wire, "Mixed").code == ResponseCode.SUCCESS
    special = "_SYS_MSG_PRIORITY_\x010\x02"
    commands = [
        Command(
            RequestCode.SEND_MESSAGE_V2, send_fields("Mixed", 0, special if number % 5 == 0 else ""), b"%d" % number
        )
        for number in range(300)
    ]
    opaques = [wire.post(command) for command in commands]
    answers = {}
    while len(answers) < len(opaques):
        answer = wire.receive()
        answers[answer.opaque] = answer
    offsets = [int(answers[opaque].fields["queueOffset"]) for opaque in opaques]
    assert offsets == list(range(1, 301))


def test_sends_only_python_can_read_are_not_overtaken(broker, wire):
    """Half a surrogate pair in a property: the native parser leaves such a header to Python's."""
    assert send(wire, "Unreadable", b"first").code == ResponseCode.SUCCESS
    opaques = list(range(1001, 1121))
    frames = b""
    for number, opaque in enumerate(opaques):
        fields = send_fields("Unreadable", 0, "half\x01\ud83d\x02" if number % 3 == 2 else "")
        header = json.dumps({"code": 310, "extFields": fields, "opaque": opaque, "version": 513}).encode()
        frames += struct.pack(">II", 4 + len(header) + 4, len(header)) + header + b"body"
    wire._socket.sendall(frames)
    answers = {}
    while len(answers) < len(opaques):
        answer = wire.receive()
        answers[answer.opaque] = answer
    assert {answer.code for answer in answers.values()} == {ResponseCode.SUCCESS}
    assert [int(answers[opaque].fields["queueOffset"]) for opaque in opaques] == list(range(1, 121))


def test_many_connections_first_send_makes_one_topic(broker):
    """Every one of them is acknowledged, and none is lost."""
    results = []

    def one(number):
        with Wire(broker.config.listen_port) as mine:
            results.append(send(mine, "Shared", b"%d" % number))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.code for answer in results] == [ResponseCode.SUCCESS] * 16
    assert sorted(int(answer.fields["queueOffset"]) for answer in results) == list(range(16))


# ---- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (KEY, KEY + ADDED),
        (KEY + "a\x01b", KEY + "a\x01b\x02" + ADDED),
        ("CLUSTER\x01x\x02" + KEY + "POP_CK\x01y\x02broken\x02\x01z\x02n\x01\x02", KEY + ADDED),
        (KEY + "a\x011\x02b\x012\x02a\x013\x02", KEY + "a\x013\x02b\x012\x02" + ADDED),
        (KEY + "straße\x01größe 👍\x02", KEY + "straße\x01größe 👍\x02" + ADDED),
        (KEY + "DELAY\x010\x02", KEY + "DELAY\x010\x02" + ADDED),
        (KEY + "TRAN_MSG\x01false\x02", KEY + "TRAN_MSG\x01false\x02" + ADDED),
    ],
)
def test_properties_are_rewritten(broker, wire, properties, expected):
    """The same on both planes."""
    answer = send(wire, "Rewritten", properties=properties)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    message = stored(broker, "Rewritten", 0, int(answer.fields["queueOffset"]))
    assert message.raw_properties.decode() == expected
    assert answer.fields["transactionId"] == KEY[9:-1]
    assert answer.fields["msgId"] == message.message_id


def test_long_header_names_mean_the_same(broker, wire):
    """SEND_MESSAGE (10), and a batch said by its field, not by its code."""
    letters = send_fields("LongNames", 1, KEY)
    names = [
        "producerGroup",
        "topic",
        "defaultTopic",
        "defaultTopicQueueNums",
        "queueId",
        "sysFlag",
        "bornTimestamp",
        "flag",
        "properties",
        "reconsumeTimes",
        "unitMode",
        "maxReconsumeTimes",
        "batch",
    ]
    fields = {names[ord(letter) - ord("a")]: value for letter, value in letters.items()}
    answer = wire.call(RequestCode.SEND_MESSAGE, fields, b"one")
    assert answer.code == ResponseCode.SUCCESS
    assert stored(broker, "LongNames", 1, 0).body == b"one"
    answer = wire.call(RequestCode.SEND_MESSAGE, fields | {"batch": "true"}, batch_of(b"two", b"three"))
    assert answer.code == ResponseCode.SUCCESS
    assert len(answer.fields["msgId"].split(",")) == 2
    assert stored(broker, "LongNames", 1, 2).body == b"three"
    answer = wire.call(RequestCode.SEND_BATCH_MESSAGE, letters, b"not a batch")
    assert answer.code == ResponseCode.SUCCESS
    assert stored(broker, "LongNames", 1, 3).body == b"not a batch"


def test_a_batch_is_stored_in_one_piece_with_its_own_properties(broker, wire):
    """Compat: nothing is added to the messages of a batch."""
    body = batch_of(*(b"%d" % number for number in range(40)), properties=b"TAGS\x01t")
    answer = send(wire, "Batches", body, 2, KEY, RequestCode.SEND_BATCH_MESSAGE, m="true")
    assert answer.code == ResponseCode.SUCCESS
    ids = answer.fields["msgId"].split(",")
    messages = broker.store.read("Batches", 2, 0, 64)
    assert [message.body for message in messages] == [b"%d" % number for number in range(40)]
    assert [message.message_id for message in messages] == ids
    assert {message.raw_properties for message in messages} == {b"TAGS\x01t\x02"}
    assert answer.fields["transactionId"] == KEY[9:-1]
    assert "transactionId" not in send(wire, "Batches", body, 2, "", RequestCode.SEND_BATCH_MESSAGE, m="true").fields


def test_a_oneway_send_to_a_new_topic_is_stored(broker, wire):
    """And the next one, which is answered, comes behind it."""
    command = Command(RequestCode.SEND_MESSAGE_V2, send_fields("Oneway"), b"silent", flag=FLAG_ONEWAY)
    wire.post(command)
    answer = send(wire, "Oneway", b"loud")
    assert answer.fields["queueOffset"] == "1"
    assert stored(broker, "Oneway", 0, 0).body == b"silent"


@pytest.mark.parametrize("kind", list(SerializeType))
def test_fields_stand_in_apache_s_order(wire, kind):
    """A hash map's in JSON, the header class's in binary."""
    command = Command(RequestCode.SEND_MESSAGE_V2, send_fields("Order", 0, KEY), b"x", serialize_type=kind)
    answer = wire.wait(wire.post(command))
    expected = {
        SerializeType.JSON: ["queueId", "transactionId", "msgId", "TRACE_ON", "MSG_REGION", "queueOffset"],
        SerializeType.ROCKETMQ: ["msgId", "queueId", "queueOffset", "transactionId", "TRACE_ON", "MSG_REGION"],
    }
    assert list(answer.fields) == expected[kind]


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "more", "code", "words"),
    [
        ("no spaces", {}, ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ("T" * 128, {}, ResponseCode.INVALID_PARAMETER, "is longer than topic max length: 127"),
        ("", {}, ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION, "is forbidden."),
        ("NoSuch", {"c": "NoSuchDefault"}, ResponseCode.TOPIC_NOT_EXIST, "not exist, apply first please!"),
        (
            "BenchmarkTest",
            {"e": "5000"},
            ResponseCode.INVALID_PARAMETER,
            "request queueId[5000] is illegal, TopicConfig",
        ),
    ],
)
def test_what_cannot_be_sent_to_is_refused_in_apache_s_words(wire, topic, more, code, words):
    """With the fields every answer to a send has."""
    answer = send(wire, topic, **more)
    assert answer.code == code
    assert words in answer.remark
    assert list(answer.fields) == ["TRACE_ON", "MSG_REGION"]


def test_bodies_too_long_and_missing_are_refused(broker, wire):
    """13 as Apache says it; an empty body is no body."""
    answer = send(wire, "Bodies", b"x" * (broker.config.max_message_size + 1))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"msg body length limit {broker.config.max_message_size}B" in answer.remark
    assert send(wire, "Bodies", b"").code == ResponseCode.SYSTEM_ERROR
    assert send(wire, "Bodies", b"ok").fields["queueOffset"] == "0"


@pytest.mark.parametrize("fields", [{"g": "soon"}, {"e": "9999999999"}, {"b": None}, {"j": "often"}, {"g": None}])
def test_a_header_that_cannot_be_read_is_an_error_and_blocks_nobody(wire, fields):
    """The connection's next send is served."""
    broken = without_nones(send_fields("Headers") | fields)
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, broken, b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert not answer.fields
    assert send(wire, "Headers").code == ResponseCode.SUCCESS


def test_only_what_is_needed_is_insisted_on(wire):
    """Compat: a client that leaves out what Apache's broker never looks at is served."""
    missing = dict.fromkeys("acd")
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, without_nones(send_fields("Lenient") | missing), b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR  # an unknown topic: after which image would it be made?
    assert send(wire, "Lenient").code == ResponseCode.SUCCESS
    for letter in "acdjk":
        answer = wire.call(RequestCode.SEND_MESSAGE_V2, without_nones(send_fields("Lenient") | {letter: None}), b"x")
        assert answer.code == ResponseCode.SUCCESS, letter
    for letter in "fh":
        answer = wire.call(RequestCode.SEND_MESSAGE_V2, without_nones(send_fields("Lenient") | {letter: None}), b"x")
        assert answer.code == ResponseCode.SYSTEM_ERROR, letter
        # the queue is looked at first
        broken = without_nones(send_fields("Lenient", 99) | {letter: None})
        assert wire.call(RequestCode.SEND_MESSAGE_V2, broken, b"x").code == ResponseCode.INVALID_PARAMETER, letter


def test_under_long_names_a_number_that_is_none_is_missing(wire):
    """Compat: they are read one by one, and what cannot be read is passed over."""
    names = {"topic": "LongLenient", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0"}
    fields = names | {"sysFlag": "0", "bornTimestamp": "1", "flag": "0", "producerGroup": "g"}
    assert wire.call(RequestCode.SEND_MESSAGE, fields, b"x").code == ResponseCode.SUCCESS
    assert wire.call(RequestCode.SEND_MESSAGE, fields | {"reconsumeTimes": "x"}, b"x").code == ResponseCode.SUCCESS
    assert wire.call(RequestCode.SEND_MESSAGE, fields | {"sysFlag": "x"}, b"x").code == ResponseCode.SYSTEM_ERROR


def without_nones(fields):
    """The fields that are there."""
    return {name: value for name, value in fields.items() if value is not None}


def test_damaged_batches_are_refused_whole(broker, wire):
    """A length that lies, a body that ends early, nothing but noise."""
    good = batch_of(b"one", b"two")
    assert send(wire, "Damaged").fields["queueOffset"] == "0"
    for body in (good[:-1], b"\xff" * 30, struct.pack(">iiiii", 0, 0, 0, 0, 1 << 30)):
        answer = send(wire, "Damaged", body, code=RequestCode.SEND_BATCH_MESSAGE, m="true")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert send(wire, "Damaged").fields["queueOffset"] == "1"


def test_a_batch_without_a_flag_is_refused_as_a_single_send_is(broker, wire):
    """Compat: Apache stores neither."""
    for code, body in ((RequestCode.SEND_BATCH_MESSAGE, batch_of(b"one")), (RequestCode.SEND_MESSAGE_V2, b"one")):
        fields = {name: value for name, value in send_fields("Flagless").items() if name != "h"}
        batch = {"m": "true"} if code == RequestCode.SEND_BATCH_MESSAGE else {}
        answer = wire.wait(wire.post(Command(code, fields | batch, body)))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the custom field <flag> is null")


def test_retry_topics_take_what_comes_back_and_give_up_in_the_end(broker, wire):
    """After its maximum of deliveries a message goes to the dead letters."""
    retry, dead = "%RETRY%givers", "%DLQ%givers"
    answer = send(wire, retry, j="2", l="3")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert stored(broker, retry, 0, 0).reconsume_times == 2
    answer = send(wire, retry, b"hopeless", j="4", l="3")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    message = stored(broker, dead, 0, int(answer.fields["queueOffset"]))
    assert message.body == b"hopeless"
    assert message.properties["DELAY"] == "-1"
    answer = send(wire, retry, batch_of(b"x"), code=RequestCode.SEND_BATCH_MESSAGE, m="true")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "does not support retry group" in answer.remark


# ---- stores that say no, or make wait --------------------------------------------------------------------------------


@pytest.mark.parametrize("plane", PLANES)
def test_a_full_disk_is_said_and_sends_go_on_once_there_is_room(tmp_path, plane):
    """14, with how full it is; nothing loops, nothing is stored."""
    with run(tmp_path, plane) as broker, Wire(broker.config.listen_port) as wire:
        assert send(wire, "Full").fields["queueOffset"] == "0"
        broker.store.set_writable(False)
        for _ in range(3):
            answer = send(wire, "Full")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "the broker's disk is full [CL: " in answer.remark
            assert list(answer.fields) == ["TRACE_ON", "MSG_REGION"]
        broker.store.set_writable(True)
        assert send(wire, "Full").fields["queueOffset"] == "1"


@pytest.mark.parametrize("plane", PLANES)
def test_sync_flush_sends_are_answered_when_they_are_on_disk(tmp_path, plane):
    """Pipelined, with a new topic among them, and some that do not want to wait."""
    sync = SMALL.replace(flush_disk_type="SYNC_FLUSH")
    with run(tmp_path, plane, store=sync) as broker, Wire(broker.config.listen_port) as wire:
        opaques = []
        for number in range(200):
            properties = "WAIT\x01false\x02" if number % 10 == 0 else ""
            fields = send_fields(f"Sync{number % 2}", 0, properties)
            opaques.append(wire.post(Command(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number)))
        answers = {}
        while len(answers) < len(opaques):
            answer = wire.receive()
            answers[answer.opaque] = answer
        assert {answer.code for answer in answers.values()} == {ResponseCode.SUCCESS}
        offsets = [int(answers[opaque].fields["queueOffset"]) for opaque in opaques]
        assert offsets == [number // 2 for number in range(200)]
        assert broker.serve.stats()["parked"] == 0


@pytest.mark.parametrize("plane", PLANES)
def test_a_replica_that_does_not_come_makes_a_late_answer(tmp_path, plane):
    """12 after the time is over; the message is stored all the same."""
    role = SMALL.replace(broker_role="SYNC_MASTER", sync_flush_timeout_ms=300)
    with run(tmp_path, plane, store=role) as broker, Wire(broker.config.listen_port) as wire:
        assert send(wire, "Late").code == ResponseCode.SUCCESS
        broker.store.set_replica(0, True)
        answer = send(wire, "Late")
        assert answer.code in (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT)
        assert answer.fields["queueOffset"] == "1"
        assert broker.serve.stats()["parked_late"] == 1


def test_ordinary_sends_are_served_natively(tmp_path):
    """All but the first of a topic, also one with a level that means no delay; the first is counted with its reason."""
    with run(tmp_path, "native") as broker, Wire(broker.config.listen_port) as wire:
        for _ in range(50):
            assert send(wire, "Native", properties="TAGS\x01a\x02").code == ResponseCode.SUCCESS
        assert send(wire, "Native", properties="DELAY\x010\x02").code == ResponseCode.SUCCESS
        assert send(wire, "Native").code == ResponseCode.SUCCESS
        counts = {(row.code, row.reason): row.count for row in broker.server.transport.code_counts()}
        assert counts[310, -1] == 51
        assert sum(count for (code, reason), count in counts.items() if code == 310 and reason >= 0) == 1
