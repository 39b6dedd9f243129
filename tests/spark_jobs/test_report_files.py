"""Parquet and progress: whole files only, and lines that say where the audit is."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from spark_jobs.audits.base import FINDINGS, METRICS
from spark_jobs.report import parquet
from spark_jobs.report.model import Finding, Metric, Outcome
from spark_jobs.report.parquet import FINDINGS_COLUMNS, METRICS_COLUMNS, open_output
from spark_jobs.report.progress import LineProgress, LiveProgress, Progress
from spark_jobs.rocketmq_store.schema import spark_schema
from tests.spark_jobs.report_values import audit


def test_parquet_has_the_columns_of_the_audits():
    """Goal: one findings schema. Method: the file's columns as Spark's types are those every audit returns."""
    assert spark_schema(FINDINGS_COLUMNS) == FINDINGS
    assert spark_schema(METRICS_COLUMNS) == METRICS
    assert Finding._fields == tuple(FINDINGS_COLUMNS.names)
    assert Metric._fields == tuple(METRICS_COLUMNS.names)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 50])
def test_findings_come_back_as_they_were_written(tmp_path, monkeypatch, count):
    """Goal: nothing is lost between batches. Method: batches of 16, counts around their edges, nulls in them."""
    monkeypatch.setattr(parquet, "BATCH_ROWS", 16)
    findings = [
        Finding("A1", "error", "s", None if index % 2 else "t", index % 4, 2**62 + index, evidence="\u2603")
        for index in range(count)
    ]
    metrics = [Metric("A9", "s", "lag", None, None, index) for index in range(count)]
    with open_output(tmp_path / "new" / "out") as output:
        assert output.findings.write(iter(findings)) == count
        output.metrics.write(metrics)
    assert [Finding(**row) for row in pq.read_table(tmp_path / "new/out/findings.parquet").to_pylist()] == findings
    assert [Metric(**row) for row in pq.read_table(tmp_path / "new/out/metrics.parquet").to_pylist()] == metrics
    assert sorted(path.name for path in (tmp_path / "new/out").iterdir()) == ["findings.parquet", "metrics.parquet"]


def test_a_run_that_fails_leaves_the_files_before_it(tmp_path):
    """Goal: half a file is never taken for a whole one. Method: a good run, then one that fails in the middle."""
    with open_output(tmp_path) as output:
        output.findings.write([Finding("A1", "error")])

    def fail() -> None:
        with open_output(tmp_path) as output:
            output.findings.write([Finding("A2", "error")] * 3)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert pq.read_table(tmp_path / "findings.parquet").column("check").to_pylist() == ["A1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["findings.parquet", "metrics.parquet"]


def steps(progress: Progress) -> None:
    """Two checks, the second with findings."""
    progress.start(3, 3 * 2**30)
    progress.step("scan", "everything is read once")
    progress.passed("scan", "everything is read once", 12)
    progress.step("A1", "every record is whole")
    progress.done(Outcome(audit("A1", "every record is whole"), seconds=0.5))
    progress.step("A2", "the log is one walk")
    progress.done(Outcome(audit("A2", "the log is one walk"), (Finding("A2", "error"),), seconds=61))
    progress.close()
    progress.close()


def test_plain_progress_is_a_line_for_each_check():
    """Goal: a log that can be read later. Method: two checks into a stream that is no terminal."""
    stream = io.StringIO()
    steps(LineProgress(stream))
    assert stream.getvalue().splitlines() == [
        "3 steps over 3.0 GiB",
        "[1/3] scan everything is read once: 12 s",
        "[2/3] A1 every record is whole: clean, 0.5 s",
        "[3/3] A2 the log is one walk: 1 finding, 1 min 1 s",
    ]


def test_live_progress_says_which_check_and_how_far():
    """Goal: check, n of m, tasks, bytes, time on one line. Method: a clock and tasks of our own; the line is erased."""
    stream, now = io.StringIO(), [100.0]
    progress = LiveProgress(stream, lambda: (31, 80), clock=lambda: now[0])
    progress.start(24, 10 * 2**30)
    for number in range(7):
        progress.step(f"A{number + 1}", "index and keys agree")
        progress.done(Outcome(audit(), (Finding("A1", "error"),) if number == 0 else ()))
    now[0] += 102.5
    assert progress.line() == "[ 7/24] A7 index and keys agree · 31 of 80 tasks · 10.0 GiB · 1 found · 1:42"
    narrow = progress.line(70)
    assert len(narrow) == 70
    assert narrow.startswith("[ 7/24] A7 index and")
    assert narrow.endswith("… · 31 of 80 tasks · 10.0 GiB · 1 found · 1:42")
    progress.close()
    progress.close()
    assert stream.getvalue().endswith("\r\033[K")
    drawn = stream.getvalue()
    progress.draw()
    assert stream.getvalue() == drawn
