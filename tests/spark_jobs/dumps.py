"""A manifest beside a store's files, as `pymq.store.dump` writes it; made here to test readers on their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

LEAF_SIZE = 1 << 20


def write_manifest(root: Path, log_end: int, **changes: Any) -> dict[str, Any]:
    """Turn the store at *root* into a dump up to *log_end*; *changes* replace parts of its manifest."""
    files = []
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not path.is_file() or name.startswith("manifest.json"):
            continue
        data = path.read_bytes()
        written = len(data)
        if name.startswith("commitlog/"):
            written = max(0, min(written, log_end - int(path.name)))
        leaves = [
            xxhash.xxh3_64_hexdigest(data[at : min(at + LEAF_SIZE, written)]) for at in range(0, written, LEAF_SIZE)
        ]
        files.append({"path": name, "size": len(data), "written": written, "mtimeMs": 0, "leaves": leaves})
    manifest = {
        "format": "pymq-dump",
        "version": 1,
        "source": str(root),
        "kind": "stopped",
        "broker": None,
        "begunMs": 1,
        "endedMs": 2,
        "log": {"begin": 0, "end": log_end},
        "leafSize": LEAF_SIZE,
        "files": files,
        "configuration": {},
    } | changes
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return manifest
