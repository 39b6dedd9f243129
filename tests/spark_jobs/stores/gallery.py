"""The stores of a session, each made once and when it is first asked for; several at a time, for they mostly wait."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.spark_jobs.stores import StoreMade
from tests.spark_jobs.stores.runs import make

AT_ONCE = 4

Wanted = tuple[str, int | None]
"""A kind, and a seed or None for the kind's own."""


class Gallery:
    """Stores below *directory*, by kind and seed. They are shared: whoever wants to change one copies it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._made: dict[Wanted, Future[StoreMade]] = {}

    def begin(self, wanted: Iterable[Wanted]) -> None:
        """Have stores made that will be asked for."""
        for kind, seed in wanted:
            if (kind, seed) not in self._made:
                path = self._directory / (kind if seed is None else f"{kind}-{seed}")
                self._made[kind, seed] = self._pool.submit(make, kind, path, seed)

    def get(self, kind: str, seed: int | None = None) -> StoreMade:
        """One of them, as soon as it is there."""
        self.begin([(kind, seed)])
        return self._made[kind, seed].result()

    def close(self) -> None:
        """Wait for what is still being made."""
        self._pool.shutdown(cancel_futures=True)
