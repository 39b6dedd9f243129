"""Small files that must survive: replaced whole, on stable storage before anybody relies on them.

RocketMQ keeps its configuration in JSON files with a `.bak` beside each. pymq writes them so that a crash at any moment
leaves the old or the new text: temporary file, fsync, rename, fsync of the directory. All functions wait for the disk;
an event loop calls them through an executor.
"""

from __future__ import annotations

import os
from pathlib import Path

BACKUP_SUFFIX = ".bak"
TEMPORARY_SUFFIX = ".tmp"


def write(path: Path, content: bytes) -> None:
    """Replace *path* by *content* durably; what stood there before becomes its `.bak`.

    Raises:
        OSError: the directory cannot be made or written; the old file is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    backup = path.with_name(path.name + BACKUP_SUFFIX)
    if path.exists() and path.stat().st_size > 0:
        # A second name for the old bytes, not a copy: at no moment is there neither the file nor its backup.
        backup.unlink(missing_ok=True)
        os.link(path, backup)
    os.replace(temporary, path)
    sync_directory(path.parent)


def read(path: Path) -> bytes | None:
    """The file's content, or its backup's when the file is missing or empty; None when there is neither."""
    for candidate in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if content.strip():
            return content
    return None


def sync_directory(directory: Path) -> None:
    """Make the names in *directory* durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
