"""Three of the lives of a broker in which everything is measured; the fourth is in `features`.

    async   start, idle memory; pipelined, one at a time, batched; catch-up pull; long polling; memory under load
    sync    SYNC_FLUSH: 64 senders, with the disk's own figure before and after
    cold    a log of 4 GiB, written and dropped from the page cache; scheduled sends without and with its reader

A stage starts a broker over an empty store, measures, ends the broker and deletes the store, so no run writes to pages
of an earlier one. A figure is a number under a key (`pipelined.rate|128 B, none, json`); the table knows the keys.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.side_by_side import plan as plans
from perf.side_by_side.load import Load, Result
from perf.side_by_side.page_cache import evict_log
from perf.side_by_side.plan import BATCH_COUNT, SYNC_SENDERS, Plan, Shape
from perf.side_by_side.sides import RunningBroker, Side

RECORD_SIZE_SYNC = 356  # about what both brokers store for a 128-byte body without properties
RECORD_SIZE_COLD = 1252


@dataclass
class Figures:
    """What one stage of one side gave: numbers by key, and every run's own object for the record."""

    numbers: dict[str, float] = field(default_factory=dict)
    runs: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: bool = False

    def keep(self, what: str, result: Result) -> Result:
        """Remember a run, and say so when not everything was acknowledged."""
        self.runs.append({"figure": what, **result})
        if result.get("refused"):
            self.notes.append(f"{what}: {result['refused']} messages refused ({result['refusals']})")
        for problem in ("gaps", "corrupt", "queues_unfinished"):
            if result.get(problem):
                self.notes.append(f"{what}: {problem} {result[problem]}")
        return result


@dataclass
class Bench:
    """A side, a generator, a plan and a place for stores."""

    side: Side
    load: Load
    plan: Plan
    scratch: Path
    say: Callable[[str], None]

    def home(self, stage: str) -> Path:
        """An empty directory for a stage."""
        home = self.scratch / f"{self.side.name}-{stage}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        return home

    def send(self, broker: RunningBroker, topic: str, shape: Shape, **options: Any) -> Result:
        """A send run, the CPU watched. What earlier runs left unwritten is on disk before it starts."""
        os.sync()
        return self.load.run(
            "send", broker=broker.address, watch_pid=broker.broker.pid, topic=topic, **shape.options, **options
        )

    def warm_up(self, broker: RunningBroker, shape: Shape, **options: Any) -> int:
        """The same kind of load on another topic, until a JIT compiler has seen enough of it; messages sent."""
        settings = {
            "connections": 8, "window": 64, "duration_s": self.plan.warm_up_s, "count": self.plan.warm_up_count,
            **options,
        }  # fmt: skip
        return int(self.send(broker, "WarmUp", shape, **settings)["acknowledged"])


def key(figure: str, shape: Shape | None = None) -> str:
    """The key of a figure, of one shape of it."""
    return figure if shape is None else f"{figure}|{shape.label}"


def run_async_stage(bench: Bench, figures: Figures) -> None:
    """Everything under ASYNC_FLUSH, in one life of the broker."""
    plan = bench.plan
    home = bench.home("async")
    broker = bench.side.start(home, flush_disk_type="ASYNC_FLUSH")
    try:
        figures.numbers["start_s"] = broker.start_s
        time.sleep(plan.idle_s)
        figures.numbers["idle_mib"] = broker.broker.anonymous_mib()
        bench.say(f"serving after {broker.start_s:.2f} s, {figures.numbers['idle_mib']:.0f} MiB idle")
        sent = bench.warm_up(broker, plans.HEADLINE)
        sent += _pipelined(bench, broker, figures)
        _round_trips(bench, broker, figures)
        sent += _batches(bench, broker, figures)
        sent += _pulls(bench, broker, figures)
        _delivery(bench, broker, figures)
        if sent < plan.memory_count:
            left = plan.memory_count - sent
            topped_up = bench.warm_up(broker, plans.HEADLINE, count=left, duration_s=60, timeout_s=120)
            sent += topped_up
        figures.numbers["loaded_mib"] = broker.broker.anonymous_mib()
        figures.numbers["loaded_count"] = sent
        bench.say(f"{figures.numbers['loaded_mib']:.0f} MiB after {sent} messages")
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)


def _pipelined(bench: Bench, broker: RunningBroker, figures: Figures) -> int:
    sent = 0
    for number, shape in enumerate(plans.PIPELINED):
        if number > 0:
            sent += bench.warm_up(broker, shape, count=bench.plan.warm_up_count // 4)
        result = figures.keep(
            f"pipelined {shape.label}",
            bench.send(
                broker, f"Pipelined{number}", shape, connections=8, window=64,
                duration_s=bench.plan.run_s, count=bench.plan.count_for(shape),
            ),
        )  # fmt: skip
        sent += int(result["acknowledged"])
        figures.numbers[key("pipelined.rate", shape)] = result["messages_per_s"]
        figures.numbers[key("pipelined.cpu", shape)] = result["broker_cpu"]["s_per_million"]
        bench.say(
            f"pipelined {shape.label}: {result['messages_per_s']:,.0f}/s, "
            f"{result['broker_cpu']['s_per_million']:.2f} CPU-s a million"
        )
    return sent


def _round_trips(bench: Bench, broker: RunningBroker, figures: Figures) -> None:
    for number, shape in enumerate(plans.ROUND_TRIP):
        for what, duration_s in (("warm-up", bench.plan.round_trip_s / 2), ("run", bench.plan.round_trip_s)):
            result = bench.send(broker, f"RoundTrip{number}", shape, duration_s=duration_s, queues=4)
            if what == "run":
                figures.keep(f"round trip {shape.label}", result)
        figures.numbers[key("round_trip.p50_us", shape)] = result["latency_us"]["p50"]
        figures.numbers[key("round_trip.p99_us", shape)] = result["latency_us"]["p99"]
        bench.say(f"round trip {shape.label}: p50 {result['latency_us']['p50']:.0f} µs")


def _batches(bench: Bench, broker: RunningBroker, figures: Figures) -> int:
    sent = 0
    for number, shape in enumerate(plans.BATCH):
        settings = {"connections": 8, "window": 8, "batch": BATCH_COUNT, "count": bench.plan.count_for(shape)}
        sent += bench.warm_up(broker, shape, **{**settings, "duration_s": bench.plan.run_s / 2})
        result = figures.keep(
            f"batch {shape.label}",
            bench.send(broker, f"Batch{number}", shape, duration_s=bench.plan.run_s, **settings),
        )
        sent += int(result["acknowledged"])
        figures.numbers[key("batch.rate", shape)] = result["messages_per_s"]
        figures.numbers[key("batch.cpu", shape)] = result["broker_cpu"]["s_per_million"]
        bench.say(f"batch {shape.label}: {result['messages_per_s']:,.0f}/s")
    return sent


def _pulls(bench: Bench, broker: RunningBroker, figures: Figures) -> int:
    sent = 0
    for number, shape in enumerate(plans.PULL):
        topic, count = f"Pull{number}", min(bench.plan.pull_count, bench.plan.count_for(shape))
        filled = bench.send(
            broker, topic, shape, connections=4, window=8, batch=BATCH_COUNT, count=count, duration_s=60, queues=4
        )
        sent += int(filled["acknowledged"])
        # The log is in the page cache: catch-up of what was sent a moment ago. Two passes warm a JIT compiler.
        for name in ("warm-up-1", "warm-up-2", "run"):
            result = bench.load.run(
                "pull", broker=broker.address, watch_pid=broker.broker.pid, topic=topic, codec=shape.codec,
                group=f"catch-up-{name}", connections=4, queues=4, duration_s=30,
            )  # fmt: skip
        figures.keep(f"pull {shape.label}", result)
        figures.numbers[key("pull.rate", shape)] = result["messages_per_s"]
        figures.numbers[key("pull.cpu", shape)] = result["broker_cpu"]["s_per_million"]
        bench.say(
            f"pull {shape.label}: {result['messages_per_s']:,.0f}/s, "
            f"{result['broker_cpu']['s_per_million']:.2f} CPU-s a million, {result['messages_per_pull']:.1f} a pull"
        )
    return sent


def _delivery(bench: Bench, broker: RunningBroker, figures: Figures) -> None:
    shape = plans.DELIVER
    for duration_s in (bench.plan.deliver_s / 2, bench.plan.deliver_s):
        os.sync()
        result = bench.load.run(
            "deliver", broker=broker.address, watch_pid=broker.broker.pid, topic="Deliver", **shape.options,
            rate=bench.plan.deliver_rate, duration_s=duration_s, window=64, queues=4, group="deliver",
        )  # fmt: skip
    figures.keep(f"deliver {shape.label}", result)
    figures.numbers[key("deliver.p50_us", shape)] = result["delivery_us"]["p50"]
    figures.numbers[key("deliver.p99_us", shape)] = result["delivery_us"]["p99"]
    bench.say(f"delivery: p50 {result['delivery_us']['p50']:.0f} µs, p99 {result['delivery_us']['p99']:.0f} µs")


def run_sync_stage(bench: Bench, figures: Figures) -> None:
    """64 senders, each waiting for its flush, and what the disk itself takes in the same minute."""
    plan, shape = bench.plan, plans.SYNC
    home = bench.home("sync")
    broker = bench.side.start(home, flush_disk_type="SYNC_FLUSH")

    def probe() -> float:
        os.sync()
        result = bench.load.run(
            "sync-probe", directory=home, batch=SYNC_SENDERS, body_size=RECORD_SIZE_SYNC, duration_s=plan.probe_s
        )
        figures.keep("fdatasync", result)
        return float(result["round_us"]["mean"])

    try:
        bench.warm_up(broker, shape, connections=SYNC_SENDERS, window=1, duration_s=plan.warm_up_s / 2)
        before = probe()
        result = figures.keep(
            "sync flush",
            bench.send(broker, "Sync", shape, connections=SYNC_SENDERS, window=1, duration_s=plan.run_s),
        )
        after = probe()
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    ceiling = SYNC_SENDERS / ((before + after) / 2 / 1e6)
    figures.numbers["sync.rate"] = result["messages_per_s"]
    figures.numbers["sync.fdatasync_us"] = (before + after) / 2
    figures.numbers["sync.share"] = result["messages_per_s"] / ceiling
    bench.say(
        f"sync flush: {result['messages_per_s']:,.0f}/s, {figures.numbers['sync.share']:.0%} of 64 per fdatasync "
        f"({figures.numbers['sync.fdatasync_us']:.0f} µs)"
    )


def run_cold_stage(bench: Bench, figures: Figures) -> None:
    """p99 of sends on a schedule, first alone, then while another group reads a log that is not in memory."""
    plan, shape = bench.plan, plans.COLD
    home = bench.home("cold")
    count = plan.cold_bytes // RECORD_SIZE_COLD
    broker = bench.side.start(home, flush_disk_type="ASYNC_FLUSH")
    try:
        bench.send(
            broker, "Cold", shape, connections=4, window=8, batch=BATCH_COUNT, count=count, duration_s=120,
            timeout_s=180, queues=4,
        )  # fmt: skip
        bench.warm_up(broker, shape, connections=4, window=8, duration_s=plan.warm_up_s / 2)
        schedule = {"rate": plan.cold_rate, "connections": 4, "window": 64, "queues": 4}
        alone = figures.keep("sends alone", bench.send(broker, "Live", shape, duration_s=plan.cold_s, **schedule))
        evict_log(broker.broker.pid, broker.store, plan.cold_bytes)
        read_before = broker.broker.read_bytes()
        beside, reader = _send_beside_reader(bench, broker, shape, schedule)
        figures.keep("cold reader", reader)
        figures.keep("sends beside a cold reader", beside)
        figures.numbers["cold.read_mib"] = (broker.broker.read_bytes() - read_before) / (1 << 20)
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    figures.numbers["cold.alone_p99_us"] = alone["latency_us"]["p99"]
    figures.numbers["cold.beside_p99_us"] = beside["latency_us"]["p99"]
    figures.numbers["cold.growth"] = beside["latency_us"]["p99"] / alone["latency_us"]["p99"]
    figures.numbers["cold.reader_rate"] = reader["messages_per_s"]
    bench.say(
        f"sends alone p99 {figures.numbers['cold.alone_p99_us']:.0f} µs, "
        f"beside a cold reader {figures.numbers['cold.beside_p99_us']:.0f} µs "
        f"(it read {reader['messages_per_s']:,.0f}/s, {figures.numbers['cold.read_mib']:.0f} MiB of them from disk)"
    )


def _send_beside_reader(
    bench: Bench, broker: RunningBroker, shape: Shape, schedule: dict[str, int]
) -> tuple[Result, Result]:
    """Sends for as long as the reader reads; both results."""
    limit_s = bench.plan.cold_read_s
    os.sync()
    with (
        bench.load.background(
            "send", broker=broker.address, topic="Live", **shape.options, **schedule, duration_s=limit_s + 30,
            timeout_s=limit_s + 60,
        ) as sender,
        bench.load.background(
            "pull", broker=broker.address, topic="Cold", codec=shape.codec, group="cold-reader", connections=4,
            queues=4, duration_s=limit_s, timeout_s=limit_s + 30,
        ) as reader,
    ):  # fmt: skip
        read = reader.finish(limit_s + 60)
        sent = sender.end(60)
    return sent, read
