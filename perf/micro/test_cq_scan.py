"""The tag scan of a consume queue, beside memcpy of the same bytes.

Sketch: a unit is 20 bytes and one 8-byte comparison; a core that streams 10 GB/s from memory passes 500 M units/s, so
the scan should be bound by memory and not by the loop.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

UNIT_SIZE = 20
FILE_UNITS = 300_000  # one queue file as brokers make it: 6 MB
LOOPS = 12
MEMCPY_SHARE_MIN = 0.05  # of memcpy's bytes per second; a loop in an interpreter is a hundred times below


@pytest.mark.parametrize("hash_count", [1, 2, 4, 8])
@pytest.mark.benchmark(group="cq scan")
def test_tag_scan_beside_memcpy(
    benchmark: Any, bench: Any, say: Callable[[str], None], alternate: Callable[..., list[float]], hash_count: int
) -> None:
    """Goal: 100 M units/s with rare matches. Method: a full queue file, hashes that occur in no unit, looped in C."""
    lib, ffi = bench.lib, bench.ffi
    draw = random.Random(hash_count)
    units = b"".join(struct.pack(">qiq", number * 300, 300, draw.randrange(2**31)) for number in range(FILE_UNITS))
    hashes = ffi.new("int64_t[]", [-1 - number for number in range(hash_count)])
    target = bytearray(len(units))
    writable = ffi.from_buffer("uint8_t[]", target)
    scan, copy = alternate(
        lambda: lib.bench_scan_tags(units, FILE_UNITS, hashes, hash_count, LOOPS),
        lambda: lib.bench_memcpy(writable, units, len(units), LOOPS),
    )
    benchmark.pedantic(lib.bench_scan_tags, args=(units, FILE_UNITS, hashes, hash_count, LOOPS), rounds=3)
    rate = FILE_UNITS * LOOPS / scan
    share = copy / scan
    benchmark.extra_info.update(units_per_second=rate, memcpy_share=share)
    say(
        f"cq scan, {hash_count} hashes: {rate / 1e6:.0f} M units/s, {rate * UNIT_SIZE / 1e9:.2f} GB/s, "
        f"{share:.2f} x memcpy ({len(units) * LOOPS / copy / 1e9:.2f} GB/s in the same run)"
    )
    assert share >= MEMCPY_SHARE_MIN
