"""Messages that are stored elsewhere than they were sent to: both planes answer and store the same bytes.

Random sequences seldom ask for a delay in all of its spellings, so they are spelled out here.
"""

from __future__ import annotations

import re

import pytest

import pymq
from pymq.remoting.codes import RequestCode, SerializeType
from pymq.remoting.command import Command
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


def stored(broker):
    """Everything in the log, what differs between two runs masked."""
    assert broker.store.wait_dispatched(5000)
    return {
        (topic, queue_id): [
            (message.body, MADE_KEY.sub(b"KEY", message.raw_properties), message.sys_flag, message.flag)
            for message in broker.store.read(topic, queue_id, low, 1000)
        ]
        for topic, queue_id, low, _ in broker.store.queues()
        if topic in (SCHEDULE, "Waiting")
    }


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
                command = Command(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number, serialize_type=serialize_type)
                answer = wire.wait(wire.post(command))
                fields = {
                    name: value for name, value in answer.fields.items() if name not in ("msgId", "transactionId")
                }
                mine.append((answer.code, answer.remark, list(fields.items())))
            answers.append(mine)
        contents.append(stored(broker))
    assert answers[0] == answers[1]
    assert contents[0] == contents[1]
    assert {code for code, _, _ in answers[0]} > {0}
    assert len(contents[0][(SCHEDULE, 17)]) >= 3


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
