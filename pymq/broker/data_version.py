"""RocketMQ's DataVersion, which tells two copies of a table apart, and the JSON such tables travel in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymq.clock import Clock


@dataclass(slots=True)
class DataVersion:
    """Counts changes of one table; equal only when all three numbers are."""

    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def advance(self, clock: Clock) -> None:
        """The table has changed."""
        self.timestamp_ms = clock.now_ms()
        self.counter += 1

    def to_json(self) -> dict[str, int]:
        """As RocketMQ writes it."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp_ms}

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | None) -> DataVersion | None:
        """What was written, or None when it is not such a thing."""
        if not isinstance(document, Mapping):
            return None
        numbers = [document.get(name, 0) for name in ("stateVersion", "timestamp", "counter")]
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            return None
        return cls(*numbers)


def plain_json(document: Mapping[str, Any]) -> bytes:
    """A table as an answer's body, by the standard library's encoder: ten thousand topics must not hold the loop up.

    Only for what has no number as a key and no null in it; see pymq.remoting.json_dialect for the rest.
    """
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
