"""Timers in situations that were thought of, one by one; `test_timers` finds those that were not."""

from __future__ import annotations

import shutil

import pytest

import pymq
from pymq.broker.timer.store import TimerStore
from tests.model.timer_world import BEGIN_MS, REAL_TOPIC, TIMER_TOPIC, World, make_directory


@pytest.fixture
def world():
    """A wheel of 120 slots of a second, 40 of which are used ahead."""
    directory = make_directory()
    made = World(directory, window=40, slots_total=120)
    yield made
    made.close()
    shutil.rmtree(directory)


def at(world, second):
    """Let time pass until *second* after the beginning, as the service would."""
    end_ms = BEGIN_MS + second * 1000
    while world.clock.ms < end_ms:
        world.clock.ms = min(max(world.timers.next_due_ms or end_ms, world.clock.ms + 1), end_ms)
        world.turn()


def deliveries(world):
    """How often each message was delivered."""
    return [len(message.epochs) for message in world.sent]


def test_a_recalled_message_that_was_rolled_while_the_broker_was_down_is_not_delivered(world):
    """Its recall waits in its own slot, and must not be spent before the message has come back to that slot."""
    world.send(50_000)  # rolled: into a slot 20 s from now, and from there into its own
    world.turn()
    at(world, 11)
    assert world.recall(0)  # near enough for its own slot at once
    world.turn()
    world.stop(500_000)
    at(world, 600)
    assert deliveries(world) == [0]
    assert (world.timers.stats.rolled, world.timers.stats.recalled) == (1, 1)


def test_a_recalled_message_is_not_delivered_when_the_clock_went_back_and_on_before_either_was_in_the_wheel(world):
    """Both are late then, in the same batch: the message was put again at once, and its recall came too late."""
    world.clock.ms -= 38_000
    world.send(1000)
    assert world.recall(0)
    world.send(1000)
    world.clock.ms += 10_000
    world.turn()
    assert deliveries(world) == [0, 1]
    assert (world.timers.stats.recalled, world.timers.stats.late_recalls) == (1, 0)


def test_a_late_recall_of_another_slot_does_not_take_a_late_message(world):
    """A key may be used again: the recall names the key, and by its slot the one of its messages that is meant."""
    world.clock.ms -= 38_000
    number = world.send(1000)
    properties = {
        "UNIQ_KEY": str(number),
        "TIMER_DEL_UNIQKEY": str(number),
        "TIMER_OUT_MS": str(world.sent[number].slot + 2000),
        "REAL_TOPIC": REAL_TOPIC,
    }
    world.append(TIMER_TOPIC, properties)
    world.clock.ms += 10_000
    world.turn()
    assert deliveries(world) == [1]
    assert (world.timers.stats.recalled, world.timers.stats.late_recalls) == (0, 1)


def test_one_message_that_cannot_be_delivered_is_tried_again_alone(world):
    """Its topic is being removed for a while; its neighbours come once and in time, it comes when it can."""
    for _ in range(5):
        world.send(3000)
    world.turn()
    bad = world.queue[2]
    world.fault = lambda item: "PYMQ_EREMOVED" if item.source == bad else None
    at(world, 10)
    assert deliveries(world) == [1, 1, 0, 1, 1]
    assert world.timers.stats.put_off >= 2
    world.stop()
    assert deliveries(world) == [1, 1, 0, 1, 1]
    world.fault = None
    at(world, 80)
    assert deliveries(world) == [1, 1, 1, 1, 1]
    assert world.timers.metrics.total == 0


def test_a_message_without_room_for_our_properties_is_delivered_without_them(world):
    """TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS are for tracing; the message is not theirs to keep."""
    world.send(1000)
    world.fault = lambda item: "PYMQ_EPROPERTIES" if item.set else None
    at(world, 5)
    assert deliveries(world) == [1]
    assert world.timers.stats.put_off == 0


@pytest.mark.parametrize("room", [len("TIMER_ROLL_TIMES\x011\x02"), 0])
def test_a_message_without_room_for_our_properties_is_rolled_without_them_and_can_be_recalled(world, room):
    """It is in its own slot in time, whatever of ours it carries; there its recall meets it."""
    world.send(100_000)
    world.send(100_000)
    world.turn()
    world.fault = lambda item: "PYMQ_EPROPERTIES" if len(item.set) > room else None
    at(world, 95)
    assert world.recall(1)
    at(world, 105)
    assert deliveries(world) == [1, 0]
    assert world.late_ms_max <= world.precision_ms
    assert (world.timers.stats.rolled, world.timers.stats.put_off, world.timers.stats.recalled) == (4, 0, 1)
    assert world.timers.metrics.total == 0


def test_what_a_full_store_refuses_is_delivered_when_it_takes_messages_again(world):
    """All of a slot waits, in order, over a clean restart too; later slots wait behind it; nothing comes twice."""
    for number in range(20):
        world.send(3000 if number < 10 else 5000)
    taken = []
    world.fault = lambda item: None if len(taken) < 4 and not taken.append(item) else "PYMQ_EREADONLY"
    at(world, 10)
    assert deliveries(world) == [1] * 4 + [0] * 16
    assert world.timers.is_refused
    world.stop()
    assert deliveries(world) == [1] * 4 + [0] * 16
    world.fault = None
    world.excuse()
    at(world, 15)
    assert deliveries(world) == [1] * 20


def test_a_slot_that_was_delivered_before_the_clock_went_back_is_not_delivered_again(world):
    """A new timer belongs into a time that was passed already; it waits for it, and brings nobody back."""
    world.send(2000)
    world.send(8000)
    at(world, 10)
    assert deliveries(world) == [1, 1]
    world.clock.ms -= 9000
    world.send(2000)
    world.turn()
    assert deliveries(world) == [1, 1, 0]
    assert world.timers.stats.moved_back == 1
    at(world, 2)
    world.stop()
    at(world, 20)
    assert deliveries(world) == [1, 1, 1]


def test_a_timer_that_was_due_during_weeks_of_down_time_is_delivered(world):
    """Longer than the wheel is round: Apache skips what is older than half of it."""
    world.send(30_000)
    world.send(500_000)
    world.turn()
    world.stop(3_600_000)
    assert deliveries(world) == [1, 1]


def test_a_power_cut_that_takes_a_timed_send_back_leaves_no_unit_of_it(world):
    """Another message may get its place in the log, and must not be delivered at the lost one's time."""
    world.send(2000)
    world.turn()
    world.timers.save()  # nothing of the log is on disk, so nothing may be vouched for
    world.crash(power=True, down_ms=0)
    world.send(30_000)
    at(world, 29)
    assert deliveries(world) == [0, 0]
    at(world, 31)
    assert deliveries(world) == [0, 1]


def test_a_slot_whose_delivery_fails_in_the_middle_is_delivered_whole_and_once(world):
    """Whatever was raised: what was not delivered stays pending, over a crash too."""
    for _ in range(1200):  # three batches
        world.send(3000)
    world.turn()
    calls = []

    def fault(item):
        calls.append(item)
        if len(calls) == 700:
            world.put_again.difference_update(item.source for item in calls[512:])
            raise ZeroDivisionError("a bug")

    world.fault = fault
    with pytest.raises(ZeroDivisionError):
        at(world, 4)
    assert deliveries(world)[:512] == [1] * 512
    assert world.timers.is_refused
    world.fault = None
    world.durable = world.written
    world.timers.save()
    world.crash(power=False, down_ms=0)
    assert min(deliveries(world)) >= 1


def test_a_slot_is_kept_when_what_is_put_off_cannot_be_written(world, monkeypatch):
    """Its topic is being removed and the disk is full: the others come once, it comes when both are over."""
    for _ in range(1000):  # two batches
        world.send(3000)
    world.turn()
    world.fault = lambda item: "PYMQ_EREMOVED" if item.source == world.queue[2] else None

    def write(units):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(world.timers.log, "write", write)
        with pytest.raises(OSError, match="no space left"):
            at(world, 4)
    world.fault = None
    at(world, 8)
    assert deliveries(world) == [1] * 1000


def test_a_timer_with_a_roll_count_of_thousands_of_digits_is_delivered_as_its_neighbours_are(world):
    """Python refuses to read such a number; the timer may not stop at it."""
    for _ in range(3):
        world.send(50_000)
    world.records[world.queue[1]][1]["TIMER_ROLL_TIMES"] = "9" * 5000
    world.turn()
    at(world, 60)
    assert deliveries(world) == [1, 1, 1]
    assert world.timers.stats.rolled == 3


def test_late_timers_that_the_store_refused_are_not_lost_by_a_crash(world):
    """They were never in the timer log, and the timer topic is behind them."""
    world.send(2000)
    at(world, 10)
    world.clock.ms += 10_000
    world.send(5000)
    at(world, 30)  # read_ms is behind them now
    first = len(world.sent)
    for _ in range(3):
        world.send(-8000)
        world.sent[-1].excused = True
    world.fault = lambda item: "PYMQ_EREADONLY"
    world.turn()
    world.durable = world.written
    world.timers.save()
    world.crash(power=False, down_ms=0)
    world.fault = None
    at(world, 40)
    assert deliveries(world)[first:] == [1, 1, 1]


def slow(world, name, monkeypatch):
    """Let each call of the source's *name* take 100 ms."""
    real = getattr(world, name)

    def call(*arguments):
        world.clock.ms += 100
        return real(*arguments)

    monkeypatch.setattr(world, name, call)


def test_a_backlog_that_is_delivered_is_written_down_on_the_way(world, monkeypatch):
    """A kill after many slots repeats those since the last save, not all of them."""
    for number in range(20):
        world.send(3000 + 1000 * number)
    world.turn()
    world.clock.ms += 30_000
    world.excuse()
    slow(world, "reput", monkeypatch)
    for turn in range(1, 5):
        assert world.timers.dequeue(world.clock.monotonic_s() + 0.15) == 2
        assert deliveries(world) == [1] * 2 * turn + [0] * (20 - 2 * turn)
        world.durable = world.written
        world.timers.save()
    world.crash(power=False, down_ms=0)
    assert deliveries(world) == [1] * 20


def test_a_slot_too_big_for_one_turn_goes_on_in_the_next(world, monkeypatch):
    """In order and once each; the store did not refuse anything, so nobody waits."""
    for _ in range(1200):
        world.send(3000)
    world.send(5000)
    world.turn()
    world.clock.ms += 10_000
    slow(world, "reput", monkeypatch)
    assert world.timers.dequeue(world.clock.monotonic_s() + 0.15) == 1
    assert (world.timers.dequeue_cut, world.timers.is_refused) == (True, False)
    assert deliveries(world) == [1] * 1024 + [0] * 177
    assert world.timers.dequeue() == 1
    assert deliveries(world) == [1] * 1201
    assert not world.timers.dequeue_cut


def test_a_long_timer_topic_is_read_in_turns(world, monkeypatch):
    """The turn ends in time and says that there is more."""
    for _ in range(1200):
        world.send(30_000)
    slow(world, "read", monkeypatch)
    assert world.timers.enqueue(1200, world.clock.monotonic_s() + 0.15) == 1024
    assert world.timers.enqueue_cut
    assert world.timers.enqueue(1200, world.clock.monotonic_s() + 0.15) == 176
    assert not world.timers.enqueue_cut


def test_files_of_the_timer_log_go_with_their_timers(world):
    """Ten thousand timers that came leave one or two files of a thousand units."""
    for _ in range(10):
        for _ in range(1000):
            world.send(1500)
        at(world, (world.clock.ms - BEGIN_MS) // 1000 + 4)
        world.clock.ms += 31_000
        world.durable = world.written
        world.timers.save()
        world.timers.clean()
    assert len(list((world.directory / "timerlog").iterdir())) <= 2
    assert world.timers.stats.delivered == 10_000


def test_another_precision_is_refused_while_timers_are_pending(world):
    """Slots of the old one would be times of the new one; the error names both."""
    world.send(30_000)
    world.turn()
    world.timers.close()
    other = type(world.settings)(timer_precision_ms=500, mapped_file_size_timer_log=52 * 1000 + 20)
    with pytest.raises(pymq.ConfigError, match=r"timerPrecisionMs is 500, the 1 slots .* were made with 1000"):
        TimerStore(world.directory, other, world, world.clock, slots_total=120)
    world.open()
    at(world, 31)
    assert deliveries(world) == [1]


# ---- lost files ------------------------------------------------------------------------------------------------------


def lose(world, *names):
    """Take files of the timers away."""
    for name in names:
        path = world.directory / name
        if name == "half":
            (first, *_) = sorted((world.directory / "timerlog").iterdir())
            data = first.read_bytes()
            first.write_bytes(data[:52].ljust(len(data), b"\0"))
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


LOST = [("timerlog",), ("timerwheel",), ("timerlog", "timerwheel"), ("half",), ("half", "timerwheel")]


def some_of_each(world):
    """Delivered, pending, rolled already, to be rolled, recalled, and recalled after it was rolled."""
    for delay_ms in (2000, 3000, 25_000, 26_000, 35_000, 50_000, 100_000, 52_000):
        world.send(delay_ms)
    world.turn()
    at(world, 3)
    assert world.recall(3)
    at(world, 22)
    assert world.timers.stats.rolled == 2
    assert world.recall(7)
    at(world, 24)
    assert deliveries(world) == [1, 1] + [0] * 6


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("names", LOST, ids="+".join)
def test_a_lost_timer_log_or_wheel_is_made_again_from_the_topic_once_each(world, names, clean):
    """Another disk not mounted, an operator who resets the timers: nothing is lost, nothing comes twice."""
    some_of_each(world)
    if clean:
        world.timers.close()
    else:
        world.durable = world.written
        world.timers.save()
        world.timers.close(flush=False)
    world.os.forget()
    lose(world, *names)
    world.open()
    at(world, 150)
    assert deliveries(world) == [1, 1, 1, 0, 1, 1, 1, 0]
    assert world.timers.stats.lost == 0
    assert world.timers.metrics.total == 0


@pytest.mark.parametrize("calls", range(1, 12))
def test_a_crash_while_a_lost_timer_log_is_made_again_loses_nothing(world, calls):
    """At any call to the disk: the next start begins the work anew."""
    some_of_each(world)
    world.timers.close()
    world.os.forget()
    lose(world, "timerlog")
    world.crash_in = calls
    world.open()
    world.crash_in = None
    at(world, 150)
    assert deliveries(world) == [1, 1, 1, 0, 1, 1, 1, 0]


def test_a_timer_that_was_put_off_when_the_timer_log_was_lost_comes_all_the_same(world):
    """Its time is before the checkpoint's, and it was not delivered."""
    world.send(2000)
    world.send(2000)
    world.send(30_000)
    world.turn()
    world.fault = lambda item: "PYMQ_EREMOVED" if item.source == world.queue[0] else None
    at(world, 10)
    assert deliveries(world) == [0, 1, 0]
    world.timers.close()
    world.fault = None
    world.put_again.clear()
    lose(world, "timerlog")
    world.open()
    at(world, 100)
    assert deliveries(world) == [1, 2, 1]  # the second cannot be told from the first


@pytest.mark.parametrize("left", [None, 0, 40])
def test_without_a_checkpoint_every_timer_of_the_topic_comes_once_more_and_not_twice(world, left):
    """Nothing says what was delivered. The timer log is not believed besides the topic, or pending ones came twice."""
    some_of_each(world)
    world.timers.close()
    world.os.forget()
    world.put_again.clear()
    path = world.directory / "config" / "timercheck"
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])
    world.open()
    at(world, 150)
    assert deliveries(world) == [2, 2, 1, 0, 1, 1, 1, 0]
