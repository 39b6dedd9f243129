"""`perf.audit.process_tree`: the cost of a process is that of everything it started, waited for or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BURN_S = 0.6
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass"
# A driver as Spark's: it ends while what it started is still busy, and nobody waits for that.
DRIVER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}])"
# In a process of its own: to adopt orphans is for good.
WATCHED = f"""
import sys
from pathlib import Path
from perf.audit.process_tree import run_and_watch
print(run_and_watch([sys.executable, "-c", {DRIVER!r}], 60.0, Path(sys.argv[1])).cpu_s)
"""


def test_processor_time_of_a_process_that_nobody_waited_for_is_counted(tmp_path: Path):
    """Goal: a virtual machine that outlives its driver is in the figure. Method: one that burns a known time."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path / "log")],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert float(done.stdout) >= BURN_S
