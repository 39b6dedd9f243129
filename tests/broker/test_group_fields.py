"""Every field of a subscription group: what it does, or that it is kept, where 5.5.0's broker does nothing with it."""

from __future__ import annotations

import json

import pytest

from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.json_dialect import loads
from tests.broker.sides import heartbeat, until
from tests.broker.test_admin import create_topic
from tests.broker.wire import Wire, send_fields


def update(side, **fields):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP of the side's group."""
    body = json.dumps({"groupName": side.group, **fields}).encode()
    answer = side.wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def beat(wire, group, topic, client_id="other", model="CLUSTERING"):
    """Become a member."""
    consumer = {
        "groupName": group,
        "messageModel": model,
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
    }
    body = json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()
    assert wire.call(RequestCode.HEART_BEAT, body=body).code == ResponseCode.SUCCESS


def test_consume_enable_refuses_pulls_and_lets_them_again(side):
    """consumeEnable."""
    side.send(1)
    update(side, consumeEnable=False)
    refused = side.ask()
    assert (refused.code, refused.fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "2"})
    update(side, consumeEnable=True)
    assert side.ask().code == ResponseCode.SUCCESS


def test_consume_broadcast_enable_refuses_members_that_broadcast_and_no_others(side):
    """consumeBroadcastEnable, BCAST-9."""
    side.send(1)
    update(side, consumeBroadcastEnable=False)
    assert side.ask().code == ResponseCode.SUCCESS
    beat(side.wire, side.group, side.topic, f"{side.group}-client", "BROADCASTING")
    refused = side.ask()
    assert (refused.code, refused.fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "4"})
    assert refused.remark == f"the consumer group[{side.group}] can not consume by broadcast way"
    update(side, consumeBroadcastEnable=True)
    assert side.ask().code == ResponseCode.SUCCESS


def test_every_member_that_broadcasts_gets_every_message(side):
    """BCAST-1, BCAST-3, BCAST-7: two members pull the same queue; the broker keeps no offset of theirs."""
    side.send(4)
    group = f"{side.group}_all"
    with Wire(side.broker.config.listen_port) as other:
        for wire, client_id in ((side.wire, "one"), (other, "two")):
            beat(wire, group, side.topic, client_id, "BROADCASTING")
            answer = wire.call(RequestCode.PULL_MESSAGE, side.pull(0) | {"consumerGroup": group})
            assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "4")
        told = [command for command in side.wire.pushed if command.fields.get("consumerGroup") == group]
        assert not told  # to rebalance: there is nothing to divide
        assert side.broker.serve.offset_query(group, side.topic, 0) is None


def test_retry_queue_nums_are_the_queues_of_the_retry_topic(side):
    """retryQueueNums."""
    group = f"{side.group}_3"
    body = json.dumps({"groupName": group, "retryQueueNums": 3}).encode()
    side.wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    heartbeat(side.wire, group, side.topic)
    made = side.broker.topics.get(f"%RETRY%{group}")
    assert (made.read_queue_nums, made.write_queue_nums) == (3, 3)


def test_retry_max_times_decide_between_retry_and_dead_letter(side):
    """retryMaxTimes."""
    update(side, retryMaxTimes=2)
    for times, topic in ((2, f"%RETRY%{side.group}"), (3, f"%DLQ%{side.group}")):
        fields = send_fields(f"%RETRY%{side.group}", 0, j=str(times))
        assert side.wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"again").code == ResponseCode.SUCCESS
        until(lambda name=topic: side.broker.store.queue_range(name, 0, settle=False)[1] == 1)


def test_broker_ids_and_sys_flag_are_said_in_every_pull(side):
    """brokerId and groupSysFlag; whichBrokerWhenConsumeSlowly is published beside them."""
    side.send(1)
    update(side, brokerId=3, whichBrokerWhenConsumeSlowly=5, groupSysFlag=9)
    assert (side.ask().fields["suggestWhichBrokerId"], side.ask().fields["groupSysFlag"]) == ("0", "9")
    change = b"slaveReadEnable=true\n"
    assert side.wire.call(RequestCode.UPDATE_BROKER_CONFIG, body=change).code == ResponseCode.SUCCESS
    try:
        assert side.ask().fields["suggestWhichBrokerId"] == "3"
    finally:
        side.wire.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"slaveReadEnable=false\n")


@pytest.mark.parametrize("enabled", [True, False])
def test_notify_consumer_ids_changed_enable_tells_members_or_does_not(side, enabled):
    """notifyConsumerIdsChangedEnable, BRK-24."""
    update(side, notifyConsumerIdsChangedEnable=enabled)
    side.wire.pushed.clear()
    with Wire(side.broker.config.listen_port) as other:
        beat(other, side.group, side.topic)
        side.maximum()  # an answer behind whatever was pushed
    told = [command for command in side.wire.pushed if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert bool(told) is enabled


def test_what_5_5_0_s_broker_only_keeps_is_kept(side):
    """consumeFromMinEnable, consumeMessageOrderly, consumeTimeoutMinute, groupRetryPolicy, subscriptionDataSet,
    attributes: given back as they came, over the administrators' way and in the file."""
    retries = {"initial": 5, "max": 9, "multiplier": 2}
    fields = {
        "consumeFromMinEnable": False,
        "consumeMessageOrderly": True,
        "consumeTimeoutMinute": 7,
        "groupRetryPolicy": {
            "type": "EXPONENTIAL",
            "exponentialRetryPolicy": retries,
        },
        "subscriptionDataSet": [{"topic": side.topic, "expressionType": "TAG", "expression": "a || b", "version": 3}],
    }
    update(side, **fields, attributes={"+priority.factor": "50"})
    shown = loads(side.wire.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": side.group}).body)
    assert {name: shown[name] for name in fields} == fields
    assert shown["attributes"] == {"priority.factor": "50"}
    stored = json.loads((side.broker.config_directory / "subscriptionGroup.json").read_text())
    assert {name: stored["subscriptionGroupTable"][side.group][name] for name in fields} == fields


def test_topic_made_for_another_group_is_not_changed(side):
    """A group's fields are its own: the other group of a topic pulls as before."""
    create_topic(side.wire, side.topic)
    side.send(1)
    heartbeat(side.wire, f"{side.group}_b", side.topic)
    update(side, consumeEnable=False)
    answer = side.wire.call(RequestCode.PULL_MESSAGE, side.pull() | {"consumerGroup": f"{side.group}_b"})
    assert answer.code == ResponseCode.SUCCESS
