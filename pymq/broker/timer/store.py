"""The timers of one store: timer topic to wheel, wheel to where messages belong, and how far that has come.

One thread does everything here, in turns (`pymq.broker.timer.service` runs them):

* **Enqueue** reads the timer topic on from where it was and writes a unit for each message, first into the log, then
  into the slot. What is due beyond the roll window goes into an earlier slot with the mark ROLL.
* **Dequeue** takes the slots that are over, in order of time. A slot is read whole; recalls in it take their messages
  out; the rest is put again, log to log, in batches of one call. Rolled messages go back to the timer topic, and
  their own slot is not dequeued before they are in the wheel again: a recall in it must find them there.
* **Save**: a progress that is written is one the commit log has on stable storage, so it never runs ahead of what it
  vouches for.

Time: a slot is over when its time plus the precision has passed, so nothing is early. Slots before `read_ms` have been
dequeued. When the clock has gone back, a new timer may belong into one of those; `read_ms` then goes back too, after
all that was dequeued is on disk and its slots are cleared, so that nothing comes twice.

One message that cannot be put is put off alone: a unit in a slot a little later, and again. When the store refuses
everything (disk full), the rest of the slot waits and nothing else is dequeued meanwhile.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from pymq._core._serve import PutResult, Reput
from pymq.broker.timer import properties as names
from pymq.broker.timer import reputs
from pymq.broker.timer.checkpoint import FILE_NAME as CHECKPOINT_NAME
from pymq.broker.timer.checkpoint import Progress, save_checkpoint
from pymq.broker.timer.log import DIRECTORY, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, NONE, TimerLog, Unit
from pymq.broker.timer.metrics import FILE_NAME as METRICS_NAME
from pymq.broker.timer.metrics import TimerMetrics, topic_hash
from pymq.broker.timer.rebuild import RolledCopies, still_pending
from pymq.broker.timer.recovery import recover
from pymq.broker.timer.roll_window import RollWindow
from pymq.broker.timer.settings import TimerSettings
from pymq.broker.timer.slots import Entry, PendingSlots
from pymq.broker.timer.source import Timed, TimerSource
from pymq.broker.timer.stats import TimerStats
from pymq.broker.timer.wheel import FILE_NAME as WHEEL_NAME
from pymq.broker.timer.wheel import SLOTS_TOTAL, TimerWheel
from pymq.clock import Clock

BATCH = 512  # messages read, or put again, with one call
PUT_OFF_MS_MAX = 60_000
PENDING_FROM_INTERVAL_S = 30.0
log = logging.getLogger("pymq.broker")


class TimerStore:
    """Everything between the timer topic and delivery. Not for two threads, except where a method says so."""

    def __init__(
        self,
        directory: Path,
        settings: TimerSettings,
        source: TimerSource,
        clock: Clock,
        *,
        slots_total: int = SLOTS_TOTAL,
    ) -> None:
        """Open the timers of the store under *directory* and recover them. Waits for the disk.

        Raises:
            ConfigError: settings that contradict the files.
        """
        self.settings = settings
        self.precision_ms = settings.timer_precision
        self._source = source
        self._clock = clock
        self._checkpoint_path = directory / "config" / CHECKPOINT_NAME
        self.metrics = TimerMetrics(directory / "config" / METRICS_NAME, clock)
        self.wheel = TimerWheel(directory / WHEEL_NAME, self.precision_ms, slots_total)
        self.log = TimerLog(directory / DIRECTORY, settings.mapped_file_size_timer_log)
        found = recover(directory, self.wheel, self.log, self.metrics, source, self.precision_ms)
        first, end = source.queue_range(settle=True)
        self.queue_offset = min(max(found.queue_offset, first), end)
        self._copies = RolledCopies(source, first, end) if found.from_topic else RolledCopies()
        if self.queue_offset > found.queue_offset and found.queue_offset:
            log.error("timers lost count=%d because=their queue was removed", first - found.queue_offset)
        self.checkpoint = found.checkpoint
        self._slots = PendingSlots(self.wheel, self.log, found.pending)
        self._window = RollWindow(self.wheel, self._slots, settings.timer_roll_window_slot)
        self.read_ms = found.read_ms or self._slot_of(clock.now_ms())
        self.stats = TimerStats()
        self._left: list[tuple[int, Unit]] = []  # of a slot that the store refused: (its time, unit)
        self.enqueue_cut = self.dequeue_cut = False  # the last call ended because its time was over
        self._attempts: dict[int, int] = {}  # messages put off, by commit-log offset
        self._roll_barrier = 0  # the timer topic up to here must be in the wheel,
        self._roll_due_ms: float = math.inf  # before a slot from this time on is dequeued
        self._end_offset = 0
        self._waiting: Progress | None = None
        self._pending_from = max(self.checkpoint.pending_from, self.log.begin)
        self._pending_from_s = -math.inf
        self.stopping: Callable[[], bool] = lambda: False
        self._rebuild(min(found.rebuild_until, end))
        self._committed = self._progress()
        self._commit(self._committed, clean=False)  # from now on a stop that is not clean is known as one

    def _slot_of(self, time_ms: int) -> int:
        return time_ms // self.precision_ms * self.precision_ms

    # ---- what others ask -----------------------------------------------------------------------------------------

    @property
    def pending_slots(self) -> int:
        """How many slots have timers in them. Any thread."""
        return len(self._slots)

    @property
    def next_due_ms(self) -> int | None:
        """When the next slot is over; None when there is none."""
        next_ms = self._slots.next_ms
        return next_ms + self.precision_ms if next_ms is not None else None

    def behind_ms(self, now_ms: int) -> int:
        """How late dequeuing is. Any thread."""
        due = self.next_due_ms
        return max(now_ms - due, 0) if due is not None else 0

    def enqueue_behind(self) -> int:
        """Messages of the timer topic that are not in the wheel yet. Any thread."""
        return max(self._source.queue_range()[1] - self.queue_offset, 0)

    @property
    def oldest_offset(self) -> int:
        """The commit-log offset of the oldest message in the wheel, as of the last save; -1 for none. Any thread."""
        return -1 if self._committed.oldest == math.inf else int(self._committed.oldest)

    def needed_from(self) -> int | None:
        """The lowest commit-log offset that a timer still needs; None when none does. Any thread."""
        oldest = min(self._committed.oldest, self._slots.oldest_offset)
        oldest = min([oldest, *(unit.offset for _, unit in list(self._left))])
        waiting = self._source.read(min(self.queue_offset, self._committed.queue_offset), 1)
        if waiting:  # all of the log, while the next one is damaged: where it is, and the one behind it, is not known
            oldest = min(oldest, max(waiting[0].offset, 0))
        return None if oldest == math.inf else int(oldest)

    def count_below(self, offset: int) -> int:
        """How many pending timers need something below *offset* of the commit log. Any thread."""
        return self._slots.count_below(offset)

    # ---- timer topic to wheel ------------------------------------------------------------------------------------

    def enqueue(self, until: int, end_s: float = math.inf) -> int:
        """Bring messages of the timer topic before *until* into the wheel; how many were read.

        After *end_s* of the monotonic clock no other batch is begun; `enqueue_cut` says whether there was one.

        Raises:
            OSError: the timer log cannot be written; nothing of the batch is in it then.
        """
        count = 0
        self.enqueue_cut = False
        first, _ = self._source.queue_range()
        if self.queue_offset < first:
            log.error("timers lost count=%d because=their queue was removed", first - self.queue_offset)
            self.stats.lost += first - self.queue_offset
            self.queue_offset = first
        while self.queue_offset < until and not self.stopping():
            batch = self._source.read(self.queue_offset, min(BATCH, until - self.queue_offset))
            if not batch:
                break
            self._enqueue_batch(batch, self._clock.now_ms())
            count += len(batch)
            if self._clock.monotonic_s() >= end_s:
                self.enqueue_cut = self.queue_offset < until
                break
        return count

    def _rebuild(self, until: int) -> None:
        """Bring into the wheel what was in it, of the messages before *until*."""
        while self.queue_offset < until:
            batch = self._source.read(self.queue_offset, min(BATCH, until - self.queue_offset))
            if not batch:
                break
            pending = still_pending(batch, self.read_ms, self.precision_ms, self.checkpoint.retry_floor)
            if pending:
                self._enqueue_batch(pending, self._clock.now_ms())
            self.queue_offset = batch[-1].queue_offset + 1
        if until:
            log.info("timers made again from their topic slots=%d read_ms=%d", len(self._slots), self.read_ms)

    def _enqueue_batch(self, batch: Sequence[Timed], now_ms: int) -> None:
        entries: list[Entry] = []
        late: list[tuple[int, Unit, str]] = []
        late_recalls: list[tuple[int, str]] = []
        topics: dict[str, int] = {}
        for message in batch:
            if message.damaged:
                self.stats.lost += 1
                log.error("timer lost queue_offset=%d because=its record is damaged", message.queue_offset)
                continue
            if self._copies.replaces(message):
                continue
            properties = message.properties
            topic = properties.get(names.REAL_TOPIC, "")
            try:
                time_ms = self._slot_of(names.java_long(properties.get(names.OUT_MS, "")))
            except ValueError as error:
                self.stats.illegal += 1
                log.error("timer without a time offset=%d error=%s", message.offset, error)
                continue
            deletes = names.DELETE_KEY in properties
            magic = MAGIC_DEFAULT | (MAGIC_DELETE if deletes else 0)
            if time_ms < self.read_ms and time_ms + self.precision_ms <= now_ms:
                if deletes:
                    late_recalls.append((time_ms, properties[names.DELETE_KEY]))
                else:
                    code = topic_hash(topic)
                    unit = Unit(NONE, magic, names.NEVER_ENQUEUED, 0, message.offset, message.size, code)
                    late.append((time_ms, unit, self._delete_key(properties)))
                continue
            time_ms, magic = self._window.place(time_ms, magic, now_ms)
            self._move_back(time_ms)
            entries.append(Entry(time_ms, magic, message.offset, message.size, topic_hash(topic)))
            topics[topic] = topics.get(topic, 0) + (-1 if deletes else 1)
        self._append(entries, now_ms)
        self.queue_offset = batch[-1].queue_offset + 1
        # A message that a power cut takes away must not be one that is known to be in the wheel.
        self._end_offset = max([self._end_offset, *(message.offset + message.size for message in batch)])
        self.stats.enqueued += len(entries)
        for topic, count in topics.items():
            self.metrics.add(topic, count)
        self._deliver_late(late, late_recalls)

    def _delete_key(self, properties: Mapping[str, str]) -> str:
        """What a recall of the message with *properties* names; of one without a key nothing does."""
        key = properties.get(names.UNIQUE_KEY)
        topic = properties.get(names.REAL_TOPIC, "")
        with_topic = self.settings.append_topic_for_timer_delete_key
        return "" if key is None else names.delete_key(topic, key, with_topic=with_topic)

    def _deliver_late(self, late: Sequence[tuple[int, Unit, str]], recalls: Sequence[tuple[int, str]]) -> None:
        """Deliver messages whose slot was over before they came to it, but those that were recalled as late as that.

        Both were in time when their clients were answered: it is the clock that went back and on again meanwhile. As
        in the wheel, a recall meets messages of its own slot.
        """
        met_by = set(recalls)
        kept = [(time_ms, unit) for time_ms, unit, key in late if not key or (time_ms, key) not in met_by]
        met = len(late) - len(kept)
        self.stats.recalled += met
        self.stats.late_recalls += max(len(recalls) - met, 0)
        self._deliver(kept)

    def _append(self, entries: Iterable[Entry], now_ms: int) -> None:
        self._slots.append(entries, self._slot_of(now_ms))

    def _move_back(self, time_ms: int) -> None:
        """Let slots from *time_ms* on be dequeued (again), because the clock has gone back behind them."""
        if time_ms >= self.read_ms:
            return
        log.warning("timers go back by_ms=%d because=the clock did", self.read_ms - time_ms)
        self._commit_now(clean=False)  # what was dequeued must be known before its slots are gone
        if self.read_ms - time_ms < self.wheel.span_ms:
            for slot_ms in range(time_ms, self.read_ms, self.precision_ms):
                self.wheel.clear(slot_ms)
        else:
            for slot_ms, _ in list(self.wheel.slots()):
                if time_ms <= slot_ms < self.read_ms:
                    self.wheel.clear(slot_ms)
        self.read_ms = time_ms
        self.stats.moved_back += 1

    # ---- wheel to where messages belong --------------------------------------------------------------------------

    @property
    def rolls_are_back(self) -> bool:
        """Whether all that was rolled is in the wheel again."""
        return self.queue_offset >= self._roll_barrier

    @property
    def is_refused(self) -> bool:
        """Whether the store refused to take messages that are due."""
        return bool(self._left) and not self.dequeue_cut

    def dequeue(self, end_s: float = math.inf, until_ms: float = math.inf) -> int:
        """Deliver slots that are over; how many. Waits for what was rolled to be back, and while the store refuses.

        Slots that were not over at *until_ms* yet wait as well: the topic has been read as it was then.
        After *end_s* of the monotonic clock no other batch is begun; `dequeue_cut` says whether a slot has more.
        """
        self.dequeue_cut = False
        if self._left:
            left, self._left = self._left, []
            self._deliver(left, end_s)
        count = 0
        now_ms = self._clock.now_ms()
        if self.rolls_are_back:
            self._roll_due_ms = math.inf
        while (time_ms := self._slots.next_ms) is not None and time_ms + self.precision_ms <= min(now_ms, until_ms):
            if self._left or time_ms >= self._roll_due_ms or self.stopping():
                return count
            self._dequeue_slot(time_ms, end_s)
            count += 1
            now_ms = self._clock.now_ms()
            if self._clock.monotonic_s() >= end_s:
                break
        return count

    def _dequeue_slot(self, time_ms: int, end_s: float) -> None:
        """Deliver the first slot. Until its units are known it stays pending; from then on `_deliver` keeps them."""
        units = self._slots.units(time_ms)
        deletes = [unit for unit in units if unit.magic & MAGIC_DELETE and not unit.magic & MAGIC_ROLL]
        normal = [unit for unit in units if not unit.magic & MAGIC_DELETE or unit.magic & MAGIC_ROLL]
        if deletes:
            normal = self._recalled(deletes, normal)
        self._slots.pop()
        self.read_ms = time_ms + self.precision_ms
        self._deliver([(time_ms, unit) for unit in normal], end_s)

    def _recalled(self, deletes: Sequence[Unit], normal: Sequence[Unit]) -> list[Unit]:
        """*normal* without the messages that *deletes* name."""
        keys: set[str] = set()
        for unit in deletes:
            message = self._source.record(unit.offset)
            if message is not None:
                keys.add(message.properties.get(names.DELETE_KEY, ""))
                self.metrics.add(message.properties.get(names.REAL_TOPIC, ""), 1)
        keys.discard("")
        kept = []
        for unit in normal:
            message = None if unit.magic & MAGIC_ROLL else self._source.record(unit.offset)
            if message is not None and self._delete_key(message.properties) in keys:
                self.stats.recalled += 1
                self.metrics.add(message.properties.get(names.REAL_TOPIC, ""), -1)
            else:
                kept.append(unit)
        return kept

    def _deliver(self, due: Sequence[tuple[int, Unit]], end_s: float = math.inf) -> None:
        """Put messages again; one that fails alone is put off, what the store refuses is left for the next turn.

        Whatever fails on the way, what is not delivered by then is left for the next turn too.
        """
        waiting = deque(due)
        put_off: list[tuple[int, Unit]] = []
        topics: dict[str, int] = {}
        try:
            while waiting and not self._left and not self.stopping():
                now_ms = self._clock.now_ms()
                batch = list(islice(waiting, BATCH))
                results = self._source.reput([self._reput(unit, now_ms) for _, unit in batch])
                for (time_ms, unit), result in zip(batch, results, strict=True):
                    if isinstance(result, str) and result in reputs.FULL:
                        result = self._reput_full(unit, result)
                    waiting.popleft()
                    if isinstance(result, PutResult):
                        self._delivered(time_ms, unit, result, now_ms, topics)
                    elif result in reputs.ALONE:
                        log.warning("timer put off offset=%d slot_ms=%d because=%s", unit.offset, time_ms, result)
                        put_off.append((time_ms, unit))
                    elif result in reputs.GONE or result in reputs.HOMELESS:
                        self._given_up(time_ms, unit, result)
                    else:
                        if not self._left:
                            log.error("timers wait because=the store refuses them: %s", result)
                        self._left.append((time_ms, unit))
                self._put_off([unit for _, unit in put_off], now_ms)
                self.stats.put_off += len(put_off)
                put_off.clear()
                if waiting and not self._left and self._clock.monotonic_s() >= end_s:
                    self.dequeue_cut = True
                    break
        finally:
            self._left += [*put_off, *waiting]
            for topic, count in topics.items():
                self.metrics.add(topic, -count)

    def _given_up(self, time_ms: int, unit: Unit, status: str) -> None:
        if status in reputs.GONE:
            self.stats.lost += 1
            log.error("timer lost offset=%d slot_ms=%d because=%s", unit.offset, time_ms, status)
        else:
            self.stats.illegal += 1
            log.error("timer without topic or queue offset=%d slot_ms=%d", unit.offset, time_ms)

    def _properties(self, unit: Unit) -> Mapping[str, str]:
        """Of the message a unit is about; none when it is gone, which its re-put will say."""
        message = self._source.record(unit.offset)
        return message.properties if message is not None else {}

    def _reput(self, unit: Unit, now_ms: int) -> Reput:
        if not unit.magic & MAGIC_ROLL:
            return reputs.delivery(unit, now_ms)
        properties = self._properties(unit)
        try:
            out_ms = names.java_long(properties.get(names.OUT_MS, ""))
        except ValueError:
            out_ms = 0
        self._roll_due_ms = min(self._roll_due_ms, self._slot_of(out_ms))
        return reputs.roll(unit, now_ms, properties)

    def _reput_full(self, unit: Unit, refusal: str) -> PutResult | str:
        """Put a message again that has no room for what is added; *refusal* if nothing helps."""
        if unit.magic & MAGIC_ROLL:
            attempts = reputs.rolls_without_room(unit, self._properties(unit))
        else:
            attempts = reputs.deliveries_without_room(unit)
        result: PutResult | str = refusal
        for attempt in attempts:
            (result,) = self._source.reput([attempt])
            if isinstance(result, PutResult) or result not in reputs.FULL:
                break
        return result

    def _delivered(self, time_ms: int, unit: Unit, result: PutResult, now_ms: int, topics: dict[str, int]) -> None:
        self._end_offset = max(self._end_offset, result.end_offset)
        if unit.magic & MAGIC_ROLL:
            self.stats.rolled += 1
            self._roll_barrier = max(self._roll_barrier, result.queue_offset + 1)
        else:
            self.stats.deliver(now_ms - time_ms - self.precision_ms)
        self._attempts.pop(unit.offset, None)
        if unit.written_ms != names.NEVER_ENQUEUED:
            topic = self.metrics.topic_of(unit.topic_hash)
            if topic is None:
                message = self._source.record(unit.offset)
                topic = message.properties.get(names.REAL_TOPIC, "") if message is not None else ""
            step = -1 if unit.magic & MAGIC_DELETE else 1
            topics[topic] = topics.get(topic, 0) + step

    def _put_off(self, units: Sequence[Unit], now_ms: int, *, at_once: bool = False) -> None:
        """Let each of *units* come again, the later the more often it has failed, or *at_once*."""
        entries = []
        for unit in units:
            attempts = self._attempts[unit.offset] = self._attempts.get(unit.offset, 0) + 1
            delay_ms = 0 if at_once else min(self.precision_ms << min(attempts - 1, 16), PUT_OFF_MS_MAX)
            time_ms = max(self._slot_of(now_ms) + delay_ms, self.read_ms)
            entries.append(Entry(time_ms, unit.magic, unit.offset, unit.size, unit.topic_hash))
            topic = self.metrics.topic_of(unit.topic_hash)
            if unit.written_ms == names.NEVER_ENQUEUED and topic is not None:
                self.metrics.add(topic, 1)  # it enters the wheel only now
        self._append(entries, now_ms)

    # ---- how far ---------------------------------------------------------------------------------------------------

    def _progress(self) -> Progress:
        read_ms = min([self.read_ms, *(time_ms for time_ms, _ in self._left)])
        return Progress(
            self._end_offset, read_ms, self.queue_offset, self.log.end, min(self._attempts, default=NONE),
            len(self._slots), self._slots.oldest_offset,
        )  # fmt: skip

    @property
    def is_saved(self) -> bool:
        """Whether what is written down is how things are."""
        return self._progress() == self._committed

    def save(self) -> None:
        """Write the newest progress that the commit log vouches for, if there is any. Waits for the disk.

        Raises:
            OSError: it could not be written; the older one stands.
        """
        self._keep_late()
        now = self._progress()
        if now == self._committed:
            return
        waiting = self._waiting or now
        self._waiting = waiting
        flushed = self._source.flushed()
        if waiting.end_offset <= flushed:
            current = now.end_offset <= flushed
            self._commit(now if current else waiting, clean=False, current=current)
            self._waiting = None

    def _keep_late(self) -> None:
        """Let what is left, and was late before it was ever in the timer log, enter that: a crash would forget it."""
        late = [unit for _, unit in self._left if unit.written_ms == names.NEVER_ENQUEUED]
        if late:
            self._put_off(late, self._clock.now_ms(), at_once=True)
            self._left = [(time_ms, unit) for time_ms, unit in self._left if unit.written_ms != names.NEVER_ENQUEUED]

    def _commit_now(self, *, clean: bool) -> None:
        self._keep_late()
        self._source.flush()
        self._waiting = None
        self._commit(self._progress(), clean=clean)

    def _commit(self, progress: Progress, *, clean: bool, current: bool = True) -> None:
        """Put log and wheel on disk, then what vouches for them; *current*: it is how things are now."""
        now_s = self._clock.monotonic_s()
        if current and (clean or now_s - self._pending_from_s >= PENDING_FROM_INTERVAL_S):
            self._pending_from_s = now_s
            self._pending_from = self._slots.first_position
        self.log.flush()
        self.wheel.flush()
        version = self.checkpoint.version
        version.advance(self._clock)
        self.checkpoint = progress.checkpoint(version, self.precision_ms, self._pending_from, clean=clean)
        save_checkpoint(self._checkpoint_path, self.checkpoint)
        self._committed = progress
        self.metrics.save()

    def clean(self) -> int:
        """Remove files of the timer log that nobody will read again; how many."""
        return self.log.remove_below(self.checkpoint.pending_from)

    def close(self, *, flush: bool = True) -> None:
        """Stop: what was delivered is on disk, and known to be; without *flush*, as a crash would."""
        if flush:
            # Let the next opener, Apache's broker perhaps, not walk over slots that are known to be empty.
            now_ms, next_ms = self._slot_of(self._clock.now_ms()), self._slots.next_ms
            self.read_ms = max(self.read_ms, now_ms if next_ms is None else min(now_ms, next_ms))
            left, self._left = self._left, []
            self._put_off([unit for _, unit in left], self._clock.now_ms(), at_once=True)
            self._commit_now(clean=True)
        self.wheel.close()
        self.log.close()
