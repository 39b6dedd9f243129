"""One delay level's decisions, step by step, without a store: progress, failures, waiting, lateness."""

from __future__ import annotations

import logging

import pytest

from pymq._core._serve import Due
from pymq.broker.schedule.delivery import CLOCK_STEP_MS, DISPATCH_MS_MAX, OK, REFUSED_MS_MAX, LevelDelivery
from pymq.broker.schedule.lateness import Lateness
from pymq.broker.schedule.progress import ASIDE_MAX, PENDING_MAX, RETRY_MS_MAX, RETRY_MS_MIN, LevelProgress

NOW = 1_000_000


def level(progress=None, delay_ms=1_000):
    """Level 1."""
    return LevelDelivery(1, delay_ms, progress or LevelProgress(), Lateness())


def took(delivery, now_ms=NOW, **answer):
    """One look that is answered so."""
    look = delivery.look(now_ms)
    fields = {"next_offset": look.offset, "delivered": 0, "next_due_ms": -1, "status": OK, "last_end_offset": 0,
              "lateness_max_ms": 0} | answer  # fmt: skip
    delivery.took(look, Due(**fields), now_ms)
    return look


def test_only_what_is_flushed_is_vouched_for():
    """Two deliveries, flushed one after the other."""
    progress = LevelProgress(10)
    progress.advance(15, 1_000)
    progress.advance(20, 2_000)
    for flushed, vouched in ((0, 10), (999, 10), (1_000, 15), (1_999, 15), (2_000, 20)):
        progress.settle(flushed)
        assert progress.vouched == vouched
    assert progress.offset == 20


def test_one_that_was_set_aside_is_written_down_until_its_delivery_is_flushed():
    """Symptom: a message that failed, was delivered later and lost by a power cut would be gone for good."""
    progress = LevelProgress()
    progress.advance(3, 100)
    progress.set_aside(3, NOW)
    progress.settle(99)
    assert (progress.vouched, progress.failed_offsets()) == (0, [])
    progress.settle(100)
    assert (progress.vouched, progress.failed_offsets()) == (4, [3])
    progress.delivered_aside(3, 500)
    assert progress.failed_offsets() == [3]
    progress.settle(499)
    assert progress.failed_offsets() == [3]
    progress.settle(500)
    assert progress.failed_offsets() == []


def test_deliveries_that_wait_for_their_flush_are_bounded():
    """Beyond the bound the newest counts for those before it: later, never earlier."""
    progress = LevelProgress()
    for number in range(1, PENDING_MAX + 100):
        progress.advance(number, number * 10)
    last = PENDING_MAX + 99
    progress.settle((last - 1) * 10)
    assert progress.vouched == PENDING_MAX - 1
    progress.settle(last * 10)
    assert progress.vouched == last


def test_a_message_that_fails_is_tried_again_at_growing_distances(caplog):
    """One second, then twice as long each time, up to a minute; the level goes on at once, each try is logged."""
    delivery = level()
    with caplog.at_level(logging.ERROR, "pymq.broker.schedule"):
        took(delivery, status="PYMQ_ECORRUPT")
        assert delivery.progress.offset == 1
        assert delivery.wait_ms(NOW) == 0
        took(delivery)
        now_ms, waits = NOW, []
        for _ in range(9):
            failed = delivery.progress.aside[0]
            waits.append(failed.again_ms - now_ms)
            assert delivery.wait_ms(now_ms) == waits[-1]
            now_ms = failed.again_ms
            look = took(delivery, now_ms, status="PYMQ_ECORRUPT")
            assert (look.offset, look.again) == (0, True)
    assert waits[:4] == [RETRY_MS_MIN, 2 * RETRY_MS_MIN, 4 * RETRY_MS_MIN, 8 * RETRY_MS_MIN]
    assert waits[-1] == RETRY_MS_MAX
    assert caplog.text.count("topic=SCHEDULE_TOPIC_XXXX queue=0 offset=0 level=1 status=PYMQ_ECORRUPT") == 10
    now_ms = delivery.progress.aside[0].again_ms
    took(delivery, now_ms, next_offset=1, delivered=1, last_end_offset=50)
    assert not delivery.progress.aside
    assert delivery.progress.offset == 1


def test_one_that_retention_removed_is_given_up_loudly(caplog):
    """It is not in the log any more: nobody can deliver it."""
    delivery = level(LevelProgress(5, [2]))
    with caplog.at_level(logging.ERROR, "pymq.broker.schedule"):
        assert took(delivery, next_offset=4, status="PYMQ_ENOTFOUND").again
    assert "removed by retention" in caplog.text
    assert not delivery.progress.aside


@pytest.mark.parametrize("status", ["PYMQ_EREADONLY", "PYMQ_ENOSPC", "PYMQ_EPOOL", "PYMQ_EFAILED", "PYMQ_ECLOSED"])
def test_a_store_that_refuses_everything_moves_nothing_and_sets_nothing_aside(status):
    """Waiting longer each time, from one second to ten."""
    delivery = level()
    waits = []
    for _ in range(6):
        took(delivery, status=status, next_due_ms=NOW)
        waits.append(delivery.wait_ms(NOW))
        assert delivery.progress.offset == 0
        assert not delivery.progress.aside
    assert waits == [1_000, 2_000, 4_000, 8_000, REFUSED_MS_MAX, REFUSED_MS_MAX]
    took(delivery, next_offset=1, delivered=1, next_due_ms=NOW + 5)
    assert delivery.wait_ms(NOW) == 5


def test_too_many_set_aside_stop_their_level():
    """A bound on everything: the last one waits in its place."""
    delivery = level()
    for number in range(ASIDE_MAX):
        delivery.progress.set_aside(number, NOW)
    took(delivery, status="PYMQ_ECORRUPT")
    assert delivery.progress.offset == ASIDE_MAX
    assert len(delivery.progress.aside) == ASIDE_MAX


def test_waiting_is_for_the_next_message_and_without_one_for_ever():
    """Due in a while, as late as the level has it, due before now, nothing at all."""
    delivery = level()
    for due_ms, wait_ms in ((NOW + 7, 7), (NOW + 1_000, 1_000), (NOW - 5, 0)):
        took(delivery, next_due_ms=due_ms)
        assert delivery.wait_ms(NOW) == wait_ms
        assert not delivery.is_idle
    took(delivery)
    assert delivery.wait_ms(NOW) is None
    assert delivery.is_idle


def test_a_clock_that_was_set_back_far_does_not_hold_up_the_level():
    """By a little, messages wait for it to catch up; by more than that, the next look takes their time for now."""
    delivery = level()
    took(delivery, next_due_ms=NOW + 1_000)
    assert delivery.wait_ms(NOW - CLOCK_STEP_MS) == CLOCK_STEP_MS + 1_000
    assert delivery.wait_ms(NOW - CLOCK_STEP_MS - 1) == 0
    assert delivery.look(NOW).correct_max_ms == CLOCK_STEP_MS + 1_000


def test_a_message_that_is_stored_and_not_in_its_queue_yet_is_looked_for():
    """More and more seldom, but for ever: dispatch may wait for a slow flush."""
    delivery = level()
    took(delivery)
    delivery.stored(1)
    assert not delivery.is_idle
    assert delivery.wait_ms(NOW) == 0
    waits = []
    for _ in range(8):
        took(delivery)
        waits.append(delivery.wait_ms(NOW))
        assert delivery.wait_ms(NOW + waits[-1]) == 0, "the moment of the next look moves on as time does"
    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[-1] == DISPATCH_MS_MAX
    took(delivery, next_offset=1, delivered=1)
    assert delivery.is_idle


def test_lateness_is_counted_in_buckets():
    """At the bounds: 10 is at most 10, 11 is not."""
    lateness = Lateness()
    for count, late_ms in ((3, 0), (2, 10), (1, 11), (4, 100), (1, 50_000)):
        lateness.add(count, late_ms)
    table = lateness.table("x")
    assert table["x.delivered"] == "11"
    assert table["x.lateness_ms_max"] == "50000"
    expected = {"10": "5", "20": "6", "50": "6", "100": "10", "1000": "10", "10000": "10"}
    assert {bound: table[f"x.lateness_ms_le.{bound}"] for bound in expected} == expected
