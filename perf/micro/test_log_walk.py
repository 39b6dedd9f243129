"""Walking a log with CRC check, and encoding records, beside memcpy of the same bytes.

Sketch: the walk reads every byte once for the CRC (10 GB/s and more) and some 40 ns of lengths and fields a record;
1 KiB bodies should pass 2 GB/s easily, 128-byte bodies are bound by the fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LOG_SIZE = 64 << 20  # beyond the caches, as recovery meets it
CHECK_BODY_CRC, CHECK_OFFSET = 1, 2
MEMCPY_SHARE_MIN = {1024: 0.1, 128: 0.02}


@pytest.mark.parametrize("body_size", [128, 1024])
@pytest.mark.benchmark(group="log walk")
def test_log_walk_with_crc_beside_memcpy(
    benchmark: Any, bench: Any, say: Callable[[str], None], alternate: Callable[..., list[float]], body_size: int
) -> None:
    """Goal: 2 GB/s with 1 KiB bodies. Method: 64 MiB of records, walked with CRC and offset check, looped in C."""
    lib, ffi = bench.lib, bench.ffi
    log = ffi.new("uint8_t[]", LOG_SIZE)
    used = lib.bench_fill_log(log, LOG_SIZE, body_size)
    target, count = ffi.new("uint8_t[]", LOG_SIZE), ffi.new("size_t *")
    checks = CHECK_BODY_CRC | CHECK_OFFSET
    walk, structure, copy = alternate(
        lambda: lib.bench_walk(log, used, checks, 1, count),
        lambda: lib.bench_walk(log, used, CHECK_OFFSET, 1, count),
        lambda: lib.bench_memcpy(target, log, used, 1),
    )
    assert count[0] == used // (used // count[0])  # every record, to the last byte
    benchmark.pedantic(lib.bench_walk, args=(log, used, checks, 1, count), rounds=3)
    share = copy / walk
    benchmark.extra_info.update(bytes_per_second=used / walk, memcpy_share=share)
    say(
        f"log walk, {body_size} B bodies: {used / walk / 1e9:.2f} GB/s with CRC ({walk / count[0] * 1e9:.0f} ns a "
        f"record), {used / structure / 1e9:.2f} without; {share:.2f} x memcpy ({used / copy / 1e9:.2f} GB/s)"
    )
    assert share >= MEMCPY_SHARE_MIN[body_size]


@pytest.mark.parametrize("body_size", [128, 1024])
@pytest.mark.benchmark(group="record encode")
def test_record_encode_beside_the_crc_of_its_body(
    benchmark: Any, bench: Any, say: Callable[[str], None], alternate: Callable[..., list[float]], body_size: int
) -> None:
    """Goal: encoding is far below a microsecond. Method: loop in C, beside the CRC of the body, which it contains."""
    lib, loops = bench.lib, 200_000
    body = bytes(body_size)
    encode, crc = alternate(
        lambda: lib.bench_encode(body_size, loops), lambda: lib.bench_crc32_pymq(body, body_size, loops)
    )
    benchmark.pedantic(lib.bench_encode, args=(body_size, loops), rounds=3)
    benchmark.extra_info.update(ns_per_record=encode / loops * 1e9, ratio_to_crc=encode / crc)
    say(
        f"record encode, {body_size} B body: {encode / loops * 1e9:.1f} ns a record, "
        f"{encode / crc:.1f} x the CRC of its body ({crc / loops * 1e9:.1f} ns)"
    )
    assert encode > crc  # the CRC is a part of it: otherwise the loop was optimised away
