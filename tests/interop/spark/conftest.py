"""Spark beside Apache: the session that tests/spark_jobs has, for stores that Apache's broker has just written.

Three brokers with their clients, and audits of what they leave, take minutes that the fast tier does not have: they run
in `make audit-full`. What Apache wrote is audited in every run all the same: the golden store, by tests/spark_jobs.
"""

from __future__ import annotations

import os

from tests.spark_jobs.conftest import spark

__all__ = ["spark"]

collect_ignore = [] if os.environ.get("PYMQ_FULL", "0") not in ("", "0") else ["test_apache_stores.py"]
