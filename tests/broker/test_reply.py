"""Request and reply: a reply goes to the client that asked, and into the reply topic."""

from __future__ import annotations

import json
import threading

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import FLAG_RESPONSE, Command
from tests.broker.sides import until
from tests.broker.test_admin import SMALL
from tests.broker.wire import Wire, send_fields

TOPIC = "DefaultCluster_REPLY_TOPIC"
LZ4_COMPRESSED = 1 | 1 << 8


@pytest.fixture(params=[("ASYNC_FLUSH", True), ("SYNC_FLUSH", True), ("ASYNC_FLUSH", False)], ids=str)
def broker(request, tmp_path):
    """A broker that stores replies, or does not, with and without waiting for the disk."""
    flush, stores = request.param
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        store_reply_message_enable=stores,
        store=SMALL.replace(flush_disk_type=flush),
    )
    with pymq.Broker(config).running() as running:
        yield running


@pytest.fixture
def asker(broker):
    """Who asked: a producer that has said so."""
    with Wire(broker.config.listen_port) as connected:
        beat(connected, "asker")
        yield connected


def beat(wire, client_id, *groups):
    """Be a producer."""
    body = {"clientID": client_id, "producerDataSet": [{"groupName": group} for group in groups or ("askers",)]}
    assert wire.call(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == 0


def properties(client_id="asker"):
    """What RocketMQ's createReplyMessage sets."""
    to = f"REPLY_TO_CLIENT\x01{client_id}\x02" if client_id else ""
    return f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01c-1\x02{to}TTL\x013000\x02"


def reply(wire, client_id="asker", body=b"answer", **more):
    """Post a reply; its number."""
    fields = send_fields(TOPIC, 0, properties(client_id), **more)
    return wire.post(Command(RequestCode.SEND_REPLY_MESSAGE_V2, fields, body))


def take(asker, code=ResponseCode.SUCCESS):
    """The asker receives what is pushed and answers it."""
    pushed = asker.receive()
    answer = Command(code, {}, opaque=pushed.opaque)
    answer.flag |= FLAG_RESPONSE
    asker._socket.sendall(answer.encode())
    return pushed


def stored(broker):
    """What is in the reply topic."""
    return broker.store.read(TOPIC, 0, 0, 32) if broker.config.store_reply_message_enable else []


def test_reply_reaches_the_client_that_asked(broker, wire, asker):
    """Reply reaches the client that asked, and the replier is told where it was stored."""
    number = reply(wire, f=str(LZ4_COMPRESSED), h="7")
    pushed = take(asker)
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    assert not pushed.is_oneway
    fields = pushed.fields
    assert fields["properties"].startswith(properties())
    assert "PUSH_REPLY_TIME\x01" in fields["properties"]
    assert (fields["topic"], fields["sysFlag"], fields["flag"]) == (TOPIC, str(LZ4_COMPRESSED), "7")
    host, port = wire._socket.getsockname()
    assert (fields["bornHost"], fields["storeHost"]) == (f"{host}:{port}", broker.config.store.store_host)
    answer = wire.wait(number)
    assert (answer.code, answer.remark) == (0, None)
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "0")
    assert answer.fields["MSG_REGION"] == "DefaultRegion"
    if broker.config.store_reply_message_enable:
        (message,) = stored(broker)
        assert int(answer.fields["msgId"][-16:], 16) == message.physical_offset
        assert (message.body, message.sys_flag & 0x701) == (b"answer", LZ4_COMPRESSED)
        assert message.properties["CORRELATION_ID"] == "c-1"
        assert "PUSH_REPLY_TIME" not in message.properties
    else:
        assert answer.fields["msgId"] == "0"


def test_reply_to_a_client_that_is_gone_is_an_error_and_is_kept(broker, wire):
    """Reply to a client that is gone is an error and is kept."""
    with Wire(broker.config.listen_port) as gone:
        beat(gone, "asker")
    until(lambda: broker.clients.find_producer("asker") is None)
    answer = wire.wait(reply(wire))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message fail, channel of <asker> not found."
    assert len(stored(broker)) == int(broker.config.store_reply_message_enable)
    assert ("msgId" in answer.fields) == broker.config.store_reply_message_enable


def test_reply_that_names_nobody_is_an_error(wire):
    """Reply that names nobody is an error."""
    answer = wire.wait(reply(wire, client_id=""))
    assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")


def test_asker_that_says_no_or_hangs_up_is_an_error(wire, broker):
    """Asker that says no, or hangs up before it answers, is an error."""
    with Wire(broker.config.listen_port) as asker:
        beat(asker, "asker")
        number = reply(wire)
        take(asker, ResponseCode.SYSTEM_ERROR)
        assert wire.wait(number).remark == "push reply message to askerfail."
        number = reply(wire)
        asker.receive()
    assert wire.wait(number).remark == "push reply message to askerfail."


def test_long_names_and_a_topic_that_is_made(broker, wire, asker):
    """Long names (324), and a reply topic that is made by its first reply."""
    fields = {
        "producerGroup": "p", "topic": "OtherReplies", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "-1", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": properties(),
    }  # fmt: skip
    number = wire.post(Command(RequestCode.SEND_REPLY_MESSAGE, fields, b"answer"))
    assert take(asker).fields["topic"] == "OtherReplies"
    answer = wire.wait(number)
    assert answer.code == 0
    assert 0 <= int(answer.fields["queueId"]) < 4
    assert broker.topics.get("OtherReplies") is not None
    del fields["flag"]
    refused = wire.call(RequestCode.SEND_REPLY_MESSAGE, fields, b"answer")
    assert (refused.code, refused.remark) == (1, "the custom field <flag> is null")


def test_reply_that_says_it_is_a_half_message_is_a_reply(broker, wire, asker):
    """Reply with TRAN_MSG and no unique key: once a KeyError in the log; it is passed on and stored as a reply."""
    fields = send_fields(TOPIC, 0, properties() + "TRAN_MSG\x01true\x02PGROUP\x01p\x02")
    number = wire.post(Command(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"answer"))
    take(asker)
    assert wire.wait(number).code == 0
    assert len(stored(broker)) == int(broker.config.store_reply_message_enable)
    assert broker.server.handler_failures == 0


def test_refused_topic_is_not_passed_on(wire, asker):
    """Refused topic is not passed on: nothing arrives at the asker."""
    fields = send_fields("SCHEDULE_TOPIC_XXXX", 0, properties())
    answer = wire.call(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"x")
    assert answer.code == ResponseCode.NO_PERMISSION
    beat(asker, "asker")  # its answer is the next thing that comes
    assert not asker.pushed


def test_client_in_two_groups_that_leaves_one_still_gets_replies(broker, wire, asker):
    """Client in two groups that leaves one still gets replies; Apache's broker forgets it until its next heartbeat."""
    beat(asker, "asker", "askers", "others")
    asker.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "asker", "producerGroup": "others"})
    number = reply(wire)
    take(asker)
    assert wire.wait(number).code == 0
    asker.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "asker", "producerGroup": "askers"})
    assert broker.clients.find_producer("asker") is None


def test_reply_goes_to_the_newest_connection_of_a_client(broker, wire, asker):
    """Reply goes to the newest connection of a client that came back before the broker saw its old one end."""
    with Wire(broker.config.listen_port) as again:
        beat(again, "asker")
        number = reply(wire)
        taken = []
        thread = threading.Thread(target=lambda: taken.append(take(again)))
        thread.start()
        assert wire.wait(number).code == 0
        thread.join()
        assert taken[0].body == b"answer"
