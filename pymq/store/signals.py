"""Waiting for the store without a thread per waiter.

The core writes to an eventfd when something happened. `ArrivalSignal` turns that into a wait that any number of
threads may share; `LoopSignal` turns it into futures of an asyncio loop. Both read "something happened" and look
again: an event never says what, so a lost or doubled one does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pymq._core._store import EVENT_ACKNOWLEDGED, EVENT_ARRIVAL, Store
from pymq.errors import FlushTimeoutError, StoreClosedError, StoreError

Result = TypeVar("Result")
LOOK_UP_S = 0.1  # how long a waiting thread sleeps before it looks whether the store was closed


class ArrivalSignal:
    """Threads that wait for new messages, over one eventfd.

    One of the waiters (the leader) polls the descriptor; the others sleep on a condition and one of them takes over
    when the leader leaves. `_condition` guards everything here.
    """

    def __init__(self, core: Store) -> None:
        """Nothing is opened until somebody waits."""
        self._core = core
        self._condition = threading.Condition()
        self._fd = -1
        self._leader = 0  # its thread; 0 without one
        self._count = 0
        self._closed = False

    def count(self) -> int:
        """How often messages have arrived; take it before looking, and pass it to `wait`."""
        with self._condition:
            if self._closed:
                raise StoreClosedError(f"{self._core.path}: the store was closed")
            if self._fd < 0:
                fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                try:
                    self._core.listen(fd, EVENT_ARRIVAL)
                except StoreError:
                    os.close(fd)
                    raise
                self._fd = fd
            return self._count

    def wait(self, seen: int, deadline_s: float | None) -> bool:
        """Sleep until something arrived since *seen* was taken, or until *deadline_s* (monotonic); whether it did.

        Raises:
            StoreClosedError: the store was closed meanwhile.
        """
        while True:
            remaining = LOOK_UP_S if deadline_s is None else min(LOOK_UP_S, deadline_s - time.monotonic())
            with self._condition:
                if self._closed:
                    raise StoreClosedError(f"{self._core.path}: the store was closed while a reader waited")
                if self._count != seen:
                    return True
                if remaining <= 0:
                    return False
                if self._leader:
                    self._condition.wait(remaining)
                    continue
                self._leader = threading.get_ident()
            self._lead(remaining)

    def leads_here(self) -> bool:
        """Whether the calling thread is the one that polls: in a signal handler."""
        return self._leader == threading.get_ident()

    def _lead(self, timeout_s: float) -> None:
        arrived = False
        try:
            poller = select.poll()
            poller.register(self._fd, select.POLLIN)
            if poller.poll(max(1, int(timeout_s * 1000))):
                os.eventfd_read(self._fd)
                arrived = True
        finally:
            with self._condition:
                self._leader = 0
                self._count += arrived
                self._condition.notify_all()

    def close(self) -> None:
        """Wake every waiter; they raise. Called before the core is closed."""
        with self._condition:
            self._closed = True
            if self._fd < 0:
                return
            os.eventfd_write(self._fd, 1)
            self._condition.notify_all()
            while self._leader:
                self._condition.wait()
            if not self._core.closed:
                self._core.unlisten(self._fd)
            os.close(self._fd)
            self._fd = -1


class LoopSignal:
    """Futures of one asyncio loop that complete when the store says so. Used only on that loop's thread."""

    def __init__(self, core: Store, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is opened until somebody waits."""
        self._core = core
        self.loop = loop
        self._fd = -1
        self._events = 0
        self._sends: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap by end offset
        self._arrivals: list[asyncio.Future[None]] = []
        self._order = itertools.count()

    async def acknowledged(self, end_offset: int, timeout_s: float) -> None:
        """Return once everything below *end_offset* is acknowledged.

        Raises:
            FlushTimeoutError, StoreFailedError, StoreClosedError.
        """
        self._listen(EVENT_ACKNOWLEDGED)
        if self._core.poll_acknowledged(end_offset):
            return
        future: asyncio.Future[None] = self.loop.create_future()
        heapq.heappush(self._sends, (end_offset, next(self._order), future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise FlushTimeoutError(
                f"{self._core.path}: not acknowledged within {timeout_s * 1000:.0f} ms (sync_flush_timeout_ms); the "
                "message is in the log and may still become durable"
            ) from None

    async def arrived(self, look: Callable[[], Result | None], timeout_s: float | None) -> Result | None:
        """What *look* finds, now or after an arrival; None when *timeout_s* is over."""
        self._listen(EVENT_ARRIVAL)
        found = look()
        try:
            async with asyncio.timeout(timeout_s):
                while found is None:
                    future: asyncio.Future[None] = self.loop.create_future()
                    self._arrivals.append(future)
                    await future
                    found = look()
        except TimeoutError:
            return None
        return found

    def _listen(self, event: int) -> None:
        """Make sure *event* wakes this loop; a store tells at most 16 listeners."""
        if self._events & event:
            return
        if self._fd < 0:
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.loop.add_reader(self._fd, self._wake)
        else:
            self._core.unlisten(self._fd)
        self._core.listen(self._fd, self._events | event)
        self._events |= event

    def _wake(self) -> None:
        """Something happened: complete the sends it covers, let every reader look again."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return
        waiting, self._arrivals = self._arrivals, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._complete_sends()

    def _complete_sends(self) -> None:
        """Complete what the watermarks cover, in log order."""
        while self._sends:
            end_offset, _, future = self._sends[0]
            if not future.done():
                try:
                    if not self._core.poll_acknowledged(end_offset):
                        return
                    future.set_result(None)
                except StoreError as error:
                    future.set_exception(error)
            heapq.heappop(self._sends)

    def close(self) -> None:
        """Complete the sends that are acknowledged by now, fail every other waiter, let go of the descriptor."""
        if self._fd < 0:
            return
        if not self._core.closed:
            self._complete_sends()
            self._core.unlisten(self._fd)
        with contextlib.suppress(RuntimeError):  # the loop was closed, here or meanwhile
            self.loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        for future in [entry[2] for entry in self._sends] + self._arrivals:
            if future.done():
                continue
            with contextlib.suppress(RuntimeError):  # likewise: nobody waits there any more
                future.set_exception(StoreClosedError(f"{self._core.path}: the store was closed while a task waited"))
        self._sends, self._arrivals = [], []

    def close_soon(self) -> None:
        """`close`, from a thread that is not the loop's; returns when it is done, or the loop no longer runs."""
        done = threading.Event()

        def close() -> None:
            self.close()
            done.set()

        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(close)
            while not done.wait(LOOK_UP_S) and self.loop.is_running():
                pass
        if not done.is_set():
            self.close()


class LoopSignals:
    """One `LoopSignal` per running loop; those of closed loops are dropped when the next one is made."""

    def __init__(self, core: Store) -> None:
        """No loop yet."""
        self._core = core
        self._lock = threading.Lock()
        self._signals: dict[int, LoopSignal] = {}

    def current(self) -> LoopSignal:
        """The signal of the running loop."""
        loop = asyncio.get_running_loop()
        signal = self._signals.get(id(loop))
        if signal is not None and signal.loop is loop:
            return signal
        with self._lock:
            for key in [key for key, known in self._signals.items() if known.loop.is_closed()]:
                self._signals.pop(key).close()
            signal = LoopSignal(self._core, loop)
            self._signals[id(loop)] = signal
        return signal

    def close(self) -> None:
        """Close every signal, each on its own loop's thread when that runs elsewhere."""
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        with self._lock:
            signals, self._signals = list(self._signals.values()), {}
        for signal in signals:
            if signal.loop is running or not signal.loop.is_running():
                signal.close()
            else:
                signal.close_soon()
