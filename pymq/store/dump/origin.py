"""What a dump is taken of: the protocol that a stopped store and a running broker both keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pymq.store.dump.copier import FileJob
from pymq.store.dump.errors import DumpRefusedError
from pymq.store.dump.journal import Journal

STOPPED, RUNNING = "stopped", "running"
# How the broker is set, perhaps with a password: the manifest has the settings that may be seen.
BROKER_SETTINGS = frozenset({"config/broker.properties", "config/broker.properties.bak"})


@dataclass(frozen=True, slots=True)
class Position:
    """Where a dump ends; noted once, and the same for every attempt.

    Attributes:
        begin: where the log begins.
        end: the dump has what is below.
        tail_begin, tail_digest: the last bytes below `end`, by which the log is known again.
        stamps: of a stopped store: [path, size, mtime in ns] of each file; none may change until all are copied.
    """

    begin: int
    end: int
    at_ms: int
    tail_begin: int
    tail_digest: str
    broker: dict[str, Any] | None = None
    configuration: dict[str, str] = field(default_factory=dict)
    stamps: list[list[Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For the notes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Position:
        """From the notes.

        Raises:
            DumpRefusedError: they are not ours.
        """
        try:
            return cls(**value)
        except TypeError as error:
            raise DumpRefusedError(f"the notes of the dump are of another version: {error}") from error


class Origin(Protocol):
    """A source, opened: nobody removes its files until it is closed."""

    name: str
    kind: str
    store_path: Path

    def early_jobs(self) -> Sequence[FileJob]:
        """Files that must not know of more than the position: copied before it is fixed."""
        ...

    def fix(self) -> Position:
        """Where the dump ends, from now on."""
        ...

    def recheck(self, position: Position) -> None:
        """Whether a dump that ends at *position* can be continued.

        Raises:
            DumpRefusedError: the source has changed since.
        """
        ...

    def jobs(self, position: Position, journal: Journal, target: Path) -> Sequence[FileJob]:
        """Everything else.

        Raises:
            DumpRefusedError: something that is needed is gone.
            DumpError: it cannot be listed.
        """
        ...

    def is_gone(self, job: FileJob) -> bool:
        """Whether *job*, whose file was not found, may be left out; otherwise the dump cannot go on."""
        ...

    def last_jobs(self, position: Position, journal: Journal, target: Path) -> Sequence[FileJob]:
        """What is known only when everything else is copied; removes from *target* what does not belong to it."""
        ...

    def check(self) -> None:
        """Whether copying may go on.

        Raises:
            DumpError: the source is gone.
        """
        ...

    def finish(self) -> None:
        """Everything is copied.

        Raises:
            DumpError: the source was not there all the time.
        """
        ...

    def close(self) -> None:
        """Let go of the source. Idempotent."""
        ...
