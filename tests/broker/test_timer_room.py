"""Timed messages whose properties nearly fill the record: refused when they are sent, delivered when they are there."""

from __future__ import annotations

import time

import pytest

from pymq.broker.names import TIMER_TOPIC
from pymq.broker.redirect import HALF_PROPERTIES_MAX, TIMER_PROPERTIES_MAX
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.transactions import SMALL, DrivenBroker, Producer
from tests.broker.wire import Wire, send_fields

RECORD_MAX = 32_767
KEY = "UNIQ_KEY\x010123456789ABCDEF\x02"
ADDED = {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"}


def driven_broker(directory):
    """Timers that are rolled every 200 ms, with the longest of everything that a broker says of a message."""
    return DrivenBroker(
        directory,
        store=SMALL.replace(enabled_append_prop_crc=True),
        timer_precision_ms=100,
        timer_roll_window_slot=2,
        broker_cluster_name="c" * 127,
        region_id="r" * 127,
    )


def filled(properties, size):
    """*properties* and one more, *size* bytes in all."""
    return properties + "k\x01" + "v" * (size - len(properties) - 3) + "\x02"


def delivered(driven, due_ms):
    """The message that comes to T, at *due_ms* and not before."""
    for _ in range(200):
        before_ms = driven.clock.now_ms()
        if found := driven.messages("T"):
            (message,) = found
            assert before_ms >= due_ms
            return message
        driven.clock.advance(0.1)
        time.sleep(0.02)
    raise AssertionError(f"not delivered: {driven.broker.timer.store.stats}")


def test_a_timed_message_without_room_for_what_rolling_adds_is_refused_with_the_limit(tmp_path):
    """One with just enough is rolled and delivered with all that is added, whatever else the broker says of it."""
    with driven_broker(tmp_path) as driven, Wire(driven.broker.config.listen_port) as wire:
        due_ms = driven.clock.now_ms() + 2000
        asked = KEY + f"TIMER_DELIVER_MS\x01{due_ms}\x02"
        stored = TIMER_PROPERTIES_MAX - len(f"TIMER_OUT_MS\x01{due_ms}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02")
        answers = [
            wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, filled(asked, size)), b"body")
            for size in (stored + 1, stored)
        ]
        assert [answer.code for answer in answers] == [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SUCCESS]
        assert answers[0].remark == (
            "a timed message has 32256 bytes of properties: at most 32255 leave room for its delivery"
        )
        message = delivered(driven, due_ms)
        assert message.properties.keys() >= ADDED
        assert driven.broker.timer.store.stats.put_off == 0


def test_a_half_that_was_taken_has_room_for_what_its_delivery_time_adds(tmp_path):
    """Nobody can be told any more when it is committed."""
    with driven_broker(tmp_path) as driven, Producer(driven) as producer:
        added = KEY.replace("UNIQ_KEY", "__transactionId__") + "REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
        size = HALF_PROPERTIES_MAX - len("TRAN_MSG\x01true\x02PGROUP\x01P\x02" + added)
        asked = KEY + "TIMER_DELAY_MS\x012000\x02"
        assert producer.half(properties=filled(asked, size + 1)).code == ResponseCode.MESSAGE_ILLEGAL
        half = producer.half(properties=filled(asked, size))
        assert half.code == ResponseCode.SUCCESS, half.remark
        due_ms = driven.clock.now_ms() + 2000
        assert producer.end(half).code == ResponseCode.SUCCESS
        assert delivered(driven, due_ms).properties.keys() >= ADDED


@pytest.mark.parametrize("asked", ["TIMER_DELIVER_MS\x01%d\x02", "TIMER_DELAY_SEC\x012\x02"])
def test_a_stored_timer_without_room_for_what_rolling_adds_is_rolled_and_delivered(tmp_path, asked):
    """As Apache's broker leaves them: what it asked for gives its place to the count of rolls, if that is enough."""
    with DrivenBroker(tmp_path, timer_precision_ms=100, timer_roll_window_slot=2) as driven:
        due_ms = driven.clock.now_ms() // 100 * 100 + 2000
        properties = KEY + f"TIMER_OUT_MS\x01{due_ms - 100}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
        properties = filled(properties + (asked % due_ms if "%" in asked else asked), RECORD_MAX)
        driven.broker.serve.put(
            TIMER_TOPIC, 0, b"body", properties.encode(), born_host=("127.0.0.1", 1), born_timestamp_ms=1
        )
        driven.broker.timer.wake()
        message = delivered(driven, due_ms)
        timers = driven.broker.timer.store
        assert (message.body, timers.stats.put_off, timers.pending_slots) == (b"body", 0, 0)
        assert timers.stats.rolled >= 2
        assert ("TIMER_ROLL_TIMES" in message.properties) == ("DELIVER" in asked)
