"""Heartbeats and their kin as requests: what is answered, what is made."""

from __future__ import annotations

import asyncio
import json

import pytest

from pymq.broker.processors.client import ClientProcessor
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.remoting.errors import RemotingError
from pymq.remoting.server import Request
from tests.broker.fakes import FakeBroker


@pytest.fixture
def broker(tmp_path):
    """A broker with fakes around it, loaded."""
    broker = FakeBroker(tmp_path).load()
    broker.server.peers = {1: ("192.0.2.5", 4000), 2: ("192.0.2.6", 4000)}
    return broker


def request(code, fields=None, body=b"", connection=1):
    """A request of a client."""
    command = Command(code, dict(fields or {}), body, opaque=7)
    return Request(command, connection, ("192.0.2.5", 4000), 0, 0, b"")


def beat(broker, connection=1, **more):
    """A heartbeat of one consumer and one producer."""
    subscription = {"topic": "t", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
    data = {
        "groupName": "g",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": f"c{connection}", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": [data]} | more
    return asyncio.run(ClientProcessor(broker).heartbeat(beat_request(connection, body)))


def beat_request(connection, body):
    """A heartbeat as it comes."""
    return request(RequestCode.HEART_BEAT, body=json.dumps(body).encode(), connection=connection)


def test_a_heartbeat_makes_group_and_retry_topic_and_keeps_the_client(broker):
    """Goal: a consumer can start. Method: the answer, and every table it touches."""
    answer = beat(broker)
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, 7)
    assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert broker.groups.get("g") is not None
    retry = broker.topics.get("%RETRY%g")
    assert (retry.read_queue_nums, retry.perm) == (1, 6)
    assert broker.clients.consumer_group("g").client_ids() == ["c1"]
    assert [channel.client_id for channel in broker.clients.producers("p")] == ["c1"]


def test_a_heartbeat_of_version_2_is_told_whether_subscriptions_changed(broker):
    """Goal: short heartbeats work. Method: same, other fingerprint; then one without subscriptions."""
    changes = [beat(broker, heartbeatFingerprint=n).fields["IS_SUB_CHANGE"] for n in (5, 5, 6)]
    assert changes == ["false", "false", "true"]
    beat(broker, heartbeatFingerprint=6, withoutSub=True, consumerDataSet=[{"groupName": "g"}])
    assert broker.clients.consumer_group("g").subscription("t") is not None


def test_a_heartbeat_whose_connection_is_gone_leaves_no_member_behind(broker):
    """Goal: no ghost in a group. Method: the connection ends while the disk is waited for."""
    del broker.server.peers[1]
    beat(broker)
    assert broker.clients.consumer_group("g") is None
    assert broker.clients.producers("p") == []


def test_a_group_that_may_not_be_made_is_left_out_silently(tmp_path):
    """Goal: as Apache does. Method: auto-creation off."""
    broker = FakeBroker(tmp_path, auto_create_subscription_group=False).load()
    broker.server.peers = {1: ("192.0.2.5", 4000)}
    assert beat(broker).code == ResponseCode.SUCCESS
    assert broker.clients.consumer_group("g") is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"clientID":1}', b'{"clientID":"c","consumerDataSet":[{}]}'])
def test_a_heartbeat_that_cannot_be_read_is_refused(broker, body):
    """Goal: an answer instead of a traceback. Method: empty, cut, wrong shapes."""
    with pytest.raises(RemotingError, match="heartbeat"):
        asyncio.run(ClientProcessor(broker).heartbeat(request(RequestCode.HEART_BEAT, body=body)))


def test_the_consumer_list_is_the_group_s_clients_or_an_error(broker):
    """Goal: rebalance has its list. Method: nobody, then two."""
    processor = ClientProcessor(broker)
    ask = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    empty = asyncio.run(processor.consumer_list(ask))
    assert (empty.code, empty.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")
    beat(broker, 1)
    beat(broker, 2)
    answer = asyncio.run(processor.consumer_list(ask))
    assert json.loads(answer.body) == {"consumerIdList": ["c1", "c2"]}


def test_unregistering_takes_the_client_out_of_both_tables(broker):
    """Goal: good-byes count. Method: both groups in one request."""
    beat(broker)
    fields = {"clientID": "c1", "producerGroup": "p", "consumerGroup": "g"}
    answer = asyncio.run(ClientProcessor(broker).unregister(request(RequestCode.UNREGISTER_CLIENT, fields)))
    assert answer.code == ResponseCode.SUCCESS
    assert broker.clients.consumer_group("g") is None
    assert broker.clients.producers("p") == []


def test_a_member_that_has_said_good_bye_does_not_come_back_with_a_heartbeat_that_waited_for_the_disk(broker):
    """Goal: requests of one connection count in their order. Method: a new group's heartbeat and the good-bye at once,
    while another connection joins."""
    body = {"clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": [{"groupName": "g"}]}
    bye = request(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "p", "consumerGroup": "g"})

    async def at_once():
        processor = ClientProcessor(broker)
        stays = processor.heartbeat(beat_request(2, body | {"clientID": "stays"}))
        await asyncio.gather(processor.heartbeat(beat_request(1, body)), stays, processor.unregister(bye))

    asyncio.run(at_once())
    assert broker.clients.consumer_group("g").client_ids() == ["stays"]
    assert [channel.client_id for channel in broker.clients.producers("p")] == ["stays"]


def test_a_client_may_leave_without_saying_who_it_is(broker):
    """Its connection says it; Apache does not insist on clientID either."""
    beat(broker)
    left = ClientProcessor(broker).unregister(request(RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "g"}))
    assert asyncio.run(left).code == ResponseCode.SUCCESS
    assert broker.clients.consumer_group("g") is None


def test_unregistering_from_an_unknown_group_makes_it_as_5_5_0_does(broker):
    """Found by comparing random sequences: a later commit of the group is then accepted."""
    fields = {"clientID": "c1", "consumerGroup": "never-seen"}
    asyncio.run(ClientProcessor(broker).unregister(request(RequestCode.UNREGISTER_CLIENT, fields)))
    assert broker.groups.get("never-seen") is not None


@pytest.mark.parametrize(("kind", "refused"), [("TAG", False), (None, False), ("SQL92", True)])
def test_only_filters_that_work_are_promised(broker, kind, refused):
    """Goal: a consumer fails at start, not in silence. Method: tags, nothing and SQL."""
    subscription = {"topic": "t", "subString": "a > 1"} | ({"expressionType": kind} if kind else {})
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription}).encode()
    check = ClientProcessor(broker).check_config(request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
    if refused:
        with pytest.raises(RemotingError, match="SQL92"):
            asyncio.run(check)
    else:
        assert asyncio.run(check).code == ResponseCode.SUCCESS
