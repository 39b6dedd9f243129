"""Where a group begins that has no offset, by either policy, on both planes."""

from __future__ import annotations

import time

import pytest

import pymq
from pymq.remoting.codes import RequestCode
from tests.broker.sides import Side, heartbeat
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire

NOT_FOUND = 22


@pytest.fixture(
    params=[("native", "asked"), ("python", "asked"), ("native", "rocketmq"), ("python", "rocketmq")], ids=str
)
def side(request, tmp_path):
    """A topic of two queues with history in both, and a group that has never been here."""
    plane, policy = request.param
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        data_plane=plane,
        new_group_offset_policy=policy,
        store=SMALL,
    )
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        create_topic(wire, "t", queues=2)
        made = Side(broker, wire, "g", "t")
        made.send(3, 0)
        made.send(3, 1)
        heartbeat(wire, "g", "t")
        yield made


def asked(side):
    """Whether the policy is asked."""
    return side.broker.config.new_group_offset_policy == "asked"


def begin(side, queue_id=0, group="g", **more):
    """What the broker says: an offset, or None for the client to choose."""
    fields = {"consumerGroup": group, "topic": "t", "queueId": str(queue_id), **more}
    answer = side.wire.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    assert answer.code in (0, NOT_FOUND)
    return int(answer.fields["offset"]) if answer.code == 0 else None


def commit(side, queue_id, offset):
    """The group commits."""
    fields = {"consumerGroup": "g", "topic": "t", "queueId": str(queue_id), "commitOffset": str(offset)}
    assert side.wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0


def test_new_group_gets_history_by_rocketmq_s_rule_and_what_it_asked_for_by_ours(side):
    """CFW-9 and CFW-11: the first message is in memory; a new group begins at 0, or chooses for itself."""
    for queue_id in (0, 1):
        assert begin(side, queue_id) == (None if asked(side) else 0)
    assert begin(side, setZeroIfNotFound="false") is None
    commit(side, 0, 2)
    assert begin(side, 0) == 2


def test_queue_that_came_after_the_group_begins_at_its_first_message(side):
    """CFW-10: what was sent to a new queue before its consumers saw it is not skipped, by either policy."""
    begin(side, 0)
    commit(side, 0, 3)
    time.sleep(0.01)  # the group is older than the queue by the clock's least step
    create_topic(side.wire, "t", queues=3)
    side.send(2, 2)
    assert begin(side, 2) == 0


def test_queue_that_was_there_before_stays_history_when_another_is_committed(side):
    """Two members start: one has committed its queue when the other asks for the second. That one is not new."""
    begin(side, 0)
    commit(side, 0, 3)
    assert begin(side, 1) == (None if asked(side) else 0)


def test_group_with_offsets_from_elsewhere_was_always_known(side):
    """Offsets of another broker's file: every queue without one is new to the group."""
    side.broker.serve.offset_commit("old", "t", 0, 1)
    assert begin(side, 1, "old") == 0


def test_empty_queue_is_left_to_the_client(side):
    """Empty queue is left to the client."""
    create_topic(side.wire, "t", queues=3)
    assert begin(side, 2) is None


def test_deleted_group_is_new_again(side):
    """Deleted group is new again."""
    begin(side, 0)
    commit(side, 0, 3)
    time.sleep(0.01)
    create_topic(side.wire, "t", queues=3)
    side.send(1, 2)
    side.wire.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"})
    heartbeat(side.wire, "g", "t")
    assert begin(side, 2) == (None if asked(side) else 0)


def test_since_when_a_group_is_known_survives_a_restart(tmp_path):
    """A group asks, the broker restarts, a queue is added: still newer than the group."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        new_group_offset_policy="asked",
        store=SMALL,
    )
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        create_topic(wire, "t", queues=2)
        one = Side(broker, wire, "g", "t")
        one.send(1, 0)
        one.send(1, 1)
        heartbeat(wire, "g", "t")
        assert begin(one, 0) is None
        commit(one, 0, 1)
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        two = Side(broker, wire, "g", "t")
        create_topic(wire, "t", queues=3)
        two.send(1, 2)
        assert begin(two, 1) is None
        assert begin(two, 2) == 0
