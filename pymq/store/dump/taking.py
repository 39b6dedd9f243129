"""Taking a dump, from refusing to the manifest; see docs/dump.md.

    source ──▶ early files ──▶ position, noted ──▶ files up to it ──▶ last files ──▶ directories synced ──▶ manifest

Whatever ends it on the way leaves notes by which the same call continues: with the same position, comparing what is
there and copying the rest.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymq.clock import SystemClock
from pymq.remoting.client import split_address
from pymq.store.dump.copier import Copier, FileJob, Report, Silent
from pymq.store.dump.errors import DumpError, DumpRefusedError
from pymq.store.dump.journal import Journal
from pymq.store.dump.manifest import Manifest
from pymq.store.dump.origin import Origin, Position
from pymq.store.dump.running import RunningBroker
from pymq.store.dump.stopped import StoppedStore
from pymq.store.dump.target import allocated, check_apart, check_space, clear, open_target, sweep, sync_directories

LEASE_MS = 60_000


@dataclass(frozen=True, slots=True)
class DumpResult:
    """What there is now.

    Attributes:
        copied: bytes this call brought in; reused: bytes it found copied by an earlier one.
        already: the dump was whole before, and nothing was done.
    """

    target: Path
    manifest: Manifest
    copied: int = 0
    reused: int = 0
    already: bool = False

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        manifest = self.manifest
        return {
            "target": str(self.target),
            "source": manifest.source,
            "kind": manifest.kind,
            "log": {"begin": manifest.log_begin, "end": manifest.log_end},
            "files": len(manifest.files),
            "bytes": sum(entry.written for entry in manifest.files),
            "copiedBytes": self.copied,
            "reusedBytes": self.reused,
            "begunMs": manifest.begun_ms,
            "endedMs": manifest.ended_ms,
            "already": self.already,
        }


def open_origin(source: str, *, lease_ms: int = LEASE_MS, tls: bool = False) -> Origin:
    """The store in the directory *source*, or of the broker at host:port.

    Raises:
        DumpRefusedError: it is neither, or cannot be had.
    """
    if Path(source).is_dir():
        return StoppedStore(Path(source))
    try:
        split_address(source)
    except ValueError:
        raise DumpRefusedError(f"{source} is neither a directory nor host:port of a broker") from None
    return RunningBroker(source, lease_ms, tls=tls)


def take_dump(
    source: str,
    target: Path,
    *,
    report: Report | None = None,
    rate: int = 0,
    lease_ms: int = LEASE_MS,
    tls: bool = False,
) -> DumpResult:
    """Dump *source* (a stopped store's directory, or host:port of a broker on this machine) into *target*.

    *rate* bounds the bytes copied per second. On return the dump is whole and on stable storage.

    Raises:
        DumpRefusedError: no message was copied; the text says why and what to do.
        DumpError: it was begun and could not be ended; the same call continues it, unless the text says otherwise.
        OSError: it was begun, and the target cannot be written, or the source not read.
    """
    with refusing(source):
        origin = open_origin(source, lease_ms=lease_ms, tls=tls)
    try:
        check_apart(origin.store_path, target)
        head = {
            "source": origin.name,
            "storePath": str(origin.store_path),
            "kind": origin.kind,
            "begunMs": SystemClock().now_ms(),
        }
        with refusing(str(target)):
            notes = open_target(target, head)
        if isinstance(notes, Manifest):
            return DumpResult(target, notes, already=True)
        try:
            return Taking(origin, target, notes, report or Silent(), rate).run()
        finally:
            notes.close()
    finally:
        origin.close()


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """What the system refuses of *what* before anything was begun is a refusal, which the same call does not mend.

    Raises:
        DumpRefusedError: an OSError, in words.
    """
    try:
        yield
    except OSError as error:
        raise DumpRefusedError(f"{error.filename or what}: {error.strerror or error}; nothing was copied") from error


class Taking:
    """One attempt."""

    def __init__(self, origin: Origin, target: Path, journal: Journal, report: Report, rate: int) -> None:
        """Into *target*, whose notes are *journal*."""
        self._origin = origin
        self._target = target
        self._journal = journal
        self._report = report
        self._copier = Copier(target, journal, report, check=origin.check, rate=rate)

    def run(self) -> DumpResult:
        """All of it."""
        position = self._position()
        jobs = self._origin.jobs(position, self._journal, self._target)
        self._check_space(jobs, position)
        self._check_left({job.path for job in jobs})
        self._report.begin(self._origin.name, len(jobs), sum(max(job.written, 0) for job in jobs))
        for job in jobs:
            self._origin.check()
            self._run_one(job)
        for job in self._origin.last_jobs(position, self._journal, self._target):
            self._copier.run(job)
        self._origin.finish()
        manifest = self._manifest(position)
        sweep(self._target, set(self._journal.finished))
        sync_directories(self._target)
        manifest.save(self._target)
        self._journal.remove()
        self._report.end()
        return DumpResult(self._target, manifest, self._copier.copied, self._copier.reused)

    def _position(self) -> Position:
        """Where the dump ends: as noted, or fixed now."""
        journal = self._journal
        if journal.position is not None:
            position = Position.from_json(journal.position)
            self._origin.recheck(position)
            for path in sorted(journal.early):
                entry = journal.finished.get(path)
                if entry is not None and not self._copier.matches(entry):
                    raise DumpRefusedError(
                        f"{self._target}/{path} is damaged, and how it was cannot be had again; remove {self._target} "
                        "and begin again"
                    )
            return position
        clear(self._target)
        journal.restart()
        for job in self._origin.early_jobs():
            self._copier.run(job)
        sync_directories(self._target)
        position = self._origin.fix()
        journal.fix(position.to_json())
        return position

    def _check_space(self, jobs: Sequence[FileJob], position: Position) -> None:
        needed = max(sum(job.cost for job in jobs) - allocated(self._target), 0)
        check_space(self._target, needed, self._origin.kind, self._origin.store_path, position.configuration)

    def _run_one(self, job: FileJob) -> None:
        try:
            self._copier.run(job)
        except FileNotFoundError as error:
            (self._target / job.path).unlink(missing_ok=True)
            if not self._origin.is_gone(job):
                raise DumpError(
                    f"{job.path} was removed from {self._origin.store_path} before it was copied (a disk that is too "
                    "full comes before a dump); make room there, then remove the target and begin again"
                ) from error

    def _check_left(self, paths: set[str]) -> None:
        """What an earlier attempt copied and the source has no more (retention) is in the dump, if it is whole.

        Raises:
            DumpRefusedError: it is not.
        """
        for path, entry in list(self._journal.finished.items()):
            if path not in paths and path not in self._journal.early and not self._copier.matches(entry):
                raise DumpRefusedError(
                    f"{self._target}/{path} is damaged, and the source does not have it any more; remove "
                    f"{self._target} and begin again"
                )

    def _manifest(self, position: Position) -> Manifest:
        head = self._journal.head
        return Manifest(
            source=str(head["source"]),
            store_path=str(head["storePath"]),
            kind=str(head["kind"]),
            broker=position.broker,
            begun_ms=int(head["begunMs"]),
            ended_ms=SystemClock().now_ms(),
            log_begin=position.begin,
            log_end=position.end,
            files=sorted(self._journal.finished.values(), key=lambda entry: entry.path),
            configuration=position.configuration,
            host=socket.gethostname(),
        )
