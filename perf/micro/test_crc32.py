"""CRC-32 beside zlib, both looped in C over the same bytes.

Sketch: zlib 1.2.12 and later reads 8 bytes a step from tables, 1.5 to 3.5 GB/s; folding by carry-less multiply is
bound by the multiplier, 16 bytes per 2 cycles and lane pair, 10 to 25 GB/s. Small bodies are bound by latency: the
final reduction is four dependent multiplications.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

RATIO_MIN = 3.0  # what issue 3 asks where the processor multiplies without carry
TARGET_SIZES = (1024, 65536)
BYTES_PER_ROUND = 32 << 20


@pytest.mark.parametrize("size", [64, 128, 256, 1024, 10240, 65536, 2 << 20])
@pytest.mark.benchmark(group="crc32")
def test_crc32_beside_zlib(
    benchmark: Any, bench: Any, say: Callable[[str], None], alternate: Callable[..., list[float]], size: int
) -> None:
    """Goal: at least 3 times zlib at 1 KiB and 64 KiB. Method: alternate loops in C, ratio of the best rounds."""
    lib = bench.lib
    version = bench.ffi.string(lib.bench_zlib_version()).decode()
    assert version, "no libz.so.1 to compare with"
    source = random.Random(size).randbytes(size)
    assert lib.bench_pymq_crc32(source, size) == lib.bench_zlib_crc32(source, size)
    loops = max(BYTES_PER_ROUND // (size + 64) // 4, 1)
    ours, tables, theirs = alternate(
        lambda: lib.bench_crc32_pymq(source, size, loops),
        lambda: lib.bench_crc32_table(source, size, loops),
        lambda: lib.bench_crc32_zlib(source, size, loops),
    )
    benchmark.pedantic(lib.bench_crc32_pymq, args=(source, size, loops), rounds=3)
    ratio = theirs / ours
    rate = size * loops / 1e9
    accelerated = bool(lib.pymq_crc32_is_accelerated())
    benchmark.extra_info.update(ratio_to_zlib=ratio, zlib_version=version, accelerated=accelerated)
    say(
        f"crc32 {size} B: {ratio:.1f} x zlib {version} ({rate / ours:.2f} against {rate / theirs:.2f} GB/s; "
        f"tables {rate / tables:.2f}; {ours / loops * 1e9:.1f} ns a call; carry-less multiply: {accelerated})"
    )
    if accelerated and size in TARGET_SIZES:
        assert ratio >= RATIO_MIN
