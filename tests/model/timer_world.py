"""A world for timers to live in: a commit log in memory, a clock that goes where it is told, a disk that forgets.

`World` drives a real `TimerStore` on real files and knows, message by message, what must and must not happen:

* nothing is delivered before its time, by the clock at that moment;
* after every turn nothing is overdue by more than the precision, except what fell into a down time or a clock jump;
* what was recalled in time is not delivered; everything else is, in the end;
* no record is put again twice, except across a crash.

A crash comes in the middle of whatever the timers were doing, at a call to the disk or the log. After a *kill* all that
was written is there; after a *power* cut the log ends where it was flushed, and of the writes to the timers' files that
were not synced some are missing.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pymq import durable_file
from pymq._core._serve import PutResult
from pymq.broker.names import TIMER_TOPIC
from pymq.broker.timer import checkpoint, log, store, wheel
from pymq.broker.timer.properties import slot_ms
from pymq.broker.timer.settings import TimerSettings
from pymq.broker.timer.source import Timed

BEGIN_MS = 1_794_800_000_000
RECORD_SIZE = 100
REAL_TOPIC = "Orders"
MEMORY = Path("/dev/shm")
TURNS_MAX = 10_000


def make_directory():
    """A directory in memory, where there is such a thing: the disk is modelled, and waiting for the real one is not."""
    return Path(tempfile.mkdtemp(prefix="timers", dir=MEMORY if MEMORY.is_dir() else None))


class Crash(Exception):
    """The process ends here."""


class WorldClock:
    """Wall-clock time that may jump."""

    def __init__(self):
        self.ms = BEGIN_MS

    def now_ms(self):
        return self.ms

    def monotonic_s(self):
        return self.ms / 1000

    def local_time(self):
        return datetime.fromtimestamp(self.ms / 1000, UTC)


class ForgetfulOs:
    """`os` as the timers' files see it: counts down to a crash, and remembers what a power cut may undo."""

    def __init__(self, world):
        self._world = world
        self._undo = {}  # by (device, inode): (path, position, bytes before) of each write that is not synced

    def __getattr__(self, name):
        return getattr(os, name)

    def pwrite(self, file, data, position):
        self._world.step_towards_crash()
        status = os.fstat(file)
        before = os.pread(file, len(data), position).ljust(len(data), b"\0")
        path = os.readlink(f"/proc/self/fd/{file}")
        self._undo.setdefault((status.st_dev, status.st_ino), []).append((path, position, before))
        return os.pwrite(file, data, position)

    def fdatasync(self, file):
        self._world.step_towards_crash()
        status = os.fstat(file)
        self._undo.pop((status.st_dev, status.st_ino), None)

    def fsync(self, file):
        """Of tables that nobody relies on; the real thing takes all the time there is."""

    def cut_power(self, chance):
        """Undo some of what was not synced."""
        for writes in self._undo.values():
            for path, position, before in reversed(writes):
                if chance.random() < 0.5 and os.path.exists(path):
                    file = os.open(path, os.O_RDWR)
                    os.pwrite(file, before, position)
                    os.close(file)
        self._undo.clear()

    def forget(self):
        """A kill: the page cache has it all."""
        self._undo.clear()


class Sent:
    """What is known of one message."""

    __slots__ = ("due_ms", "epochs", "excused", "gone", "number", "recalls", "slot")

    def __init__(self, number, due_ms, slot):
        self.number = number
        self.due_ms = due_ms
        self.slot = slot
        self.gone = False  # a power cut took it back before it was on disk
        self.recalls = 0  # that stand
        self.epochs = []  # the crash count at each delivery that still stands
        self.excused = False

    @property
    def recalled(self):
        """Whether nothing is owed."""
        return self.gone or self.recalls > 0


class World:
    """The log, the clock, the timers, and what is right."""

    def __init__(self, directory, seed=0, *, precision_ms=1000, window=172_800, slots_total=wheel.SLOTS_TOTAL):
        self.directory = directory
        (directory / "config").mkdir(parents=True, exist_ok=True)
        self.chance = random.Random(seed)
        self.clock = WorldClock()
        self.os = ForgetfulOs(self)
        for module in (checkpoint, durable_file, log, wheel):
            module.os = self.os
        self.settings = TimerSettings(
            timer_precision_ms=precision_ms, timer_roll_window_slot=window, mapped_file_size_timer_log=52 * 1000 + 20
        )
        self.precision_ms = precision_ms
        self.slots_total = slots_total
        self.records = {}  # offset: (topic, properties)
        self.queue = []  # offsets of the timer topic, by queue offset
        self.queue_first = 0
        self.written = 0
        self.durable = 0
        self.sent = []
        self.due = []  # heap of (slot's end, number)
        self.epoch = 0
        self.put_again = set()  # records put again since the last crash; each may be but once
        self.crash_in = None  # calls until the next crash
        self.fault = None  # status -> for whom
        self.late_ms_max = 0
        self.repeats = 0
        self.timers = None
        self.open()

    # ---- the source ----------------------------------------------------------------------------------------------

    def queue_range(self, *, settle=False):
        return self.queue_first, len(self.queue)

    def read(self, queue_offset, count):
        if queue_offset < self.queue_first:
            return []
        places = range(queue_offset, min(queue_offset + count, len(self.queue)))
        return [Timed(at, self.queue[at], RECORD_SIZE, self.records[self.queue[at]][1]) for at in places]

    def record(self, offset):
        found = self.records.get(offset)
        return None if found is None else Timed(int(found[1].get("#", 0)), offset, RECORD_SIZE, found[1])

    def flushed(self):
        return self.durable

    def flush(self):
        self.step_towards_crash()
        self.durable = self.written

    def reput(self, items):
        self.step_towards_crash()
        results = [self._reput(item) for item in items]
        self.step_towards_crash()
        return results

    def _reput(self, item):
        found = self.records.get(item.source)
        if found is None:
            return "PYMQ_ENOTFOUND"
        if self.fault is not None:
            status = self.fault(item)
            if status is not None:
                return status
        assert item.source not in self.put_again, f"{found[1]} repeated without a crash"
        self.put_again.add(item.source)
        properties = dict(found[1])
        topic = item.topic or properties["REAL_TOPIC"]
        for name in item.remove.decode().split("\x02")[:-1]:
            properties.pop(name, None)
        for pair in item.set.decode().split("\x02")[:-1]:
            name, _, value = pair.partition("\x01")
            properties[name] = value
        return self.append(topic, properties)

    def append(self, topic, properties):
        """Put a record into the log."""
        offset = self.written
        self.written += RECORD_SIZE
        queue_offset = 0
        if topic == TIMER_TOPIC:
            queue_offset = len(self.queue)
            self.queue.append(offset)
            properties["#"] = str(queue_offset)
        else:
            self._delivered(self.sent[int(properties["UNIQ_KEY"])])
        self.records[offset] = topic, properties
        return PutResult(queue_offset, offset, offset + RECORD_SIZE, self.clock.ms)

    # ---- what is right -------------------------------------------------------------------------------------------

    def _delivered(self, message):
        now_ms = self.clock.ms
        assert now_ms >= message.due_ms, f"{message.number} early by {message.due_ms - now_ms} ms"
        assert not message.recalled, f"{message.number} delivered although it was recalled"
        if message.epochs:
            self.repeats += 1
        elif not message.excused:
            self.late_ms_max = max(self.late_ms_max, now_ms - message.due_ms)
        message.epochs.append(self.epoch)

    def check_overdue(self):
        """Nothing may be overdue now; what is late because of the world is excused from the figures."""
        while self.due and self.due[0][0] <= self.clock.ms:
            _, number = heapq.heappop(self.due)
            message = self.sent[number]
            assert message.recalled or message.epochs, f"{number} is overdue"

    def excuse(self):
        """What is due by now could not be delivered in time: the broker was down, or the clock jumped over it."""
        for end_ms, number in self.due:
            if end_ms <= self.clock.ms:
                self.sent[number].excused = True

    # ---- what happens ----------------------------------------------------------------------------------------------

    def send(self, delay_ms):
        """A timed message; its number."""
        number = len(self.sent)
        due_ms = self.clock.ms + delay_ms
        slot = slot_ms(due_ms, self.precision_ms)
        self.sent.append(Sent(number, due_ms, slot))
        self.append(TIMER_TOPIC, {"UNIQ_KEY": str(number), "TIMER_OUT_MS": str(slot), "REAL_TOPIC": REAL_TOPIC})
        heapq.heappush(self.due, (slot + self.precision_ms, number))
        return number

    def recall(self, number):
        """Recall a message as RECALL_MESSAGE does; whether that is still possible."""
        message = self.sent[number]
        if message.slot + 1 <= self.clock.ms or message.epochs:
            return False
        self.append(
            TIMER_TOPIC,
            {
                "UNIQ_KEY": str(number),
                "TIMER_DEL_UNIQKEY": str(number),
                "TIMER_OUT_MS": str(message.slot),
                "REAL_TOPIC": REAL_TOPIC,
            },
        )
        message.recalls += 1
        return True

    def turn(self):
        """What the service does when it is woken, until there is nothing more to do now."""
        try:
            for _ in range(TURNS_MAX):
                count = self.timers.enqueue(len(self.queue)) + self.timers.dequeue()
                waits = not self.timers.rolls_are_back or self.timers.queue_offset < len(self.queue)
                if not waits and (not count or self.timers.is_refused):
                    break
            else:
                raise AssertionError(f"not done after {TURNS_MAX} turns")
        except Crash:
            self.crash()
            return
        if self.fault is None:
            self.check_overdue()

    def save(self):
        """The checkpoint's time has come."""
        try:
            if self.chance.random() < 0.7:
                self.durable = self.written
            self.timers.save()
            self.timers.clean()
        except Crash:
            self.crash()

    def retain(self):
        """Retention removes all that the timers do not need."""
        needed = self.timers.needed_from()
        limit = self.durable if needed is None else min(needed, self.durable)
        for offset in [offset for offset in self.records if offset < limit]:
            del self.records[offset]
        while self.queue_first < len(self.queue) and self.queue[self.queue_first] < limit:
            self.queue_first += 1

    def step_towards_crash(self):
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                raise Crash

    def open(self):
        """Start the broker."""
        while True:
            try:
                self.timers = store.TimerStore(
                    self.directory, self.settings, self, self.clock, slots_total=self.slots_total
                )
                return
            except Crash:
                self.crash(reopen=False)

    def stop(self, down_ms=0):
        """A clean stop, and a start later."""
        try:
            self.timers.close()
        except Crash:
            self.crash(down_ms=down_ms)
            return
        self.os.forget()
        self.clock.ms += down_ms
        self.excuse()
        self.open()
        self.turn()

    def crash(self, *, power=None, down_ms=None, reopen=True):
        """The process ends, now or in the middle of a call; the broker is started again later."""
        self.crash_in = None
        self.epoch += 1
        self.put_again.clear()
        with contextlib.suppress(AttributeError, ValueError, OSError):
            self.timers.close(flush=False)
        if power if power is not None else self.chance.random() < 0.5:
            self.os.cut_power(self.chance)
            self._lose_tail()
        else:
            self.os.forget()
        if reopen:
            choice = self.chance.choice((0, 500, 60_000, 3_600_000))
            self.clock.ms += choice if down_ms is None else down_ms
            self.excuse()
            self.open()
            self.turn()

    def _lose_tail(self):
        """What the log had not on disk is gone, and was not acknowledged for good."""
        for offset in range(self.durable, self.written, RECORD_SIZE):
            topic, properties = self.records.pop(offset)
            message = self.sent[int(properties["UNIQ_KEY"])]
            if topic != TIMER_TOPIC:
                message.epochs.pop()
                heapq.heappush(self.due, (message.slot + self.precision_ms, message.number))
            elif "TIMER_ROLL_TIMES" in properties:
                continue
            elif "TIMER_DEL_UNIQKEY" in properties:
                message.recalls -= 1
                heapq.heappush(self.due, (message.slot + self.precision_ms, message.number))
            else:
                message.gone = True
        while self.queue and self.queue[-1] >= self.durable:
            self.queue.pop()
        self.queue_first = min(self.queue_first, len(self.queue))
        self.written = self.durable
        self.excuse()

    def close(self):
        """The end: give the modules their disk back."""
        with contextlib.suppress(AttributeError, ValueError, OSError):
            self.timers.close(flush=False)
        for module in (checkpoint, durable_file, log, wheel):
            module.os = os
