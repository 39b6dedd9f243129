"""`removedTopics` in a dump: topics that were removed while the log still holds their messages.

A topic that is removed while its broker is being dumped is removed in the dump too: its queue files may be gone before
they are copied. Its line then says the dump's position, below which all of its records in the dump lie.
"""

from __future__ import annotations

from pathlib import Path

from pymq.store.dump.errors import DumpError

FILE_NAME = "removedTopics"
HEAD = b"pymq removed topics 1\n"


def read_removed(path: Path) -> dict[str, int]:
    """From which physical offset on records of each topic count; nothing when there is no file.

    Raises:
        DumpError: it is no such file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    if not data.startswith(HEAD):
        raise DumpError(f"{path}: not a file of removed topics")
    removed: dict[str, int] = {}
    at = len(HEAD)
    try:
        while at < len(data):
            offset, size, rest = data[at:].split(b" ", 2)
            name = rest[: int(size)]
            removed[name.decode("utf-8", "surrogateescape")] = int(offset)
            at += len(offset) + len(size) + 2 + int(size) + 1
    except ValueError as error:
        raise DumpError(f"{path}: not a file of removed topics: {error}") from error
    return removed


def render_removed(removed: dict[str, int], position: int) -> bytes:
    """The file as of *position*."""
    lines = []
    for topic, offset in sorted(removed.items()):
        name = topic.encode("utf-8", "surrogateescape")
        lines.append(b"%d %d %s\n" % (min(offset, position), len(name), name))
    return HEAD + b"".join(lines)
