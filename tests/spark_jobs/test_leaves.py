"""Leaves of a file: XXH3 of each MiB, as other tools compute it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import xxhash

from spark_jobs.rocketmq_store.leaves import LEAF_SIZE, read_leaves
from spark_jobs.rocketmq_store.schema import arrow_schema

DATA = random.Random(6).randbytes(9 * LEAF_SIZE + 777)


@pytest.mark.parametrize("written", [0, 1, LEAF_SIZE, LEAF_SIZE + 1, 8 * LEAF_SIZE, len(DATA), len(DATA) + 5_000_000])
def test_leaves_are_those_of_the_package(tmp_path: Path, written: int) -> None:
    """Goal: a manifest anyone can check. Method: sizes around a leaf's, and more than the file has."""
    (tmp_path / "file").write_bytes(DATA)
    batch = read_leaves("made", tmp_path, "file", written)
    assert batch.schema.equals(arrow_schema("leaves"))
    held = DATA[:written]
    expected = [
        (at, len(held[at : at + LEAF_SIZE]), xxhash.xxh3_64_intdigest(held[at : at + LEAF_SIZE]))
        for at in range(0, len(held), LEAF_SIZE)
    ]
    assert [(row["position"], row["leaf_size"], row["digest"] % 2**64) for row in batch.to_pylist()] == expected


def test_a_missing_file_has_no_leaves(tmp_path: Path) -> None:
    """Goal: nothing raises. Method: a file that is gone."""
    assert read_leaves("made", tmp_path, "gone", 5).num_rows == 0
