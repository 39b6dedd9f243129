"""An event loop in a thread of its own, for work that must not share the control loop, and for callers without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOP_S = 5.0


class LoopThread:
    """A daemon thread that runs a loop until it is stopped."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def post(self, function: Callable[..., object], *arguments: object) -> bool:
        """Have *function* called on the loop; False when it has stopped."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run *work* on the loop and wait for it; not from the loop's own thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def stop(self) -> None:
        """End the loop, cancelling what runs there. Idempotent."""
        if self.loop.is_closed():
            return
        self.post(self.loop.stop)
        self._thread.join(STOP_S)
        if not self._thread.is_alive():
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
