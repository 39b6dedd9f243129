"""Digests of a file's leaves: XXH3-64 of each MiB, as a dump's manifest has them, computed from the file as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import xxhash

from spark_jobs.rocketmq_store.schema import arrow_schema

LEAF_SIZE: Final = 1 << 20


def read_leaves(store: str, root: str | os.PathLike[str], path: str, written: int) -> pa.RecordBatch:
    """One row for each leaf of *path* (below *root*) up to byte *written*, `arrow_schema("leaves")`.

    A file that is shorter, or gone, has fewer leaves: whoever compares sees which are missing.
    """
    rows = []
    try:
        with (Path(root) / path).open("rb") as file:
            for position in range(0, written, LEAF_SIZE):
                leaf = file.read(min(LEAF_SIZE, written - position))
                if not leaf:
                    break
                digest = xxhash.xxh3_64_intdigest(leaf)
                rows.append(
                    {
                        "store": store,
                        "path": path,
                        "size": written,
                        "position": position,
                        "leaf_size": len(leaf),
                        "digest": digest - (1 << 64) if digest >> 63 else digest,
                    }
                )
    except FileNotFoundError:
        rows = []
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema("leaves"))
