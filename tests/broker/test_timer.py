"""Timed messages through a whole broker: sent, kept, delivered, refused, recalled, and there after a restart."""

from __future__ import annotations

import json
import struct
import time

import pytest

import pymq
from pymq.broker.names import TIMER_TOPIC
from pymq.broker.timer.recall_handle import RecallHandle, decode_handle
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import until
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.transactions import DrivenBroker
from tests.broker.wire import BrokerProcess, Wire, send_fields

KEY = "0123456789ABCDEF" * 2


def run(directory, **more):
    """A running broker with timers of 100 ms."""
    settings = {"timer_precision_ms": 100, "mapped_file_size_timer_log": 4096, "recall_message_enable": True} | more
    return pymq.Broker(
        pymq.BrokerConfig(
            listen_port=0,
            namesrv_listen_port=0,
            broker_name="a",
            store_path_root_dir=str(directory),
            broker_fast_failure_enable=False,
            **({"store": SMALL} | settings),
        )
    ).running()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One for most of the tests."""
    with run(tmp_path_factory.mktemp("timer")) as running:
        yield running


def send(wire, topic, asked, body=b"body", key=KEY, queue_id=0):
    """A message that asks for a time, e.g. `TIMER_DELAY_MS=300`; its answer."""
    properties = "".join(f"{name}\x01{value}\x02" for name, value in asked.items()) + f"UNIQ_KEY\x01{key}\x02"
    return wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, properties), body)


def messages(broker, topic, queue_id=0):
    """What readers of a queue can see."""
    try:
        return broker.store.read(topic, queue_id, 0, 100)
    except pymq.QueueNotFoundError:
        return []


def wait_for(broker, topic, count=1, timeout_s=10.0, queue_id=0):
    """The messages of a queue, once there are *count*."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        found = messages(broker, topic, queue_id)
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{len(messages(broker, topic, queue_id))} of {count} messages in {timeout_s} s")


def runtime_info(wire):
    """GET_BROKER_RUNTIME_INFO's table."""
    return json.loads(wire.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]


def timers_left(wire):
    """(messages the timer topic has and the wheel has not, slots with something to deliver)."""
    table = runtime_info(wire)
    return int(table["timerOffsetBehind"]), int(table["pymq.timer.pending_slots"])


# ---- delivery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("TIMER_DELAY_SEC", 1), ("TIMER_DELAY_MS", 700), ("TIMER_DELIVER_MS", "soon")]
)
def test_a_message_comes_at_its_time_and_not_before(broker, wire, name, value):
    """All three ways to ask; it is not seen before its time, and at most a slot and some machine time after it."""
    topic = f"Timed_{name}"
    create_topic(wire, topic)
    now_ms = int(time.time() * 1000)
    due_ms = now_ms + (value * 1000 if name == "TIMER_DELAY_SEC" else 700)
    answer = send(wire, topic, {name: due_ms if value == "soon" else value}, b"later", queue_id=3)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.fields["queueId"] == "3"
    assert messages(broker, topic, 3) == []
    (message,) = wait_for(broker, topic, queue_id=3)
    assert message.body == b"later"
    # At least what was asked, counted from before the send.
    assert due_ms <= message.store_timestamp_ms <= due_ms + 2000
    properties = message.properties
    # As from Apache's broker: consumers see where it was sent to, too.
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (topic, "3")
    slot_ms = int(properties["TIMER_OUT_MS"])
    assert slot_ms % 100 == 0
    assert slot_ms < due_ms + 100 <= slot_ms + 300
    assert int(properties["TIMER_ENQUEUE_MS"]) <= int(properties["TIMER_DEQUEUE_MS"])


def test_a_time_that_has_passed_is_now(broker, wire):
    """The message goes where it was sent to, at once, without a recall handle."""
    create_topic(wire, "Passed")
    answer = send(wire, "Passed", {"TIMER_DELIVER_MS": 1000})
    assert answer.code == ResponseCode.SUCCESS
    assert "recallHandle" not in answer.fields
    (message,) = wait_for(broker, "Passed")
    assert "TIMER_OUT_MS" not in message.properties


def test_messages_of_one_slot_keep_their_order(broker, wire):
    """What was sent first comes first, over more than one batch of re-puts."""
    create_topic(wire, "InOrder")
    due_ms = int(time.time() * 1000) + 1500
    for number in range(90):
        answer = send(wire, "InOrder", {"TIMER_DELIVER_MS": due_ms}, str(number).encode(), key=f"{number:032d}")
        assert answer.code == ResponseCode.SUCCESS
    found = wait_for(broker, "InOrder", 90)
    assert [int(message.body) for message in found] == list(range(90))
    assert min(message.store_timestamp_ms for message in found) >= due_ms


def test_sync_flush_waits_for_the_disk_and_delivers_all_the_same(tmp_path):
    """Sends and recalls are answered when they are on disk; what is not visible yet is waited for."""
    store = SMALL.replace(flush_disk_type="SYNC_FLUSH")
    with run(tmp_path, store=store) as running, Wire(running.config.listen_port) as wire:
        create_topic(wire, "Sync")
        due_ms = int(time.time() * 1000) + 1500
        handles = []
        for number in range(6):
            answer = send(wire, "Sync", {"TIMER_DELIVER_MS": due_ms}, str(number).encode(), key=f"{number:032d}")
            assert answer.code == ResponseCode.SUCCESS
            handles.append(answer.fields["recallHandle"])
        answer = wire.call(RequestCode.RECALL_MESSAGE, {"topic": "Sync", "recallHandle": handles[2]})
        assert answer.code == ResponseCode.SUCCESS
        assert int(running.store.watermarks()["flushed"]) == int(running.store.watermarks()["written"])
        wait_for(running, "Sync", 5)
        assert [message.body for message in messages(running, "Sync")] == [b"0", b"1", b"3", b"4", b"5"]


def test_timers_go_on_after_a_turn_that_failed_for_whatever_reason(broker, wire, monkeypatch, caplog):
    """A bug in one turn is logged, with where it was, and the next turn delivers."""
    create_topic(wire, "GoesOn")
    failures = []

    def dequeue(*until):
        failures.append(1)
        if len(failures) < 3:
            raise ZeroDivisionError("a bug")
        return type(broker.timer.store).dequeue(broker.timer.store, *until)

    monkeypatch.setattr(broker.timer.store, "dequeue", dequeue)
    send(wire, "GoesOn", {"TIMER_DELAY_MS": 100}, key="9" * 32)
    wait_for(broker, "GoesOn")
    assert len(failures) >= 3
    assert caplog.text.count("timers failed error=a bug") == 1


def test_a_timer_is_not_late_by_as_long_as_the_loop_was_busy(tmp_path, monkeypatch):
    """Time passes between a turn, which says when the next is due, and the loop's hearing of it."""
    with (
        DrivenBroker(tmp_path, timer_precision_ms=100) as driven,
        Wire(driven.broker.config.listen_port) as wire,
    ):
        timers, passed = driven.broker.timer, []
        turn = timers._turn

        def busy():
            pause = turn()
            if timers.store.stats.enqueued and not passed:
                passed.append(driven.clock.advance(8))
            return pause

        monkeypatch.setattr(timers, "_turn", busy)
        answer = send(wire, "T", {"TIMER_DELIVER_MS": driven.clock.now_ms() + 5000})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        until(lambda: driven.messages("T"), saw=lambda: f"time passed: {bool(passed)}, {timers.store.stats}")


def test_turns_that_end_at_once_deliver_everything_once_and_keep_recalls(tmp_path, monkeypatch):
    """One batch a turn: what was recalled is not delivered although its slot is over before the recall is read."""
    monkeypatch.setattr("pymq.broker.timer.service.TURN_S", 0.0)
    monkeypatch.setattr("pymq.broker.timer.store.BATCH", 3)
    with run(tmp_path, timer_stop_enqueue=True) as running, Wire(running.config.listen_port) as wire:
        create_topic(wire, "Turns")
        due_ms = int(time.time() * 1000) + 4000
        handles = []
        for number in range(40):
            answer = send(wire, "Turns", {"TIMER_DELIVER_MS": due_ms}, b"%d" % number, key=f"{number:032d}")
            handles.append(answer.fields["recallHandle"])
        answer = wire.call(RequestCode.RECALL_MESSAGE, {"topic": "Turns", "recallHandle": handles[0]})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        time.sleep(max(due_ms / 1000 + 0.2 - time.time(), 0))
        answer = wire.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"timerStopEnqueue=false\n")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        found = wait_for(running, "Turns", 39)
        time.sleep(0.3)
        assert [int(message.body) for message in found] == list(range(1, 40))
        assert len(messages(running, "Turns")) == 39


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [{"TIMER_DELAY_SEC": 259_201}, {"TIMER_DELAY_MS": "x"}, {"TIMER_DELIVER_MS": "9" * 30}]
)
def test_a_time_too_far_away_or_none_at_all_is_refused_with_the_limit(broker, wire, asked):
    """MESSAGE_ILLEGAL, naming the limit and the value."""
    create_topic(wire, "TooFar")
    answer = send(wire, "TooFar", asked)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "259200000ms" in answer.remark
    value = str(next(iter(asked.values())))
    assert value in answer.remark or "259201000ms" in answer.remark


def test_a_slot_that_is_full_is_refused_with_the_limit(tmp_path):
    """At twice timerCongestNumEachSlot always."""
    with run(tmp_path, timer_congest_num_each_slot=1) as running, Wire(running.config.listen_port) as wire:
        create_topic(wire, "Full")
        due_ms = int(time.time() * 1000) + 60_000
        answers = []
        for number in range(20):
            answers.append(send(wire, "Full", {"TIMER_DELIVER_MS": due_ms}, key=f"{number:032d}"))
            taken = sum(answer.code == ResponseCode.SUCCESS for answer in answers)
            until(lambda taken=taken: running.timer.store.stats.enqueued == taken)
        refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_ERROR}
        assert "max num limit is 2" in refused[0].remark
        assert 2 <= 20 - len(refused) <= 6


def test_without_the_wheel_timed_messages_are_refused(tmp_path):
    """timerWheelEnable=false, in Apache's words; and the tools' codes say so too."""
    with run(tmp_path, timer_wheel_enable=False) as running, Wire(running.config.listen_port) as wire:
        create_topic(wire, "Off")
        answer = send(wire, "Off", {"TIMER_DELAY_SEC": 1})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "accurate timer message is not enabled, timerWheelEnable is false"
        assert wire.call(RequestCode.GET_TIMER_CHECK_POINT).remark == "The checkpoint is null"
        assert wire.call(RequestCode.GET_TIMER_METRICS).remark == "The timer message store is null"


def test_a_delay_level_wins_over_a_time(broker, wire):
    """HookUtils.checkIfTimerMessage: the time is dropped."""
    create_topic(wire, "Level")
    before = broker.timer.store.stats.enqueued
    assert send(wire, "Level", {"DELAY": 1, "TIMER_DELAY_SEC": 1}).code == ResponseCode.SUCCESS
    time.sleep(0.2)
    assert broker.timer.store.stats.enqueued == before


# ---- recall ----------------------------------------------------------------------------------------------------------


def test_a_recalled_message_is_not_delivered(broker, wire):
    """By the handle that came with the send; its neighbour in the same slot is delivered."""
    create_topic(wire, "Recalled")
    due_ms = int(time.time() * 1000) + 1000
    first = send(wire, "Recalled", {"TIMER_DELIVER_MS": due_ms}, b"taken back", key="A" * 32)
    second = send(wire, "Recalled", {"TIMER_DELIVER_MS": due_ms}, b"kept", key="B" * 32)
    assert second.code == ResponseCode.SUCCESS
    handle = decode_handle(first.fields["recallHandle"])
    assert handle == RecallHandle("Recalled", "a", handle.timestamp, "A" * 32)
    fields = {"topic": "Recalled", "recallHandle": first.fields["recallHandle"], "producerGroup": "P"}
    answer = wire.call(RequestCode.RECALL_MESSAGE, fields)
    assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "A" * 32)
    wait_for(broker, "Recalled")
    until(lambda: broker.timer.store.metrics.count("Recalled") == 0)
    assert broker.timer.store.stats.recalled == 1
    assert [message.body for message in messages(broker, "Recalled")] == [b"kept"]


@pytest.mark.parametrize(
    ("topic", "handle", "code", "remark"),
    [
        ("Nowhere", "x", ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[Nowhere] not exist"),
        ("Recall", "x!", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("Recall", "", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("Recall", RecallHandle("Other", "a", "1", "k").encode(), ResponseCode.ILLEGAL_OPERATION, "topic not match"),
        ("Recall", RecallHandle("Recall", "b", "1", "k").encode(), ResponseCode.ILLEGAL_OPERATION, "not available"),
        ("Recall", RecallHandle("Recall", "a", "1", "k").encode(), ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        ("Recall", RecallHandle("Recall", "a", "z", "k").encode(), ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
    ],
)
def test_a_recall_that_cannot_be_is_refused_as_apache_does(broker, wire, topic, handle, code, remark):
    """Codes and words of RecallMessageProcessor."""
    create_topic(wire, "Recall")
    answer = wire.call(RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle})
    assert answer.code == code
    assert answer.remark.endswith(remark)
    assert answer.fields["MSG_REGION"] == "DefaultRegion"


def test_recall_is_forbidden_unless_it_is_enabled(tmp_path):
    """recallMessageEnable is false by default: code 16."""
    with run(tmp_path, recall_message_enable=False) as running, Wire(running.config.listen_port) as wire:
        answer = wire.call(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"})
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")


# ---- restart, crash, statistics --------------------------------------------------------------------------------------


def test_timers_survive_a_stop_and_come_once(tmp_path):
    """Two restarts between send and delivery; delivered ones are not delivered again."""
    with run(tmp_path) as running, Wire(running.config.listen_port) as wire:
        create_topic(wire, "Restart")
        send(wire, "Restart", {"TIMER_DELAY_MS": 200}, b"before", key="1" * 32)
        send(wire, "Restart", {"TIMER_DELAY_MS": 6000}, b"after", key="2" * 32)
        wait_for(running, "Restart")
    with run(tmp_path) as running:
        assert running.timer.store.checkpoint.ours
        assert running.timer.store.pending_slots == 1
    with run(tmp_path) as running:
        found = wait_for(running, "Restart", 2)
        time.sleep(0.3)
        assert [message.body for message in messages(running, "Restart")] == [b"before", b"after"]
        assert len(found) == 2


def test_timers_survive_a_kill(tmp_path):
    """SIGKILL with timers pending and due while the broker is away: all come, none is lost."""
    arguments = ("--timerPrecisionMs", "100", "--mappedFileSizeTimerLog", "4096")
    with BrokerProcess(tmp_path, *arguments) as process, Wire(process.port) as wire:
        create_topic(wire, "Killed")
        for number in range(60):
            asked = {"TIMER_DELAY_MS": 300 + number * 40}
            assert send(wire, "Killed", asked, str(number).encode(), key=f"{number:032d}").code == 0
        time.sleep(1.0)
        process.stop(9)
    with BrokerProcess(tmp_path, *arguments) as process, Wire(process.port) as wire:
        until(lambda: timers_left(wire) == (0, 0))
        process.stop(15)
    with pymq.open(tmp_path / "store") as store:
        bodies = [int(message.body) for message in store.read("Killed", max_count=1000)]
    assert set(bodies) == set(range(60))


def test_tools_see_the_checkpoint_the_metrics_and_the_rates(broker, wire):
    """GET_TIMER_CHECK_POINT is 56 bytes, GET_TIMER_METRICS is JSON by topic, and the runtime table counts."""
    create_topic(wire, "Seen")
    send(wire, "Seen", {"TIMER_DELAY_SEC": 3600}, key="5" * 32)
    send(wire, "Seen", {"TIMER_DELAY_MS": 100}, key="6" * 32)
    wait_for(broker, "Seen")
    # A message can be read before it is counted as delivered: put first, count after.
    until(lambda: json.loads(wire.call(RequestCode.GET_TIMER_METRICS).body)["timingCount"]["Seen"]["count"] == 1)
    until(lambda: int(runtime_info(wire)["pymq.timer.delivered"]) >= 1)
    numbers = struct.unpack(">7q", wire.call(RequestCode.GET_TIMER_CHECK_POINT).body)
    assert numbers[2] == numbers[3]
    table = runtime_info(wire)
    assert table["timerReadBehind"] == table["timerOffsetBehind"] == "0"
    assert int(table["timerCongestNum"]) >= 1
    assert sum(int(table[name]) for name in table if name.startswith("pymq.timer.late.")) >= 1
    assert int(table["pymq.timer.pending_slots"]) >= 1
    assert float(table["timerEnqueueTps"]) >= 0.0


@pytest.mark.parametrize("real_topic", ["RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "Behind"])
def test_no_client_can_write_into_protected_topics_through_the_timer_topic(broker, wire, real_topic):
    """What lies there is put into the topic it names: ended transactions, or a message that delays itself for ever."""
    end = broker.timer.store.queue_offset
    properties = f"TIMER_OUT_MS\x01{int(time.time() * 1000)}\x02REAL_TOPIC\x01{real_topic}\x02REAL_QID\x010\x02"
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(TIMER_TOPIC, 0, properties + "TAGS\x01d\x02"), b"0,1,")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == f"Sending message to topic[{TIMER_TOPIC}] is forbidden."
    create_topic(wire, "Behind")
    seen = len(messages(broker, "Behind"))
    send(wire, "Behind", {"TIMER_DELAY_MS": 100})
    wait_for(broker, "Behind", seen + 1)
    assert broker.timer.store.queue_offset == end + 1
