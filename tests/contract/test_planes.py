"""The native and the Python data plane answer alike, byte for byte, times and ids apart.

`dataPlane=python` serves every request the slow way; it is the oracle for the fast one. Both get the same random
sequences of requests. Headers are compared as bytes; bodies of pulls record by record, because a record
holds the time it was stored and the ports it came and went through.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.clients.servers import pymq_broker, pymq_name_server
from tests.interop.differential.run import play
from tests.interop.differential.sequences import Generator
from tests.interop.differential.test_differential import SEQUENCES_A_LIFE, describe

SEQUENCES = int(os.environ.get("PYMQ_CONTRACT_SEQUENCES", "100"))
SEED = int(os.environ.get("PYMQ_CONTRACT_SEED", "1"))
REPORTED_MAX = 20
IDS = re.compile(rb"[0-9A-F]{32}(?:,[0-9A-F]{32})*")
ADDRESS = re.compile(rb"127\.0\.0\.1:\d+")


def header_bytes(raw: bytes) -> bytes:
    """The header of an answer, ids and addresses masked; the lengths before it are left out with them."""
    if not raw:
        return raw
    (mark,) = struct.unpack_from(">I", raw, 4)
    header = raw[8 : 8 + (mark & 0xFFFFFF)]
    return bytes([mark >> 24]) + ADDRESS.sub(b"ADDRESS", IDS.sub(b"IDS", header))


@contextmanager
def both_planes(home: Path) -> Iterator[tuple[str, str]]:
    """A broker of each, over an empty store; their addresses, the native one's first."""
    with (
        pymq_name_server(home / "ns") as namesrv,
        pymq_broker(home / "native", namesrv, name="same", settings={"dataPlane": "native"}) as native,
        pymq_name_server(home / "ns-python") as other_namesrv,
        pymq_broker(home / "python", other_namesrv, name="same", settings={"dataPlane": "python"}) as python,
    ):
        yield native, python


@pytest.mark.timeout(3600)
def test_native_and_python_answer_the_same_bytes(tmp_path: Path) -> None:
    """Every answer of every sequence."""
    print(f"contract: {SEQUENCES} sequences from seed {SEED}")
    found: list[str] = []
    answers = 0
    for begin in range(SEED, SEED + SEQUENCES, SEQUENCES_A_LIFE):
        with both_planes(tmp_path / str(begin)) as (native, python):
            for seed in range(begin, min(begin + SEQUENCES_A_LIFE, SEED + SEQUENCES)):
                steps = Generator(seed, "C").steps()
                pairs = zip(steps, play(native, steps), play(python, steps), strict=True)
                for number, (step, (fast, fast_raw), (slow, slow_raw)) in enumerate(pairs):
                    answers += 1
                    if fast != slow or header_bytes(fast_raw) != header_bytes(slow_raw):
                        texts = (f"{fast} {header_bytes(fast_raw)!r}", f"{slow} {header_bytes(slow_raw)!r}")
                        found.append(describe(seed, number, step, *texts))
        print(f"contract: {answers} answers, {len(found)} differ", flush=True)
    assert answers > SEQUENCES
    assert not found, f"{len(found)} of {answers} answers differ:\n" + "\n".join(found[:REPORTED_MAX])
