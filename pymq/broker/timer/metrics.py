"""`config/timermetrics`: how many timers of each topic are pending (TimerMetrics), as Apache's tools read it."""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

from pymq._scan import java_hash
from pymq.broker.data_version import DataVersion, plain_json
from pymq.clock import Clock
from pymq.durable_file import read_file, replace_file

FILE_NAME = "timermetrics"

log = logging.getLogger("pymq.broker")


@lru_cache(maxsize=1024)
def topic_hash(topic: str) -> int:
    """What a unit of the timer log keeps of its topic."""
    return java_hash(topic.encode("utf-8"))


class TimerMetrics:
    """Pending timers by real topic; one thread changes it, any may read."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Read *path*; a file that is no such table counts from nothing."""
        self._path = path
        self._clock = clock
        self._counts: dict[str, list[int]] = {}  # [count, time of the last change]
        self._by_hash: dict[int, set[str]] = {}
        self._changed = False
        self.version = DataVersion()
        data = read_file(path)
        if data is not None:
            self._decode(data)

    def _decode(self, data: bytes) -> None:
        try:
            document = json.loads(data)
            rows = {
                str(topic): [int(row["count"]), int(row.get("timeStamp", 0))]
                for topic, row in document.get("timingCount", {}).items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.error("timer metrics unreadable file=%s error=%s; they begin at 0", self._path, error)
            return
        self.version = DataVersion.from_json(document.get("dataVersion")) or DataVersion()
        for topic, row in rows.items():
            self._counts[topic] = row
            self._by_hash.setdefault(topic_hash(topic), set()).add(topic)

    def add(self, topic: str, count: int) -> None:
        """*count* more timers of *topic* are pending, or fewer."""
        row = self._counts.get(topic)
        if row is None:
            row = self._counts[topic] = [0, 0]
            self._by_hash.setdefault(topic_hash(topic), set()).add(topic)
        row[0] += count
        row[1] = self._clock.now_ms()
        self.version.advance(self._clock)
        self._changed = True

    def topic_of(self, code: int) -> str | None:
        """The topic with this hash, if there is exactly one that is known."""
        found = self._by_hash.get(code, ())
        return next(iter(found)) if len(found) == 1 else None

    def count(self, topic: str) -> int:
        """How many timers of *topic* are pending."""
        return self._counts.get(topic, [0])[0]

    @property
    def total(self) -> int:
        """How many timers are pending."""
        return sum(row[0] for row in list(self._counts.values()))

    def remove(self, topic: str) -> None:
        """Forget *topic*, which is gone."""
        if self._counts.pop(topic, None) is not None:
            self._by_hash.get(topic_hash(topic), set()).discard(topic)
            self._changed = True

    def reset(self, counts: dict[str, int]) -> None:
        """Count anew: after a crash the table may be older or newer than the log."""
        self._counts = {}
        self._by_hash = {}
        for topic, count in counts.items():
            self.add(topic, count)

    def document(self) -> dict[str, Any]:
        """As Apache writes it."""
        rows = {topic: {"count": row[0], "timeStamp": row[1]} for topic, row in list(self._counts.items())}
        return {"dataVersion": self.version.to_json(), "timingCount": rows}

    def encode(self) -> bytes:
        """As JSON."""
        return plain_json(self.document())

    def save(self) -> None:
        """Write it if it has changed. Waits for the disk.

        Raises:
            OSError: it could not be written.
        """
        if self._changed:
            self._changed = False
            replace_file(self._path, self.encode())
