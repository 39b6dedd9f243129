"""`python -m perf.side_by_side.profile`: where pymq's broker spends its processor time in the runs that miss a mark.

Each run is one of the table's, against pymq alone, with `perf record` on the broker while it is loaded. What comes out,
in `docs/profiles` unless told: a flame graph (SVG) a run, and one page with the frames that cost most and with the
run's own figures, so that a share can be read as microseconds a message.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.conftest import machine_facts
from perf.side_by_side.build import BuildError, build
from perf.side_by_side.flame import Stack, by_itself, draw, read_stacks, with_callees
from perf.side_by_side.load import Load, Result
from perf.side_by_side.plan import HEADLINE, SYNC_SENDERS, Shape
from perf.side_by_side.sides import PymqSide

FREQUENCY = 997  # samples a second; a prime, so that nothing periodic hides between them
STACK_BYTES = 8192  # of each sample's stack, unwound afterwards: our build keeps no frame pointers
SETTLE_S = 1.0  # from the start of the load to the first sample
TOP = 14
PERF_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Run:
    """One load worth a look."""

    title: str
    shape: Shape
    options: dict[str, Any]
    flush: str = "ASYNC_FLUSH"


RUNS = {
    "one-at-a-time": Run("one send at a time, 128 B", HEADLINE, {"connections": 1, "window": 1, "queues": 4}),
    "sends-1-kib": Run(
        "pipelined sends 8 × 64, 1 KiB", Shape(1024, "none", "json"), {"connections": 8, "window": 64, "queues": 8}
    ),
    "sync-64": Run("sync flush, 64 senders, 128 B", HEADLINE, {"connections": SYNC_SENDERS, "window": 1}, "SYNC_FLUSH"),
    "async-64": Run("the same 64 senders, async flush", HEADLINE, {"connections": SYNC_SENDERS, "window": 1}),
}


class ProfileError(Exception):
    """perf is missing, or gave nothing."""


def perf(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run perf to its end.

    Raises:
        ProfileError: it is not there, or failed.
    """
    program = shutil.which("perf")
    if program is None:
        raise ProfileError("perf is not installed: apt-get install linux-perf")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=PERF_TIMEOUT_S, check=False, **more
    )
    if done.returncode != 0:
        raise ProfileError(f"perf {arguments[0]}: {done.stderr.strip()[-500:]}")
    return done


def profile(run: Run, load: Load, seconds: float, scratch: Path) -> tuple[Counter[Stack], Result]:
    """The broker's stacks while *run* loads it for *seconds*, and what the generator measured meanwhile."""
    home = scratch / "home"
    home.mkdir()
    broker = PymqSide().start(home, flush_disk_type=run.flush)
    options = {"broker": broker.address, "topic": "Profiled", **run.shape.options, **run.options}
    try:
        load.run("send", **options, duration_s=3)
        recording = scratch / "perf.data"
        with load.background(
            "send", **options, watch_pid=broker.broker.pid, duration_s=seconds + 2 * SETTLE_S
        ) as running:
            time.sleep(SETTLE_S)
            perf(
                "record", "--quiet", "-F", str(FREQUENCY), "--call-graph", f"dwarf,{STACK_BYTES}",
                "-p", str(broker.broker.pid), "-o", str(recording), "--", "sleep", str(seconds),
            )  # fmt: skip
            result = running.finish(60)
        script = perf("script", "-i", str(recording), "-F", "comm,tid,time,ip,sym,symoff,dso", "--no-inline")
    finally:
        broker.stop()
        shutil.rmtree(home, ignore_errors=True)
    return read_stacks(script.stdout.splitlines()), result


def _shares(counted: Counter[str], total: int, microseconds: float) -> list[str]:
    return [
        f"| {samples / total:.1%} | {samples / total * microseconds:.2f} | `{name}` |"
        for name, samples in counted.most_common(TOP)
    ]


def page(name: str, run: Run, stacks: Counter[Stack], result: Result) -> str:
    """What one run says."""
    total = sum(stacks.values())
    cost = float(result["broker_cpu"]["s_per_million"])  # microseconds a message
    lines = [
        f"## {run.title} (`{name}`)", "",
        f"{result['messages_per_s']:,.0f} messages/s, p50 {result['latency_us']['p50']:.0f} µs, "
        f"p99 {result['latency_us']['p99']:.0f} µs, {cost:.2f} µs of the broker's processor time a message "
        f"(perf's own work included), {total:,} samples. [Flame graph]({name}.svg).", "",
        "| share | µs a message | running |", "|---:|---:|---|", *_shares(by_itself(stacks), total, cost), "",
        "| share | µs a message | on the stack |", "|---:|---:|---|", *_shares(with_callees(stacks), total, cost), "",
    ]  # fmt: skip
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.side_by_side.profile", description=__doc__)
    parser.add_argument("--runs", default=",".join(RUNS), help=f"which of {', '.join(RUNS)} (all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of samples a run (5)")
    parser.add_argument("--out", type=Path, default=Path("docs/profiles"), help="where the pages go (docs/profiles)")
    options = parser.parse_args()
    if unknown := set(options.runs.split(",")) - set(RUNS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def main() -> int:
    """Profile and write; 0 when all runs were seen."""
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    pages = [
        "# Where the broker's time goes", "",
        "Written by `make profile`; not edited by hand. The runs are those of "
        "[perf/side_by_side](../../perf/side_by_side/README.md) that miss a mark.", "",
        f"- date: {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}",
        *(f"- {name}: {value}" for name, value in machine_facts().items()), "",
    ]  # fmt: skip
    try:
        load = Load(build().load)
        for name in options.runs.split(","):
            with tempfile.TemporaryDirectory(prefix="pymq-profile-") as scratch:
                print(f"profiling {RUNS[name].title}", file=sys.stderr, flush=True)
                stacks, result = profile(RUNS[name], load, options.seconds, Path(scratch))
            if not stacks:
                raise ProfileError(f"{name}: no sample")
            (options.out / f"{name}.svg").write_text(draw(stacks, RUNS[name].title), encoding="utf-8")
            pages.append(page(name, RUNS[name], stacks, result))
    except (BuildError, ProfileError) as problem:
        print(f"profile: {problem}", file=sys.stderr)
        return 2
    (options.out / "README.md").write_text("\n".join(pages), encoding="utf-8")
    print("\n".join(pages))
    return 0


if __name__ == "__main__":
    sys.exit(main())
