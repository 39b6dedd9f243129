"""Where a message that is not for now is stored: a table of what it asks for, and what comes of it on both planes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import pymq
from pymq.broker.processors.send_checks import SendRefused
from pymq.broker.redirect import redirect
from pymq.broker.schedule.levels import DelayLevels
from pymq.broker.system_topics import make_system_topics
from pymq.errors import ConfigError
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.sides import until
from tests.broker.wire import send_fields

BROKER = SimpleNamespace(delay_levels=DelayLevels("1s 5s 10s"))
PREPARED, COMMITTED, ROLLED_BACK = 1 << 2, 2 << 2, 3 << 2
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def where(properties, sys_flag=0, reconsume_times=0):
    """What becomes of a message for queue 7 of topic T."""
    return redirect(BROKER, "T", 7, properties, sys_flag, reconsume_times, 1_000_000)


@pytest.mark.parametrize(("asked", "level"), [("1", 1), ("3", 3), ("4", 3), ("+2", 2), ("2147483647", 3)])
def test_a_level_above_the_highest_is_the_highest(asked, level):
    """DELAY-2, DELAY-3: the message waits in queue level - 1, and knows where it belongs."""
    found = where({"DELAY": asked, "KEYS": "k"})
    assert found.topic == SCHEDULE
    assert found.queue_id == level - 1
    kept = asked if int(asked) == level else str(level)  # Apache writes it anew only when it changes it
    assert found.properties == {"DELAY": kept, "KEYS": "k", "REAL_TOPIC": "T", "REAL_QID": "7"}


@pytest.mark.parametrize(
    "properties", [{}, {"DELAY": "0"}, {"DELAY": "-1"}, {"TIMER_DELAY_MS": "9", "TIMER_OUT_MS": "1"}]
)
def test_what_is_for_now_stays_where_it_was_sent(properties):
    """No level, and a timer that has run out."""
    assert where(dict(properties)) == ("T", 7, properties, 0)


@pytest.mark.parametrize(("sys_flag", "moved"), [(0, True), (COMMITTED, True), (PREPARED, False), (ROLLED_BACK, False)])
def test_only_normal_and_committed_messages_are_delayed(sys_flag, moved):
    """DELAY-3."""
    assert (where({"DELAY": "1"}, sys_flag).topic == SCHEDULE) is moved


def test_a_level_wins_over_a_delivery_time():
    """As HookUtils.checkIfTimerMessage: the time's properties are dropped."""
    found = where({"DELAY": "1", "TIMER_DELIVER_MS": "1", "TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "3"})
    assert found.topic == SCHEDULE
    assert not [name for name in found.properties if name.startswith("TIMER")]


def test_a_half_message_sent_back_by_an_old_client_is_a_retry():
    """Before 4.6.1 the mark of the transaction stays on what is sent back."""
    assert where({"DELAY": "2", "TRAN_MSG": "true"}, reconsume_times=1).topic == SCHEDULE


@pytest.mark.parametrize("text", ["soon", "1.5", "", " 1", "2147483648", "99999999999999999999", "1_0", "٣"])
def test_a_level_that_is_no_number_is_refused_by_name(text):
    """Stored as it came it would be delivered at once, or stop Apache's dispatch."""
    with pytest.raises(SendRefused, match="DELAY"):
        where({"DELAY": text})


def test_levels_are_read_with_their_units():
    """DELAY-1."""
    levels = DelayLevels("2s 3m 4h 5d 0s")
    assert levels.delays_ms == (2_000, 180_000, 14_400_000, 432_000_000, 0)
    assert levels.level_max == 5
    assert levels.delay_ms(99) == 0


@pytest.mark.parametrize("text", ["", "1", "1x", "s", "1s 5", "-1s", "1s " * 65])
def test_levels_that_cannot_be_read_end_the_start(text):
    """Apache logs and goes on without delayed messages."""
    with pytest.raises(ConfigError, match="message_delay_level"):
        pymq.StoreConfig(message_delay_level=text)


def test_the_schedule_topic_has_a_queue_for_every_level():
    """And never fewer than Apache says."""
    for count in (1, 18, 19, 64):
        store = pymq.StoreConfig(message_delay_level="1s " * count)
        topics = {topic.topic_name: topic for topic in make_system_topics(pymq.BrokerConfig(store=store))}
        assert topics[SCHEDULE].write_queue_nums == topics[SCHEDULE].read_queue_nums == max(count, 18)


def test_a_delayed_send_is_answered_as_for_its_own_topic(side):
    """The queue is the one it was sent to; it waits in its level's, where clients cannot send themselves."""
    fields = send_fields(side.topic, 0, "DELAY\x0117\x02KEYS\x01k\x02")
    answer = side.wire.call(RequestCode.SEND_MESSAGE_V2, fields, b"later")
    assert answer.code == ResponseCode.SUCCESS, answer
    assert answer.fields["queueId"] == "0"
    offset = int(answer.fields["queueOffset"])
    until(lambda: side.broker.store.queue_range(SCHEDULE, 16)[1] > offset)
    (message,) = side.broker.store.read(SCHEDULE, 16, offset, 1)
    assert message.body == b"later"
    assert message.properties["REAL_TOPIC"] == side.topic
    assert message.properties["REAL_QID"] == "0"
    assert side.maximum() == 0
    refused = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(SCHEDULE, 0, "DELAY\x0117\x02"), b"later")
    assert refused.code == ResponseCode.NO_PERMISSION


def test_a_level_that_is_no_number_is_answered_by_name(side):
    """And stores nothing."""
    answer = side.wire.call(RequestCode.SEND_MESSAGE_V2, send_fields(side.topic, 0, "DELAY\x01soon\x02"), b"later")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "DELAY" in answer.remark
    assert side.maximum() == 0
