"""Connections that a server could not take: told in the log, and no more often than somebody can read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import cast

INTERVAL_S = 10.0

logger = logging.getLogger(__name__)


class Refusals:
    """What the transport's counters say of connections it refused."""

    def __init__(self) -> None:
        self._told = (0, 0)
        self._due_s = 0.0

    def look(self, stats: Mapping[str, int | tuple[int, ...]], now_s: float) -> None:
        """Tell what has been refused since it was told last, if that is long enough ago."""
        seen = cast(int, stats["refused"]), cast(int, stats["accept_failed"])
        if seen == self._told or now_s < self._due_s:
            return
        refused, paused = (new - old for new, old in zip(seen, self._told, strict=True))
        logger.warning(
            "%d connections were refused and accepting paused %d times: %s are open, and the limit on open files "
            "(ulimit -n) or on connections allows no more",
            refused,
            paused,
            stats["open"],
        )
        self._told, self._due_s = seen, now_s + INTERVAL_S
