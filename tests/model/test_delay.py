"""Delay levels against a reference of a few lines: what was sent, when it is due, and how often it came.

The decisions are the broker's own (`LevelDelivery`), the store and the calls that move messages are real, time is ours.
Messages fail one by one and heal, the store refuses altogether, the log is flushed or is not, progress is saved or is
not, and the process stops or dies: memory is lost then, and what was saved is read again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import pymq.broker.schedule.asking as asking
from pymq._core._serve import Due, Serve
from pymq._core._store import Store
from pymq._core.serve_config import ServeConfig
from pymq.broker.schedule.asking import NEVER_MS, ask, refused
from pymq.broker.schedule.delivery import LevelDelivery
from pymq.broker.schedule.lateness import Lateness
from pymq.broker.schedule.levels import DelayLevels
from pymq.broker.schedule.progress import RETRY_MS_MAX, LevelProgress
from pymq.store.config import StoreConfig

LEVELS = DelayLevels("1s 5s 1m 1h")
TOPIC = "Target"
FULL = os.environ.get("PYMQ_FULL") == "1"
EVENT_COUNT_MAX = 10_000  # looks of one delivery: more would be a loop without an end
HOUR_MS = 3_600_000


@dataclass
class Sent:
    """What the reference knows of a message."""

    level: int
    offset: int
    due_ms: int
    deliveries: int = 0
    crashes: int = 0  # since it was delivered first
    end_offset: int = 1 << 62  # in the log, of its first delivery


class DelayMachine(RuleBasedStateMachine):
    """Sends, time, failures, stops and kills in any order."""

    @initialize()
    def begin(self):
        """An empty store."""
        self.directory = Path(tempfile.mkdtemp(prefix="pymq-delay-model-"))
        config = StoreConfig(
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20 * 1_000,
            flush_disk_type="ASYNC_FLUSH",
            flush_interval_commit_log_ms=1 << 30,  # only when the test says so
            flush_commit_log_thorough_interval_ms=1 << 30,
            message_delay_level="1s 5s 1m 1h",
            message_index_enable=False,
        )
        self.store = Store(self.directory / "store", config)
        self.serve = Serve(ServeConfig(), self.store)
        self.shift_ms = 0
        self.sent: dict[str, Sent] = {}
        self.failing: dict[tuple[int, int], str] = {}
        self.refuses = False
        self.read = 0
        self.saved: dict[int, tuple[int, list[int]]] = {}
        self.load()

    def teardown(self):
        """Close what was opened."""
        if hasattr(self, "serve"):
            self.serve.close()
            self.store.close()
            shutil.rmtree(self.directory)

    def load(self):
        """As after a start."""
        self.lateness = Lateness()
        self.deliveries = {}
        for level in range(1, LEVELS.level_max + 1):
            offset, failed = self.saved.get(level, (0, []))
            progress = LevelProgress(offset, failed)
            self.deliveries[level] = LevelDelivery(level, LEVELS.delay_ms(level), progress, self.lateness)

    def now_ms(self):
        """The machine's clock, moved forward."""
        return time.time_ns() // 1_000_000 + self.shift_ms

    # ---- rules ---------------------------------------------------------------------------------------------------

    @rule(level=st.integers(1, LEVELS.level_max), count=st.integers(1, 5), told=st.booleans())
    def send(self, level, count, told):
        """Store delayed messages; whether the service is told of them, or finds out."""
        for _ in range(count):
            name = str(len(self.sent))
            topic, queue_id, properties = LEVELS.waiting(level, TOPIC, 0)
            text = "".join(f"{key}\x01{value}\x02" for key, value in properties.items()).encode()
            put = self.serve.put(topic, queue_id, name.encode(), text, born_host=("127.0.0.1", 1), born_timestamp_ms=1)
            due_ms = put.store_timestamp_ms + LEVELS.delay_ms(level)
            self.sent[name] = Sent(level, put.queue_offset, due_ms)
            if told:
                self.deliveries[level].stored(put.queue_offset + 1)

    @rule(ms=st.sampled_from([1, 500, 1_000, 5_000, RETRY_MS_MAX, HOUR_MS]))
    def advance(self, ms):
        """Time passes."""
        self.shift_ms += ms

    @rule()
    def deliver(self):
        """Every level looks until it would wait."""
        assert self.store.wait_dispatched(10_000)
        now_ms = self.now_ms()
        for delivery in self.deliveries.values():
            for _ in range(EVENT_COUNT_MAX):
                look = delivery.look(now_ms)
                delivery.took(look, self.ask(look, now_ms), now_ms)
                if delivery.wait_ms(now_ms) != 0:
                    break
            else:
                raise AssertionError(f"level {delivery.level} never waits")
        self.receive(now_ms)
        for name, message in self.sent.items():
            if message.due_ms <= now_ms and not self.refuses and not self.may_wait(message):
                assert message.deliveries, f"{name} was due and did not come"

    @rule(data=st.data(), status=st.sampled_from(["PYMQ_ENOTFOUND", "PYMQ_ECORRUPT", "PYMQ_ETOOBIG", "PYMQ_EREMOVED"]))
    def break_one(self, data, status):
        """From now on one message that has not been delivered yet cannot be."""
        candidates = [message for message in self.sent.values() if not message.deliveries]
        if candidates:
            message = data.draw(st.sampled_from(candidates))
            self.failing[message.level - 1, message.offset] = status

    @rule()
    def heal_all(self):
        """Whatever was wrong is right, and time enough passes for every second try."""
        self.failing.clear()
        self.refuses = False
        self.shift_ms += RETRY_MS_MAX
        self.deliver()

    @rule()
    def refuse(self):
        """The store takes nothing."""
        self.refuses = True

    @rule()
    def flush(self):
        """The log reaches the disk."""
        self.store.flush()

    @rule()
    def save(self):
        """Progress is written down, and vouches for nothing that a power cut could take."""
        flushed = self.store.watermarks()["flushed"]
        for level, delivery in self.deliveries.items():
            delivery.progress.settle(flushed)
            self.saved[level] = (delivery.progress.vouched, delivery.progress.failed_offsets())
        for name, message in self.sent.items():
            vouched, failed = self.saved[message.level]
            if message.offset < vouched and message.offset not in failed:
                assert message.end_offset <= flushed, f"{name} was written down as delivered before it was flushed"

    @rule()
    def stop(self):
        """A stop in order: flush, save, begin again."""
        self.flush()
        self.save()
        self.load()

    @rule()
    def kill(self):
        """Memory is gone; what was saved is not."""
        for message in self.sent.values():
            message.crashes += 1 if message.deliveries else 0
        self.load()

    # ---- the store, with failures --------------------------------------------------------------------------------

    def ask(self, look, now_ms):
        """The real call, except for what fails."""
        if self.refuses:
            return refused(look, "PYMQ_EREADONLY")
        status = self.failing.get((look.queue_id, look.offset))
        if look.again:
            return refused(look, status) if status else ask(self.serve, self.store, look, now_ms)
        ahead = [offset for queue_id, offset in self.failing if queue_id == look.queue_id and offset >= look.offset]
        if not ahead:
            return ask(self.serve, self.store, look, now_ms)
        first = min(ahead)
        due = Due(look.offset, 0, NEVER_MS, asking.OK, 0, 0)
        if first > look.offset:
            due = self.serve.deliver_due(
                "SCHEDULE_TOPIC_XXXX", look.queue_id, look.offset, now_ms, first - look.offset,
                remove=asking.REMOVED_PROPERTIES,
            )  # fmt: skip
        due_ms = self.due_of(look.queue_id, first)
        if due.next_offset == first:
            is_due = due_ms <= now_ms
            due = due._replace(status=self.failing[look.queue_id, first] if is_due else asking.OK, next_due_ms=due_ms)
        return due

    def due_of(self, queue_id, offset):
        """When a message is due, by its place."""
        return next(sent.due_ms for sent in self.sent.values() if (sent.level - 1, sent.offset) == (queue_id, offset))

    # ---- the reference -------------------------------------------------------------------------------------------

    def may_wait(self, message):
        """Whether a due message is excused: it fails, or failed and its next try has not come."""
        progress = self.deliveries[message.level].progress
        return (
            (message.level - 1, message.offset) in self.failing
            or message.offset in progress.aside
            or (progress.offset <= message.offset and self.was_refused(message.level))
        )

    def was_refused(self, level):
        """Whether the level waits because the store refused."""
        return self.deliveries[level]._refused > 0

    def receive(self, now_ms):
        """What has arrived since: nothing before its time, nothing twice but over a kill."""
        assert self.store.wait_dispatched(10_000)
        if not any(topic == TOPIC for topic, *_ in self.store.queues()):
            return
        _, end = self.store.queue_range(TOPIC, 0)
        arrived = self.store.read(TOPIC, 0, self.read, end - self.read) if end > self.read else []
        self.read = end
        for name, count in Counter(message.body.decode() for message in arrived).items():
            message = self.sent[name]
            assert message.due_ms <= now_ms, f"{name} came {message.due_ms - now_ms} ms early"
            message.deliveries += count
            assert message.deliveries <= 1 + message.crashes, f"{name} came {message.deliveries} times"
        for message in arrived:
            sent = self.sent[message.body.decode()]
            sent.end_offset = min(sent.end_offset, message.physical_offset + message.store_size)
            assert message.topic == TOPIC
            assert message.properties["DELAY"] == str(sent.level)


TestDelay = DelayMachine.TestCase
TestDelay.settings = settings(
    max_examples=2_000 if FULL else 60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_thousands_of_messages_come_once_and_in_order():
    """Goal: no look loses or repeats at its edges. Method: 3 levels, 20,000 messages, a stop in the middle of each."""
    machine = DelayMachine()
    machine.begin()
    try:
        for level in (1, 2, 3):
            for _ in range(2_000):
                machine.send(level, 3, False)
        machine.advance(1_000)
        machine.deliver()
        before = machine.lateness.count
        machine.stop()
        for level in (1, 2, 3):
            machine.send(level, 500, True)
        machine.advance(HOUR_MS)
        machine.deliver()
        assert all(message.deliveries == 1 for message in machine.sent.values())
        assert before + machine.lateness.count == len(machine.sent) == 19_500
        names = [int(message.body) for message in machine.store.read(TOPIC, 0, 0, machine.read)]
        for level in (1, 2, 3):
            of_level = [name for name in names if machine.sent[str(name)].level == level]
            assert of_level == sorted(of_level)
    finally:
        machine.teardown()
