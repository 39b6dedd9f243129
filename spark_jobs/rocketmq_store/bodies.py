"""Whether a compressed body can be decompressed as its system flag says (bits 8 to 10: 1 LZ4, 2 zstd, 3 zlib, 0 zlib).

Output is thrown away piece by piece, so a body that would grow to gigabytes costs time and no memory. LZ4 and zstd come
with packages that need not be there; then that is what is said.
"""

from __future__ import annotations

import zlib
from typing import Final

PIECE_SIZE: Final = 1 << 20
ZSTD_INPUT_SIZE: Final = 1 << 10  # its output has no bound, so its input gets one


def compression_trouble(body: memoryview, sys_flag: int) -> str | None:
    """Why *body* cannot be decompressed as its flag says, or None when it can."""
    kind = sys_flag >> 8 & 7
    if kind in (0, 3):
        return zlib_trouble(body)
    if kind == 1:
        return lz4_trouble(body)
    if kind == 2:
        return zstd_trouble(body)
    return f"compression type {kind} is none of 1 (LZ4), 2 (zstd), 3 (zlib)"


def zlib_trouble(body: memoryview) -> str | None:
    """The same for zlib."""
    stream = zlib.decompressobj()
    pending: bytes | memoryview = body
    try:
        while pending and not stream.eof:
            stream.decompress(pending, PIECE_SIZE)
            pending = stream.unconsumed_tail
    except zlib.error as error:
        return f"zlib: {error}"
    return None if stream.eof else "zlib: the stream ends early"


def lz4_trouble(body: memoryview) -> str | None:
    """The same for an LZ4 frame."""
    try:
        import lz4.frame
    except ImportError:
        return "not checked: the package lz4 is not installed"
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        stream.decompress(bytes(body), max_length=PIECE_SIZE)
        while not stream.eof and not stream.needs_input:
            stream.decompress(b"", max_length=PIECE_SIZE)
    except RuntimeError as error:
        return f"lz4: {error}"
    return None if stream.eof else "lz4: the frame ends early"


def zstd_trouble(body: memoryview) -> str | None:
    """The same for zstd frames."""
    try:
        import zstandard
    except ImportError:
        return "not checked: the package zstandard is not installed"
    stream = zstandard.ZstdDecompressor().decompressobj()
    try:
        for at in range(0, len(body), ZSTD_INPUT_SIZE):
            if stream.eof:
                break
            stream.decompress(bytes(body[at : at + ZSTD_INPUT_SIZE]))
    except zstandard.ZstdError as error:
        return f"zstd: {error}"
    return None if stream.eof else "zstd: the frame ends early"
