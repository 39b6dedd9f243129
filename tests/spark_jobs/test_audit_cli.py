"""`python -m spark_jobs.audit`: what it refuses and how, what it runs, and what its exit code means.

Checks are made up here: what real ones find is the business of their own tests.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import spark_jobs.audit as command
from pymq.errors import ConfigError, StoreError
from spark_jobs.audit import listing, main, one_line, progress_for, run_audits, size_of
from spark_jobs.audits import a24_append_only as a24
from spark_jobs.audits.base import FINDINGS, METRICS, Audit, found, none_found
from spark_jobs.report.model import FINDINGS_SHOWN_MAX, Outcome, State
from spark_jobs.report.progress import LineProgress, LiveProgress, Progress
from spark_jobs.selection import select
from spark_jobs.tables import Tables
from tests.spark_jobs.conftest import copy_golden
from tests.spark_jobs.dumps import write_manifest
from tests.spark_jobs.faults.patch import PatchedStore
from tests.spark_jobs.report_values import Page, audit

ROOT = Path(__file__).resolve().parents[2]

SOME = [
    audit("A1", "one"),
    audit("A2", "two"),
    audit("A7", "seven"),
    audit("A13", "thirteen", group="meaning"),
    audit("A21", "twenty-one", needs=["ledgers"], group="meaning"),
    audit("A24", "twenty-four", needs=["against"]),
]
# Checks that an earlier dump means something to: to the first also, to the second alone.
LATER = [audit("A9", "nine", earlier="also"), audit("A24", "twenty-four", needs=["against"], earlier="alone")]


def names(text, given=()):
    """The names *text* selects among SOME."""
    return [one.name for one in select(text, SOME, given).chosen]


# ---- which checks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("all", ["A1", "A2", "A7", "A13", "A21", "A24"]),
        ("A1", ["A1"]),
        ("a13,A1", ["A1", "A13"]),
        ("A1-A7", ["A1", "A2", "A7"]),
        ("A2-20", ["A2", "A7", "A13"]),
        ("A1,A1-A2,2", ["A1", "A2"]),
        ("store", ["A1", "A2", "A7", "A24"]),
        (" Meaning , A1 ,", ["A1", "A13", "A21"]),
    ],
)
def test_checks_are_named_by_number_range_or_group(text, chosen):
    """Goal: --checks as people write it. Method: each form, in any order and case; the checks' own order comes out."""
    assert names(text) == chosen


@pytest.mark.parametrize("text", ["A3", "A25", "stores", "A7-A1", "A", "1.5", "", ",", "A1,nonsense", "-A1"])
def test_a_word_that_is_no_check_is_refused_with_what_is_one(text):
    """Goal: a slip of the pen audits nothing, loudly. Method: words near the right ones."""
    with pytest.raises(ConfigError, match=r"A1 to A24, a range as A1-A24, meaning, store or all"):
        names(text)


def test_a_check_without_what_it_needs_is_listed_or_refused():
    """Goal: exit code 0 is never the answer of a check that did not run. Method: by range, by group, by name."""
    assert select("all", SOME, []).missing == {"A21": ("ledgers",), "A24": ("against",)}
    assert select("A20-A24", SOME, ["ledgers"]).missing == {"A24": ("against",)}
    assert select("A24", SOME, ["against"]).missing == {}
    with pytest.raises(ConfigError, match=r"A24 \(twenty-four\) needs --against"):
        names("A1,A24")


def test_a_check_that_needs_an_earlier_dump_is_listed_or_refused_without_one():
    """Symptom: `--checks A24` of two dumps that were taken for replicas was clean, with exit code 0.
    Method: told, not told and not known, by name and among others."""
    doubt = "the manifests do not tell; say --relation earlier"
    assert select("all", LATER, ["against", "earlier"]).missing == {}
    assert select("all", LATER, ["against"]).missing == {"A24": ("earlier",)}
    assert select("all", LATER, ["against"], doubt).missing == {"A24": ("earlier",)}
    assert select("all", LATER, []).missing == {"A24": ("against",)}
    assert select("A9", LATER, ["against"]).missing == {}
    with pytest.raises(ConfigError, match=r"A24 \(twenty-four\) needs --relation earlier"):
        select("A24", LATER, ["against"])
    for text in ("A24", "store,A9"):
        with pytest.raises(ConfigError, match="the manifests do not tell"):
            select(text, LATER, ["against", "earlier"], doubt)


def test_list_says_name_group_needs_and_title():
    """Goal: nobody has to read the sources to choose. Method: a line for each check."""
    lines = listing(SOME).splitlines()
    assert lines[0] == "A1   store    one"
    assert lines[4] == "A21  meaning  twenty-one  (needs --ledger)"


# ---- what it refuses -----------------------------------------------------------------------------------------


@pytest.fixture
def refused(monkeypatch, capsys):
    """Run the command where it must not get as far as Spark; the one line it prints."""

    @contextmanager
    def no_session(*_):
        pytest.fail("Spark was started")
        yield

    def run(*arguments, audits=SOME):
        monkeypatch.setattr(command, "all_audits", lambda: tuple(audits))
        monkeypatch.setattr(command, "running_session", no_session)
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code
        shown = capsys.readouterr()
        assert code == 2
        assert shown.out == ""
        assert shown.err.count("\n") == 1
        assert shown.err.startswith("audit: ")
        return shown.err.removeprefix("audit: ").rstrip("\n")

    return run


def test_bad_input_is_one_line_before_anything_starts(refused, tmp_path, golden_shared):
    """Goal: no stack, no JVM, exit 2. Method: everything that can be wrong with the arguments."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert refused() == "no dump given; --help shows how"
    assert refused(tmp_path / "no") == f"{tmp_path}/no: no such directory"
    assert "not a store" in refused(tmp_path / "empty")
    assert "commitlog" in refused(tmp_path / "file")
    assert "no such directory" in refused(golden_shared, "--against", tmp_path / "no")
    assert "No such file" in refused(golden_shared, "--ledger", tmp_path / "no.tsv")
    assert "it is one of A1 to A24" in refused(golden_shared, "--checks", "A99")
    assert "A24 (twenty-four) needs --against" in refused(golden_shared, "--checks", "A24")
    assert "exists" in refused(golden_shared, "--output", tmp_path / "file")
    assert "--bogus" in refused(golden_shared, "--bogus")
    assert "invalid choice" in refused(golden_shared, "--relation", "sister")


def test_stores_that_make_no_pairs_are_refused_before_anything_starts(refused, tmp_path, golden_shared):
    """Symptom: a store was compared with nothing, or as something else, and clean. Method: stores without a partner;
    plain directories, which say nothing, for a check that was asked for by its name."""
    other = copy_golden(tmp_path / "other")
    assert "2 stores against 3: other#2 would be compared with nothing" in refused(
        golden_shared, other, "--against", golden_shared, other, other
    )
    for name in ("A9", "A24"):
        line = refused(golden_shared, "--against", other, "--checks", name, audits=LATER)
        assert line.startswith(f"--checks {name}: the manifests do not tell whether other is an earlier dump of golden")
        assert line.endswith("say --relation earlier or --relation replica")
    line = refused(golden_shared, "--against", other, "--checks", "A24", "--relation", "replica", audits=LATER)
    assert line == "--checks A24: A24 (twenty-four) needs --relation earlier"


def test_a_dump_still_being_written_is_refused(refused, golden):
    """Goal: half a dump is not audited. Method: the name its manifest has until it is whole."""
    (golden / "manifest.json.partial").write_text("{}")
    assert "still being written" in refused(golden)


def test_without_pyspark_it_says_what_to_install(tmp_path):
    """Goal: the extra is named. Method: a Python that cannot import pyspark, as a process of its own."""
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('No module named pyspark')\n")
    done = subprocess.run(
        [sys.executable, "-m", "spark_jobs.audit", "--list"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "audit: pyspark is not installed; try: pip install 'pymq[spark]'\n"
    assert done.stdout == ""


def test_list_needs_no_dump_and_no_java(capsys, monkeypatch):
    """Goal: looking costs nothing. Method: the real checks, listed, in order of their numbers."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["--list"]) == 0
    numbers = [int(line.split()[0][1:]) for line in capsys.readouterr().out.splitlines()]
    assert numbers
    assert numbers == sorted(set(numbers))


WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 3, in main
    process()
pymq.errors.StoreError: 2 bytes
spark_jobs.rocketmq_store.files.NotAStoreError: /x: no such directory

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:5)
Caused by: java.lang.RuntimeException: never mind
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\nlines"), "ValueError: two"),
        (KeyError("queue_offset"), "KeyError: 'queue_offset'"),
        (ConfigError("/x: no such\n directory"), "/x: no such"),
        (StoreError("/x: damaged"), "/x: damaged"),
        (RuntimeError(WORKER), "NotAStoreError: /x: no such directory"),
        (AssertionError(), "AssertionError:"),
        (ValueError("x" * 1000), "ValueError: " + "x" * 387 + "…"),
    ],
)
def test_an_error_becomes_one_line(error, line):
    """Goal: the cause, without the stacks around it. Method: errors as Python, pymq and Spark's workers make them."""
    assert one_line(error) == line


def test_progress_is_live_only_on_a_terminal():
    """Goal: no control characters in a log. Method: streams that are and are not terminals."""

    class Tracker:
        def statusTracker(self):
            return None

    class Session:
        sparkContext = Tracker()  # noqa: N815 - Spark's name

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert isinstance(progress_for(Session(), Terminal(), quiet=False), LiveProgress)
    assert isinstance(progress_for(Session(), io.StringIO(), quiet=False), LineProgress)
    assert type(progress_for(Session(), Terminal(), quiet=True)) is Progress


def test_size_counts_what_is_written(tmp_path):
    """Goal: files made at full size are not taken for full. Method: a sparse file beside a small one."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**9)
    (tmp_path / "below").mkdir()
    (tmp_path / "below/small").write_bytes(b"x" * 1000)
    assert 1000 <= size_of(tmp_path) < 10**6


# ---- running, with Spark -------------------------------------------------------------------------------------


def finds(count, name="A2", **fields):
    """A check with *count* findings."""

    def check(tables: Tables):
        rows = [{"store": "golden", "offset": count - 1 - index, **fields} for index in range(count)]
        return found(tables.spark, name, rows) if count else none_found(tables.spark)

    return Audit(name, f"finds {count}", check)


def measures(tables: Tables):
    """Metrics of a check."""
    return tables.spark.createDataFrame([("A1", "golden", "lag", "billing", None, 12)], METRICS)


def breaks(tables: Tables):
    """A check that fails when it is asked."""
    raise ValueError("this check is broken")


def breaks_late(tables: Tables):
    """A check that fails when its rows are computed."""
    return tables.spark.range(3).selectExpr(
        "'A8' AS check", "'error' AS severity", "'s' AS store", "'t' AS topic", "0 AS queue",
        "assert_true(id < 2, 'row ' || id || ' is broken') AS offset",
        "'' AS expected", "'' AS actual", "'' AS evidence",
    )  # fmt: skip


@pytest.fixture
def run(spark, monkeypatch, capsys):
    """Run the command with made-up checks in the session there is; exit code, stdout, stderr."""

    def run(audits, *arguments):
        monkeypatch.setattr(command, "all_audits", lambda: tuple(audits))
        code = main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.mark.spark
def test_clean_findings_and_failure_have_their_exit_codes(run, golden_shared, tmp_path):
    """Goal: 0, 1, 2, and the others go on when one fails. Method: made-up checks of each kind, every output."""
    clean = Audit("A1", "finds nothing", finds(0).check, metrics=measures)
    failing = [Audit("A5", "fails at once", breaks), Audit("A8", "fails late", breaks_late)]
    needy = Audit("A24", "extends the earlier", breaks, needs=frozenset({"against"}))
    code, text, progress = run([clean, needy], golden_shared)
    assert code == 0
    assert text.startswith("CLEAN\n")
    assert "not run: needs --against" in text
    assert progress.splitlines()[1].startswith("[1/1] A1 finds nothing: clean")

    code, text, _ = run([clean, finds(3)], golden_shared, "--output", tmp_path / "out", "--quiet")
    assert code == 1
    assert text.startswith("3 FINDINGS IN 1 CHECK\n")
    page = Page((tmp_path / "out/report.html").read_text())
    assert page.faults == []
    assert page.text_of("h1") == ["3 findings in 1 check"]
    assert f"python -m spark_jobs.show {golden_shared} --physical-offset 2" in page.text_of("code")
    assert "billing" in page.text_of("th")
    assert pq.read_table(tmp_path / "out/findings.parquet").column("offset").to_pylist() == [0, 1, 2]
    assert pq.read_table(tmp_path / "out/metrics.parquet").column("value").to_pylist() == [12]

    code, text, _ = run([clean, *failing, finds(1, "A9")], golden_shared, "--json")
    assert code == 2
    result = json.loads(text)
    assert [check["state"] for check in result["checks"]] == ["clean", "could not run", "could not run", "findings"]
    assert result["checks"][1]["error"] == "ValueError: this check is broken"
    assert "row 2 is broken" in result["checks"][2]["error"]
    assert "\n" not in result["checks"][2]["error"]
    assert [finding["check"] for finding in result["findings"]] == ["A9"]


@pytest.mark.spark
def test_many_findings_are_all_written_and_few_are_kept(spark, run, golden_shared, tmp_path):
    """Goal: bounded on the driver, complete on disk. Method: one more than are shown; the first in order of place."""
    many = FINDINGS_SHOWN_MAX + 1

    def check(tables: Tables):
        return tables.spark.range(many).selectExpr(
            "'A2' AS check", "'error' AS severity", "'golden' AS store", "CAST(NULL AS string) AS topic",
            "CAST(NULL AS int) AS queue", f"{many} - 1 - id AS offset",
            "'' AS expected", "'' AS actual", "'' AS evidence",
        )  # fmt: skip

    code, text, _ = run([Audit("A2", "many", check)], golden_shared, "--json", "--output", tmp_path)
    assert code == 1
    result = json.loads(text)
    assert result["total"] == many
    assert [finding["offset"] for finding in result["findings"]] == list(range(FINDINGS_SHOWN_MAX))
    table = pq.read_table(tmp_path / "findings.parquet")
    assert sorted(table.column("offset").to_pylist()) == list(range(many))
    (outcome,) = run_audits(Tables(spark, [str(golden_shared)]), [Audit("A2", "many", check)], Progress())
    assert (outcome.total, len(outcome.findings)) == (many, FINDINGS_SHOWN_MAX)


@pytest.mark.spark
def test_a_log_that_lost_its_end_is_never_clean_whatever_its_dump_is_called(run, tmp_path):
    """Symptom: `--checks A24` of a rolled back dump, restored under another path, was clean with exit code 0.
    Method: it, against the dump before, by the manifests, by the operator's word, and among other checks."""
    before, after = (copy_golden(tmp_path / name) for name in ("before", "after"))
    records = list(PatchedStore(after).records())
    end = records[-1].offset + records[-1].size
    PatchedStore(after).write(records[-1].offset, bytes(records[-1].size))
    one = {"storePath": "/store", "host": "m1"}
    write_manifest(before, end, begunMs=1, **one)
    write_manifest(after, records[-1].offset, begunMs=2, **one | {"storePath": "/restored"})
    given = (after, "--against", before, "--quiet")
    audits = [finds(0, "A1"), a24.AUDIT]

    code, text, error = run(audits, *given, "--checks", "A24")
    assert (code, text) == (2, "")
    assert "dumps of /restored and /store" in error
    code, text, _ = run(audits, *given)
    assert code == 0
    assert "after against before: unclear what it is (dumps of /restored and /store)" in text
    assert "not run: needs --relation earlier" in text
    assert run(audits, *given, "--checks", "A24", "--relation", "earlier")[0] == 1

    write_manifest(after, records[-1].offset, begunMs=2, **one)
    code, text, _ = run(audits, *given, "--checks", "A24", "--json")
    assert code == 1
    result = json.loads(text)
    assert [pair["relation"] for pair in result["pairs"]] == ["earlier"]
    assert [finding["offset"] for finding in result["findings"]] == [records[-1].offset]


@pytest.mark.spark
def test_the_scan_is_read_once_as_a_step_of_its_own(spark, golden_shared):
    """Goal: its time is nobody's, its failure everybody's who needs it. Method: two checks that count its rows."""
    told = []

    class Told(Progress):
        def step(self, name, title):
            told.append(name)

        def done(self, outcome: Outcome):
            told.append(outcome.state)

    def check(tables: Tables):
        assert tables.scan.count() > 0
        return none_found(tables.spark)

    audits = [Audit(name, "reads the scan", check, tables=("scan",)) for name in ("A1", "A2")]
    run_audits(Tables(spark, [str(golden_shared)]), audits, Told())
    assert told == ["scan", "A1", State.CLEAN, "A2", State.CLEAN]
    audits.append(finds(0, "A3"))
    outcomes = run_audits(Tables(spark, [str(golden_shared / "nowhere")]), audits, Progress())
    assert [outcome.state for outcome in outcomes] == [State.FAILED, State.FAILED, State.CLEAN]
    assert "nowhere: no such directory" in outcomes[0].error


@pytest.mark.spark
def test_the_page_shows_what_the_scan_saw(run, golden_shared, tmp_path):
    """Goal: traffic and file map without any check's help. Method: a real scan of the golden store."""

    def check(tables: Tables):
        return none_found(tables.spark) if tables.scan.count() else breaks(tables)

    code, text, _ = run(
        [Audit("A1", "reads the scan", check, tables=("scan",))], golden_shared, "--output", tmp_path, "--json"
    )
    assert code == 0
    facts = json.loads(text)["facts"]
    assert facts["records"] > 100
    assert facts["queues"] >= facts["topics"] > 3
    page = (tmp_path / "report.html").read_text()
    assert "2 log files of 64.0 KiB, no damage" in page
    assert "GoldenA" in page
    series = pq.read_table(tmp_path / "metrics.parquet").to_pylist()
    assert sum(row["value"] for row in series if row["name"] == "records") == facts["records"]


def test_findings_schema_is_the_one_written_down():
    """Goal: docs/audits.md tells the truth. Method: its table of columns against the schema."""
    text = (ROOT / "docs/audits.md").read_text(encoding="utf-8")
    rows = text.split("## What a finding is", 1)[1].split("\n## ", 1)[0]
    columns = [line.split("`")[1] for line in rows.splitlines() if line.startswith("| `")]
    assert columns == FINDINGS.names
