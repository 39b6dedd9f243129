"""Resets as administrators make and clients meet them: by time, to an offset, over a restart; how far was pulled."""

from __future__ import annotations

import json

import pytest

import pymq
from pymq.remoting.codes import RequestCode
from pymq.remoting.json_dialect import loads
from tests.broker.sides import COMMIT, Side, heartbeat, offsets_in, told
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire

RESET_BEFORE = "Offset has been previously reset"
FOR_EVER_MS = 2**62


def reset(side, timestamp=-1, **more):
    """INVOKE_BROKER_TO_RESET_OFFSET; the offsets it says, by queue."""
    fields = {"topic": side.topic, "group": side.group, "timestamp": str(timestamp), "isForce": "true", **more}
    answer = side.wire.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    if answer.code != 0:
        return answer.code, answer.remark
    return {json.loads(key)["queueId"]: offset for key, offset in offset_table(answer)}


def offset_table(answer):
    """Pairs of a queue's text and its offset."""
    table = loads(answer.body)["offsetTable"]
    return [(json.dumps(dict(queue)), offset) for queue, offset in table.items()]


def committed(side):
    """The group's offset of queue 0."""
    fields = {"consumerGroup": side.group, "topic": side.topic, "queueId": "0"}
    return int(side.wire.call(RequestCode.QUERY_CONSUMER_OFFSET, fields).fields["offset"])


def commit(side, offset, wire=None):
    """A commit's remark."""
    fields = {"consumerGroup": side.group, "topic": side.topic, "queueId": "0", "commitOffset": str(offset)}
    answer = (wire or side.wire).call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert answer.code == 0
    return answer.remark


def stored_ms(side, offset):
    """When a message of queue 0 was stored."""
    (message,) = side.broker.store.read(side.topic, 0, offset, 1)
    return message.store_timestamp_ms


def test_reset_by_time_goes_to_the_first_message_of_that_time(side):
    """Reset by time goes to the first message of that time, to the start, or to the end."""
    side.send(5)
    assert reset(side, 0) == dict.fromkeys(range(4), 0)
    assert reset(side, -1) == {0: 5, 1: 0, 2: 0, 3: 0}
    assert reset(side, FOR_EVER_MS)[0] == 5
    target = stored_ms(side, 3)
    (found,) = {reset(side, target, queueId="0")[0]}
    assert stored_ms(side, found) == target
    assert found == 0 or stored_ms(side, found - 1) < target
    assert committed(side) == found


def test_reset_to_an_offset_must_lie_in_the_queue(side):
    """Reset to an offset must lie in the queue."""
    side.send(5)
    assert reset(side, queueId="0", offset="2") == {0: 2}
    assert reset(side, queueId="0", offset="9") == (1, "Target offset 9 not in consume queue range [0-5]")
    assert reset(Side(side.broker, side.wire, "Nobody", side.topic)) == (26, "Group Nobody does not exist")
    assert reset(Side(side.broker, side.wire, side.group, "Nowhere"))[0] == 17


def test_commit_on_its_way_loses_against_the_reset_even_after_it_was_followed(side):
    """apache/rocketmq#4206, #9038: the old owner commits after the new one has pulled from where the reset went."""
    side.send(8)
    with Wire(side.broker.config.listen_port) as old:
        heartbeat(old, side.group, side.topic)
        assert old.call(RequestCode.PULL_MESSAGE, side.pull(0)).code == 0
        assert commit(side, 6, old) is None
        reset(side, queueId="0", offset="2")
        assert commit(side, 6, old) == RESET_BEFORE
        assert offsets_in(side.ask(2).body) == [2, 3, 4, 5, 6, 7]  # the queue's new owner
        assert commit(side, 6, old) == RESET_BEFORE
        old.call(RequestCode.PULL_MESSAGE, side.pull(6, sysFlag=COMMIT, commitOffset=7))
        assert committed(side) == 2
        assert commit(side, 4) is None
        assert committed(side) == 4
        assert offsets_in(old.call(RequestCode.PULL_MESSAGE, side.pull(4)).body) == [4, 5, 6, 7]
        assert commit(side, 8, old) is None  # it begins where the group stands: the queue is its own again
    assert committed(side) == 8


def test_lite_pull_client_that_keeps_committing_does_not_undo_a_reset(side):
    """Symptom: a lite pull client that followed a reset back undid it with its next periodic commit."""
    side.send(60)
    assert commit(side, 40) is None
    side.ask(40)  # up to 60, and nobody polls that
    reset(side, queueId="0", offset="5")
    assert commit(side, 40) == RESET_BEFORE
    assert told(side.ask(60))[:3] == (21, "OFFSET_RESET", "5")
    side.ask(5, maxMsgNums=20)
    assert commit(side, 40) == RESET_BEFORE
    side.ask(25, maxMsgNums=20)
    assert commit(side, 40) == RESET_BEFORE  # it has got that far again, and consumed nothing of it
    assert committed(side) == 5
    assert commit(side, 15) is None
    assert commit(side, 40) is None
    side.ask(45, maxMsgNums=15)
    assert commit(side, 60) is None
    assert committed(side) == 60


def test_older_offset_riding_on_the_pull_that_follows_a_reset_is_not_committed(side):
    """Symptom: a pull from where a reset went, with an older commit riding on it, followed the reset and undid it."""
    side.send(20)
    commit(side, 15)
    reset(side, queueId="0", offset="2")
    assert len(offsets_in(side.ask(2, sysFlag=COMMIT, commitOffset=15).body)) == 18
    assert committed(side) == 2
    side.ask(20, sysFlag=COMMIT, commitOffset=7)
    assert committed(side) == 7


def test_skip_to_the_end_is_not_undone_by_what_was_read_before(side):
    """Symptom: a client that stood at the end already followed a skip there, and committed what it had still to do."""
    side.send(20)
    commit(side, 10)
    assert offsets_in(side.ask(10).body)[-1] == 19
    assert reset(side)[0] == 20
    side.ask(20)
    assert commit(side, 12) == RESET_BEFORE
    assert committed(side) == 20
    assert commit(side, 20) is None
    side.send(1)
    side.ask(20)
    assert commit(side, 21) is None


def test_consumer_that_reconnects_after_it_followed_a_reset_commits(side):
    """Symptom: its commits were discarded for two minutes."""
    side.send(40)
    commit(side, 30)
    reset(side, queueId="0", offset="5")
    with Wire(side.broker.config.listen_port) as broken:
        assert broken.call(RequestCode.PULL_MESSAGE, side.pull(5, maxMsgNums=10)).fields["nextBeginOffset"] == "15"
    side.ask(15)
    assert commit(side, 33) is None
    assert committed(side) == 33


@pytest.mark.parametrize("plane", ["native", "python"])
def test_reset_that_nobody_followed_survives_a_restart(tmp_path, plane):
    """A reset answered with success, a kill of everything but the disk, a client that goes on where it was."""
    config = pymq.BrokerConfig(
        listen_port=0, namesrv_listen_port=0, store_path_root_dir=str(tmp_path), data_plane=plane, store=SMALL
    )
    path = tmp_path / "config" / "consumerOffset.json"
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        create_topic(wire, "t")
        heartbeat(wire, "g", "t")
        one = Side(broker, wire, "g", "t")
        one.send(6)
        commit(one, 6)
        assert reset(one, queueId="0", offset="2") == {0: 2}
        assert loads(path.read_text())["pymqResetTable"] == {"t@g": {0: 2}}
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        heartbeat(wire, "g", "t")
        two = Side(broker, wire, "g", "t")
        assert commit(two, 6) == RESET_BEFORE
        assert told(two.ask(6)) == (21, "OFFSET_RESET", "2", "0", "6")
        assert offsets_in(two.ask(2).body) == [2, 3, 4, 5]
        assert commit(two, 3) is None
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        assert committed(Side(broker, wire, "g", "t")) == 3
    assert "pymqResetTable" not in path.read_text()


def test_consume_statistics_say_how_far_a_group_has_pulled(side):
    """Consume statistics say how far a group has pulled beyond its commits."""
    side.send(6)
    rows = {}

    def look():
        fields = {"consumerGroup": side.group, "topic": side.topic}
        table = loads(side.wire.call(RequestCode.GET_CONSUME_STATS, fields).body)["offsetTable"]
        rows.update({dict(queue)["queueId"]: row for queue, row in table.items()})
        return rows[0]["consumerOffset"], rows[0]["pullOffset"], rows[0]["brokerOffset"]

    assert look() == (0, 0, 6)
    side.ask(0, maxMsgNums=4)
    assert look() == (0, 4, 6)
    commit(side, 3)
    assert look() == (3, 4, 6)
    reset(side, queueId="0", offset="1")
    assert look() == (1, 1, 6)


def test_members_are_told_of_a_reset_when_the_broker_does_not_keep_it_alone(tmp_path):
    """useServerSideResetOffset=false: members are told as well, and older commits still do not win."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        store_path_root_dir=str(tmp_path),
        use_server_side_reset_offset=False,
        store=SMALL,
    )
    with (
        pymq.Broker(config).running() as broker,
        Wire(broker.config.listen_port) as wire,
        Wire(broker.config.listen_port) as tool,
    ):
        create_topic(wire, "t")
        heartbeat(wire, "g", "t")
        member = Side(broker, wire, "g", "t")
        member.send(6)
        commit(member, 6)
        wire.pushed.clear()
        assert reset(Side(broker, tool, "g", "t"), queueId="0", offset="2") == {0: 2}
        assert commit(member, 6) == RESET_BEFORE
        (pushed,) = wire.pushed
        assert pushed.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        assert [offset for _, offset in offset_table(pushed)] == [2]
