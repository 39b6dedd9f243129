"""Random sequences of requests to pymq and to Apache RocketMQ 5.5.0: equal answers, or a listed difference (R19).

120 sequences in CI; `make differential` runs 2,000. A failure prints the seed of its sequence:
`PYMQ_DIFFERENTIAL_SEED=… PYMQ_DIFFERENTIAL_SEQUENCES=1` plays that one again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.apache_toolchain import Toolchain
from tests.interop.clients.servers import apache_broker, apache_name_server, pymq_broker, pymq_name_server
from tests.interop.differential.differs import listed
from tests.interop.differential.run import play
from tests.interop.differential.sequences import Generator, Step
from tests.interop.differential.waiting import WaitingGenerator

SEQUENCES = int(os.environ.get("PYMQ_DIFFERENTIAL_SEQUENCES", "120"))
WAITING_SEQUENCES = int(os.environ.get("PYMQ_WAITING_SEQUENCES", "30"))
SEED = int(os.environ.get("PYMQ_DIFFERENTIAL_SEED", "1"))
REPORTED_MAX = 40
# Each leaves topics and groups behind, and both brokers write the whole table for each new one.
SEQUENCES_A_LIFE = 250
# Without its timer store Apache 5.5.0 cannot delete a topic: it answers a NullPointerException.
APACHE_SETTINGS = {"timerWheelEnable": "true"}


@pytest.mark.timeout(3600)
def test_apache_and_pymq_answer_alike(apache: Toolchain, tmp_path: Path) -> None:
    """Every answer of every sequence, code, fields, remark and body."""
    print(f"differential: {SEQUENCES} sequences from seed {SEED}")
    found: list[str] = []
    explained: Counter[str] = Counter()
    answers = 0
    sequences = [(seed, Generator(seed).steps()) for seed in range(SEED, SEED + SEQUENCES)]
    sequences += [(seed, WaitingGenerator(seed).steps()) for seed in range(SEED, SEED + WAITING_SEQUENCES)]
    for begin in range(0, len(sequences), SEQUENCES_A_LIFE):
        with two_brokers(apache, tmp_path / str(begin)) as (their_address, our_address):
            for seed, steps in sequences[begin : begin + SEQUENCES_A_LIFE]:
                pairs = zip(steps, play(their_address, steps), play(our_address, steps), strict=True)
                for number, (step, (theirs, _), (ours, _)) in enumerate(pairs):
                    answers += 1
                    if theirs == ours:
                        continue
                    difference = listed(step, theirs, ours, steps[:number])
                    if difference is None:
                        found.append(describe(seed, number, step, theirs, ours))
                    else:
                        explained[difference.name] += 1
        print(f"differential: {answers} answers, {len(found)} unexplained, {dict(explained)} explained", flush=True)
    assert not found, f"{len(found)} of {answers} answers differ:\n" + "\n".join(found[:REPORTED_MAX])


@contextmanager
def two_brokers(apache: Toolchain, home: Path) -> Iterator[tuple[str, str]]:
    """Both brokers, each over an empty store; their addresses, Apache's first."""
    with (
        apache_name_server(apache, home / "ns-apache") as apache_ns,
        apache_broker(apache, home / "apache", apache_ns, name="same", settings=APACHE_SETTINGS) as their_address,
        pymq_name_server(home / "ns-pymq") as pymq_ns,
        pymq_broker(home / "pymq", pymq_ns, name="same") as our_address,
    ):
        yield their_address, our_address


def describe(seed: int, number: int, step: Step, theirs: object, ours: object) -> str:
    """A difference as somebody wants to read it."""
    fields = {name: value for name, value in step.fields.items() if value is not None}
    return (
        f"seed {seed}, step {number}: request {step.code} {fields} body {step.body[:80]!r} binary={step.binary}\n"
        f"    apache: {str(theirs)[:600]}\n    pymq:   {str(ours)[:600]}"
    )
