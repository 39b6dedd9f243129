"""What the audits' one pass costs, from the page cache, on one core, beside a plain-Python decoder of the same log.

Sketch: a record of 1.2 KiB is copied once by pread (0.1 ns a byte), its CRC is computed (0.06), its properties are read
(a quarter of a microsecond) and its groups found (50 ns): some 0.6 µs, 2 GB/s. With 128-byte bodies the properties are
most of the record and most of the time. Rows for a table add the copies of their texts.

Seconds are the process's own (CPU), not the clock's: one core's work, whoever else is busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pymq import _scan
from spark_jobs.rocketmq_store.records import LogRange, read_records
from spark_jobs.rocketmq_store.scan import scan_log
from tests.reference import java_hash, properties
from tests.reference import record as reference

ROUNDS = 5
RULER_RATIO_MIN = 50.0
RULER_SIZE = 4 << 20  # of the log, for the slow one


def cpu_seconds(work: Callable[[], Iterable[Any]], rounds: int = ROUNDS) -> float:
    """The best of several rounds; what *work* gives is gone through."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _batch in work():
            pass
        best = min(best, time.process_time() - begin)
    return best


def range_of(path: Path, size: int) -> LogRange:
    """All of a log file."""
    return LogRange("perf", str(path), 0, 0, size, size, size)


def plain_scan(source: bytes) -> dict[tuple[bytes, int, int], int]:
    """The same sums for queues and keys by the plain-Python decoder, CRC included."""
    sums: dict[tuple[bytes, int, int], int] = {}
    position = 0
    while position + 8 <= len(source):
        size = int.from_bytes(source[position : position + 4], "big")
        if position + size > len(source):
            break
        record = reference.decode_record(source[position : position + size], check_crc=True)
        assert not isinstance(record, int)
        pairs = properties.decode_properties(record.properties)
        tags = pairs.get(b"TAGS", b"")
        words = (record.queue_offset, record.physical_offset, record.total_size, java_hash.java_hash(tags))
        key = (record.topic, record.queue_id, record.queue_offset >> 12)
        sums[key] = sums.get(key, 0) + hash(words)
        for name in (pairs.get(b"UNIQ_KEY", b""), *pairs.get(b"KEYS", b"").split(b" "), b"T#" + tags):
            java_hash.index_key_hash(record.topic, name)
        position += size
    return sums


@pytest.mark.benchmark(group="scan of the log")
def test_the_scan_passes_a_gigabyte_a_second_and_core(
    benchmark: Any, log: tuple[Path, int, int, int], say: Callable[[str], None]
) -> None:
    """Goal: 1 GB/s per core with CRC and digests, 1 KiB bodies; > 50 times the plain decoder. The ratio is asserted;
    rates are the machine's. Method: both over the same log, CPU seconds, best of several."""
    path, body_size, count, size = log
    scan = cpu_seconds(lambda: scan_log(range_of(path, size)))
    source = path.read_bytes()[:RULER_SIZE]
    plain = cpu_seconds(lambda: plain_scan(source), rounds=1) / len(source) * size
    benchmark.pedantic(lambda: list(scan_log(range_of(path, size))), rounds=3)
    rate = size / scan / 1e9
    benchmark.extra_info.update(gb_per_second=rate, ns_per_record=scan / count * 1e9, ratio_to_plain=plain / scan)
    say(
        f"scan, {body_size} B bodies: {rate:.2f} GB/s ({scan / count * 1e9:.0f} ns a record), "
        f"{plain / scan:.0f} x the plain-Python decoder ({size / plain / 1e6:.1f} MB/s)"
    )
    assert plain / scan >= RULER_RATIO_MIN


@pytest.mark.benchmark(group="rows of the log")
def test_rows_of_the_log_beside_its_scan(
    benchmark: Any, log: tuple[Path, int, int, int], say: Callable[[str], None]
) -> None:
    """Goal: whole rows with body digests stay within a few times the scan. Method: the table's batches, CPU seconds."""
    path, body_size, count, size = log
    scan = cpu_seconds(lambda: scan_log(range_of(path, size)), rounds=3)
    raw = cpu_seconds(lambda: read_records(range_of(path, size), body="digest"), rounds=3)
    maps = cpu_seconds(lambda: read_records(range_of(path, size), body="digest", properties="map"), rounds=3)
    benchmark.pedantic(lambda: list(read_records(range_of(path, size), body="digest")), rounds=3)
    benchmark.extra_info.update(gb_per_second=size / raw / 1e9, ns_per_row=raw / count * 1e9)
    say(
        f"rows with digest, {body_size} B bodies: {size / raw / 1e9:.2f} GB/s ({raw / count * 1e9:.0f} ns a row), "
        f"properties as maps {size / maps / 1e9:.2f} GB/s; scan {size / scan / 1e9:.2f} GB/s"
    )
    assert raw < 10 * scan


@pytest.mark.benchmark(group="xxh3")
def test_xxh3_beside_memcpy(benchmark: Any, say: Callable[[str], None]) -> None:
    """Goal: leaves of a dump at the speed of memory. Method: one MiB, beside copying it."""
    source = bytes(range(256)) * 4096
    loops = range(64)
    digest = cpu_seconds(lambda: (_scan.xxh3_64(source) for _ in loops))
    copy = cpu_seconds(lambda: (bytearray(source) for _ in loops))
    benchmark.pedantic(_scan.xxh3_64, args=(source,), rounds=20)
    rate = len(source) * len(loops) / digest / 1e9
    say(f"xxh3 of 1 MiB: {rate:.1f} GB/s; copying it {len(source) * len(loops) / copy / 1e9:.1f} GB/s")
    assert digest < 10 * copy
