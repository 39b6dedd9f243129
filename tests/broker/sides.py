"""A broker on each data plane with a client that is a member of a group, for tests of pulls, offsets and queries."""

from __future__ import annotations

import json
import os
import struct
import time
from dataclasses import dataclass

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.json_dialect import loads
from tests.broker.wire import Wire, send_fields

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
COMMIT, SUSPEND, EXPRESSION = 1, 2, 4
QUEUE_OFFSET_AT = 20  # in a record


def age_log(broker):
    """Write the whole log out, and make its files look as if nothing had been written to them for days."""
    broker.store.flush()
    assert broker.store.wait_dispatched(10_000)
    then = time.time() - 100 * 3600
    for path in (broker.store_path / "commitlog").iterdir():
        os.utime(path, (then, then))


@dataclass
class Side:
    """A broker on one data plane, and a client of it that is a member of its group."""

    broker: pymq.Broker
    wire: Wire
    group: str
    topic: str

    def pull(self, offset=0, queue_id=0, **more):
        """The fields of a pull."""
        return {
            "consumerGroup": self.group, "topic": self.topic, "queueId": str(queue_id), "queueOffset": str(offset),
            "maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "15000",
            "subVersion": "1", "expressionType": "TAG", **{name: str(value) for name, value in more.items()},
        }  # fmt: skip

    def ask(self, offset=0, queue_id=0, code=RequestCode.PULL_MESSAGE, **more):
        """A pull's answer."""
        return self.wire.call(code, self.pull(offset, queue_id, **more))

    def post(self, offset=0, queue_id=0, **more):
        """A pull whose answer comes later; its number."""
        return self.wire.post(Command(RequestCode.PULL_MESSAGE, self.pull(offset, queue_id, **more)))

    def send(self, count=1, queue_id=0, tag=None):
        """Messages, visible on return."""
        properties = f"TAGS\x01{tag}\x02" if tag else ""
        for _ in range(count):
            answer = self.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(self.topic, queue_id, properties), b"body")
            assert answer.code == ResponseCode.SUCCESS, answer
        wanted = int(answer.fields["queueOffset"]) + 1
        until(lambda: self.maximum(queue_id) >= wanted)

    def maximum(self, queue_id=0):
        """The queue's end."""
        fields = {"topic": self.topic, "queueId": str(queue_id)}
        return int(self.wire.call(RequestCode.GET_MAX_OFFSET, fields).fields["offset"])

    def held(self, count):
        """Wait until so many pulls are held."""
        until(lambda: self.broker.serve.stats()["holds"] == count)

    def served_by(self, code):
        """(native, python) counts of a code."""
        table = loads(self.wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        native = sum(int(value) for name, value in table.items() if name == f"pymq.served.{code}.native")
        python = sum(int(value) for name, value in table.items() if name.startswith(f"pymq.served.{code}.python"))
        return native, python


def until(condition, timeout_s=20.0, saw=lambda: "never came to hold"):
    """Wait for what must come to hold; *saw* says how things are instead when it never does."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, saw()
        time.sleep(0.005)


def heartbeat(wire, group, topic, expression="*", tags=()):
    """Become a member that subscribes."""
    subscription = {"topic": topic, "subString": expression, "tagsSet": list(tags), "subVersion": 1}
    body = {
        "clientID": f"{group}-client",
        "consumerDataSet": [
            {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
             "subscriptionDataSet": [subscription]}
        ],
    }  # fmt: skip
    assert wire.call(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == ResponseCode.SUCCESS


def offsets_in(body):
    """Queue offsets of the records in a pull's body."""
    found = []
    at = 0
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        found.append(struct.unpack_from(">q", body, at + QUEUE_OFFSET_AT)[0])
        at += size
    return found


def told(answer):
    """Code, remark, and the three offsets."""
    fields = answer.fields
    return answer.code, answer.remark, fields["nextBeginOffset"], fields["minOffset"], fields["maxOffset"]
