"""`python -m perf.audit`: the whole audit, and its store part alone, of stores of 1, 4 and 10 GiB.

    python -m perf.audit                        # what the table of perf/README.md says; half an hour, 30 GiB of disk
    python -m perf.audit --sizes 1 --keep DIR   # one size, and the store is left for the next run

Stores are stopped ones with log files of 1 GiB, and warm: what is measured is the audit, not the disk. Marks are those
the audit was built for: all checks of 10 GiB within ten minutes, A1 to A12 within three, both in 6 GiB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from perf.audit.large_store import GIB, make_store
from perf.audit.process_tree import Cost, run_and_watch
from perf.conftest import machine_facts

TIMEOUT_S = 3600.0
MEMORY_MARK = 6 * GIB
MARKS_S = {"store": 180.0, "all": 600.0}  # of 10 GiB
MARK_SIZE = 10


def say(text: str) -> None:
    """Progress, on stderr: stdout is for the table."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def read_s(path: Path) -> float:
    """Seconds to read every file below *path*: it is in memory afterwards, as far as there is memory."""
    begin = time.monotonic()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        with file.open("rb", buffering=0) as stream:
            while stream.read(8 << 20):
                pass
    return time.monotonic() - begin


def audit(path: Path, checks: str, memory: str, log: Path) -> Cost:
    """One run of the command that users run."""
    command = [sys.executable, "-m", "spark_jobs.audit", str(path), "--memory", memory]
    return run_and_watch(command + ([] if checks == "all" else ["--checks", checks]), TIMEOUT_S, log)


def judged(size: int, checks: str, cost: Cost) -> str:
    """Whether the marks are met; they are for one size."""
    if size != MARK_SIZE:
        return ""
    return "met" if cost.elapsed_s <= MARKS_S[checks] and cost.memory_max <= MEMORY_MARK else "MISSED"


def main() -> int:
    """Measure and print; 1 when an audit did not end clean."""
    parser = argparse.ArgumentParser(prog="python -m perf.audit", description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="1,4,10", help="GiB of log (1,4,10)")
    parser.add_argument("--checks", default="store,all", help="store, all or both")
    parser.add_argument("--memory", default="2g", help="of the driver (2g)")
    parser.add_argument("--keep", type=Path, help="keep stores here, and take those that are there")
    options = parser.parse_args()
    for name, value in machine_facts().items():
        print(f"{name}: {value}")
    head = f"{'GiB':>4} {'messages':>12} {'checks':>7} {'seconds':>8} {'s/GiB':>6} {'CPU s':>7}"
    print(f"\n{head} {'GiB held':>9} {'read s':>7}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="pymq-audit-") as scratch:
        for size in (int(text) for text in options.sizes.split(",")):
            path = (options.keep or Path(scratch)) / f"store-{size}"
            count = make_store(path, size * GIB, say)
            for checks in options.checks.split(","):
                reading_s = read_s(path)
                say(f"{size} GiB, {checks}")
                log = Path(scratch) / "audit.log"
                cost = audit(path, checks, options.memory, log)
                print(
                    f"{size:>4} {count:>12,} {checks:>7} {cost.elapsed_s:>8.1f} {cost.elapsed_s / size:>6.1f} "
                    f"{cost.cpu_s:>7.1f} {cost.memory_max / GIB:>9.2f} {reading_s:>7.1f}  {judged(size, checks, cost)}",
                    flush=True,
                )
                if cost.status != 0:
                    failed = True
                    print(f"the audit ended with status {cost.status}:\n{log.read_text(errors='replace')[-4000:]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
