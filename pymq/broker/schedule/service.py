"""Delivers delayed messages: RocketMQ's ScheduleMessageService. On the control loop; what may wait for the disk is not.

Each level is a task that looks, waits until the next message is due, and looks again. A level with nothing in it waits
until it is told of a message: by `stored()`, at once, from whoever stored one, and in any case by a glance at the
queues twice in the shortest delay (at least twice a second) while messages are coming in. An idle broker looks at
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pymq.broker import names
from pymq.broker.schedule.asking import ask
from pymq.broker.schedule.delivery import LevelDelivery
from pymq.broker.schedule.lateness import Lateness
from pymq.broker.schedule.offsets import DelayOffsets
from pymq.errors import NotFoundError

if TYPE_CHECKING:
    from pymq._core._serve import PutResult
    from pymq.broker.controller import Broker

THREADS = 2  # one slow disk read of an old message must not hold up the other levels
GLANCE_S_MIN, GLANCE_S_MAX = 0.05, 0.5
FIRST_SAVE_S = 10.0
FAILED_S = 10.0  # DELAY-6: after an error nobody expected
STEP_S = 1.0

log = logging.getLogger("pymq.broker.schedule")


class ScheduleService:
    """Delivers what has waited long enough.

    Attributes:
        lateness: how late it was delivered.
        offsets: how far each level has come.
    """

    def __init__(self, broker: Broker) -> None:
        """Deliver for *broker*; see start()."""
        self._broker = broker
        self.lateness = Lateness()
        self.offsets = DelayOffsets(broker)
        self._levels: dict[int, LevelDelivery] = {}  # by queue
        self._wake: dict[int, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    # ---- start and stop ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load how far it has come, and go on.

        Raises:
            CorruptFileError: delayOffset.json cannot be read.
        """
        levels = self._broker.delay_levels
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._broker.executor, self.offsets.load, levels.level_max)
        self._broker.delay_guard.watch(self._broker.store, self.offsets)
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="pymq-delay")
        for level, progress in self.offsets.levels.items():
            delay_ms = levels.delay_ms(level) if level <= levels.level_max else None
            delivery = LevelDelivery(level, delay_ms, progress, self.lateness)
            self._levels[delivery.queue_id] = delivery
            self._wake[delivery.queue_id] = asyncio.Event()
            self._tasks.append(loop.create_task(self._deliver(delivery), name=f"delay level {level}"))
        self._tasks += [loop.create_task(self._glance()), loop.create_task(self._save_regularly())]

    async def stop(self) -> None:
        """Let what is being delivered be delivered, flush it, and write down how far it came."""
        self._stopping.set()
        for event in self._wake.values():
            event.set()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.error("delivery ended error=%s", outcome, exc_info=outcome)
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._broker.store.flush)
        finally:  # a store that cannot flush vouches for less, not for nothing
            self._executor.shutdown()
            await self.offsets.save()

    # ---- delivering ----------------------------------------------------------------------------------------------

    def stored(self, queue_id: int, result: PutResult) -> None:
        """A message was stored in *queue_id* of SCHEDULE_TOPIC_XXXX."""
        delivery = self._levels.get(queue_id)
        if delivery is None:
            return
        is_idle = delivery.is_idle
        delivery.stored(result.queue_offset + 1)
        if is_idle:
            self._wake[queue_id].set()

    async def _deliver(self, delivery: LevelDelivery) -> None:
        wake = self._wake[delivery.queue_id]
        while not self._stopping.is_set():
            wake.clear()
            # Whatever it is that failed, a bug included, must not end the level: its messages would wait for ever.
            (failure,) = await asyncio.gather(self._look(delivery), return_exceptions=True)
            if failure is not None:
                log.error("delivery failed level=%d again_s=%.0f", delivery.level, FAILED_S, exc_info=failure)
                await self._stops_within(FAILED_S)
                continue
            while (wait_ms := delivery.wait_ms(self._broker.clock.now_ms())) != 0 and not wake.is_set():
                # In steps: the wall clock may be set while we wait for a moment of it.
                wait_s = None if wait_ms is None else min(wait_ms / 1000, STEP_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), wait_s)

    async def _look(self, delivery: LevelDelivery) -> None:
        """One look, and what became of it."""
        broker = self._broker
        now_ms = broker.clock.now_ms()
        look = delivery.look(now_ms)
        loop = asyncio.get_running_loop()
        due = await loop.run_in_executor(self._executor, ask, broker.serve, broker.store, look, now_ms)
        delivery.took(look, due, broker.clock.now_ms())

    async def _glance(self) -> None:
        """What the reactors store of delayed messages is found here, before it can be due."""
        store = self._broker.store
        shortest_s = min(self._broker.delay_levels.delays_ms) / 1000
        interval_s = min(max(shortest_s / 2, GLANCE_S_MIN), GLANCE_S_MAX)
        seen = -1
        while not await self._stops_within(interval_s):
            dispatched = int(store.watermarks()["dispatched"])
            if dispatched == seen:
                continue
            seen = dispatched
            for queue_id, delivery in self._levels.items():
                if not delivery.is_idle:
                    continue
                with contextlib.suppress(NotFoundError):
                    _, end = store.queue_range(names.SCHEDULE_TOPIC, queue_id, False)
                    if end > delivery.progress.offset:
                        delivery.stored(end)
                        self._wake[queue_id].set()

    async def _save_regularly(self) -> None:
        interval_s = self._broker.config.flush_delay_offset_interval / 1000
        wait_s = min(FIRST_SAVE_S, interval_s)
        while not await self._stops_within(wait_s):
            wait_s = interval_s
            try:
                await self.offsets.save()
            except OSError as error:
                log.error("delay offsets not saved error=%s", error)

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    # ---- telling -------------------------------------------------------------------------------------------------

    def runtime_info(self) -> dict[str, str]:
        """For GET_BROKER_RUNTIME_INFO: Apache's lines, and how late deliveries were."""
        deliveries = self._levels.values()
        return {
            **self.offsets.table(),
            **self.lateness.table("pymq.delay"),
            "pymq.delay.failures": str(sum(delivery.failures for delivery in deliveries)),
            "pymq.delay.set_aside": str(sum(len(delivery.progress.aside) for delivery in deliveries)),
        }
