"""Consumer offsets: how far each group has read, in RocketMQ's own file.

`config/consumerOffset.json` is shared with Apache RocketMQ, so it keeps its dialect and everything in it:

    {"dataVersion": {…}, "offsetTable": {"topic@group": {0:12, 1:3}}, …}

# Compat: integer keys stand without quotes, as fastjson writes them; both spellings are read.

The file is replaced atomically (temporary file, fsync, rename, fsync of the directory) and the one before stays as
`.bak`, unless it was damaged. Offsets live in memory; `commit` with *durable* returns once the file that holds them is
on stable storage, and commits that wait at the same time share one replacement.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pymq.clock import Clock
from pymq.durable_file import replace_file
from pymq.errors import CorruptFileError, InvalidArgumentError, StoreClosedError, StoreError, StoreIOError
from pymq.message import QueueOffset

SEPARATOR = "@"
GROUP_SIZE_MAX = 255
OFFSET_LIMIT = 2**58  # as the core has it: times the unit of a queue it fits in 63 bits
GROUP_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
BARE_KEY = "\0"  # marks, while in memory, a key that stood without quotes
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\d+)(?=\s*:)')

# One for all: json.dumps makes a new one for every word, and a table of topics has ten thousands of them.
ENCODER = json.JSONEncoder(ensure_ascii=False)

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
    if type(value) is int:  # nearly all there is in a table of offsets; the encoder takes ten times as long for it
        return repr(value)
    return ENCODER.encode(value)


def render_key(key: str) -> str:
    """A key, quoted or, when marked, bare."""
    return key[1:] if key.startswith(BARE_KEY) else ENCODER.encode(key)


def offset_table(document: Mapping[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    """Offsets by queue, by (topic, group), of a document of the right shape; names without a separator are left out.

    Raises:
        ValueError, TypeError: it is not what a broker writes; the text says where.
    """
    version = document.get("dataVersion")
    if version is not None:
        check_object("dataVersion", version)
        if not is_integer(version.get("counter", 0)):
            raise TypeError(f"dataVersion.counter is {version['counter']!r}, not a number")
    entries = document.get("offsetTable")
    if entries is None:
        return {}
    check_object("offsetTable", entries)
    table: dict[tuple[str, str], dict[int, int]] = {}
    for name, queues in entries.items():
        check_object(f"offsetTable[{name!r}]", queues)
        topic, separator, group = name.rpartition(SEPARATOR)
        if not separator:
            continue
        offsets = table.setdefault((topic, group), {})
        for key, offset in queues.items():
            queue_id = key.lstrip(BARE_KEY)
            if not re.fullmatch(r"-?[0-9]{1,19}", queue_id) or not is_integer(offset):
                raise TypeError(f"offsetTable[{name!r}] has {queue_id!r}: {offset!r}, not two numbers")
            offsets[int(queue_id)] = offset
    return table


def check_object(name: str, value: object) -> None:
    """Refuse what is not a JSON object."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a {type(value).__name__}, not an object")


def is_integer(value: object) -> bool:
    """Whether *value* is a number without a fraction; in Python a truth value is one too."""
    return isinstance(value, int) and not isinstance(value, bool)


class OffsetStore:
    """The committed offsets of every group, over one file.

    `_lock` guards the table; `_file_lock` serializes replacements and is taken first. Both let their own thread in
    again, because a signal handler runs on it: `_saving` then refuses a second replacement, and `busy_here` lets a
    close find out.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Load *path*, or its `.bak` when that is all that is readable.

        Raises:
            CorruptFileError: one of them is there, and neither is what a broker writes.
            StoreIOError: they cannot be read at all.
        """
        self._path = path.absolute()
        self._clock = clock
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.RLock()
        self._file_lock = threading.RLock()
        self._saving = False
        self._damaged = False  # the file on disk is no backup worth having
        self._version = 0
        self._saved_version = 0
        self._document, self._table = self._load()

    def _load(self) -> tuple[dict[str, Any], dict[tuple[str, str], dict[int, int]]]:
        backup = self._path.with_name(self._path.name + ".bak")
        problems: list[str] = []
        for candidate in (self._path, backup):
            try:
                text = candidate.read_text(encoding="utf-8")
                if not text.strip():
                    raise ValueError("it is empty")
                document = parse_dialect(text)
                table = offset_table(document)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreIOError(f"{candidate}: {error.strerror}", errno=error.errno or 0) from error
            except (ValueError, TypeError, RecursionError) as error:
                problems.append(f"{candidate.name}: {error}")
                continue
            if candidate == backup:
                self._damaged = bool(problems)
                because = "; ".join(problems) or f"{self._path.name} is missing"
                log.warning("offsets read from the backup path=%s because=%s", candidate, because)
            return document, table
        if problems:
            raise CorruptFileError(
                f"{self._path}: {'; '.join(problems)}; neither the file nor its .bak can be used: put a "
                "good copy in place, or repair or remove them (without any, groups begin as if they had never read)"
            )
        return {}, {}

    def close(self) -> None:
        """Accept no more commits: the directory may soon be another process's."""
        self._closed = True

    def busy_here(self) -> bool:
        """Whether the calling thread is in the middle of a commit or a save already."""
        return held_here(self._lock) or held_here(self._file_lock)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self._path}: opened by process {self._pid}, this is process {os.getpid()} after a fork; open "
                "the store again here once that process has closed it",
                errno=errno.EPERM,
            )

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise StoreClosedError(f"{self._path}: the store is closed; open it again with pymq.open()")

    def committed(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """The next offset *group* will read, or None when it never committed one."""
        self._check_process()
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
        if offset >= OFFSET_LIMIT:
            raise InvalidArgumentError(f"commit of offset {offset}: no queue gets to {OFFSET_LIMIT}")
        self._check_open()
        with self._lock:
            self._table.setdefault((topic, group), {})[queue_id] = offset
            self._version += 1
        if durable:
            self.save()

    def forget(self, group: str) -> None:
        """Drop every offset of *group*, durably: it starts again as if it had never read."""
        self._check_open()
        with self._lock:
            for key in [key for key in self._table if key[1] == group]:
                del self._table[key]
            self._version += 1
        self.save()

    def groups(self) -> list[str]:
        """Names of every group that has committed something."""
        self._check_process()
        with self._lock:
            return sorted({group for _, group in list(self._table)})

    def entries(self) -> Iterator[tuple[str, str, int, QueueOffset]]:
        """(group, topic, queue_id, offset) of everything committed."""
        with self._lock:
            copied = [(key, dict(queues)) for key, queues in list(self._table.items())]
        for (topic, group), queues in copied:
            for queue_id, offset in sorted(queues.items()):
                yield group, topic, queue_id, QueueOffset(offset)

    def clamp(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Move offsets beyond the ends of their queues back to them; a queue not in *ends* has none and ends at 0.

        A power failure under ASYNC_FLUSH takes the log's tail and leaves the offsets. Kept as they are, they would skip
        the messages that take the places of the lost ones.
        """
        with self._lock:
            for (topic, group), queues in self._table.items():
                for queue_id, offset in queues.items():
                    end = ends.get((topic, queue_id), 0)
                    if offset > end:
                        queues[queue_id] = end
                        self._version += 1
                        log.warning(
                            "offset corrected path=%s group=%s topic=%s queue=%d offset=%d to=%d because=%s",
                            self._path, group, topic, queue_id, offset, end, "the queue ends before it",
                        )  # fmt: skip

    def save(self) -> bool:
        """Write what is not yet on disk; whether there was anything. Waits for the disk.

        Raises:
            StoreError: called inside another save on the same thread, from a signal handler.
        """
        self._check_open()
        with self._lock:
            wanted = self._version
        with self._file_lock:
            if self._saving:
                raise StoreError(
                    f"{self._path}: saving was asked for inside another save on the same thread (a signal handler?); "
                    "set a flag, and commit after that call has returned",
                    errno=errno.EDEADLK,
                )
            self._saving = True
            try:
                with self._lock:
                    if self._saved_version >= wanted:
                        return False
                    version = self._version
                    text = render_dialect(self._render())
                replace_file(self._path, text.encode("utf-8"), keep=not self._damaged)
                self._damaged = False
                self._saved_version = version
            finally:
                self._saving = False
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
            for (topic, group), queues in list(self._table.items())
        }
        self._document = {"dataVersion": version, **self._without("dataVersion", "offsetTable"), "offsetTable": table}
        if "groupTopicMap" in self._document:
            # Derived by Apache from the table; kept in step so that a reader of the file is not misled.
            topics: dict[str, list[str]] = {}
            for topic, group in list(self._table):
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


def held_here(lock: threading.RLock) -> bool:
    """Whether the calling thread holds *lock*; a condition refuses a thread that does not."""
    try:
        threading.Condition(lock).notify(0)
    except RuntimeError:
        return False
    return True
