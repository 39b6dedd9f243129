"""The Python face of the suite's C helper: errors become exceptions, costs become frozen values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class NativeError(Exception):
    """The helper or the store under it said no."""


@dataclass(frozen=True)
class Cost:
    """What a timed region cost; see struct bench_cost."""

    wall: float
    cpu: float
    others_cpu: float
    count: int
    bytes: int
    faults: int
    switches: int

    @property
    def rate(self) -> float:
        """Messages per second of wall-clock time."""
        return self.count / self.wall

    @property
    def rate_per_core(self) -> float:
        """Messages per second of the thread's own CPU time: what neighbours on the machine do not change."""
        return self.count / self.cpu


@dataclass(frozen=True)
class Opened:
    """What an open found and cost; see struct bench_opened."""

    wall: float
    recover: float
    begin: int
    end: int
    records: int
    clean: bool


@dataclass(frozen=True)
class Latency:
    """Percentiles of single appends, in microseconds."""

    count: int
    median: float
    p99: float
    p999: float
    max: float

    def __str__(self) -> str:
        return f"p50 {self.median:.0f}, p99 {self.p99:.0f}, p99.9 {self.p999:.0f}, max {self.max:.0f} us"


class NativeStore:
    """An open store, driven from C."""

    def __init__(self, bench: NativeBench, handle: Any, opened: Opened) -> None:
        self.bench = bench
        self.handle = handle
        self.opened = opened

    def append(self, count: int, body_size: int, batch: int) -> Cost:
        return self.bench.cost(self.bench.lib.bench_append, self.handle, count, body_size, batch)

    def fill_queues(self, topics: int, queues: int) -> Cost:
        return self.bench.cost(self.bench.lib.bench_fill_queues, self.handle, topics, queues)

    def wait_prefaulted(self, size: int) -> None:
        self.bench.check(self.bench.lib.bench_wait_prefaulted(size, 60_000))

    def wait_dispatched(self) -> float:
        wall = self.bench.ffi.new("double *")
        self.bench.check(self.bench.lib.bench_wait_dispatched(self.handle, wall))
        return float(wall[0])

    def dispatched(self) -> int:
        return int(self.bench.lib.bench_dispatched(self.handle))

    def sync_each(self, count: int) -> Cost:
        return self.bench.cost(self.bench.lib.bench_sync_each, self.handle, count)

    def group_commit(self, senders: int, rounds: int, *, in_step: bool) -> tuple[Cost, list[int]]:
        syncs = self.bench.ffi.new("int64_t[]", rounds)
        cost = self.bench.cost(self.bench.lib.bench_group_commit, self.handle, senders, rounds, in_step, syncs)
        return cost, list(syncs)

    def parked_commit(self, parked: int, rounds: int) -> Cost:
        return self.bench.cost(self.bench.lib.bench_parked_commit, self.handle, parked, rounds)

    def append_meanwhile(
        self, *, thorough: bool = False, syncs: int = 0, idle_ms: int = 0, seconds_max: float = 120.0
    ) -> tuple[Latency, float]:
        raw = self.bench.ffi.new("struct bench_latency *")
        took = self.bench.ffi.new("double *")
        arguments = (self.handle, thorough, syncs, idle_ms, seconds_max, raw, took)
        self.bench.check(self.bench.lib.bench_append_meanwhile(*arguments))
        micros = (1e6 * value for value in (raw.median, raw.p99, raw.p999, raw.max))
        return Latency(raw.count, *micros), float(took[0])

    def arrival(self, count: int) -> Latency:
        raw = self.bench.ffi.new("struct bench_latency *")
        self.bench.check(self.bench.lib.bench_arrival(self.handle, count, raw))
        return Latency(raw.count, *(1e6 * value for value in (raw.median, raw.p99, raw.p999, raw.max)))

    def close(self) -> None:
        self.bench.check(self.bench.lib.bench_close(self.handle))

    def abandon(self) -> None:
        self.bench.lib.bench_abandon(self.handle)


class NativeBench:
    """The compiled helper."""

    def __init__(self, module: Any) -> None:
        self.lib, self.ffi = module.lib, module.ffi

    def check(self, status: int) -> None:
        if status < 0:
            raise NativeError(self.ffi.string(self.lib.bench_error()).decode(errors="replace"))

    def cost(self, function: Callable[..., int], *arguments: Any) -> Cost:
        raw = self.ffi.new("struct bench_cost *")
        self.check(function(*arguments, raw))
        return Cost(raw.wall, raw.cpu, raw.others_cpu, raw.count, raw.bytes, raw.faults, raw.switches)

    def open(self, path: Path, **changes: Any) -> NativeStore:
        """Open the store in *path* with the default settings and *changes*; end it with close() or abandon()."""
        settings = self.ffi.new("struct bench_settings *")
        self.lib.bench_settings_default(settings)
        for name, value in changes.items():
            setattr(settings, name, value)
        handle, raw = self.ffi.new("struct pymq_store **"), self.ffi.new("struct bench_opened *")
        self.check(self.lib.bench_open(str(path).encode(), settings, handle, raw))
        opened = Opened(raw.wall, raw.recover, getattr(raw, "from"), raw.to, raw.records, raw.clean)
        return NativeStore(self, handle[0], opened)

    @contextmanager
    def abandoned(self, path: Path, **changes: Any) -> Iterator[NativeStore]:
        """A store that is left as a kill would leave it: nothing waits for the disk at the end."""
        store = self.open(path, **changes)
        try:
            yield store
        finally:
            store.abandon()

    @contextmanager
    def counting_syncs(self, delay_us: int) -> Iterator[None]:
        """Count syncs; with a delay they take that long and reach no disk."""
        self.lib.bench_io_begin(delay_us)
        try:
            yield
        finally:
            self.lib.bench_io_end()

    def log_syncs(self) -> int:
        return int(self.lib.bench_log_syncs())

    def memcpy(self, record_size: int, count: int) -> Cost:
        return self.cost(self.lib.bench_memcpy, record_size, count)

    def plain_sync_each(self, path: Path, count: int, record_size: int) -> Cost:
        return self.cost(self.lib.bench_plain_sync_each, str(path).encode(), count, record_size)

    def read_files(self, directory: Path, bytes_max: int) -> Cost:
        return self.cost(self.lib.bench_read_files, str(directory).encode(), bytes_max)

    def evict(self, directory: Path) -> None:
        self.check(self.lib.bench_evict(str(directory).encode()))
