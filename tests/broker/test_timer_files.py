"""The files of the timers: Apache's bytes, ends of files, what a checkpoint vouches for, who wrote last."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest

import pymq
from pymq.broker.data_version import DataVersion
from pymq.broker.timer.checkpoint import FILE_SIZE, TimerCheckpoint, load_checkpoint, save_checkpoint
from pymq.broker.timer.log import BLANK_MAGIC, MAGIC_DEFAULT, NONE, UNIT, TimerLog, Unit
from pymq.broker.timer.metrics import TimerMetrics, topic_hash
from pymq.broker.timer.properties import asked_ms, slot_ms
from pymq.broker.timer.wheel import Slot, TimerWheel
from pymq.clock import ManualClock

FILE = UNIT.size * 3 + 20


def unit(number, previous=NONE):
    """A unit with everything in it."""
    return Unit(previous, MAGIC_DEFAULT, 1000, 500, 4000 + number, 77, -5)


def fill(log, count):
    """Write *count* units one by one; their positions."""
    positions = []
    for number in range(count):
        positions.append(log.place(log.end))
        log.write([(positions[-1], unit(number))])
    return positions


def test_a_unit_has_apaches_bytes(tmp_path):
    """TimerLog.UNIT_SIZE and the order of TimerMessageStore.doEnqueue's puts."""
    log = TimerLog(tmp_path, FILE)
    log.write([(0, unit(1))])
    log.close()
    data = (tmp_path / f"{0:020d}").read_bytes()
    assert len(data) == FILE
    assert data[:52] == struct.pack(">iqiqiqiiq", 52, -1, 1, 1000, 500, 4001, 77, -5, 0)


def test_a_file_ends_with_a_blank_where_a_unit_would_not_leave_room_for_one(tmp_path):
    """Three units of 52 and 20 bytes left: 68 would be needed for a fourth."""
    log = TimerLog(tmp_path, FILE)
    assert fill(log, 4) == [0, 52, 104, FILE]
    assert [position for position, _ in log.scan(0)] == [0, 52, 104, FILE]
    assert [found.offset for _, found in log.scan(52)] == [4001, 4002, 4003]
    log.close()
    data = (tmp_path / f"{0:020d}").read_bytes()
    assert struct.unpack_from(">iqi", data, 156) == (20, 0, BLANK_MAGIC)


def test_units_written_together_are_the_same_as_one_by_one(tmp_path):
    """Over the end of two files."""
    one, many = TimerLog(tmp_path / "one", FILE), TimerLog(tmp_path / "many", FILE)
    positions = fill(one, 8)
    many.write([(position, unit(number)) for number, position in enumerate(positions)])
    assert one.end == many.end
    for name in sorted(path.name for path in (tmp_path / "one").iterdir()):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


def test_what_is_behind_a_cut_never_comes_back(tmp_path):
    """Cut in the middle of the first of three files; the rest is gone from the disk, also for who walks it."""
    log = TimerLog(tmp_path, FILE)
    fill(log, 8)
    log.cut(52)
    assert [position for position, _ in log.scan(0)] == [0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}"]
    assert not any((tmp_path / f"{0:020d}").read_bytes()[52:])
    assert log.place(log.end) == 52
    log.close()


def test_files_go_when_nothing_in_them_is_read_again(tmp_path):
    """Whole files below a position; never the last."""
    log = TimerLog(tmp_path, FILE)
    positions = fill(log, 8)
    assert log.remove_below(positions[6]) == 2
    assert log.read(positions[5]) is None
    assert log.read(positions[6]) == unit(6)
    assert log.remove_below(1 << 40) == 0
    log.close()
    assert TimerLog(tmp_path, FILE).begin == 2 * FILE


def test_files_of_another_size_are_refused_by_name(tmp_path):
    """The size they have, and the key to set."""
    TimerLog(tmp_path, FILE).write([(0, unit(1))])
    with pytest.raises(pymq.ConfigError, match="mappedFileSizeTimerLog is 4096"):
        TimerLog(tmp_path, 4096)


def test_a_slot_has_apaches_bytes_and_belongs_to_one_time(tmp_path):
    """Slot number and fields of TimerWheel; another time of the same slot finds nothing."""
    wheel = TimerWheel(tmp_path / "timerwheel", 1000, 50)
    wheel.put(123_456_000, Slot(52, 104, 2))
    assert wheel.get(123_456_000) == Slot(52, 104, 2)
    assert wheel.get(123_456_000 + wheel.span_ms) is None
    assert wheel.occupant_ms(123_456_000 + wheel.span_ms) == 123_456_000
    assert list(wheel.slots()) == [(123_456_000, Slot(52, 104, 2))]
    wheel.close()
    data = (tmp_path / "timerwheel").read_bytes()
    assert len(data) == 100 * 32
    assert data[56 * 32 : 57 * 32] == struct.pack(">qqqii", 123_456, 52, 104, 2, 0)


def test_a_checkpoint_is_ours_until_apache_writes(tmp_path):
    """Apache changes its seven longs and leaves ours; then only its own count."""
    path = tmp_path / "config" / "timercheck"
    ours = TimerCheckpoint(5000, 104, 7, DataVersion(0, 99, 3), True, 1000, True, 104, 52, -1, 2)
    save_checkpoint(path, ours)
    save_checkpoint(path, ours)
    assert path.stat().st_size == FILE_SIZE
    assert load_checkpoint(path) == ours
    data = bytearray(path.read_bytes())
    assert struct.unpack(">7q", data[:56]) == (5000, 104, 7, 7, 0, 99, 3)
    struct.pack_into(">q", data, 16, 6)
    path.write_bytes(data)
    theirs = load_checkpoint(path)
    assert (theirs.ours, theirs.queue_offset, theirs.read_ms) == (False, 6, 5000)


@pytest.mark.parametrize(("deliver_ms", "slot"), [(10_000, 9000), (10_001, 10_000), (10_999, 10_000), (11_000, 10_000)])
def test_the_slot_of_a_time_is_over_at_it_or_less_than_a_slot_later(deliver_ms, slot):
    """HookUtils rounds so: a whole second belongs to the slot that ends with it."""
    assert slot_ms(deliver_ms, 1000) == slot
    assert deliver_ms <= slot + 1000 < deliver_ms + 1000


def test_of_several_ways_to_ask_seconds_win_over_milliseconds_over_points_in_time():
    """transformTimerMessage's order."""
    asked = {"TIMER_DELIVER_MS": "5", "TIMER_DELAY_MS": "30", "TIMER_DELAY_SEC": "2"}
    assert asked_ms(asked, 1000) == 3000
    del asked["TIMER_DELAY_SEC"]
    assert asked_ms(asked, 1000) == 1030
    del asked["TIMER_DELAY_MS"]
    assert asked_ms(asked, 1000) == 5


def test_metrics_are_kept_by_topic_and_found_by_hash(tmp_path):
    """Saved, read again; a hash two topics share names neither."""
    clock = ManualClock(datetime(2026, 11, 16, tzinfo=UTC))
    metrics = TimerMetrics(tmp_path / "timermetrics", clock)
    metrics.add("Aa", 3)
    metrics.add("C", 1)
    metrics.save()
    again = TimerMetrics(tmp_path / "timermetrics", clock)
    assert (again.count("Aa"), again.count("C"), again.total) == (3, 1, 4)
    assert again.topic_of(topic_hash("Aa")) == "Aa"
    again.add("BB", 1)  # Java's best-known collision
    assert again.topic_of(topic_hash("Aa")) is None
    again.remove("BB")
    assert again.topic_of(topic_hash("Aa")) == "Aa"
