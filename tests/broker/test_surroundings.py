"""A broker among others: order configuration by the name server, a name server that hangs, IPv6, and permissions that
change while pulls are held."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.json_dialect import loads
from tests.broker.sides import SUSPEND, Side, heartbeat, offsets_in, until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire, send_fields

HANG_S_MAX = 10.0  # a first send while a name server hangs; clients give up after 3 s by default, 5 times


def config(directory, **more):
    """A broker's configuration."""
    given = {"listen_port": 0, "namesrv_listen_port": 0, "store_path_root_dir": str(directory), "store": SMALL} | more
    return pymq.BrokerConfig(**given)


def test_order_configuration_reaches_route_and_broker(tmp_path):
    """ORD-2: updateOrderConf at the name server; the route names it, and the broker's topic becomes an ordered one."""
    with (
        pymq.Broker(config(tmp_path, broker_name="a", register_name_server_period=10_000)).running() as broker,
        Wire(broker.config.listen_port) as wire,
        Wire(broker.name_server.port) as names,
    ):
        create_topic(wire, "t", queues=1)
        put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:1"}
        assert names.call(RequestCode.PUT_KV_CONFIG, put).code == ResponseCode.SUCCESS
        route = {"topic": "t"}
        assert "orderTopicConf" not in json.loads(names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).body)
        update = names.call(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
        assert update.code == ResponseCode.SUCCESS
        found = loads(names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).body)
        assert found["orderTopicConf"] == "a:1"
        assert [(queue["readQueueNums"], queue["writeQueueNums"]) for queue in found["queueDatas"]] == [(1, 1)]
        create_topic(wire, "u")  # registers, and the answer tells the broker which topics are ordered
        until(lambda: broker.topics.get("t").order)
        assert not broker.topics.get("u").order
        for number in range(3):
            sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 0), b"x")
            assert (sent.code, sent.fields["queueOffset"]) == (0, str(number))


def test_first_send_while_a_name_server_hangs_is_acknowledged_in_time_and_kept(tmp_path):
    """The one name server accepts connections and never answers: the topic is made, the message stored."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taken = []
        stop = threading.Event()

        def accept():
            silent.settimeout(0.1)
            while not stop.is_set():
                try:
                    taken.append(silent.accept()[0])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = {"namesrv_addr": address, "broker_ip1": "127.0.0.1", "bind_address": "127.0.0.1"}
        with (
            pymq.Broker(config(tmp_path, register_broker_timeout_mills=1000, **settings)).running() as broker,
            Wire(broker.config.listen_port) as wire,
        ):
            begin_s = time.monotonic()
            answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Fresh", 0), b"first")
            assert answer.code == ResponseCode.SUCCESS
            assert time.monotonic() - begin_s < HANG_S_MAX
            begin_s = time.monotonic()
            assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("Fresh", 0), b"second").code == 0
            assert time.monotonic() - begin_s < 1.0
            until(lambda: len(broker.store.read("Fresh", 0, 0, 2)) == 2)
        stop.set()
        thread.join()
        assert taken, "the broker never asked the name server: the test does not test"
        for connection in taken:
            connection.close()


@pytest.mark.parametrize("plane", ["native", "python"])
def test_everything_over_ipv6(tmp_path, plane):
    """Send, pull, view, route and reply to a question, all over ::1; ids and records carry 16-byte addresses."""
    with (
        pymq.Broker(config(tmp_path, bind_address="::1", data_plane=plane)).running() as broker,
        Wire(broker.config.listen_port, "::1") as wire,
        Wire(broker.name_server.port, "::1") as names,
    ):
        create_topic(wire, "t")
        heartbeat(wire, "g", "t")
        side = Side(broker, wire, "g", "t")
        sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("t", 0, "KEYS\x01k\x02"), b"six")
        assert sent.code == ResponseCode.SUCCESS
        message_id = sent.fields["msgId"]
        assert (len(message_id), message_id[:32]) == (56, "0" * 31 + "1")
        until(lambda: side.maximum() == 1)
        found = side.ask(0)
        assert offsets_in(found.body) == [0]
        viewed = wire.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(int(message_id[-16:], 16))})
        assert viewed.body == found.body
        message = broker.store.read("t", 0, 0, 1)[0]
        assert message.body == b"six"
        route = loads(names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}).body)
        addresses = [address for data in route["brokerDatas"] for address in data["brokerAddrs"].values()]
        assert addresses == [f"[::1]:{broker.config.listen_port}"]


@pytest.mark.parametrize("change", ["topic", "broker", "group"])
def test_permission_taken_away_ends_held_pulls_with_the_reason(side, change):
    """A held pull is answered when it may not be made any more, and not only when its time is over."""
    create_topic(side.wire, side.topic)
    body = json.dumps({"groupName": side.group}).encode()
    side.wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    side.send(1)
    number = side.post(side.maximum(), sysFlag=SUSPEND, suspendTimeoutMillis=60_000)
    side.held(1)
    with Wire(side.broker.config.listen_port) as tool:
        if change == "topic":
            create_topic(tool, side.topic, perm="2")
        elif change == "broker":
            assert tool.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=2\n").code == 0
        else:
            body = json.dumps({"groupName": side.group, "consumeEnable": False}).encode()
            tool.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        try:
            begin_s = time.monotonic()
            answer = side.wire.wait(number)
            assert time.monotonic() - begin_s < 15
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "forbidden" in answer.remark or "no permission" in answer.remark
        finally:
            tool.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")
    side.held(0)
