"""Stores that real runs made: what audits must find clean, and what faults are seeded in.

`make(kind, directory)` runs a broker under clients and leaves a directory; see `runs` for the kinds. Those that Apache
RocketMQ's broker makes need a JVM and live under tests/interop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["StoreMade"]


@dataclass(frozen=True)
class StoreMade:
    """A store directory nobody uses any more, and what is known about it.

    Attributes:
        kind: how it came about.
        path: the store.
        ledgers: what its clients wrote down.
        earlier: a dump of the same store from before it went on; None without one.
        master: the store it is a replica of; None when it is none.
        options: what a reader of it has to be told, such as delay levels.
    """

    kind: str
    path: Path
    ledgers: tuple[Path, ...] = ()
    earlier: Path | None = None
    master: Path | None = None
    options: dict[str, str] = field(default_factory=dict)
