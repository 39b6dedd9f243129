"""Pulls by SQL92 on both data planes: the same bytes, whatever the expression and the messages."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path

import pytest

from pymq.remoting.codes import RequestCode, SerializeType
from pymq.remoting.command import Command
from tests.broker.sides import EXPRESSION, offsets_in
from tests.broker.test_admin import create_topic
from tests.broker.wire import Wire, send_fields
from tests.filter.table import rows
from tests.interop.clients.servers import pymq_broker, pymq_name_server

ROUNDS = int(os.environ.get("PYMQ_CONTRACT_SQL_ROUNDS", "60"))
SEED = int(os.environ.get("PYMQ_CONTRACT_SEED", "1"))
HEADER_AT = 8  # behind the frame's size and the header's


class RawWire(Wire):
    """Keeps the header bytes of what was received last."""

    header = b""

    def receive(self) -> Command:
        """The next frame, its header kept with the number masked."""
        size = self._exactly(4)
        frame = size + self._exactly(struct.unpack(">I", size)[0])
        command = Command.decode(frame)
        (mark,) = struct.unpack_from(">I", frame, 4)
        header = frame[HEADER_AT : HEADER_AT + (mark & 0xFFFFFF)]
        if mark >> 24 == SerializeType.JSON:
            self.header = header.replace(b'"opaque":%d' % command.opaque, b'"opaque":N')
        else:
            self.header = header[:5] + header[9:]
        return command


def heartbeat(wire: Wire, group: str, topic: str, expression: str, version: int) -> None:
    """Subscribe by SQL92."""
    subscription = {"topic": topic, "subString": expression, "subVersion": version, "expressionType": "SQL92"}
    group_data = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [subscription],
    }
    body = json.dumps({"clientID": f"{group}@c", "consumerDataSet": [group_data]}).encode()
    assert wire.call(RequestCode.HEART_BEAT, body=body).code == 0


def pull(wire: RawWire, fields: dict[str, str], serialize_type: SerializeType) -> tuple[bytes, list[int]]:
    """A pull's answer: header bytes, and the offsets of its messages."""
    command = Command(RequestCode.PULL_MESSAGE, fields, serialize_type=serialize_type)
    answer = wire.wait(wire.post(command))
    return wire.header, offsets_in(answer.body)


@pytest.mark.timeout(600)
def test_sql_pulls_are_answered_alike(tmp_path: Path) -> None:
    """Goal: one meaning on both planes. Method: expressions and messages of Apache's table, pulled in pieces."""
    chance = random.Random(SEED)
    table = rows()
    settings = {"enablePropertyFilter": "true"}
    compared = found = 0
    with (
        pymq_name_server(tmp_path / "ns") as namesrv,
        pymq_broker(tmp_path / "n", namesrv, name="same", settings={"dataPlane": "native"} | settings) as native,
        pymq_name_server(tmp_path / "ns2") as other,
        pymq_broker(tmp_path / "p", other, name="same", settings={"dataPlane": "python"} | settings) as python,
        RawWire(int(native.rpartition(":")[2])) as fast,
        RawWire(int(python.rpartition(":")[2])) as slow,
    ):
        for number in range(ROUNDS):
            topic, group = f"Sql{number}", f"SqlGroup{number}"
            row = chance.choice(table)
            messages = [message for other_row in chance.sample(table, 3) for message in other_row["messages"][:8]]
            messages += row["messages"][:20]
            messages = [item for item in messages if all("\0" not in value for value in item.values())]
            for wire in (fast, slow):
                create_topic(wire, topic)
                heartbeat(wire, group, topic, row["expression"], 1)
                for properties in messages:
                    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
                    assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, 0, text), b"body").code == 0
                end = {"topic": topic, "queueId": "0"}
                while int(wire.call(RequestCode.GET_MAX_OFFSET, end).fields["offset"]) < len(messages):
                    pass
            for _ in range(6):
                own = {"subscription": row["expression"], "sysFlag": str(EXPRESSION)} if chance.random() < 0.3 else {}
                fields = {
                    "consumerGroup": group, "topic": topic, "queueId": "0",
                    "maxMsgNums": str(chance.choice([1, 3, 32])),
                    "queueOffset": str(chance.randrange(len(messages) + 1)), "sysFlag": "0", "commitOffset": "0",
                    "suspendTimeoutMillis": "0", "subVersion": str(chance.choice([1, 1, 1, 2])),
                    "expressionType": "SQL92", **own,
                }  # fmt: skip
                kind = chance.choice([SerializeType.JSON, SerializeType.ROCKETMQ])
                ours, theirs = pull(fast, dict(fields), kind), pull(slow, dict(fields), kind)
                assert ours == theirs, (row["expression"], fields)
                compared += 1
                found += bool(ours[1])
    print(f"contract: {compared} pulls by SQL92, {found} with messages")
    assert compared == ROUNDS * 6
    assert found > ROUNDS // 4
