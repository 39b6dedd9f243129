"""How far it is, on stderr: a bar on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

BAR_WIDTH = 30
REDRAW_S, LINE_S = 0.1, 5.0
MIB = 1 << 20


class ProgressBar:
    """A `Report` for people."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        terminal: bool | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """On *stream*, stderr by default; *terminal* says what it is if that is known better."""
        self._now_s = now_s
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty() if terminal is None else terminal
        self._total = self._done = self._files = self._files_done = 0
        self._begun_s = self._shown_s = self._now_s()

    def begin(self, what: str, files: int, total: int) -> None:
        """Say what is to be done."""
        self._total, self._files = total, files
        self._done = self._files_done = 0
        self._begun_s = self._shown_s = self._now_s()
        self._line(f"{what}: {files:,} files, {total / MIB:,.1f} MiB")

    def advance(self, path: str, count: int) -> None:
        """Redraw, if it is time."""
        self._done += count
        now_s = self._now_s()
        if now_s - self._shown_s < (REDRAW_S if self._terminal else LINE_S):
            return
        self._shown_s = now_s
        if self._terminal:
            self._stream.write(f"\r{self._bar()} {path[-40:]}\x1b[K")
            self._stream.flush()
        else:
            self._line(f"{self._figures()} {path}")

    def file_done(self, path: str) -> None:
        """Count it."""
        self._files_done += 1

    def end(self) -> None:
        """Leave the line clean and say how much it was."""
        if self._terminal:
            self._stream.write("\r\x1b[K")
        seconds = max(self._now_s() - self._begun_s, 1e-9)
        self._line(f"{self._files_done:,} files, {self._done / MIB:,.1f} MiB in {seconds:.1f} s")

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def _ratio(self) -> float:
        return min(self._done / self._total, 1.0) if self._total else 1.0

    def _figures(self) -> str:
        speed = self._done / max(self._now_s() - self._begun_s, 1e-9)
        left_s = max(self._total - self._done, 0) / speed if speed else 0.0
        return f"{self._ratio():4.0%} {self._done / MIB:,.0f} of {self._total / MIB:,.0f} MiB, {left_s:.0f} s left"

    def _bar(self) -> str:
        filled = int(self._ratio() * BAR_WIDTH)
        return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {self._figures()}"
