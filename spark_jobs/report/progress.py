"""What a person sees while checks run: one live line on a terminal, one plain line a check anywhere else.

    [ 7/24] A7 index items and keys agree · 31 of 80 tasks · 10.0 GiB · 3 found · 0:42

The live line is drawn by a thread that asks Spark's status tracker; everything else happens on the caller's thread, and
one lock keeps the two from writing at once. Always on stderr: stdout belongs to the result.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

from spark_jobs.report.model import Outcome, bytes_text, seconds_text

REDRAW_S = 0.25
TITLE_WIDTH_MIN = 12
ERASE = "\r\033[K"

Tasks = Callable[[], tuple[int, int]]
"""How many tasks of the running jobs are done, and how many there are; (0, 0) while nothing runs."""


class Progress:
    """Says nothing. The others override what they show."""

    def start(self, steps: int, size: int) -> None:
        """*steps* are to come, over stores of *size* bytes."""

    def step(self, name: str, title: str) -> None:
        """A step begins."""

    def done(self, outcome: Outcome) -> None:
        """The step that began last has ended as *outcome*."""

    def passed(self, name: str, title: str, seconds: float) -> None:
        """The step that began last was no check, and is over."""

    def close(self) -> None:
        """No more steps; may be called twice."""


class LineProgress(Progress):
    """One line when a step ends: for logs, pipes and spark-submit."""

    def __init__(self, stream: TextIO) -> None:
        """Lines go to *stream*."""
        self._stream = stream
        self._steps = self._number = 0

    def start(self, steps: int, size: int) -> None:
        """Say what is to come."""
        self._steps = steps
        self._write(f"{steps} steps over {bytes_text(size)}")

    def step(self, name: str, title: str) -> None:
        """Count it; it is named when it ends."""
        self._number += 1

    def done(self, outcome: Outcome) -> None:
        """Say how it ended."""
        words, name, title = outcome.words, outcome.audit.name, outcome.audit.title
        self._write(f"[{self._number}/{self._steps}] {name} {title}: {words}, {seconds_text(outcome.seconds)}")

    def passed(self, name: str, title: str, seconds: float) -> None:
        """Say that it is over."""
        self._write(f"[{self._number}/{self._steps}] {name} {title}: {seconds_text(seconds)}")

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveProgress(Progress):
    """One line that changes, and goes away in the end."""

    def __init__(self, stream: TextIO, tasks: Tasks, clock: Callable[[], float] = time.monotonic) -> None:
        """Draw on *stream*, a terminal; *tasks* is asked a few times a second."""
        self._stream, self._tasks, self._clock = stream, tasks, clock
        self._begun = clock()
        self._steps = self._number = self._size = self._found = 0
        self._text = ""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-progress", daemon=True)

    def start(self, steps: int, size: int) -> None:
        """Begin to draw."""
        self._steps, self._size = steps, size
        self._thread.start()

    def step(self, name: str, title: str) -> None:
        """Draw the next step."""
        with self._lock:
            self._number += 1
            self._text = f"{name} {title}"
        self.draw()

    def done(self, outcome: Outcome) -> None:
        """Count what was found."""
        with self._lock:
            self._found += outcome.total

    def close(self) -> None:
        """Erase the line."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._stream.write(ERASE)
            self._stream.flush()

    def line(self, width: int = 1_000) -> str:
        """The line as it is now; where it would be wider than *width*, the check's title is cut, not the figures."""
        done, total = self._tasks()
        minutes, seconds = divmod(int(self._clock() - self._begun), 60)
        number = f"[{self._number:>{len(str(self._steps))}}/{self._steps}] "
        parts = [""]
        if total:
            parts.append(f"{done} of {total} tasks")
        parts.append(bytes_text(self._size))
        if self._found:
            parts.append(f"{self._found:,} found")
        parts.append(f"{minutes}:{seconds:02}")
        figures = " · ".join(parts)
        room = max(width - len(number) - len(figures), TITLE_WIDTH_MIN)
        title = self._text if len(self._text) <= room else self._text[: room - 1].rstrip() + "…"
        return number + title + figures

    def draw(self) -> None:
        """Draw the line, cut to the terminal."""
        width = shutil.get_terminal_size().columns - 1
        line = self.line(width)[: max(width, TITLE_WIDTH_MIN)]
        with self._lock:
            if not self._closed.is_set():
                self._stream.write(ERASE + line)
                self._stream.flush()

    def _run(self) -> None:
        while not self._closed.wait(REDRAW_S):
            self.draw()
