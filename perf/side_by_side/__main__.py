"""`python -m perf.side_by_side`: the table of figures beside Apache RocketMQ's, in one run on one machine."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perf.conftest import machine_facts
from perf.side_by_side import neighbours
from perf.side_by_side.build import BuildError, build
from perf.side_by_side.features import run_features_stage
from perf.side_by_side.load import Load, LoadError
from perf.side_by_side.memory import Ballast, fresh_page_us
from perf.side_by_side.plan import FULL, QUICK, Plan
from perf.side_by_side.process import ProcessEndedError
from perf.side_by_side.sides import ApacheSide, PymqSide, Side
from perf.side_by_side.stages import Bench, Figures, run_async_stage, run_cold_stage, run_sync_stage
from perf.side_by_side.table import render, table
from perf.side_by_side.wire import NotServingError
from tests.interop.apache_toolchain import ToolchainBuildError, ToolchainMissingError, toolchain

BUSY_LOAD = 0.7
STAGES: dict[str, Callable[[Bench, Figures], None]] = {
    "async": run_async_stage,
    "sync": run_sync_stage,
    "cold": run_cold_stage,
    "features": run_features_stage,
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m perf.side_by_side", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes: does it run, not how fast")
    parser.add_argument("--rounds", type=int, help="how often both sides are measured, in turn (2)")
    parser.add_argument("--sides", default="apache,pymq", help="apache, pymq or both (both)")
    parser.add_argument("--stages", default=",".join(STAGES), help=f"which of {', '.join(STAGES)} (all)")
    parser.add_argument("--no-neighbours", action="store_true", help="leave the bare loop and Redis out")
    parser.add_argument(
        "--scratch", type=Path, help="where stores are written and deleted again (the temporary directory)"
    )
    parser.add_argument("--json", type=Path, help="write every number here")
    parser.add_argument(
        "--warm-memory", action="store_true", help="touch free memory first, so that no side pays for fresh pages"
    )
    options = parser.parse_args()
    unknown = set(options.stages.split(",")) - set(STAGES) | set(options.sides.split(",")) - {"apache", "pymq"}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def say(text: str) -> None:
    """Progress, on stderr: stdout is for the table."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def measure(
    sides: list[Side], stages: list[str], plan: Plan, load: Load, scratch: Path, ballast: Ballast | None
) -> dict[str, list[Figures]]:
    """A-B-A-B: in every round, every stage on one side and then on the other."""
    measured: dict[str, list[Figures]] = {side.name: [] for side in sides}
    for number in range(1, plan.rounds + 1):
        for stage in stages:
            for side in sides:
                if ballast is not None:
                    say(f"filled {ballast.fill() >> 20} MiB of free memory")
                say(f"round {number}, {stage}, {side.name}")
                bench = Bench(side, load, plan, scratch, lambda text: say(f"    {text}"))
                measured[side.name].append(figures := Figures())
                try:
                    STAGES[stage](bench, figures)
                except (LoadError, NotServingError, ProcessEndedError, subprocess.TimeoutExpired) as problem:
                    # What was measured before stays, and the other side and the other stages have their turn.
                    figures.failed = True
                    figures.notes.append(f"FAILED in round {number}, {stage}: {problem}")
                    say(f"    failed: {problem}")
    return measured


def numbers(figures: list[Figures]) -> dict[str, list[float]]:
    """All values of each figure, over the rounds."""
    collected: dict[str, list[float]] = {}
    for figure in figures:
        for name, value in figure.numbers.items():
            collected.setdefault(name, []).append(value)
    return collected


def chosen_plan(options: argparse.Namespace) -> Plan:
    """Full or quick, with the rounds asked for."""
    plan = QUICK if options.quick else FULL
    return plan if options.rounds is None else Plan(**{**vars(plan), "rounds": options.rounds})


def chosen_sides(options: argparse.Namespace) -> list[Side]:
    """Apache first: the ruler before the thing."""
    sides: list[Side] = []
    if "apache" in options.sides.split(","):
        sides.append(ApacheSide(toolchain()))
    if "pymq" in options.sides.split(","):
        sides.append(PymqSide())
    return sides


def main() -> int:
    """Measure and print; 0 when everything ran, whatever the figures say, 1 when a stage failed."""
    options = arguments()
    plan = chosen_plan(options)
    try:
        programs = build()
        sides = chosen_sides(options)
    except (BuildError, ToolchainMissingError, ToolchainBuildError) as problem:
        print(f"side by side: {problem}", file=sys.stderr)
        return 2
    load = Load(programs.load)
    facts: dict[str, Any] = {**machine_facts(), "load_average_before": os.getloadavg()[0], "quick": options.quick}
    facts |= {"fresh_page_us": round(fresh_page_us(), 2), "warm_memory": options.warm_memory}
    if facts["load_average_before"] > BUSY_LOAD:
        say(f"the machine is busy (load average {facts['load_average_before']:.1f}): figures will be low and uneven")
    with tempfile.TemporaryDirectory(prefix="pymq-side-by-side-", dir=options.scratch) as directory:
        scratch = Path(directory)
        floor = None if options.no_neighbours else neighbours.bare_loop(programs, load, plan, scratch)
        redis = None if options.no_neighbours else neighbours.redis_streams(plan, scratch)
        ballast = Ballast(scratch / "ballast") if options.warm_memory else None
        measured = measure(sides, options.stages.split(","), plan, load, scratch, ballast)
    lines = table(numbers(measured.get("apache", [])), numbers(measured.get("pymq", [])))
    for name, value in facts.items():
        print(f"{name}: {value}")
    print()
    print(render(lines))
    for name, figures in (("bare C loop", floor), ("Redis Streams", redis)):
        if figures:
            print(f"\n{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in figures.items()))
    for side, stages in measured.items():
        for note in (note for figures in stages for note in figures.notes):
            print(f"note, {side}: {note}")
    if options.json:
        runs = {side: [run for figures in stages for run in figures.runs] for side, stages in measured.items()}
        document = {"machine": facts, "table": lines, "bare_loop": floor, "redis_streams": redis, "runs": runs}
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(figures.failed for stages in measured.values() for figures in stages) else 0


if __name__ == "__main__":
    sys.exit(main())
