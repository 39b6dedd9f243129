"""Timers whose messages, or whose own files, were damaged: what that costs, and what it does not."""

from __future__ import annotations

import time

import pytest

from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import until
from tests.broker.transactions import DrivenBroker
from tests.broker.wire import Wire, send_fields


def send(wire, deliver_ms, body, **more):
    """A message of topic T for a point in time."""
    properties = "".join(f"{name}\x01{value}\x02" for name, value in ({"TIMER_DELIVER_MS": deliver_ms} | more).items())
    answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, properties), body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def bodies(driven):
    """What was delivered to T, by the first six bytes."""
    return sorted(message.body[:6] for message in driven.messages("T"))


def damage(directory, body):
    """Change a byte of the record with *body*, in the log."""
    (path,) = (directory / "commitlog").iterdir()
    at = path.read_bytes().index(body)
    with path.open("r+b") as file:
        file.seek(at + len(body))
        file.write(b"Z")


@pytest.mark.parametrize("where", ["slot", "slot with a recall", "timer topic"])
def test_a_damaged_record_costs_its_own_timer_and_no_other(tmp_path, where, caplog):
    """In a slot, in one where messages are compared with a recall, and on its way from the topic into the wheel."""
    topic_only = where == "timer topic"
    with DrivenBroker(
        tmp_path, timer_precision_ms=100, recall_message_enable=True, timer_stop_enqueue=topic_only
    ) as driven:
        timers = driven.broker.timer.store
        with Wire(driven.broker.config.listen_port) as wire:
            due_ms = (driven.clock.now_ms() // 1000 + 5) * 1000
            for number in range(5):
                send(wire, due_ms, b"BODY%d-" % number + b"x" * 50, UNIQ_KEY=f"K{number}")
            if where == "slot with a recall":
                send(wire, due_ms, b"recall", TIMER_DEL_UNIQKEY="K4")
            send(wire, due_ms + 1000, b"later")
            sent = 7 if where == "slot with a recall" else 6
            if topic_only:
                until(lambda: timers.enqueue_behind() == sent, saw=timers.enqueue_behind)
            else:
                until(lambda: timers.stats.enqueued == sent, saw=lambda: timers.stats)
            damage(tmp_path, b"BODY2-")
            if topic_only:
                driven.call(driven.broker.apply_config(driven.broker.config.replace(timer_stop_enqueue=False)))
                until(lambda: timers.stats.enqueued == sent - 1, saw=lambda: timers.stats)
            driven.clock.advance(8)
            expected = [b"BODY0-", b"BODY1-", b"BODY3-", b"BODY4-", b"later"]
            if where == "slot with a recall":
                expected.remove(b"BODY4-")
            until(lambda: bodies(driven) == expected, saw=lambda: bodies(driven))
            assert timers.stats.lost == 1
            assert "timer lost" in caplog.text


def test_one_message_with_a_property_does_not_stop_all_timers(tmp_path):
    """TIMER_ROLL_TIMES of 5,000 digits; what a client says there is not gone on from."""
    with (
        DrivenBroker(tmp_path, timer_roll_window_slot=2, timer_precision_ms=100) as driven,
        Wire(driven.broker.config.listen_port) as wire,
    ):
        now_ms = driven.clock.now_ms()
        send(wire, now_ms + 1500, b"poison", TIMER_ROLL_TIMES="9" * 5000)
        for number in range(3):
            send(wire, now_ms + 2000 + number * 100, b"good%d" % number)
        for _ in range(200):
            driven.clock.advance(0.1)
            time.sleep(0.02)
            if len(driven.messages("T")) == 4:
                break
        assert bodies(driven) == [b"good0", b"good1", b"good2", b"poison"]
        assert all(len(message.properties["TIMER_ROLL_TIMES"]) < 3 for message in driven.messages("T"))
