"""Pulls on both data planes: what is found, what is refused and in which words, and how a held pull ends."""

from __future__ import annotations

import json
import threading

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import COMMIT, EXPRESSION, FAQ, SUSPEND, Side, heartbeat, offsets_in, told
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire

# ---- what is found -----------------------------------------------------------------------------------------------


def test_messages_are_found_and_the_plane_is_the_one_asked_for(side):
    """Messages are found and the plane is the one asked for."""
    side.send(5)
    answer = side.ask(2)
    assert told(answer) == (0, "FOUND", "5", "0", "5")
    assert offsets_in(answer.body) == [2, 3, 4]
    native, python = side.served_by(int(RequestCode.PULL_MESSAGE))
    assert (native if side.broker.config.data_plane == "native" else python) > 0


def test_offsets_outside_the_queue(side):
    """Offsets outside the queue."""
    assert told(side.ask(0)) == (19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")
    assert told(side.ask(3)) == (21, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")
    side.send(2)
    assert told(side.ask(2)) == (19, "OFFSET_OVERFLOW_ONE", "2", "0", "2")
    assert told(side.ask(9)) == (21, "OFFSET_OVERFLOW_BADLY", "2", "0", "2")
    assert told(side.ask(-1)) == (21, "OFFSET_TOO_SMALL", "0", "0", "2")


def test_lite_pull_brings_its_own_expression(side):
    """Lite pull brings its own expression."""
    side.send(1, tag="red")
    side.send(1, tag="blue")
    answer = side.ask(0, code=RequestCode.LITE_PULL_MESSAGE, sysFlag=EXPRESSION, subscription=" blue || green")
    assert offsets_in(answer.body) == [1]
    nothing = side.ask(0, sysFlag=EXPRESSION, subscription="green")
    assert told(nothing) == (20, "NO_MATCHED_MESSAGE", "2", "0", "2")
    refused = side.ask(0, sysFlag=EXPRESSION, subscription="||")
    assert (refused.code, refused.remark) == (23, "parse the consumer's subscription failed")


def test_offset_riding_on_a_pull_is_committed(side):
    """Offset riding on a pull is committed."""
    side.send(1)
    side.ask(0, sysFlag=COMMIT, commitOffset=1)
    fields = {"consumerGroup": side.group, "topic": side.topic, "queueId": "0"}
    assert side.wire.call(RequestCode.QUERY_CONSUMER_OFFSET, fields).fields == {"offset": "1"}


def test_reset_is_followed_before_commits_count_again(side):
    """Reset is followed before commits count again."""
    side.send(6)
    side.broker.serve.offset_commit(side.group, side.topic, 0, 6)
    side.broker.serve.offset_reset(side.group, side.topic, 0, 2)
    for _ in range(2):
        assert told(side.ask(6, sysFlag=COMMIT, commitOffset=6)) == (21, "OFFSET_RESET", "2", "0", "6")
    update = {"consumerGroup": side.group, "topic": side.topic, "queueId": "0", "commitOffset": "6"}
    ignored = side.wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, update)
    assert (ignored.code, ignored.remark) == (0, "Offset has been previously reset")
    assert offsets_in(side.ask(2).body) == [2, 3, 4, 5]
    assert side.wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, update).remark is None
    assert side.broker.serve.offset_query(side.group, side.topic, 0) == 6


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_refusals_are_worded_as_apache_words_them(side):
    """Refusals are worded as apache words them."""
    peer = side.wire._socket.getsockname()
    cases = [
        ({"topic": "Nowhere"}, 17, f"topic[Nowhere] not exist, apply first please! {FAQ}"),
        ({"queueId": "4"}, 29, f"queueId[4] is illegal, topic:[{side.topic}] topicConfig.readQueueNums:[4] "
                               f"consumer:[/{peer[0]}:{peer[1]}]"),
        ({"subVersion": "2"}, 25, "the consumer's subscription not latest"),
        ({"consumerGroup": "NobodyIsThere"}, 24, f"the consumer's group info not exist{FAQ}"),
        ({"topic": "BenchmarkTest"}, 24, f"the consumer's subscription not exist{FAQ}"),
    ]  # fmt: skip
    for change, code, remark in cases:
        answer = side.wire.call(RequestCode.PULL_MESSAGE, side.pull() | change)
        assert (answer.code, answer.remark) == (code, remark)


def test_disabled_group_is_told_who_forbids_it(side):
    """Disabled group is told who forbids it."""
    group = {"groupName": side.group, "consumeEnable": False}
    side.wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(group).encode())
    answer = side.ask()
    assert (answer.code, answer.fields) == (16, {"forbiddenType": "2"})
    assert answer.remark == f"subscription group no permission, {side.group}"


def test_field_that_is_missing_matters_only_where_it_is_needed(side):
    """Field that is missing matters only where it is needed."""
    fields = side.pull()
    del fields["commitOffset"]  # nothing is committed
    assert side.wire.call(RequestCode.PULL_MESSAGE, fields).code == 19
    del fields["queueId"]
    answer = side.wire.call(RequestCode.PULL_MESSAGE, fields)
    assert (answer.code, answer.remark) == (1, "the custom field <queueId> is null")


# ---- held pulls --------------------------------------------------------------------------------------------------


def test_held_pull_is_answered_by_the_message_it_waits_for(side):
    """Held pull is answered by the message it waits for."""
    number = side.post(0, sysFlag=SUSPEND)
    side.held(1)
    with Wire(side.broker.config.listen_port) as producer:
        sender = Side(side.broker, producer, side.group, side.topic)
        sender.send(1, queue_id=1)  # another queue wakes nobody
        assert side.broker.serve.stats()["holds"] == 1
        sender.send(1)
    answer = side.wire.wait(number)
    assert (told(answer), offsets_in(answer.body)) == ((0, "FOUND", "1", "0", "1"), [0])


def test_held_pull_is_answered_when_its_time_is_up(side):
    """Held pull is answered when its time is up."""
    number = side.post(0, sysFlag=SUSPEND, suspendTimeoutMillis=200)
    assert told(side.wire.wait(number)) == (19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")


def test_held_pull_ends_with_its_topic(side):
    """Held pull ends with its topic."""
    number = side.post(0, sysFlag=SUSPEND)
    side.held(1)
    with Wire(side.broker.config.listen_port) as admin:
        assert admin.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": side.topic}).code == ResponseCode.SUCCESS
    answer = side.wire.wait(number)
    assert (answer.code, answer.remark) == (17, f"topic[{side.topic}] not exist, apply first please! {FAQ}")


def test_held_pull_ends_when_its_group_is_disabled(side):
    """Held pull ends when its group is disabled."""
    number = side.post(0, sysFlag=SUSPEND)
    side.held(1)
    with Wire(side.broker.config.listen_port) as admin:
        group = {"groupName": side.group, "consumeEnable": False}
        admin.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(group).encode())
    assert side.wire.wait(number).code == 16


def test_holds_of_a_connection_that_hung_up_are_dropped(side):
    """Holds of a connection that hung up are dropped."""
    with Wire(side.broker.config.listen_port) as other:
        Side(side.broker, other, side.group, side.topic).post(0, sysFlag=SUSPEND)
        side.held(1)
    side.held(0)
    assert side.broker.serve.stats()["holds_ended_other"] >= 1


def test_topic_made_again_begins_at_0(side):
    """Topic made again begins at 0."""
    side.send(3)
    assert side.wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": side.topic}).code == ResponseCode.SUCCESS
    create_topic(side.wire, side.topic)
    heartbeat(side.wire, side.group, side.topic)
    assert told(side.ask(0)) == (19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")
    side.send(1)
    answer = side.ask(0)
    assert (told(answer), offsets_in(answer.body)) == ((0, "FOUND", "1", "0", "1"), [0])


@pytest.mark.parametrize("plane", ["native", "python"])
def test_shutdown_answers_held_pulls(plane, tmp_path):
    """Shutdown answers held pulls."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="a",
        data_plane=plane,
        store_path_root_dir=str(tmp_path),
        store=SMALL,
    )
    with pymq.Broker(config).running() as broker:
        wire = Wire(broker.config.listen_port)
        create_topic(wire, "T")
        heartbeat(wire, "G", "T")
        side = Side(broker, wire, "G", "T")
        number = side.post(0, sysFlag=SUSPEND)
        side.held(1)
        answers = []
        reader = threading.Thread(target=lambda: answers.append(wire.wait(number)))
        reader.start()
    reader.join(20)
    wire.close()
    # An error, so that clients wait and come back on a new connection; 19 would have them pull on the dying one.
    assert [told(answer) for answer in answers] == [(1, "the broker is stopping", "0", "0", "0")]
