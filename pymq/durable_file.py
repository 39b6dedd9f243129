"""Small files that must survive: replaced whole, on stable storage before anybody relies on them.

RocketMQ keeps its configuration in JSON files with a `.bak` beside each. pymq writes them so that a crash at any moment
leaves the old or the new text: temporary file, fsync, rename, fsync of the directory. All functions wait for the disk;
an event loop calls them through an executor.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

BACKUP_SUFFIX = ".bak"
TEMPORARY_SUFFIX = ".tmp"


def replace_file(path: Path, data: bytes, *, keep: bool = True) -> None:
    """Replace *path* so that a crash leaves the old or the new content, and the old one, if *keep*, stays as `.bak`.

    The backup is a second name of the old file, made before the new one takes its place: at no moment are both gone.

    Raises:
        OSError: the directory cannot be made or written; the old file is still there.
    """
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        sync_directory(path.parent.parent)
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with temporary.open("wb") as stream:
        if path.exists():  # a file with a password in it is often the owner's alone, and stays so
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    if keep and path.exists() and path.stat().st_size:
        linked = path.with_name(path.name + BACKUP_SUFFIX + TEMPORARY_SUFFIX)
        linked.unlink(missing_ok=True)
        linked.hardlink_to(path)
        linked.replace(path.with_name(path.name + BACKUP_SUFFIX))
    temporary.replace(path)
    sync_directory(path.parent)


def read_file(path: Path) -> bytes | None:
    """The file's content, or its backup's when the file is missing or empty; None when there is neither."""
    for candidate in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if content.strip():
            return content
    return None


def sync_directory(path: Path) -> None:
    """Put the names in *path* on stable storage."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
