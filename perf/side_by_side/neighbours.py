"""What else a send costs here: a bare C loop as the floor, Redis Streams as a neighbour. Printed, not judged."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from perf.side_by_side.build import Programs
from perf.side_by_side.load import Load, Result
from perf.side_by_side.plan import HEADLINE, Plan
from perf.side_by_side.process import Server, free_port, spawn

REDIS_COUNT_PER_S = 200_000


def bare_loop(programs: Programs, load: Load, plan: Plan, scratch: Path) -> dict[str, float]:
    """The generator against `bare_loop.c`: no topics, no dispatch, no promise."""
    home = scratch / "bare-loop"
    home.mkdir(parents=True)
    server = spawn("bare-loop", [str(programs.bare_loop), str(home)], home / "out")
    try:
        server.await_line("listening on")
        address = server.output.read_text(encoding="ascii").split()[-1]
        common = {"broker": address, "topic": "Bare", "watch_pid": server.pid, "no_settle": True, **HEADLINE.options}
        count = plan.count_for(HEADLINE)
        pipelined = load.run("send", connections=8, window=64, duration_s=plan.run_s, count=count, **common)
        one = load.run("send", duration_s=plan.round_trip_s, **common)
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)
    return {
        "rate": pipelined["messages_per_s"],
        "cpu_s_per_million": pipelined["broker_cpu"]["s_per_million"],
        "generator_cpu_s_per_million": pipelined["generator_cpu"]["s_per_million"],
        "round_trip_p50_us": _p50(one),
    }


def _p50(result: Result) -> float:
    return float(result["latency_us"]["p50"])


def redis_streams(plan: Plan, scratch: Path) -> dict[str, float] | None:
    """XADD of 128 bytes, 8 connections × 64 in flight, no persistence; None without Redis and its benchmark."""
    if shutil.which("redis-server") is None or shutil.which("redis-benchmark") is None:
        return None
    home = scratch / "redis"
    home.mkdir(parents=True)
    port = free_port()
    server = spawn(
        "redis",
        [
            "redis-server",
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            str(home),
        ],
        home / "out",
    )
    try:
        server.await_line("Ready to accept connections")
        count = int(REDIS_COUNT_PER_S * plan.run_s)
        begin, cpu_begin = time.monotonic(), _cpu_s(server)
        subprocess.run(
            ["redis-benchmark", "-p", str(port), "-c", "8", "-P", "64", "-n", str(count), "-q",
             "XADD", "stream", "*", "b", "x" * 128],
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=120,
        )  # fmt: skip
        seconds, cpu_s = time.monotonic() - begin, _cpu_s(server) - cpu_begin
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)
    return {"rate": count / seconds, "cpu_s_per_million": cpu_s * 1e6 / count}


def _cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
