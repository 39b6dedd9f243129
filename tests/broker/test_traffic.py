"""Rates of topics and groups, and daily totals."""

from __future__ import annotations

from datetime import UTC, datetime

from pymq.broker.daily import DailyTotals
from pymq.broker.runtime_info import human_bytes
from pymq.broker.traffic import Traffic
from pymq.clock import ManualClock


def test_rates_are_what_came_between_the_oldest_and_the_newest_sample():
    """Goal: RocketMQ's minute. Method: twelve samples of steady traffic."""
    clock = ManualClock(datetime(2026, 11, 16, tzinfo=UTC))
    traffic = Traffic(clock)
    for step in range(1, 13):
        clock.advance(10)
        traffic.sample([("t", "", step * 100, step * 1000), ("t", "g", step * 10, step * 50)])
    minute, hour, day = traffic.windows("t", "", "messages")
    assert (minute.sum, minute.tps, minute.average) == (600, 10.0, 100.0)
    assert hour.sum == day.sum == 0
    assert traffic.tps("t", "g") == 1.0
    assert traffic.windows("t", "g", "bytes")[0].sum == 300
    assert traffic.tps("unknown") == 0.0


def test_hour_and_day_follow():
    """Goal: the longer windows. Method: an hour of samples by the clock."""
    clock = ManualClock(datetime(2026, 11, 16, tzinfo=UTC))
    traffic = Traffic(clock)
    for step in range(1, 361):
        clock.advance(10)
        traffic.sample([("t", "", step, step)])
    _, hour, day = traffic.windows("t", "", "messages")
    assert (hour.sum, round(hour.tps, 3)) == (360, 0.1)
    assert day.sum == 360


def test_totals_turn_over_at_midnight():
    """Goal: today and yesterday. Method: a clock moved over two midnights."""
    clock = ManualClock(datetime(2026, 11, 16, 23, 59, 50, tzinfo=UTC))
    daily = DailyTotals(clock)
    daily.sample(5, 3)
    assert (daily.put_morning, daily.get_morning) == (0, 0)
    clock.advance(20)
    daily.sample(7, 4)
    assert (daily.put_morning, daily.get_morning, daily.put_yesterday) == (7, 4, 0)
    clock.advance(86_400)
    daily.sample(9, 6)
    assert (daily.put_yesterday, daily.put_morning, daily.get_yesterday) == (7, 9, 4)


def test_bytes_are_printed_as_rocketmq_does():
    """Goal: tools show the same. Method: around each unit's edge."""
    assert [human_bytes(n) for n in (0, 415, 1023, 1024, 1536, 252 * 2**30)] == [
        "0 B", "415 B", "1023 B", "1.0 KiB", "1.5 KiB", "252.0 GiB",
    ]  # fmt: skip
