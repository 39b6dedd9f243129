"""Whether a dump is still what its manifest says: every leaf read again and compared."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymq.store.dump.copier import Report, Silent
from pymq.store.dump.leaves import is_zero, leaf_digest, read_full
from pymq.store.dump.manifest import LEAF_SIZE, MANIFEST, PARTIAL, FileEntry, Manifest, load_manifest

BESIDE = frozenset({MANIFEST, PARTIAL, "lock"})  # at the top: no part of the store


@dataclass(frozen=True, slots=True)
class Difference:
    """How a file is not what the manifest says.

    Attributes:
        leaf: the number of the first leaf that differs; -1 when it is not a leaf that does.
        offset: where in the file that begins.
    """

    path: str
    leaf: int
    offset: int
    expected: str
    found: str

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "path": self.path,
            "leaf": self.leaf,
            "offset": self.offset,
            "expected": self.expected,
            "found": self.found,
        }

    def __str__(self) -> str:
        where = f" leaf {self.leaf} at byte {self.offset}" if self.leaf >= 0 else ""
        return f"{self.path}{where}: {self.found}, expected {self.expected}"


def verify_dump(directory: Path, *, report: Report | None = None) -> tuple[Manifest, list[Difference]]:
    """The manifest of the dump in *directory*, and the first difference of each file that has one.

    Raises:
        DumpRefusedError: there is no whole dump.
        OSError: a file cannot be read.
    """
    manifest = load_manifest(directory)
    report = report or Silent()
    report.begin(str(directory), len(manifest.files), sum(entry.written for entry in manifest.files))
    differences: list[Difference] = []
    for entry in manifest.files:
        difference = compare(directory, entry, report)
        if difference is not None:
            differences.append(difference)
        report.file_done(entry.path)
    differences += unknown_files(directory, manifest)
    report.end()
    return manifest, differences


def compare(directory: Path, entry: FileEntry, report: Report) -> Difference | None:
    """The first difference of one file."""
    try:
        descriptor = os.open(directory / entry.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Difference(entry.path, -1, 0, f"a file of {entry.size} bytes", "missing")
    try:
        size = os.fstat(descriptor).st_size
        for number, expected in enumerate(entry.leaves):
            at = number * LEAF_SIZE
            data = read_full(descriptor, min(LEAF_SIZE, entry.written - at), at)
            found = leaf_digest(data)
            report.advance(entry.path, len(data))
            if found != expected:
                return Difference(entry.path, number, at, expected, found)
        if size != entry.size:
            return Difference(entry.path, -1, 0, f"{entry.size} bytes", f"{size} bytes")
        return compare_rest(descriptor, entry)
    finally:
        os.close(descriptor)


def compare_rest(descriptor: int, entry: FileEntry) -> Difference | None:
    """Behind what belongs to the dump there are zeros."""
    at = entry.written
    while at < entry.size:
        number = at // LEAF_SIZE
        data = read_full(descriptor, min((number + 1) * LEAF_SIZE, entry.size) - at, at)
        if not is_zero(data):
            return Difference(entry.path, number, number * LEAF_SIZE, f"zeros from byte {entry.written} on", "others")
        at += len(data)
    return None


def unknown_files(directory: Path, manifest: Manifest) -> list[Difference]:
    """Files that the manifest does not name; whoever opens a dump as a store leaves some."""
    known = {entry.path for entry in manifest.files}
    found = []
    for here, _, names in os.walk(directory):
        for name in names:
            path = (Path(here) / name).relative_to(directory).as_posix()
            if path not in known and path not in BESIDE:
                found.append(Difference(path, -1, 0, "no such file", "there"))
    return sorted(found, key=lambda difference: difference.path)
