"""Timers against a small world that knows what is right, in bulk and step by step.

R13: timers with delays from 1 s to 8 days, recalls, crash points in the middle of writes, a clock that is set forward
and back: never early, late by less than the precision, none lost, repeated only across a crash. 5,000 timers by
default, 100,000 with PYMQ_FULL=1; PYMQ_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import shutil

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.timer_world import World, make_directory

FULL = bool(os.environ.get("PYMQ_FULL"))
TIMERS = 100_000 if FULL else 5_000
CRASHES = 100
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LONGEST_MS = 8 * DAY_MS


def delay_of(chance):
    """1 s to 8 days, as many short ones as long ones."""
    return int(1000 * (LONGEST_MS / 1000) ** chance.random())


def play(world, chance, timers, crashes):
    """Send *timers* messages over two days, with *crashes* on the way, and wait until the last is due."""
    begin_ms, span_ms = world.clock.ms, 2 * DAY_MS
    moments = sorted(begin_ms + chance.randrange(span_ms) for _ in range(timers))
    total_ms = span_ms + LONGEST_MS
    trouble = sorted(begin_ms + int(total_ms * chance.random() ** 2) for _ in range(crashes + crashes // 2))
    at = 0
    while at < timers or world.due:
        now_ms = world.clock.ms
        next_ms = [world.timers.next_due_ms or now_ms + DAY_MS, now_ms + DAY_MS]
        next_ms += moments[at : at + 1]
        next_ms += trouble[:1]
        world.clock.ms = max(now_ms, min(next_ms))
        while at < timers and moments[at] <= world.clock.ms:
            number = world.send(delay_of(chance))
            at += 1
            if chance.random() < 0.1:
                world.recall(chance.randrange(number + 1))
        if trouble and trouble[0] <= world.clock.ms:
            trouble.pop(0)
            make_trouble(world, chance)
        else:
            world.turn()
        if chance.random() < 0.05:
            world.save()
        if chance.random() < 0.002:
            world.retain()


def make_trouble(world, chance):
    """A crash somewhere in the next calls, a clean restart, or a clock that is set."""
    kind = chance.random()
    if kind < 0.67:
        world.crash_in = chance.randrange(1, 40)
        for _ in range(200):
            if world.crash_in is None:
                return
            world.turn()
            world.save()
            world.clock.ms = min(world.clock.ms + 1000, world.timers.next_due_ms or world.clock.ms + 1000)
        world.crash()
    elif kind < 0.8:
        world.stop(chance.choice((0, 1000, HOUR_MS)))
    else:
        world.clock.ms += chance.choice((-HOUR_MS, HOUR_MS, 1, -1, 999))
        world.excuse()
        world.turn()


@pytest.mark.timeout(3600 if FULL else 300)
def test_timers_of_every_length_come_in_time_over_crashes_and_clock_changes():
    """R13. The figures it prints are for the record; the world asserts as it goes."""
    seed = int(os.environ.get("PYMQ_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed} timers {TIMERS}")
    chance = random.Random(seed)
    directory = make_directory()
    world = World(directory, seed)
    try:
        play(world, chance, TIMERS, CRASHES)
        stats = world.timers.stats
        assert stats.lost == 0
        assert stats.illegal == 0
        assert all(message.recalled or message.epochs for message in world.sent)
        assert world.epoch >= CRASHES // 2
        print(
            f"seed {seed}: {len(world.sent)} timers, {world.epoch} crashes, {world.repeats} repeats across them, "
            f"{sum(message.recalled for message in world.sent)} recalled, late by {world.late_ms_max} ms at most"
        )
        assert world.late_ms_max <= world.precision_ms
    finally:
        world.close()
        shutil.rmtree(directory)


class TimerMachine(RuleBasedStateMachine):
    """The same world, driven by Hypothesis: short histories that shrink."""

    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed):
        """A wheel of 120 slots, so that rolling and wrapping are near."""
        self.directory = make_directory()
        self.world = World(self.directory, seed, window=40, slots_total=120)

    @rule(delay_ms=st.one_of(st.integers(1, 3000), st.integers(1, 600_000)))
    def send(self, delay_ms):
        """A message."""
        self.world.send(delay_ms)

    @rule(pick=st.integers(0, 1 << 16))
    def recall(self, pick):
        """Some message, if it is still to come."""
        if self.world.sent:
            self.world.recall(pick % len(self.world.sent))

    @rule(ms=st.one_of(st.integers(0, 3000), st.integers(0, 100_000)))
    def wait(self, ms):
        """Time passes, second by second, as the service wakes."""
        end_ms = self.world.clock.ms + ms
        while self.world.clock.ms < end_ms:
            due_ms = self.world.timers.next_due_ms or end_ms
            self.world.clock.ms = min(max(due_ms, self.world.clock.ms + 1), end_ms)
            self.world.turn()
        self.world.turn()

    @rule(ms=st.integers(-200_000, 200_000))
    def set_clock(self, ms):
        """Somebody sets the clock."""
        self.world.clock.ms += ms
        self.world.excuse()
        self.world.turn()

    @rule()
    def save(self):
        """A checkpoint, when the log allows it."""
        self.world.save()

    @rule()
    def retain(self):
        """Old log files go."""
        self.world.retain()

    @rule(power=st.booleans(), down_ms=st.sampled_from((0, 1000, 100_000, 1_000_000)))
    def crash(self, power, down_ms):
        """Between two calls."""
        self.world.crash(power=power, down_ms=down_ms)

    @rule(calls=st.integers(1, 30))
    def crash_soon(self, calls):
        """In the middle of one."""
        self.world.crash_in = calls

    @rule(down_ms=st.sampled_from((0, 1000, 100_000)))
    def stop(self, down_ms):
        """A clean restart."""
        self.world.stop(down_ms)

    @rule(status=st.sampled_from(("PYMQ_EREMOVED", "PYMQ_EPROPERTIES", "PYMQ_EREADONLY")), share=st.integers(1, 3))
    def fail(self, status, share):
        """Some messages, or all, cannot be put for a while; then they can."""
        self.world.fault = lambda item: status if (item.source // 100) % share == 0 else None
        self.wait(5000)
        self.world.fault = None
        for _ in range(8):  # what was put off comes back in slots of its own
            self.wait_for_put_off()
        self.world.excuse()

    def wait_for_put_off(self):
        """A minute, without looking at what is overdue."""
        self.world.fault = lambda item: None
        self.wait(10_000)
        self.world.fault = None

    @invariant()
    def nothing_is_lost(self):
        """No timer was ever without its message."""
        if hasattr(self, "world"):
            assert self.world.timers.stats.lost == 0

    def teardown(self):
        """Everything that is owed comes in the end."""
        if hasattr(self, "world"):
            try:
                self.world.crash_in = None
                for _ in range(100):
                    self.world.clock.ms += 30_000
                    self.world.excuse()
                    self.world.turn()
                assert all(message.recalled or message.epochs for message in self.world.sent)
            finally:
                self.world.close()
                shutil.rmtree(self.directory)


TestTimers = pytest.mark.timeout(3600 if FULL else 300)(TimerMachine.TestCase)
TestTimers.settings = settings(
    max_examples=300 if FULL else 40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
