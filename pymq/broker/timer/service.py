"""The timers of a running broker: when their turns are, and that they end with it.

The work waits for the disk, so it has a thread of its own; the loop only says when: at once after a send into the timer
topic, at the end of the next slot that has timers in it, and while something is not written down yet. A broker
without timers does nothing but look once a second whether the timer topic has grown by another way than its own sends.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from pymq._core._serve import PutResult
from pymq.broker.timer.source import StoreSource
from pymq.broker.timer.stats import Rate
from pymq.broker.timer.store import TimerStore

if TYPE_CHECKING:
    from pymq.broker.controller import Broker

LOOK_MS = 1000  # how often the timer topic is looked at without being told
SOON_MS = 5  # until what was put is in its queue
FRESH_MS, FRESH_S = 50, 1.0  # how often, and how long, it is looked at for what was announced
REFUSED_MS = 500  # until a store that refused is asked again
MISSING_S = 30.0  # how long timers wait for what was put into their topic and is not in its queue
CLEAN_S = 30.0
# How long a turn enqueues, and delivers, before it may write down how far it is: a kill repeats no more than that.
TURN_S = 0.2

log = logging.getLogger("pymq.broker")


class Pause(NamedTuple):
    """Until when nothing is to be done: points in time, not lengths, as the loop may hear of it much later."""

    until_s: float = math.inf  # of the monotonic clock: to try again, to look again, to write down
    due_ms: float = math.inf  # of the wall clock: the next slot is over


class TimerService:
    """Runs the turns of a `TimerStore`. Lives on the broker's loop."""

    def __init__(self, broker: Broker) -> None:
        """For *broker*, whose store and serving are open; `start` opens the timers."""
        self._broker = broker
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pymq-timer")
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._until = 0  # what of the timer topic is to be in the wheel before a slot is delivered
        self._until_ms = 0  # when that was all there was: a slot that was not over then waits for what came since
        self._expected = 0  # the timer topic's end, as sends know it
        self._waits_at, self._waits_s = -1, 0.0  # where in the topic it is waited for more, and since when
        self._missing = -1  # where that was in vain
        self._fresh_s = 0.0  # until when it may grow without being told where to
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._failure = ""  # of the last turn
        self._saved_s = self._cleaned_s = broker.clock.monotonic_s()
        self.store: TimerStore
        self.enqueue_rate, self.dequeue_rate = Rate(), Rate()

    async def start(self) -> None:
        """Recover the timers and begin.

        Raises:
            ConfigError: settings that contradict their files.
            OSError: those cannot be opened.
        """
        loop = asyncio.get_running_loop()
        self.store = await loop.run_in_executor(self._thread, self._open)
        self.store.stopping = lambda: self._stopping
        self._task = loop.create_task(self._run())

    def _open(self) -> TimerStore:
        broker = self._broker
        return TimerStore(broker.store_path, broker.config, StoreSource(broker.store, broker.serve), broker.clock)

    def configure(self) -> None:
        """Go by the broker's configuration as it is now."""
        self.store.settings = self._broker.config
        self.wake()

    def wake(self) -> None:
        """Something is about to be put into the timer topic, it is not known where. Any thread."""
        self._fresh_s = time.monotonic() + FRESH_S
        self._loop.call_soon_threadsafe(self._wake.set)

    def stored(self, result: PutResult) -> None:
        """Something was put into the timer topic, here: that is what to wait for until it is in its queue."""
        self._fresh_s = 0.0
        self._expected = max(self._expected, result.queue_offset + 1)
        self._wake.set()

    def _forget(self, expected: int) -> None:
        """What was to come before *expected* did not."""
        self._expected = self._expected if self._expected > expected else 0

    async def save(self) -> None:
        """Write down how far it is, as far as the commit log vouches for it; between two turns.

        Raises:
            OSError: it could not be written.
        """
        if self._task is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.store.save)

    async def stop(self) -> None:
        """End the turn in progress, write everything down. Idempotent."""
        if self._task is None:
            self._thread.shutdown()
            return
        self._stopping = True
        self._wake.set()
        await self._task
        self._task = None
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.store.close)
        finally:
            self._thread.shutdown()

    # ---- turns -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            self._wake.clear()
            # Whatever it is that failed, a bug included, must not end the timers: they would wait for ever.
            (outcome,) = await asyncio.gather(loop.run_in_executor(self._thread, self._turn), return_exceptions=True)
            if isinstance(outcome, Pause):
                self._failure = ""
                await self._sleep(outcome)
                continue
            if self._failure != str(outcome):
                log.error("timers failed error=%s; tried again every %d ms", outcome, REFUSED_MS, exc_info=outcome)
            self._failure = str(outcome)
            await asyncio.sleep(REFUSED_MS / 1000)

    async def _sleep(self, pause: Pause) -> None:
        """Until told, until *pause* is over, or until the timer topic has grown by itself."""
        clock = self._broker.clock
        while not self._stopping and not self._wake.is_set():
            left_s = min(pause.until_s - clock.monotonic_s(), (pause.due_ms - clock.now_ms()) / 1000, LOOK_MS / 1000)
            if left_s <= 0:
                return
            try:
                await asyncio.wait_for(self._wake.wait(), left_s)
            except TimeoutError:
                if not self._broker.config.timer_stop_enqueue and self.store.enqueue_behind():
                    return
        # Told by a send that is put right behind: it will be in its queue in a moment.
        await asyncio.sleep(0 if self._stopping else SOON_MS / 1000)

    def _turn(self) -> Pause:
        """One turn; when the next should be."""
        store, config, clock = self.store, self._broker.config, self._broker.clock
        if not config.timer_stop_enqueue:
            self._take_end(clock.now_ms())
            store.enqueue(self._until, clock.monotonic_s() + TURN_S)
        if not config.timer_stop_dequeue:
            # No slot is begun before what stood in the topic when it fell due is in the wheel: a recall may be there.
            until_ms = math.inf if config.timer_stop_enqueue else self._until_ms if self._is_read() else 0
            store.dequeue(clock.monotonic_s() + TURN_S, until_ms)
        now_s = clock.monotonic_s()
        self.enqueue_rate.sample(store.stats.enqueued, now_s)
        self.dequeue_rate.sample(store.stats.delivered + store.stats.rolled, now_s)
        if now_s - self._saved_s >= config.timer_flush_interval_ms / 1000:
            self._saved_s = now_s
            store.save()
        if now_s - self._cleaned_s >= CLEAN_S and not self._broker.dumps.held():
            self._cleaned_s = now_s
            store.clean()
        return self._pause()

    def _take_end(self, now_ms: int) -> None:
        """Once the last end is reached, read the timer topic as far as it goes by now; *now_ms* was before that.

        What was put and acknowledged counts before it is in its queue: with the transient pool that takes a while.
        """
        store = self.store
        if store.queue_offset < self._until and store.queue_offset != self._missing:
            self._until_ms = min(self._until_ms, now_ms)  # a clock that went back lets slots be recalled again
        else:
            self._until_ms = now_ms
            self._until = max(self._expected, store.queue_offset + store.enqueue_behind())

    def _is_read(self) -> bool:
        """Whether the end is reached; one that never comes is not waited for any longer."""
        at, now_s = self.store.queue_offset, time.monotonic()
        if at >= self._until or at == self._missing:
            return True
        if at != self._waits_at:
            self._waits_at, self._waits_s = at, now_s
        elif now_s - self._waits_s >= MISSING_S:
            self._missing = at
            self._loop.call_soon_threadsafe(self._forget, self._until)
            log.error(
                "timers go on without what their topic does not have queue_offset=%d expected=%d waited_s=%d; "
                "recalls in it come too late",
                at, self._until, now_s - self._waits_s,
            )  # fmt: skip
        return at == self._missing

    def _pause(self) -> Pause:
        store, config, now_s = self.store, self._broker.config, self._broker.clock.monotonic_s()
        if store.is_refused:
            return Pause(now_s + REFUSED_MS / 1000)
        if (store.dequeue_cut and not config.timer_stop_dequeue) or (
            store.enqueue_cut and not config.timer_stop_enqueue
        ):
            return Pause(now_s)
        if not config.timer_stop_enqueue:
            if not store.rolls_are_back or store.queue_offset < self._expected or store.enqueue_behind():
                soon_ms = REFUSED_MS if store.queue_offset == self._missing else SOON_MS
                return Pause(now_s + soon_ms / 1000)
            if time.monotonic() < self._fresh_s:
                return Pause(now_s + FRESH_MS / 1000)
        due_ms = store.next_due_ms
        return Pause(
            math.inf if store.is_saved else now_s + config.timer_flush_interval_ms / 1000,
            math.inf if due_ms is None or config.timer_stop_dequeue else due_ms,
        )

    # ---- what is shown ---------------------------------------------------------------------------------------------

    def runtime_info(self) -> dict[str, str]:
        """Apache's rows and ours, of GET_BROKER_RUNTIME_INFO."""
        now_ms, now_s = self._broker.clock.now_ms(), self._broker.clock.monotonic_s()
        stats = self.store.stats
        self.enqueue_rate.sample(stats.enqueued, now_s)
        self.dequeue_rate.sample(stats.delivered + stats.rolled, now_s)
        return {
            "timerReadBehind": str(self.store.behind_ms(now_ms) // 1000),
            "timerOffsetBehind": str(self.store.enqueue_behind()),
            "timerCongestNum": str(self.store.metrics.total),
            "timerEnqueueTps": f"{self.enqueue_rate.value:.1f}",
            "timerDequeueTps": f"{self.dequeue_rate.value:.1f}",
            "pymq.timer.pending_slots": str(self.store.pending_slots),
            "pymq.timer.oldest_offset": str(self.store.oldest_offset),
        } | stats.rows()
