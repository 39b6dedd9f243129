"""`manifest.json`: what a dump holds, so that it can be verified and two dumps can be compared.

    {"format": "pymq-dump", "version": 1, "source", "storePath", "host", "kind": "stopped" | "running",
     "broker": {…} | null, "begunMs", "endedMs", "log": {"begin", "end"}, "leafSize": 1048576,
     "files": [{"path", "size", "written", "mtimeMs", "leaves": ["%016x", …]}, …], "configuration": {name: value}}

`written` is how many bytes of a file belong to the dump; zeros follow up to `size`. The leaves are XXH3-64 of each
MiB of them, the last one shorter. The file is written last, whole and durably: a directory that has it is a whole dump,
and until then `manifest.json.partial` stands in its place (`pymq.store.dump.journal`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymq.durable_file import replace_file
from pymq.store.dump.errors import DumpRefusedError

MANIFEST = "manifest.json"
PARTIAL = "manifest.json.partial"
FORMAT, VERSION = "pymq-dump", 1
LEAF_SIZE = 1 << 20


@dataclass(slots=True)
class FileEntry:
    """One file of a dump."""

    path: str
    size: int
    written: int
    mtime_ms: int
    leaves: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As in the manifest."""
        return {
            "path": self.path,
            "size": self.size,
            "written": self.written,
            "mtimeMs": self.mtime_ms,
            "leaves": self.leaves,
        }

    @classmethod
    def from_json(cls, value: Any) -> FileEntry:
        """Read one.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        path = str(value["path"])
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} leads out of the dump")
        entry = cls(path, int(value["size"]), int(value["written"]), int(value["mtimeMs"]), list(value["leaves"]))
        if not 0 <= entry.written <= entry.size or len(entry.leaves) != leaf_count(entry.written):
            raise ValueError(f"{path}: {entry.written} of {entry.size} bytes do not go with {len(entry.leaves)} leaves")
        return entry


@dataclass(slots=True)
class Manifest:
    """A whole dump."""

    source: str
    store_path: str
    kind: str
    broker: dict[str, Any] | None
    begun_ms: int
    ended_ms: int
    log_begin: int
    log_end: int
    files: list[FileEntry]
    configuration: dict[str, str]
    host: str = ""  # the machine: two stores may lie under one path, each on its own

    def to_json(self) -> dict[str, Any]:
        """As in the file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source,
            "storePath": self.store_path,
            "host": self.host,
            "kind": self.kind,
            "broker": self.broker,
            "begunMs": self.begun_ms,
            "endedMs": self.ended_ms,
            "log": {"begin": self.log_begin, "end": self.log_end},
            "leafSize": LEAF_SIZE,
            "files": [entry.to_json() for entry in self.files],
            "configuration": self.configuration,
        }

    def save(self, directory: Path) -> None:
        """Write it, durably and at once.

        Raises:
            OSError: it could not be written.
        """
        replace_file(directory / MANIFEST, render(self.to_json()).encode("utf-8"), keep=False)


def render(document: dict[str, Any]) -> str:
    """A line for each entry, and one for each file: a manifest can be long, and is read by people too."""
    lines = []
    for name, value in document.items():
        if name == "files":
            files = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in value)
            lines.append(f' "files": [\n{files}\n ]')
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def leaf_count(written: int) -> int:
    """How many leaves so many bytes have."""
    return -(-written // LEAF_SIZE)


def load_manifest(directory: Path) -> Manifest:
    """The manifest of the dump in *directory*.

    Raises:
        DumpRefusedError: there is no whole dump of a version known here; the text says what there is.
    """
    path = directory / MANIFEST
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        if (directory / PARTIAL).exists():
            raise DumpRefusedError(f"{directory}: the dump is not finished; repeat the command that began it") from None
        raise DumpRefusedError(f"{directory}: no {MANIFEST}, so it is no dump") from None
    except (OSError, ValueError) as error:
        raise DumpRefusedError(f"{path}: cannot be read: {error}") from error
    try:
        if document["format"] != FORMAT or document["version"] != VERSION or document["leafSize"] != LEAF_SIZE:
            raise DumpRefusedError(
                f"{path}: format {document['format']!r} version {document['version']!r} with leaves of "
                f"{document['leafSize']}; known here is {FORMAT!r} version {VERSION} with leaves of {LEAF_SIZE}"
            )
        return Manifest(
            str(document["source"]),
            str(document.get("storePath", "")),
            str(document["kind"]),
            document["broker"],
            int(document["begunMs"]),
            int(document["endedMs"]),
            int(document["log"]["begin"]),
            int(document["log"]["end"]),
            [FileEntry.from_json(value) for value in document["files"]],
            {str(name): str(value) for name, value in document["configuration"].items()},
            str(document.get("host", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DumpRefusedError(f"{path}: not a manifest: {error!r}") from error
