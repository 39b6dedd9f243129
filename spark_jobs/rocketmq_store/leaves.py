"""Digests of a file's leaves: XXH3-64 of each MiB, as a dump's manifest has them, computed from the file as it is."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pymq import _scan
from spark_jobs.rocketmq_store.schema import arrow_schema

LEAF_SIZE: Final = 1 << 20
PIECE_SIZE: Final = 8 * LEAF_SIZE


def read_leaves(store: str, root: str | os.PathLike[str], path: str, written: int) -> pa.RecordBatch:
    """One row for each leaf of *path* (below *root*) up to byte *written*, `arrow_schema("leaves")`.

    A file that is shorter, or gone, has fewer leaves, the last of them smaller: whoever compares sees which.
    """
    schema, digests, position = arrow_schema("leaves"), bytearray(), 0
    try:
        with (Path(root) / path).open("rb", buffering=0) as file:
            target = memoryview(bytearray(PIECE_SIZE))
            while position < written:
                size = read_into(file, target[: min(PIECE_SIZE, written - position)])
                digests += _scan.digest_leaves(target[:size], LEAF_SIZE)
                position += size
                if size < PIECE_SIZE:
                    break
    except OSError:  # gone, or not to be read: then it has no leaves from here on
        digests = digests[: position // LEAF_SIZE * 8]
    count = len(digests) // 8
    positions = pa.array(range(0, count * LEAF_SIZE, LEAF_SIZE), pa.int64())
    made = {
        "store": pa.repeat(pa.scalar(store, pa.string()), count),
        "path": pa.repeat(pa.scalar(path, pa.string()), count),
        "size": pa.repeat(pa.scalar(written, pa.int64()), count),
        "position": positions,
        "leaf_size": pc.min_element_wise(pc.subtract(position, positions), LEAF_SIZE).cast(pa.int32()),
        "digest": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(bytes(digests))]),
    }
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def read_into(file: io.FileIO, target: memoryview) -> int:
    """Fill *target* from the file; how much was there."""
    done = 0
    while done < len(target) and (got := file.readinto(target[done:])):
        done += got
    return done
