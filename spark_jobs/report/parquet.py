"""Findings and metrics as Parquet: two files, each written by the driver in one pass, complete whatever is shown.

One file each and not a directory of parts: findings are few, they pass through the driver anyway, and a file needs no
file system that executors share with it. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

FINDINGS_COLUMNS = pa.schema(
    [
        ("check", pa.string()),
        ("severity", pa.string()),
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("expected", pa.string()),
        ("actual", pa.string()),
        ("evidence", pa.string()),
    ]
)
METRICS_COLUMNS = pa.schema(
    [
        ("check", pa.string()),
        ("store", pa.string()),
        ("name", pa.string()),
        ("label", pa.string()),
        ("at", pa.int64()),
        ("value", pa.int64()),
    ]
)
BATCH_ROWS = 16_384

Row = Sequence[Any]


class RowsFile:
    """A Parquet file in the making; rows are tuples in the order of its columns."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """It will be called *path* once it is closed without an error."""
        self.path, self.rows = path, 0
        self._schema = schema
        self._lock = threading.Lock()
        self._partial = path.with_name(path.name + ".partial")
        self._writer = pq.ParquetWriter(self._partial, schema, compression="zstd")

    def write(self, rows: Iterable[Row]) -> int:
        """Append *rows*; returns how many they were. Never more than a batch of them in memory.

        Checks run side by side; the rows of one call stay together.
        """
        count = 0
        with self._lock:
            for batch in batches(rows):
                columns = [
                    pa.array([row[index] for row in batch], type=field.type) for index, field in enumerate(self._schema)
                ]
                self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
                count += len(batch)
            self.rows += count
        return count

    def __enter__(self) -> Self:
        """Write inside a `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it: whole under its name, or gone."""
        self._writer.close()
        if error is None:
            self._partial.replace(self.path)
        else:
            self._partial.unlink()


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """*rows* in lists of at most BATCH_ROWS."""
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH_ROWS)):
        yield batch


class Output:
    """The files of one run in one directory; made by `open_output`."""

    def __init__(self, directory: Path, findings: RowsFile, metrics: RowsFile) -> None:
        self.directory, self.findings, self.metrics = directory, findings, metrics


@contextmanager
def open_output(directory: Path) -> Iterator[Output]:
    """`findings.parquet` and `metrics.parquet` below *directory*, which is made if need be; an older pair is replaced.

    Raises:
        OSError: there is no such place to write to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (
        RowsFile(directory / "findings.parquet", FINDINGS_COLUMNS) as findings,
        RowsFile(directory / "metrics.parquet", METRICS_COLUMNS) as metrics,
    ):
        yield Output(directory, findings, metrics)
