"""Messages that are stored elsewhere than they were sent to: both planes answer and store the same bytes.

Random sequences seldom ask for a delay in all of its spellings, so they are spelled out here.
"""

from __future__ import annotations

import re

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode, SerializeType
from pymq.remoting.command import Command
from tests.broker.sides import heartbeat
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire, send_fields

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
KEY = "UNIQ_KEY\x01" + "0123456789ABCDEF" * 2 + "\x02"
MADE_KEY = re.compile(rb"[0-9A-F]{32}")
PROPERTIES = [
    KEY + "DELAY\x011\x02",
    "DELAY\x0118\x02" + KEY + "own\x01value",
    "before\x01x\x02DELAY\x013\x02after\x01y\x02",
    KEY + "DELAY\x0119\x02",
    KEY + "DELAY\x0199\x02after\x01y\x02",
    KEY + "DELAY\x01100000\x02",
    KEY + "DELAY\x010\x02",
    KEY + "DELAY\x01-1\x02",
    KEY + "DELAY\x01+2\x02",
    KEY + "DELAY\x0102\x02",
    KEY + "DELAY\x01x\x02",
    KEY + "DELAY\x01\x02",
    KEY + "DELAY\x015\x02DELAY\x016\x02",
    KEY + "DELAY\x015\x02REAL_TOPIC\x01Mine\x02",
    KEY + "REAL_QID\x0199\x02DELAY\x015\x02",
    KEY + "REAL_QID\x0199\x02",
    KEY + "DELAY\x015\x02TIMER_DELAY_SEC\x0130\x02",
    KEY + "DELAY\x015\x02CLUSTER\x01mine\x02WAIT\x01false\x02",
    KEY + "DELAY\x017\x02big\x01" + "v" * 32_500 + "\x02",
    KEY + "DELAY\x017\x02big\x01" + "v" * 32_690 + "\x02",
]

HALF = KEY + "TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
HALVES = [
    HALF,
    "TRAN_MSG\x01TRUE\x02PGROUP\x01producers\x02own\x01value",
    HALF + "TAGS\x01a\x02WAIT\x01false\x02",
    HALF + "DELAY\x012\x02",
    HALF + "DELAY\x010\x02",
    HALF + "__transactionId__\x01mine\x02",
    HALF + "REAL_TOPIC\x01Mine\x02",
    HALF + "TRAN_PREPARED_QUEUE_OFFSET\x010\x02",
    HALF + "TRANSACTION_CHECK_TIMES\x013\x02",
    HALF + "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02",
    HALF + "big\x01" + "v" * 32_000 + "\x02",
    HALF + "big\x01" + "v" * 32_300 + "\x02",
    KEY + "TRAN_MSG\x01true\x02",
    KEY + "TRAN_MSG\x01false\x02PGROUP\x01producers\x02",
]
COMMIT, ROLLBACK = 8, 12
OP_TOPIC, HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """One broker on each plane."""
    configs = [
        pymq.BrokerConfig(
            listen_port=0,
            namesrv_listen_port=0,
            store_path_root_dir=str(tmp_path_factory.mktemp(plane)),
            data_plane=plane,
            store=SMALL,
        )
        for plane in ("native", "python")
    ]
    with pymq.Broker(configs[0]).running() as native, pymq.Broker(configs[1]).running() as python:
        yield native, python


def stored(broker, topics, body):
    """Messages of *topics* whose bodies begin with *body*, what differs between two runs masked."""
    assert broker.store.wait_dispatched(5000)
    found = {}
    for topic, queue_id, low, _ in broker.store.queues():
        for message in broker.store.read(topic, queue_id, low, 1000) if topic in topics else ():
            if message.body.startswith(body):
                known = (
                    message.body,
                    MADE_KEY.sub(b"KEY", message.raw_properties),
                    message.sys_flag,
                    message.flag,
                    message.reconsume_times,
                    message.prepared_transaction_offset > 0,
                )
                found.setdefault((topic, queue_id), []).append(known)
    return found


@pytest.mark.parametrize("serialize_type", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_delayed_sends_answer_and_store_the_same_bytes(brokers, serialize_type):
    """Goal: whichever plane takes it, a delayed message is the same. Method: every spelling of a delay, to both."""
    answers, contents = [], []
    for broker in brokers:
        with Wire(broker.config.listen_port) as wire:
            create_topic(wire, "Waiting")
            mine = []
            for number, properties in enumerate(PROPERTIES):
                fields = send_fields("Waiting", number % 4, properties)
                command = Command(
                    RequestCode.SEND_MESSAGE_V2, fields, b"wait %d" % number, serialize_type=serialize_type
                )
                answer = wire.wait(wire.post(command))
                fields = {
                    name: value for name, value in answer.fields.items() if name not in ("msgId", "transactionId")
                }
                mine.append((answer.code, answer.remark, list(fields.items())))
            answers.append(mine)
        contents.append(stored(broker, (SCHEDULE, "Waiting"), b"wait"))
    assert answers[0] == answers[1]
    assert contents[0] == contents[1]
    assert {code for code, _, _ in answers[0]} > {0}
    assert len(contents[0][(SCHEDULE, 17)]) >= 3


def test_timed_sends_without_room_are_answered_the_same(brokers):
    """Goal: what is too long for a timer is so on both planes. Method: sizes around the limit, and beyond."""
    answers = []
    for broker in brokers:
        with Wire(broker.config.listen_port) as wire:
            create_topic(wire, "Waiting")
            mine = []
            for size in (31_000, 32_100, 32_150, 32_200, 32_300, 32_700, 40_000):
                properties = KEY + f"TIMER_DELAY_SEC\x013600\x02big\x01{'v' * size}\x02"
                answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Waiting", 0, properties), b"timed")
                mine.append((answer.code, answer.remark))
            answers.append(mine)
    assert answers[0] == answers[1]
    assert {code for code, _ in answers[0]} == {ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL}


def handed_over(broker, code):
    """How many requests of *code* reached Python."""
    return sum(
        count.count for count in broker.server.transport.code_counts() if count.code == code and count.reason >= 0
    )


def test_usual_delays_are_served_natively(brokers):
    """Goal: they do not need Python. Method: the counter of what was handed over stands still."""
    native = brokers[0]
    with Wire(native.config.listen_port) as wire:
        create_topic(wire, "Waiting")
        before = handed_over(native, RequestCode.SEND_MESSAGE_V2)
        for level in range(1, 19):
            answer = wire.call(
                RequestCode.SEND_MESSAGE_V2, send_fields("Waiting", 0, f"{KEY}DELAY\x01{level}\x02"), b"x"
            )
            assert answer.code == 0
        assert handed_over(native, RequestCode.SEND_MESSAGE_V2) == before


def end_fields(half, how, **more):
    """Fields of END_TRANSACTION for the answer to a half message."""
    return {
        "producerGroup": "producers",
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": str(int(half.fields["msgId"][-16:], 16)),
        "commitOrRollback": str(how),
        "fromTransactionCheck": "false",
        "msgId": half.fields["transactionId"],
        "transactionId": half.fields["transactionId"],
    } | more


def play_transactions(broker):
    """Every kind of half, its end, its end again and otherwise; all answers."""
    answers = []
    with Wire(broker.config.listen_port) as wire:
        create_topic(wire, "Promised")
        for number, properties in enumerate(HALVES * 2):
            fields = send_fields("Promised", number % 4, properties, f="4")
            half = wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"half %d" % number)
            answers.append((half.code, half.remark, half.fields.get("queueId"), half.fields.get("queueOffset")))
            if half.code != 0 or "TRAN_MSG\x01false" in properties:
                continue
            how, other = (COMMIT, ROLLBACK) if number % 3 else (ROLLBACK, COMMIT)
            wrong = [
                end_fields(half, how, producerGroup="others"),
                end_fields(half, how, tranStateTableOffset="77777"),
                end_fields(half, how, transactionId="another"),
                end_fields(half, how, commitLogOffset="7"),
            ]
            right = [end_fields(half, how), end_fields(half, how), end_fields(half, other)]
            for fields in wrong + right:
                answer = wire.call(RequestCode.END_TRANSACTION, fields)
                answers.append((answer.code, answer.remark, list(answer.fields.items())))
    return answers


def test_transactions_answer_and_store_the_same_bytes(brokers):
    """Goal: whichever plane ends it, a transaction is the same. Method: every kind of half, in all ways."""
    answers, contents = [], []
    for broker in brokers:
        answers.append(play_transactions(broker))
        contents.append(stored(broker, (SCHEDULE, "Promised", HALF_TOPIC), b"half"))
    assert answers[0] == answers[1]
    assert contents[0] == contents[1]
    assert sum(len(messages) for (topic, _), messages in contents[0].items() if topic == "Promised") > len(HALVES) / 2


def test_usual_transactions_are_served_natively(brokers):
    """Goal: the oneway end that Java's producers send needs no Python, and is known there when it is asked about."""
    native = brokers[0]
    codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION)
    with Wire(native.config.listen_port) as wire:
        create_topic(wire, "Promised")
        before = [handed_over(native, code) for code in codes]
        halves = []
        for number in range(20):
            half = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Promised", 0, HALF, f="4"), b"x")
            how = COMMIT if number % 2 else ROLLBACK
            wire.oneway(Command(RequestCode.END_TRANSACTION, end_fields(half, how)))
            halves.append(half)
        assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Promised", 0, KEY), b"behind").code == 0
        assert [handed_over(native, code) for code in codes] == before
        again = [wire.call(RequestCode.END_TRANSACTION, end_fields(half, COMMIT)) for half in halves]
    assert [answer.code for answer in again] == [1, 0] * 10


def test_messages_sent_back_are_answered_and_stored_the_same(brokers):
    """Goal: a retry is the same from both planes. Method: back by every level, often, and too often."""
    answers, contents = [], []
    for broker in brokers:
        mine = []
        with Wire(broker.config.listen_port) as wire:
            create_topic(wire, "Hard")
            heartbeat(wire, "workers", "Hard")
            sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Hard", 1, KEY + "TAGS\x01a\x02"), b"back")
            place = int(sent.fields["msgId"][-16:], 16)
            fields = {"offset": str(place), "group": "workers", "delayLevel": "0", "originTopic": "Hard"}
            cases = [{"delayLevel": str(level)} for level in (0, 1, 3, 18, 19, 1000, -1, "x")]
            cases += [{"maxReconsumeTimes": "0"}, {"maxReconsumeTimes": "1"}, {"group": "nobody"}, {"offset": "3"}]
            for case in cases:
                answer = wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields | case)
                mine.append((answer.code, answer.remark, list(answer.fields.items())))
        answers.append(mine)
        contents.append(stored(broker, (SCHEDULE, "%DLQ%workers"), b"back"))
    assert answers[0] == answers[1]
    assert contents[0] == contents[1]
    assert len(contents[0]["%DLQ%workers", 0]) == 2


def test_usual_retries_are_served_natively(brokers):
    """Goal: a message that comes back needs no Python."""
    native = brokers[0]
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    with Wire(native.config.listen_port) as wire:
        create_topic(wire, "Hard")
        heartbeat(wire, "workers", "Hard")
        sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Hard", 1, KEY), b"work")
        fields = {"offset": str(int(sent.fields["msgId"][-16:], 16)), "group": "workers", "delayLevel": "0"}
        before, counted = handed_over(native, code), native.serve.stats()["sent_back"]
        assert {wire.call(code, fields).code for _ in range(20)} == {0}
        assert handed_over(native, code) == before
        assert native.serve.stats()["sent_back"] == counted + 20
