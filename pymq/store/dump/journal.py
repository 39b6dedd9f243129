"""`manifest.json.partial`: how far a dump has come, so that the same command can continue it.

One JSON value a line, appended as things happen; a kill can tear only the last line, which then did not happen:

    {"format": "pymq-dump-partial", "version": 1, "source", "storePath", "kind", "begunMs"}     the first
    {"leaves": [path, number of the first, ["%016x", …]]}       these MiB of the file are copied
    {"file": [path, size, written, mtimeMs]}                    all of it is
    {"position": {…}}                                           where the dump ends; never changes again
    {"forget": path}                                            the file does not belong to the dump any more

Nothing here is believed: what is said to be there is read and compared before it counts. Whoever writes it holds a
lock on it (flock), so that two cannot write one dump.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from pymq.durable_file import sync_directory
from pymq.store.dump.errors import DumpRefusedError
from pymq.store.dump.manifest import PARTIAL, FileEntry, leaf_count

FORMAT, VERSION = "pymq-dump-partial", 1


class Journal:
    """The notes of one dump, open for writing.

    Attributes:
        head: the first line.
        position: where the dump ends, once that is fixed.
        finished: whole files, in the order they were finished.
        early: paths of those that were finished before the position was fixed.
    """

    def __init__(self, path: Path, descriptor: int, head: dict[str, Any]) -> None:
        """Of *path*, locked, with the cursor behind what is there; see create() and resume()."""
        self.path = path
        self.head = head
        self.position: dict[str, Any] | None = None
        self.finished: dict[str, FileEntry] = {}
        self.early: set[str] = set()
        self._leaves: dict[str, list[str]] = {}
        self._descriptor = descriptor

    @classmethod
    def create(cls, directory: Path, head: dict[str, Any]) -> Journal:
        """Begin a dump in *directory*, which is empty.

        Raises:
            OSError: it cannot be written.
        """
        path = directory / PARTIAL
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        journal = cls(path, descriptor, {"format": FORMAT, "version": VERSION, **head})
        journal._append(journal.head)
        os.fsync(descriptor)
        sync_directory(directory)
        return journal

    @classmethod
    def resume(cls, directory: Path) -> Journal:
        """The notes of a dump that was interrupted.

        Raises:
            DumpRefusedError: somebody is writing it, or it is no such file.
            OSError: it cannot be opened.
        """
        path = directory / PARTIAL
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        complete = False
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DumpRefusedError(
                    f"{directory}: another dump is being written here; wait for it, or name another directory"
                ) from None
            lines = path.read_bytes().splitlines(keepends=True)
            values = []
            size = 0
            for line in lines:
                value = parse_line(line)
                if value is None:
                    break
                values.append(value)
                size += len(line)
            if not values or values[0].get("format") != FORMAT or values[0].get("version") != VERSION:
                raise DumpRefusedError(
                    f"{path}: not the notes of a dump known here; remove {directory} and begin again"
                )
            journal = cls(path, descriptor, values[0])
            for value in values[1:]:
                journal._apply(value)
            os.ftruncate(descriptor, size)
            complete = True
        finally:
            if not complete:
                os.close(descriptor)
        return journal

    def _apply(self, value: dict[str, Any]) -> None:
        if "leaves" in value:
            path, first, digests = value["leaves"]
            known = self._leaves.setdefault(path, [])
            known[first:] = digests
        elif "file" in value:
            path, size, written, mtime_ms = value["file"]
            leaves = self._leaves.get(path, [])[: leaf_count(written)]
            self.finished[path] = FileEntry(path, size, written, mtime_ms, leaves)
        elif "forget" in value:
            self.finished.pop(value["forget"], None)
            self._leaves.pop(value["forget"], None)
        elif "position" in value:
            self.position = value["position"]
            self.early = set(self.finished)

    def known_leaves(self, path: str) -> list[str]:
        """What is said to be copied of *path*."""
        return list(self._leaves.get(path, ()))

    def note_leaves(self, path: str, first: int, digests: list[str]) -> None:
        """These leaves of *path*, from number *first* on, are copied."""
        self._note({"leaves": [path, first, digests]})

    def note_file(self, entry: FileEntry) -> None:
        """All of a file is."""
        self._note({"file": [entry.path, entry.size, entry.written, entry.mtime_ms]})

    def forget(self, path: str) -> None:
        """The file is not of this dump."""
        self._note({"forget": path})

    def fix(self, position: dict[str, Any]) -> None:
        """Let the dump end there, whatever happens; on stable storage."""
        self._note({"position": position})
        os.fsync(self._descriptor)

    def restart(self) -> None:
        """Forget everything but the first line: the position was not fixed yet."""
        os.ftruncate(self._descriptor, 0)
        self.finished.clear()
        self._leaves.clear()
        self._append(self.head)

    def _note(self, value: dict[str, Any]) -> None:
        self._apply(value)
        self._append(value)

    def _append(self, value: dict[str, Any]) -> None:
        data = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8")
        if os.write(self._descriptor, data) != len(data):
            raise OSError(f"{self.path}: no more space")

    def remove(self) -> None:
        """The manifest is there: nobody needs the notes."""
        self.path.unlink(missing_ok=True)
        sync_directory(self.path.parent)

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The value of a whole line; None for one that a kill has torn."""
    if not line.endswith(b"\n"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
