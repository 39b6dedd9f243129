"""One of the broker's `config/*.json`: loaded at start, replaced whole on change, off the control loop.

`save()` returns once what the tables said when it was called is on stable storage. Calls that come while a
replacement is under way share the next one, so a thousand topics made at once cost two writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from pymq.durable_file import BACKUP_SUFFIX, replace_file
from pymq.errors import CorruptFileError, StoreIOError
from pymq.store.offsets import parse_dialect, render_dialect

log = logging.getLogger("pymq.broker")


class ConfigFile:
    """A file under `config/` and the tables it is written from."""

    def __init__(self, path: Path, render: Callable[[], Mapping[str, Any]], executor: Executor) -> None:
        """Keep *path*; *render* gives a document of its own, as the tables are now, and is called on the loop."""
        self.path = path
        self._render = render
        self._executor = executor
        self._wanted = 0
        self._written = 0
        self._task: asyncio.Task[None] | None = None
        self._keep = True  # whether the file there is worth a backup

    def load(self) -> dict[str, Any] | None:
        """The document, or the backup's when the file is missing, empty or damaged; None when there is neither.

        Raises:
            CorruptFileError: something is there and nothing of it can be read.
        """
        problems: list[str] = []
        for candidate in (self.path, self.path.with_name(self.path.name + BACKUP_SUFFIX)):
            try:
                text = candidate.read_text(encoding="utf-8")
                if not text.strip():
                    raise ValueError("it is empty")
                document = parse_dialect(text)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreIOError(f"{candidate}: {error.strerror}", errno=error.errno or 0) from error
            except (ValueError, TypeError, RecursionError) as error:
                problems.append(f"{candidate.name}: {error}")
                continue
            if candidate != self.path:
                self._keep = not problems
                log.warning("configuration read from the backup path=%s because=%s", candidate, "; ".join(problems))
            return document
        if any("it is empty" not in problem for problem in problems):
            raise CorruptFileError(
                f"{self.path}: {'; '.join(problems)}; neither the file nor its .bak can be used: put a good copy in "
                "place, or remove both (what they held is then forgotten)"
            )
        return None

    async def save(self) -> None:
        """Write what the tables say now; returns once it is on stable storage.

        Raises:
            OSError: the disk refused; the file before is still there.
        """
        self._wanted += 1
        mine = self._wanted
        while self._written < mine:
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._replace())
            await asyncio.shield(self._task)

    async def _replace(self) -> None:
        version = self._wanted
        document = self._render()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._write, document)
        self._written = version

    def _write(self, document: Mapping[str, Any]) -> None:
        """Off the loop: writing out a hundred thousand offsets takes longer than a heartbeat should wait."""
        replace_file(self.path, render_dialect(document).encode("utf-8"), keep=self._keep)
        self._keep = True
