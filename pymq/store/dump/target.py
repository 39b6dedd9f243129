"""The directory a dump is written to: empty, or an unfinished dump of the same source; anything else is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from pymq.durable_file import sync_directory
from pymq.store.dump.errors import DumpRefusedError
from pymq.store.dump.journal import Journal
from pymq.store.dump.manifest import MANIFEST, PARTIAL, Manifest, load_manifest
from pymq.store.dump.origin import RUNNING

MIB = 1 << 20


def check_apart(source: Path, target: Path) -> None:
    """Refuse a target inside its source, or the other way round.

    Raises:
        DumpRefusedError: so it is.
    """
    source, target = source.resolve(), target.resolve()
    if source == target or source in target.parents or target in source.parents:
        raise DumpRefusedError(f"{target} and the store {source} lie in one another; name a directory beside it")


def open_target(target: Path, head: dict[str, Any]) -> Journal | Manifest:
    """The notes of a new dump or of one to be continued, or the manifest of one that is whole already.

    *head* says what the source is: "source", "storePath", "kind".

    Raises:
        DumpRefusedError: something else is there.
        OSError: it cannot be written.
    """
    if target.exists() and not target.is_dir():
        raise DumpRefusedError(f"{target} is no directory")
    target.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in target.iterdir()}
    if MANIFEST in names:
        manifest = load_manifest(target)
        check_same({"storePath": manifest.store_path, "kind": manifest.kind}, head, target)
        (target / PARTIAL).unlink(missing_ok=True)
        return manifest
    if PARTIAL in names:
        journal = Journal.resume(target)
        try:
            check_same(journal.head, head, target)
        except DumpRefusedError:
            journal.close()
            raise
        return journal
    if names:
        raise DumpRefusedError(f"{target} is neither empty nor a dump (it has {min(names)!r}); name another directory")
    return Journal.create(target, head)


def check_same(found: dict[str, Any], head: dict[str, Any], target: Path) -> None:
    """Refuse to continue the dump of something else.

    Raises:
        DumpRefusedError: *found* speaks of another source than *head*.
    """
    for name in ("storePath", "kind"):
        if found.get(name) != head[name]:
            raise DumpRefusedError(
                f"{target} holds a dump of another source: {found.get('kind')} {found.get('storePath')}, not "
                f"{head['kind']} {head['storePath']}; name another directory"
            )


def clear(target: Path) -> None:
    """Remove what an attempt left that did not come to fix its position."""
    for entry in target.iterdir():
        if entry.name == PARTIAL:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def check_space(target: Path, needed: int, kind: str, store: Path, configuration: dict[str, str]) -> None:
    """Refuse before anything is copied when it would not fit, or would make the broker refuse messages.

    Raises:
        DumpRefusedError: there is not enough space.
    """
    disk = os.statvfs(target)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise DumpRefusedError(
            f"{target}: the dump needs {needed / MIB:,.0f} MiB, {free / MIB:,.0f} MiB are free; name a directory on "
            "another disk, or make room"
        )
    if kind != RUNNING or target.stat().st_dev != store.stat().st_dev:
        return
    used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    limit = int(configuration.get("diskSpaceWarningLevelRatio") or "90") / 100
    if (used + needed) / (used + free) > limit:
        raise DumpRefusedError(
            f"{target} is on the disk of the store, and with {needed / MIB:,.0f} MiB more that would be fuller than "
            f"{limit:.0%} (diskSpaceWarningLevelRatio): the broker would refuse messages; name a directory "
            "on another disk"
        )


def allocated(target: Path) -> int:
    """How many bytes of the disk the files under *target* take."""
    total = 0
    for directory, _, names in os.walk(target):
        total += sum((Path(directory) / name).stat().st_blocks * 512 for name in names)
    return total


def sweep(target: Path, paths: set[str]) -> None:
    """Remove files that are not of the dump (of a queue, say, that was removed meanwhile) and empty directories.

    All but `commitlog`, which is there even when nothing is in it: by it others know a store.
    """
    for directory, _, names in os.walk(target, topdown=False):
        here = Path(directory)
        for name in names:
            path = here / name
            if path.relative_to(target).as_posix() not in paths and name != PARTIAL:
                path.unlink()
        if here != target and not any(here.iterdir()):
            here.rmdir()
    (target / "commitlog").mkdir(exist_ok=True)


def sync_directories(target: Path) -> None:
    """Put every name under *target* on stable storage."""
    for directory, _, _ in os.walk(target, topdown=False):
        sync_directory(Path(directory))
    sync_directory(target.parent)
