"""Recalls that are answered while the timers are behind: in reading their topic, or because that is behind itself."""

from __future__ import annotations

from pymq._core._serve import PutResult
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import until
from tests.broker.transactions import SMALL, DrivenBroker
from tests.broker.wire import Wire, send_fields


def driven_broker(directory, **more):
    """Timers of 100 ms, that may be recalled."""
    return DrivenBroker(directory, timer_precision_ms=100, recall_message_enable=True, **more)


def send(wire, deliver_ms, body):
    """A message of topic T for a point in time, with its body for a key; its handle."""
    properties = f"TIMER_DELIVER_MS\x01{deliver_ms}\x02UNIQ_KEY\x01{body.decode()}\x02"
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, properties), body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.fields["recallHandle"]


def recall(wire, handle):
    """Recall what *handle* names, with success."""
    answer = wire.call(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": handle})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def bodies(driven):
    """What was delivered."""
    return [message.body for message in driven.messages("T")]


def test_a_message_recalled_while_a_backlog_of_timers_is_read_is_not_delivered(tmp_path, monkeypatch):
    """Its slot is over before the end that is read up to, and the recall stands behind that end."""
    monkeypatch.setattr("pymq.broker.timer.service.TURN_S", 0.0)
    monkeypatch.setattr("pymq.broker.timer.store.BATCH", 3)
    with (
        driven_broker(tmp_path, timer_stop_enqueue=True) as driven,
        Wire(driven.broker.config.listen_port) as wire,
    ):
        timers, due_ms = driven.broker.timer.store, driven.clock.now_ms() + 5000
        handle = send(wire, due_ms, b"recalled")
        for number in range(9):
            send(wire, due_ms + (0 if number < 2 else 60_000), b"kept%d" % number)
        until(lambda: timers.enqueue_behind() == 10, saw=timers.enqueue_behind)
        recalled = []

        def enqueue(*arguments):
            count = type(timers).enqueue(timers, *arguments)
            if timers.enqueue_cut and not recalled:
                recalled.append(recall(wire, handle))
                driven.settled()
                driven.clock.advance(8)
            return count

        monkeypatch.setattr(timers, "enqueue", enqueue)
        driven.call(driven.broker.apply_config(driven.broker.config.replace(timer_stop_enqueue=False)))
        until(lambda: timers.stats.delivered >= 2, saw=lambda: timers.stats)
        assert recalled
        assert (bodies(driven), timers.stats.recalled) == ([b"kept0", b"kept1"], 1)


def test_a_message_whose_recall_is_still_in_the_transient_pool_is_not_delivered(tmp_path):
    """The recall was acknowledged from memory, and reaches its queue after the slot is over."""
    pooled = SMALL.replace(
        transient_store_pool_enable=True,
        transient_store_pool_size=2,
        commit_interval_commit_log_ms=700,
        commit_commit_log_thorough_interval_ms=700,
    )
    with driven_broker(tmp_path, store=pooled) as driven, Wire(driven.broker.config.listen_port) as wire:
        timers, due_ms = driven.broker.timer.store, driven.clock.now_ms() + 5000
        handle = send(wire, due_ms, b"recalled")
        send(wire, due_ms, b"kept")
        until(lambda: timers.stats.enqueued == 2, saw=lambda: timers.stats)
        recall(wire, handle)
        driven.clock.advance(8)
        until(lambda: bodies(driven), saw=lambda: timers.stats)
        assert (bodies(driven), timers.stats.recalled) == ([b"kept"], 1)


def test_what_never_reaches_the_timer_topic_does_not_hold_timers_up_for_ever(tmp_path, monkeypatch, caplog):
    """Timers go on without it, say so once, and wait for the next that is on its way as before."""
    monkeypatch.setattr("pymq.broker.timer.service.MISSING_S", 0.3)
    with driven_broker(tmp_path) as driven, Wire(driven.broker.config.listen_port) as wire:
        service = driven.broker.timer
        driven.loop.call_soon_threadsafe(service.stored, PutResult(1000, 0, 100, 0))
        for count in (1, 2):
            send(wire, driven.clock.now_ms() + 500, b"%d" % count)

            def is_there(count=count):
                driven.clock.advance(0.1)
                return len(bodies(driven)) == count

            until(is_there, saw=lambda: service.store.stats)
        assert caplog.text.count("timers go on without what their topic does not have") == 1
        assert service._expected == 2


def test_a_slot_that_was_begun_is_delivered_while_something_is_on_its_way_into_the_topic(tmp_path, monkeypatch):
    """Its recalls are done with: the rest of it waits for nothing, least of all in a loop without a pause."""
    monkeypatch.setattr("pymq.broker.timer.service.TURN_S", 0.0)
    monkeypatch.setattr("pymq.broker.timer.store.BATCH", 3)
    with driven_broker(tmp_path) as driven, Wire(driven.broker.config.listen_port) as wire:
        service, turns = driven.broker.timer, []
        timers, due_ms = service.store, driven.clock.now_ms() + 5000

        def dequeue(*arguments):
            count = type(timers).dequeue(timers, *arguments)
            if timers.dequeue_cut:
                turns.append(driven.loop.call_soon_threadsafe(service.stored, PutResult(1000, 0, 100, 0)))
            return count

        for number in range(9):
            send(wire, due_ms, b"%d" % number)
        until(lambda: timers.stats.enqueued == 9, saw=lambda: timers.stats)
        monkeypatch.setattr(timers, "dequeue", dequeue)
        driven.clock.advance(8)
        until(lambda: len(bodies(driven)) == 9, saw=lambda: timers.stats)
        assert len(turns) == 2
