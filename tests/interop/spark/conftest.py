"""Spark beside Apache: the session that tests/spark_jobs has, for stores that Apache's broker has just written."""

from __future__ import annotations

from tests.spark_jobs.conftest import spark

__all__ = ["spark"]
