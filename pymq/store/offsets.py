"""Consumer offsets: how far each group has read, in RocketMQ's own file.

`config/consumerOffset.json` is shared with Apache RocketMQ, so it keeps its dialect and everything in it:

    {"dataVersion": {…}, "offsetTable": {"topic@group": {0:12, 1:3}}, …}

# Compat: integer keys stand without quotes, as fastjson writes them; both spellings are read.

The file is replaced atomically (temporary file, fsync, rename, fsync of the directory) and the one before stays as
`.bak`. Offsets live in memory; `commit` with *durable* returns once the file that holds them is on stable storage,
and commits that wait at the same time share one replacement.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pymq.clock import Clock
from pymq.errors import CorruptFileError, InvalidArgumentError
from pymq.message import QueueOffset

SEPARATOR = "@"
GROUP_SIZE_MAX = 255
GROUP_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
BARE_KEY = "\0"  # marks, while in memory, a key that stood without quotes
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\d+)(?=\s*:)')

log = logging.getLogger("pymq.store")


def parse_dialect(text: str) -> dict[str, Any]:
    """The object in *text*; keys without quotes come back marked with BARE_KEY.

    Raises:
        ValueError: not such an object.
    """
    quoted = TOKEN.sub(lambda found: f'"\\u0000{found[1]}"' if found[1] else found[0], text)
    value = json.loads(quoted)
    if not isinstance(value, dict):
        raise TypeError(f"an object was expected, not {type(value).__name__}")
    return value


def render_dialect(value: Any, indent: str = "") -> str:
    """*value* as fastjson prints it: tabs, no space behind colons, marked keys without quotes."""
    inner = indent + "\t"
    if isinstance(value, Mapping) and value:
        members = [f"{inner}{render_key(key)}:{render_dialect(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(inner + render_dialect(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def render_key(key: str) -> str:
    """A key, quoted or, when marked, bare."""
    return key[1:] if key.startswith(BARE_KEY) else json.dumps(key, ensure_ascii=False)


class OffsetStore:
    """The committed offsets of every group, over one file.

    `_lock` guards the table; `_file_lock` serializes replacements and is taken first.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Load *path*, or its `.bak` when that is all that is readable.

        Raises:
            CorruptFileError: the file is there and neither it nor its .bak can be read.
        """
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._file_lock = threading.Lock()
        self._version = 0
        self._saved_version = 0
        self._document = self._load()
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        for name, queues in self._document.get("offsetTable", {}).items():
            topic, separator, group = name.rpartition(SEPARATOR)
            if separator and isinstance(queues, dict):
                self._table[topic, group] = {int(key.lstrip(BARE_KEY)): int(value) for key, value in queues.items()}

    def _load(self) -> dict[str, Any]:
        backup = self._path.with_name(self._path.name + ".bak")
        problems: list[str] = []
        for candidate in (self._path, backup):
            try:
                text = candidate.read_text(encoding="utf-8")
                if text.strip():
                    document = parse_dialect(text)
                    if problems:
                        log.warning("offsets read from the backup path=%s because=%s", candidate, "; ".join(problems))
                    return document
                problems.append(f"{candidate.name} is empty")
            except FileNotFoundError:
                continue
            except (ValueError, TypeError) as error:
                problems.append(f"{candidate.name}: {error}")
        if any(": " in problem for problem in problems):
            raise CorruptFileError(
                f"{self._path}: {'; '.join(problems)}; repair or remove it (groups then begin as if they had never "
                "read)"
            )
        return {}

    def committed(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """The next offset *group* will read, or None when it never committed one."""
        with self._lock:
            offset = self._table.get((topic, group), {}).get(queue_id)
        return None if offset is None else QueueOffset(offset)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, durable: bool = True) -> None:
        """Remember that *group* has read everything below *offset*; with *durable*, on stable storage.

        Raises:
            InvalidArgumentError: a negative offset or queue, or a name the file cannot hold.
        """
        check_names(group, topic)
        if offset < 0 or queue_id < 0:
            raise InvalidArgumentError(f"commit of offset {offset} in queue {queue_id}: neither can be below 0")
        with self._lock:
            self._table.setdefault((topic, group), {})[queue_id] = offset
            self._version += 1
        if durable:
            self.save()

    def forget(self, group: str) -> None:
        """Drop every offset of *group*, durably: it starts again as if it had never read."""
        with self._lock:
            for key in [key for key in self._table if key[1] == group]:
                del self._table[key]
            self._version += 1
        self.save()

    def groups(self) -> list[str]:
        """Names of every group that has committed something."""
        with self._lock:
            return sorted({group for _, group in self._table})

    def entries(self) -> Iterator[tuple[str, str, int, QueueOffset]]:
        """(group, topic, queue_id, offset) of everything committed."""
        with self._lock:
            copied = [(key, dict(queues)) for key, queues in self._table.items()]
        for (topic, group), queues in copied:
            for queue_id, offset in sorted(queues.items()):
                yield group, topic, queue_id, QueueOffset(offset)

    def save(self) -> bool:
        """Write what is not yet on disk; whether there was anything. Waits for the disk."""
        with self._lock:
            wanted = self._version
        with self._file_lock:
            with self._lock:
                if self._saved_version >= wanted:
                    return False
                version = self._version
                text = render_dialect(self._render())
            replace_file(self._path, text.encode("utf-8"))
            self._saved_version = version
        return True

    def _render(self) -> dict[str, Any]:
        """The document with the table as it is now; what else stood in the file stays in it."""
        version = dict(self._document.get("dataVersion") or {"counter": 0, "stateVersion": 0})
        version["counter"] = int(version.get("counter", 0)) + 1
        version["timestamp"] = self._clock.now_ms()
        table = {
            f"{topic}{SEPARATOR}{group}": {
                f"{BARE_KEY}{queue_id}": offset for queue_id, offset in sorted(queues.items())
            }
            for (topic, group), queues in self._table.items()
        }
        self._document = {"dataVersion": version, **self._without("dataVersion", "offsetTable"), "offsetTable": table}
        if "groupTopicMap" in self._document:
            # Derived by Apache from the table; kept in step so that a reader of the file is not misled.
            topics: dict[str, list[str]] = {}
            for topic, group in self._table:
                topics.setdefault(group, []).append(topic)
            self._document["groupTopicMap"] = topics
        return self._document

    def _without(self, *names: str) -> dict[str, Any]:
        return {name: value for name, value in self._document.items() if name not in names}


def check_names(group: str, topic: str) -> None:
    """Refuse names that RocketMQ would refuse, or that would not come back out of "topic@group"."""
    if not GROUP_NAME.fullmatch(group) or len(group) > GROUP_SIZE_MAX:
        raise InvalidArgumentError(
            f"group {group[:GROUP_SIZE_MAX]!r}: letters, digits, %, |, _ and - are possible, {GROUP_SIZE_MAX} at most"
        )
    if not topic or SEPARATOR in topic:
        raise InvalidArgumentError(
            f"topic {topic!r}: it can be neither empty nor contain {SEPARATOR} to commit offsets of it"
        )


def replace_file(path: Path, data: bytes) -> None:
    """Replace *path* so that a crash leaves the old or the new content, and the old one stays as `.bak`.

    The backup is a second name of the old file, made before the new one takes its place: at no moment are both gone.
    """
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        sync_directory(path.parent.parent)
    temporary = path.with_name(path.name + ".tmp")
    backup = path.with_name(path.name + ".bak")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    if path.exists():
        linked = path.with_name(path.name + ".bak.tmp")
        linked.unlink(missing_ok=True)
        linked.hardlink_to(path)
        linked.replace(backup)
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Put the names in *path* on stable storage."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
