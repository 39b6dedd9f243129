"""A topic grows and shrinks while it is sent to and consumed: no acknowledged message is lost, none is out of order.

The procedure for shrinking, as docs/operations.md has it: fewer write queues first, then wait until producers have
looked at the route again and what is left in the others is consumed, then as many read queues.
"""

from __future__ import annotations

import json
import random
import struct
import threading
import time

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import Side, heartbeat, until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire, send_fields

SEED = 5
BODY_AT = 84  # in a record with addresses of IPv4: the body's size, then the body


def numbers(records):
    """(queue, number) of every record: bodies are numbers."""
    at = 0
    while at < len(records):
        (size,) = struct.unpack_from(">i", records, at)
        (body_size,) = struct.unpack_from(">i", records, at + BODY_AT)
        yield int(records[at + BODY_AT + 4 : at + BODY_AT + 4 + body_size])
        at += size


class Producer(threading.Thread):
    """Sends numbers to the queues a route names, which may be older than the topic; remembers what was acknowledged."""

    def __init__(self, broker, number):
        super().__init__()
        self.broker, self.chance = broker, random.Random(SEED + number)
        self.number, self.acknowledged, self.looks, self.stop = number, [], 0, threading.Event()
        self.failure = None

    def run(self):
        """Until told to stop; a send to a queue that is gone is repeated after a look at the route."""
        try:
            with Wire(self.broker.config.listen_port) as wire:
                queues, count = self.broker.topics.get("t").write_queue_nums, 0
                while not self.stop.is_set():
                    value = self.number * 1_000_000 + count
                    fields = send_fields("t", self.chance.randrange(queues))
                    answer = wire.call(RequestCode.SEND_MESSAGE_V2, fields, str(value).encode())
                    if answer.code == ResponseCode.SUCCESS:
                        self.acknowledged.append((int(answer.fields["queueId"]), value))
                        count += 1
                    else:
                        assert answer.code == ResponseCode.INVALID_PARAMETER, answer  # and is sent again elsewhere
                    if count % 16 == 0 or answer.code:
                        queues = self.broker.topics.get("t").write_queue_nums
                        self.looks += 1
        except (AssertionError, OSError, EOFError) as failure:
            self.failure = failure


class Consumer(threading.Thread):
    """Pulls every queue the topic can be read from, as one member of a group does that has them all."""

    def __init__(self, broker):
        super().__init__()
        self.broker, self.stop, self.failure = broker, threading.Event(), None
        self.offsets, self.found = {}, {}

    def run(self):
        """Until told to stop."""
        try:
            with Wire(self.broker.config.listen_port) as wire:
                heartbeat(wire, "g", "t")
                while not self.stop.is_set():
                    for queue_id in range(self.broker.topics.get("t").read_queue_nums):
                        self.pull(wire, queue_id)
        except (AssertionError, OSError, EOFError) as failure:
            self.failure = failure

    def pull(self, wire, queue_id):
        """One pull; what is found counts, and where to go on."""
        fields = {
            "consumerGroup": "g", "topic": "t", "queueId": str(queue_id), "maxMsgNums": "32", "sysFlag": "0",
            "queueOffset": str(self.offsets.get(queue_id, 0)), "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subVersion": "1", "expressionType": "TAG",
        }  # fmt: skip
        answer = wire.call(RequestCode.PULL_MESSAGE, fields)
        if answer.code == ResponseCode.INVALID_PARAMETER:
            return  # the queue has gone between the look and the pull
        assert answer.code in (0, 19, 20, 21), answer
        self.offsets[queue_id] = int(answer.fields["nextBeginOffset"])
        if answer.code == ResponseCode.SUCCESS:
            self.found.setdefault(queue_id, []).extend(numbers(answer.body))
            commit = {"consumerGroup": "g", "topic": "t", "queueId": str(queue_id)}
            wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": str(self.offsets[queue_id])})


def resize(wire, read, write):
    """updateTopic -r -w."""
    answer = create_topic(wire, "t", readQueueNums=str(read), writeQueueNums=str(write))
    assert answer.code == ResponseCode.SUCCESS, answer


def backlog(broker, wire, queue_ids):
    """Messages in these queues that the group has not committed, as administrators see it."""
    behind = 0
    for queue_id in queue_ids:
        end = int(wire.call(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": str(queue_id)}).fields["offset"])
        behind += end - (broker.serve.offset_query("g", "t", queue_id) or 0)
    return behind


@pytest.mark.parametrize("plane", ["native", "python"])
def test_topic_grows_and_shrinks_under_load_and_nothing_is_lost(tmp_path, plane):
    """Four queues become eight, then two, then six, while three producers send and a group consumes."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        data_plane=plane,
        broker_fast_failure_enable=False,
        store=SMALL,
    )
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        create_topic(wire, "t", queues=4)
        producers = [Producer(broker, number) for number in range(3)]
        consumer = Consumer(broker)
        for thread in (*producers, consumer):
            thread.start()
        time.sleep(0.3)
        for before, after in ((4, 8), (8, 2), (2, 6)):
            if after > before:
                resize(wire, after, before)  # readers first, so that nothing is written that nobody reads
                resize(wire, after, after)
            else:
                resize(wire, before, after)
                for producer in producers:
                    until(lambda one=producer, seen=producer.looks: one.looks > seen + 1)
                until(lambda after=after, before=before: backlog(broker, wire, range(after, before)) == 0)
                resize(wire, after, after)
            time.sleep(0.3)
        for producer in producers:
            producer.stop.set()
            producer.join()
        acknowledged = [pair for producer in producers for pair in producer.acknowledged]
        until(lambda: sum(map(len, consumer.found.values())) >= len(acknowledged))
        consumer.stop.set()
        consumer.join()
    assert [thread.failure for thread in (*producers, consumer)] == [None] * 4
    assert sorted((queue, value) for queue, values in consumer.found.items() for value in values) == sorted(
        acknowledged
    )
    assert {queue for queue, _ in acknowledged} == set(range(8))
    for values in consumer.found.values():  # of each producer, in each queue, in the order it sent them
        for number in range(3):
            own = [value for value in values if value // 1_000_000 == number]
            assert own == sorted(own)


def test_send_to_a_queue_that_is_only_read_from_is_taken(side):
    """BRK-4: while a topic shrinks, a producer with an older route may send to a queue that is still read."""
    fields = {"readQueueNums": "4", "writeQueueNums": "2"}
    create_topic(side.wire, side.topic, **fields)
    taken = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(side.topic, 3), b"late")
    assert taken.code == ResponseCode.SUCCESS
    refused = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(side.topic, 4), b"lost")
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "request queueId[4] is illegal" in refused.remark
    until(lambda: side.maximum(3) == 1)
    assert side.ask(0, 3).code == ResponseCode.SUCCESS


def test_topic_of_one_queue_keeps_the_order_of_everything(side):
    """ORD-2: one producer, one queue, pulled in the order it was sent, also behind a rebalance."""
    create_topic(side.wire, side.topic, queues=1)
    for number in range(50):
        answer = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(side.topic, 0), str(number).encode())
        assert (answer.code, answer.fields["queueOffset"]) == (0, str(number))
    until(lambda: side.maximum() == 50)
    found = list(numbers(side.ask(0).body)) + list(numbers(side.ask(32).body))
    assert found == list(range(50))
    body = json.dumps({"consumerGroup": side.group, "clientId": "a", "mqSet": [{"topic": side.topic, "queueId": 0}]})
    assert side.wire.call(RequestCode.LOCK_BATCH_MQ, body=body.encode()).code == 0


def test_what_waits_for_a_queue_that_lost_its_readers_is_read_when_it_has_them_again(tmp_path, caplog):
    """Goal: shrinking hides a delayed message and says so, but loses none. Method: as docs/operations.md has it."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        store=SMALL.replace(message_delay_level="1s"),
    )
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        create_topic(wire, "t", 8)
        heartbeat(wire, "g", "t")
        assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 7, "DELAY\x011\x02"), b"7").code == 0
        create_topic(wire, "t", 4)
        assert "queues without readers topic=t from=4 to=7" in caplog.text
        ask = {"topic": "t", "queueId": "7"}
        until(lambda: wire.call(RequestCode.GET_MAX_OFFSET, ask).fields["offset"] == "1")
        pull = Side(broker, wire, "g", "t")
        assert pull.ask(0, 7).code == ResponseCode.INVALID_PARAMETER
        create_topic(wire, "t", 8)
        answer = pull.ask(0, 7)
        assert (answer.code, list(numbers(answer.body))) == (ResponseCode.SUCCESS, [7])
