"""Members of a group that do not agree: found at heartbeats, said loudly but not for ever, shown to programs."""

from __future__ import annotations

import json
import logging

import pytest

from pymq.remoting.codes import RequestCode
from pymq.remoting.json_dialect import loads
from tests.broker.fakes import FakeBroker
from tests.broker.sides import until
from tests.broker.test_clients import channel, consumer, join, tags
from tests.broker.wire import Wire

DIFFERENT, DUPLICATE = "subscribe differently", "share a client id"


@pytest.fixture
def broker(tmp_path):
    """A broker with fakes around it, loaded."""
    return FakeBroker(tmp_path).load()


def reports(caplog, words):
    """What was warned of since the last look."""
    found = [record.message for record in caplog.records if words in record.message]
    assert all(record.levelno == logging.WARNING for record in caplog.records if words in record.message)
    caplog.clear()
    return found


def test_members_that_subscribe_differently_are_reported_with_both_shown(broker, caplog):
    """Goal: the commonest mistake is visible. Method: two members with other tags, beating on; one line, both shown."""
    join(broker, 1, consumer(tags("TagA", 5)))
    assert not reports(caplog, DIFFERENT)
    for version in range(6, 12):
        join(broker, 2, consumer(tags("TagB", version)))
        join(broker, 1, consumer(tags("TagA", version)))
        broker.clock.advance(1)
    (line,) = reports(caplog, DIFFERENT)
    for words in ("group=g", "client1=client-1", "t='TagA'", "client2=client-2", "t='TagB'", "messages will be missed"):
        assert words in line


def test_disagreement_is_said_again_when_it_changes_and_every_ten_minutes(broker, caplog):
    """Goal: neither silence nor a flood. Method: other tags at once, after ten seconds, and no change for long."""
    join(broker, 1, consumer(tags("TagA", 5)))
    join(broker, 2, consumer(tags("TagB", 6)))
    assert len(reports(caplog, DIFFERENT)) == 1
    join(broker, 2, consumer(tags("TagC", 7)))
    assert not reports(caplog, DIFFERENT)  # too soon: said at a heartbeat after ten seconds
    broker.clock.advance(10)
    join(broker, 1, consumer(tags("TagA", 8)))
    (line,) = reports(caplog, DIFFERENT)
    assert "TagC" in line
    assert "TagB" not in line
    for _ in range(19):
        broker.clock.advance(30)
        join(broker, 1, consumer(tags("TagA", 8)))
    assert not reports(caplog, DIFFERENT)
    broker.clock.advance(30)
    join(broker, 1, consumer(tags("TagA", 8)))
    assert len(reports(caplog, DIFFERENT)) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (consumer(tags("A || B")), consumer(tags("B||A", 9))),
        (consumer(tags("*")), consumer(tags("*", 7))),
        (consumer(tags("*"), tags("*", topic="%RETRY%g")), consumer(tags("*"))),
    ],
    ids=["tags in another order", "another version", "with and without its retry topic"],
)
def test_members_that_mean_the_same_are_left_alone(broker, caplog, first, second):
    """Goal: no false alarm. Method: heartbeats that differ in what does not matter."""
    join(broker, 1, first)
    join(broker, 2, second)
    assert not reports(caplog, DIFFERENT)
    assert broker.clients.consistency.findings("g") == ()


@pytest.mark.parametrize(
    "second",
    [
        consumer(tags("*"), tags("*", topic="other")),
        consumer(tags("*"), message_model="BROADCASTING"),
        consumer(),
    ],
    ids=["one topic more", "broadcasting", "nothing"],
)
def test_other_topics_and_other_models_are_disagreements_too(broker, caplog, second):
    """Goal: every way to lose messages. Method: heartbeats that differ in more than tags."""
    join(broker, 1, consumer(tags("*")))
    join(broker, 2, second)
    assert len(reports(caplog, DIFFERENT)) == 1


def test_one_member_changing_its_mind_is_no_disagreement(broker, caplog):
    """Goal: no false alarm. Method: one member, another expression."""
    join(broker, 1, consumer(tags("TagA", 5)))
    join(broker, 1, consumer(tags("TagB", 6)))
    assert not reports(caplog, DIFFERENT)


def test_disagreement_ends_with_the_member_that_differs(broker, caplog):
    """Goal: what is shown is true now. Method: the odd one leaves, by word and by its connection's end."""
    caplog.set_level(logging.INFO)
    join(broker, 1, consumer(tags("TagA", 5)))
    for leave in (
        lambda: broker.clients.unregister_consumer("g", 2, notify=True),
        lambda: broker.clients.connection_closed(2),
    ):
        join(broker, 2, consumer(tags("TagB", 6)))
        assert [finding.kind for finding in broker.clients.consistency.findings("g")] == ["subscriptions"]
        leave()
        assert broker.clients.consistency.findings("g") == ()
        assert any("agree again group=g" in record.message for record in caplog.records)
        caplog.clear()
        broker.clock.advance(10)


def test_short_heartbeat_changes_nothing(broker, caplog):
    """Goal: version 2 of heartbeats. Method: a member that leaves out what it said before."""
    join(broker, 1, consumer(tags("TagA", 5)))
    join(broker, 2, consumer(tags("TagA", 5)))
    join(broker, 2, consumer(), subscriptions_too=False)
    assert not reports(caplog, DIFFERENT)


def test_client_id_of_two_connections_is_reported(broker, caplog):
    """Goal: clients that get the same queues are noticed. Method: one id on two connections, then on one again."""
    join(broker, 1)
    broker.clients.register_consumer(
        channel(broker, 2, "client-1"), consumer(tags("*")), notify=True, subscriptions_too=True
    )
    (line,) = reports(caplog, DUPLICATE)
    assert "group=g client=client-1 connections=[1.2.3.4:5, 1.2.3.4:5]" in line
    broker.clients.connection_closed(1)
    assert broker.clients.consistency.findings("g") == ()


def beat(wire, group, client_id, topic, expression, version=1):
    """A heartbeat over the wire."""
    subscription = {"topic": topic, "subString": expression, "tagsSet": [expression], "subVersion": version}
    body = {"clientID": client_id, "consumerDataSet": [{"groupName": group, "subscriptionDataSet": [subscription]}]}
    assert wire.call(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == 0


def test_program_reads_who_disagrees_about_what(side):
    """Goal: a console can show it. Method: two clients; consumer connections and runtime info, before and after."""
    wire, group = side.wire, f"{side.group}_two"
    with Wire(side.broker.config.listen_port) as other:
        beat(wire, group, "one", side.topic, "red")
        beat(other, group, "two", side.topic, "blue", 2)
        answer = loads(wire.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}).body)
        (found,) = answer["inconsistencies"]
        assert found["kind"] == "subscriptions"
        assert [(member["clientId"], member["subscriptions"]) for member in found["members"]] == [
            ("one", {side.topic: "red"}),
            ("two", {side.topic: "blue"}),
        ]
        table = loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        assert table["pymq.groups_inconsistent"] == "1"
        assert "client1=one" in table[f"pymq.group_inconsistency.{group}"]
    until(lambda: side.broker.clients.consumer_group(group).client_ids() == ["one"])
    answer = loads(wire.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}).body)
    assert "inconsistencies" not in answer


@pytest.mark.parametrize(
    ("name", "value"),
    [("subVersion", "1e999"), ("subVersion", "9" * 20), ("codeSet", "[1e999]"), ("codeSet", "[4294967296]")],
)
def test_heartbeat_with_a_number_java_cannot_hold_is_refused_by_name(side, name, value):
    """Goal: no traceback a request. Method: numbers that are infinite or too large; the field is named."""
    subscription = f'{{"topic":"t","{name}":{value}}}'
    body = f'{{"clientID":"c","consumerDataSet":[{{"groupName":"odd","subscriptionDataSet":[{subscription}]}}]}}'
    answer = side.wire.call(RequestCode.HEART_BEAT, body=body.encode())
    assert answer.code == 1
    assert name in answer.remark
    assert side.broker.server.handler_failures == 0
    assert side.broker.clients.consumer_group("odd") is None
