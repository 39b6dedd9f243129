"""What is run and how long: the documented choice out of a matrix that would take an hour.

Every body size, property set and header codec meets at least two of the others. The first shape of a figure is the one
that the marks of the project were written for; the others are printed beside it and held to the same mark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

BATCH_COUNT = 32
SYNC_SENDERS = 64


@dataclass(frozen=True)
class Shape:
    """One kind of message and header."""

    body_size: int
    properties: str
    codec: str

    @property
    def label(self) -> str:
        """For the table: `128 B, none, json`."""
        size = f"{self.body_size} B" if self.body_size < 1024 else f"{self.body_size // 1024} KiB"
        return f"{size}, {self.properties}, {self.codec}"

    @property
    def options(self) -> dict[str, Any]:
        """For the generator."""
        return {"body_size": self.body_size, "properties": self.properties, "codec": self.codec}


HEADLINE = Shape(128, "none", "json")

PIPELINED = (
    HEADLINE,
    Shape(128, "java-tags", "json"),
    Shape(128, "java-tags", "rocketmq"),
    Shape(1024, "none", "json"),
    Shape(1024, "java-tags", "rocketmq"),
)
ROUND_TRIP = (HEADLINE, Shape(128, "java-tags", "rocketmq"))
BATCH = (HEADLINE, Shape(1024, "java-tags", "rocketmq"))
PULL = (HEADLINE, Shape(1024, "java-tags", "rocketmq"))
SYNC = HEADLINE
DELIVER = Shape(128, "java-tags", "json")
COLD = Shape(1024, "none", "json")


@dataclass(frozen=True)
class Plan:
    """Sizes and durations. Runs are bounded by time and by messages, whichever comes first."""

    rounds: int = 2
    warm_up_s: float = 15
    warm_up_count: int = 400_000
    run_s: float = 6
    run_bytes: int = 1 << 30  # of log
    round_trip_s: float = 5
    deliver_s: float = 10
    deliver_rate: int = 1000
    idle_s: float = 5
    pull_count: int = 1_000_000
    memory_count: int = 2_000_000
    cold_bytes: int = 4 << 30
    cold_rate: int = 2000
    cold_s: float = 10
    cold_read_s: float = 90
    probe_s: float = 2
    transaction_count: int = 100_000
    retry_count: int = 150_000
    filter_count: int = 1_000_000
    delay_count: int = 300_000

    def count_for(self, shape: Shape) -> int:
        """Messages of *shape* that make `run_bytes` of log; a record is its body and about 230 bytes."""
        return self.run_bytes // (shape.body_size + 230)


FULL = Plan()
QUICK = replace(
    FULL,
    rounds=1,
    warm_up_s=2,
    warm_up_count=60_000,
    run_s=1.5,
    run_bytes=256 << 20,
    round_trip_s=1.5,
    deliver_s=2,
    idle_s=1.5,
    pull_count=150_000,
    memory_count=100_000,
    cold_bytes=128 << 20,
    cold_s=2,
    cold_read_s=20,
    probe_s=0.5,
    transaction_count=3000,
    retry_count=3000,
    filter_count=20_000,
    delay_count=5000,
)
