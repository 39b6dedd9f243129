"""`spark-submit spark_jobs/audit.py`: the same program on a cluster, unchanged.

In CI Spark's threads are the cluster. With PYMQ_FULL=1 it has two workers, each an executor in a process of its own
with Python workers of its own: what a check hands to Spark must reach them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.java import find_java_home, launchable
from spark_jobs.session import worker_path
from tests.golden.golden_layout import STORE as GOLDEN
from tests.spark_jobs.conftest import SHORT_LIVED
from tests.spark_jobs.faults.patch import copy_store
from tests.spark_jobs.verdicts import assert_clean, assert_found, flipped

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("PYMQ_FULL", "0") not in ("", "0")
MASTER = "local-cluster[2,1,1024]" if FULL else "local[2]"
CHECKS = "A1-A4,A13" if FULL else "A1"
SUBMIT_TIMEOUT_S = 600.0

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1300)]


def submitted(store: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and result of the audit, submitted from the directory it lies in as an operator does."""
    import pyspark

    with launchable(find_java_home()) as java_home:
        done = subprocess.run(
            [
                str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
                *("--master", MASTER),
                *("--driver-java-options", SHORT_LIVED),
                *("--conf", "spark.ui.enabled=false"),
                "spark_jobs/audit.py",
                *(str(store), "--checks", CHECKS, "--quiet", "--json"),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "JAVA_HOME": str(java_home),
                "PYTHONPATH": worker_path(),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=SUBMIT_TIMEOUT_S,
            check=False,
        )
    assert done.stdout, f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("damaged", [True, False] if FULL else [True])
def test_a_submitted_audit_brings_its_verdict_back(tmp_path: Path, damaged: bool):
    """Goal: findings and exit code come back from a cluster. Method: the golden store with one bit off; as it is."""
    golden = copy_store(GOLDEN, tmp_path / "golden")
    if damaged:
        path, one = flipped(golden, tmp_path / "flipped")
        assert_found(*submitted(path), one)
    else:
        assert_clean(*submitted(golden))
