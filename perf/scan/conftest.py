"""Logs to scan, made once from a seed, and how a figure is said."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pymq import _scan

LOG_SIZE = 64 << 20
QUEUES = 8
TOPICS = (b"orders", b"payments", b"audit-trail")
BORN_MS = 1_794_794_160_000


def make_log(path: Path, body_size: int, *, size: int = LOG_SIZE, seed: int = 6) -> tuple[int, int]:
    """A log file of records as a broker writes them, to the last byte; how many records and bytes."""
    chance = random.Random(seed)
    bodies = [chance.randbytes(body_size) for _ in range(64)]
    next_offset: dict[tuple[bytes, int], int] = {}
    count = offset = 0
    with path.open("wb") as file:
        while True:
            topic, queue_id = TOPICS[count % len(TOPICS)], count % QUEUES
            properties = _scan.encode_properties(
                [
                    (b"KEYS", b"order-%d" % count),
                    (b"UNIQ_KEY", b"7F0000012A9F18B4AAC2%012X" % count),
                    (b"WAIT", b"true"),
                    (b"TAGS", b"Tag%d" % (count % 5)),
                    (b"MSG_REGION", b"DefaultRegion"),
                    (b"TRACE_ON", b"true"),
                ]
            )
            record = _scan.encode_record(
                _scan.Record(
                    topic=topic,
                    body=bodies[count % len(bodies)],
                    properties=properties,
                    queue_id=queue_id,
                    queue_offset=next_offset.setdefault((topic, queue_id), 0),
                    physical_offset=offset,
                    born_timestamp_ms=BORN_MS + count // 10,
                    store_timestamp_ms=BORN_MS + count // 10,
                    born_host=_scan.Host(b"\x7f\0\0\1", 40000 + count % 7),
                    store_host=_scan.Host(b"\x7f\0\0\1", 10911),
                )
            )
            if offset + len(record) > size:
                return count, offset
            file.write(record)
            next_offset[(topic, queue_id)] += 1
            offset += len(record)
            count += 1


@pytest.fixture(scope="session", params=[1024, 128], ids=["1KiB", "128B"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int, int]:
    """A log file in the page cache: path, body size, records, bytes."""
    path = tmp_path_factory.mktemp("log") / "00000000000000000000"
    count, size = make_log(path, request.param)
    return path, request.param, count, size


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a figure past pytest's capture."""

    def print_line(text: str) -> None:
        with capsys.disabled():
            print(f"\n    {text}", end="", flush=True)

    return print_line
