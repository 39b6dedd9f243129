"""A control loop that has died takes the process with it.

Reactors would go on serving sends and pulls while nobody creates topics, keeps heartbeats or saves offsets: half a
broker, which looks alive. A thread watches the loop's pulse, and a dead one ends the process, leaving `abort` behind,
so that the next start recovers. (A loop that is only late is logged and counted by the server.)
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import threading

DEAD_S = 60.0
BEAT_S = 0.25
EXIT_DEAD = 70  # EX_SOFTWARE

log = logging.getLogger("pymq.broker")


class Watchdog:
    """Watches one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, dead_s: float = DEAD_S) -> None:
        """Watch *loop* from start() on."""
        self._loop = loop
        self._dead_s = dead_s
        self._beats = 0
        self._handle: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pymq-watchdog", daemon=True)

    def start(self) -> None:
        """Begin; on the loop's thread."""
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        """End; on the loop's thread."""
        self._stop.set()
        if self._handle is not None:
            self._handle.cancel()
        self._thread.join()

    def _beat(self) -> None:
        self._beats += 1
        self._handle = self._loop.call_later(BEAT_S, self._beat)

    def _watch(self) -> None:
        """Counts its own ticks without a pulse, not the time: a process that was stopped and goes on is not dead."""
        tick_s = min(BEAT_S, self._dead_s / 4)
        seen, silent_ticks = self._beats, 0
        while not self._stop.wait(tick_s):
            silent_ticks = silent_ticks + 1 if self._beats == seen else 0
            seen = self._beats
            if self._loop.is_closed() or silent_ticks * tick_s > self._dead_s:
                self._die(silent_ticks * tick_s)

    def _die(self, silent_s: float) -> None:
        """Say where every thread stands, and end without cleaning up."""
        log.critical("control loop dead seconds=%.1f: ending the process", silent_s)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(EXIT_DEAD)
