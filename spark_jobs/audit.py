"""Audit stores: `python -m spark_jobs.audit DUMP… [--against DUMP…] [--ledger FILES] [--checks A1,A3-A7,meaning]`.

Runs on this machine by default; the same file runs on a cluster by `spark-submit`, which then says where and how large.
The result goes to stdout (a table, or JSON), progress to stderr, everything to `--output DIR`: `report.html`,
`findings.parquet`, `metrics.parquet`.

Exit code: 0 clean, 1 findings, 2 could not run. A check that fails is one line, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from pymq.errors import ConfigError, PymqError
from pymq.store.layout import regular_files
from spark_jobs.ledger import ledger_files, read_ledgers
from spark_jobs.relations import EARLIER, UNCLEAR, Pair, doubt, pair_up
from spark_jobs.report.model import (
    EXIT_COULD_NOT_RUN,
    FINDINGS_SHOWN_MAX,
    NEEDS,
    Finding,
    Metric,
    Outcome,
    Report,
    Store,
)
from spark_jobs.report.page import render
from spark_jobs.report.parquet import Output, open_output
from spark_jobs.report.progress import LineProgress, LiveProgress, Progress, Tasks
from spark_jobs.report.summary import as_json, has_colours, table
from spark_jobs.rocketmq_store.files import StoreFiles, open_stores
from spark_jobs.selection import Selection, select

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.audits.base import Audit
    from spark_jobs.tables import Tables

METRICS_KEPT_MAX = 20_000  # of one check, for the page; the Parquet file has them all
CHECKS_AT_ONCE = 2
ERROR_LINE_MAX = 400
EXIT_INTERRUPTED = 130
SCAN_TITLE = "everything is read once"
WIDTH_ELSEWHERE = 140  # columns of the table where no terminal says how many it has
BLOCK_SIZE = 512  # what st_blocks counts in

PLACE = ("store", "topic", "queue", "offset", "expected", "actual")  # the order findings are shown in
# The last line of a traceback; not every library ends the names of its exceptions in Error.
CAUSE = re.compile(
    r"^(?:(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Interrupt|Exit))|[a-z_][\w.]*\.([A-Z]\w+)): (.+)$",
    re.MULTILINE,
)


# ---- running checks ------------------------------------------------------------------------------------------


def run_audits(
    tables: Tables,
    audits: Sequence[Audit],
    progress: Progress,
    *,
    missing: dict[str, tuple[str, ...]] | None = None,
    output: Output | None = None,
    on_error: Callable[[Exception], None] | None = None,
) -> list[Outcome]:
    """Run *audits*, some at once; each ends as an outcome, whatever happens in it. Outcomes are in the order given.

    Putting a check together takes a single thread of the driver about as long as the jobs of it take the executors, so
    two at once keep both busy.

    Args:
        missing: checks that are listed and not run, with what they lack.
        output: where all findings and metrics go; outcomes keep a bounded number.
        on_error: told of every exception of a check, with its stack.
    """
    lacking = missing or {}
    outcomes = []
    scan_error = None
    if any("scan" in audit.tables for audit in audits if audit.name not in lacking):
        begun = time.monotonic()
        progress.step("scan", SCAN_TITLE)
        scan_error = trouble_of(partial(read_once, tables), on_error)
        progress.passed("scan", SCAN_TITLE, time.monotonic() - begun)
    pool = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="check")
    try:
        running = {
            audit.name: pool.submit(run_audit, tables, audit, output, on_error)
            for audit in audits
            if audit.name not in lacking and (scan_error is None or "scan" not in audit.tables)
        }
        for audit in audits:
            if audit.name in lacking:
                outcomes.append(Outcome(audit, missing=lacking[audit.name]))
                continue
            progress.step(audit.name, audit.title)
            outcome = running[audit.name].result() if audit.name in running else Outcome(audit, error=scan_error)
            progress.done(outcome)
            outcomes.append(outcome)
    finally:
        pool.shutdown(cancel_futures=True)
    return outcomes


def read_once(tables: Tables) -> int:
    """Fill the memory that the checks of the scan share, so that its time is not the first one's."""
    return describe(tables, f"scan: {SCAN_TITLE}").scan.count()


def run_audit(
    tables: Tables, audit: Audit, output: Output | None, on_error: Callable[[Exception], None] | None
) -> Outcome:
    """One check, timed."""
    describe(tables, f"{audit.name} {audit.title}")
    begun = time.monotonic()
    found: tuple[tuple[Finding, ...], int] = ((), 0)
    metrics: tuple[Metric, ...] = ()

    def run() -> None:
        nonlocal found
        found = collect_findings(audit.check(tables), output)

    def measure() -> None:
        nonlocal metrics
        if audit.metrics is not None:
            metrics = collect_metrics(audit.metrics(tables), output)

    error = trouble_of(run, on_error)
    if error is None:
        error = trouble_of(measure, on_error)
    return Outcome(audit, found[0], metrics, time.monotonic() - begun, error, found[1])


def trouble_of(run: Callable[[], object], on_error: Callable[[Exception], None] | None) -> str | None:
    """Why *run* failed, in one line; None when it did not."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - one check's failure is its own outcome, the other checks go on
        if on_error is not None:
            on_error(error)
        return one_line(error)
    return None


def describe(tables: Tables, text: str) -> Tables:
    """Name the jobs to come, for whoever looks at Spark's own pages."""
    tables.spark.sparkContext.setJobDescription(text)
    return tables


def collect_findings(frame: DataFrame, output: Output | None) -> tuple[tuple[Finding, ...], int]:
    """The first findings in order of place, and how many there are; all go to *output*.

    One job when they are few, as they should be: each task keeps no more than are shown. What is more is kept by Spark,
    so that counting or writing it does not compute it again.
    """
    from pyspark import StorageLevel

    kept = frame.select(*Finding._fields).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        rows = [Finding(*row) for row in kept.orderBy(*PLACE).limit(FINDINGS_SHOWN_MAX + 1).collect()]
        if len(rows) <= FINDINGS_SHOWN_MAX:
            if output is not None:
                output.findings.write(rows)
            return tuple(rows), len(rows)
        total = kept.count() if output is None else output.findings.write(kept.toLocalIterator())
        return tuple(rows[:FINDINGS_SHOWN_MAX]), total
    finally:
        kept.unpersist()


def collect_metrics(frame: DataFrame, output: Output | None) -> tuple[Metric, ...]:
    """The largest metrics; all go to *output*."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

    kept = frame.select(*Metric._fields).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        ordered = kept.orderBy(F.desc_nulls_last("value"), "store", "name", "label", "at").limit(METRICS_KEPT_MAX + 1)
        rows = [Metric(*row) for row in ordered.collect()]
        if output is not None:
            output.metrics.write(rows if len(rows) <= METRICS_KEPT_MAX else kept.toLocalIterator())
        return tuple(rows[:METRICS_KEPT_MAX])
    finally:
        kept.unpersist()


def one_line(error: BaseException) -> str:
    """What went wrong, without the stacks that Spark and its workers wrap around it."""
    text = str(error).split("\n\tat ", 1)[0]
    causes = CAUSE.findall(text)
    if causes:
        name, message = causes[-1][0] or causes[-1][1], causes[-1][2]
    else:
        name, message = type(error).__name__, next((line for line in text.splitlines() if line.strip()), "")
    line = " ".join(message.split()) if isinstance(error, PymqError) else " ".join(f"{name}: {message}".split())
    return line if len(line) <= ERROR_LINE_MAX else line[: ERROR_LINE_MAX - 1] + "…"


# ---- the command ---------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2, as the audit does for every input it cannot use."""
        self.exit(EXIT_COULD_NOT_RUN, f"audit: {message} (--help shows how)\n")


def parser() -> Parser:
    """The options."""
    options = Parser(
        prog="python -m spark_jobs.audit",
        description="Prove that stores are consistent, or say where they are not.",
        epilog="Example: python -m spark_jobs.audit dumps/today --against dumps/yesterday --output report. "
        "Exit code: 0 clean, 1 findings, 2 could not run.",
    )
    options.add_argument("dumps", nargs="*", metavar="DUMP", help="a dump, or the directory of a stopped store")
    options.add_argument(
        "--against", nargs="+", action="extend", default=[], metavar="DUMP", help="an earlier dump, or the master's"
    )
    options.add_argument(
        "--relation",
        choices=("auto", "earlier", "replica"),
        default="auto",
        help="what --against is: an earlier dump of the same broker, or a replica; told from the manifests unless said",
    )
    options.add_argument(
        "--ledger",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="what clients sent and received; a directory stands for the files in it",
    )
    options.add_argument("--checks", default="all", metavar="LIST", help="A1,A3-A7,store,meaning; all by default")
    options.add_argument("--master", default="local[2]", help="where Spark runs, unless spark-submit says it")
    options.add_argument("--memory", default="2g", help="of a local Spark")
    options.add_argument("--output", type=Path, metavar="DIR", help="for report.html and the Parquet files")
    options.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    options.add_argument("--list", action="store_true", help="list the checks and do nothing else")
    options.add_argument("--quiet", action="store_true", help="no progress")
    options.add_argument("--debug", action="store_true", help="the stack of every check that fails")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what was asked for; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    try:
        audits = all_audits()
        if options.list:
            print(listing(audits), end="")
            return 0
        report = audit(options, audits, shlex.join(["python", "-m", "spark_jobs.audit", *given]))
    except (PymqError, OSError, *spark_errors()) as error:
        if options.debug:
            traceback.print_exception(error)
        print(f"audit: {one_line(error)}", file=sys.stderr)
        return EXIT_COULD_NOT_RUN
    except KeyboardInterrupt:
        print("audit: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    if options.json:
        print(json.dumps(as_json(report), indent=1))
    else:
        width = None if sys.stdout.isatty() else WIDTH_ELSEWHERE
        print(table(report, colours=has_colours(sys.stdout), width=width), end="")
    return report.exit_code


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises for a master, a path or a setting it cannot use."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ModuleNotFoundError:
        return ()
    return PySparkException, Py4JError


def all_audits() -> tuple[Audit, ...]:
    """Every check there is.

    Raises:
        ConfigError: Spark's Python package is not installed.
    """
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError("pyspark is not installed; try: pip install 'pymq[spark]'") from error
    from spark_jobs.audits import ALL

    return ALL


def listing(audits: Iterable[Audit]) -> str:
    """A line for each check: name, group, what it needs, what it proves."""
    lines = []
    for audit in audits:
        options = " and ".join(NEEDS[need] for need in sorted(audit.needs))
        needs = f"  (needs {options})" if options else ""
        lines.append(f"{audit.name:<4} {audit.group:<8} {audit.title}{needs}\n")
    return "".join(lines)


def audit(options: argparse.Namespace, audits: Sequence[Audit], command: str) -> Report:
    """Check the input, start Spark, run, and write what is to be written.

    Raises:
        PymqError, OSError: the input cannot be used; nothing was run.
    """
    begun = time.monotonic()
    if not options.dumps:
        raise ConfigError("no dump given; --help shows how")
    given = [name for name, value in (("against", options.against), ("ledgers", options.ledger)) if value]
    stores = stores_of(open_stores(options.dumps), "audited") + stores_of(open_stores(options.against), "against")
    pairs = pair_up(options.dumps, options.against, options.relation)
    if any(pair.relation == EARLIER for pair in pairs):
        given.append("earlier")
    selection = select(options.checks, audits, given, doubt(pairs))
    ledger_files(options.ledger)  # what is wrong with them is said now, and not by the third check
    with ExitStack() as stack:
        output = None if options.output is None else stack.enter_context(open_output(options.output))
        spark = stack.enter_context(running_session(options.master, options.memory))
        progress = progress_for(spark, sys.stderr, quiet=options.quiet)
        stack.callback(progress.close)
        tables = tables_of(spark, options)
        report = make_report(tables, selection, stores, progress, output, pairs=pairs, debug=options.debug)
        progress.close()
        forget(tables)
    report = replace(report, seconds=time.monotonic() - begun, command=command)
    if options.output is not None:
        write_page(options.output / "report.html", report)
    return report


def make_report(
    tables: Tables,
    selection: Selection,
    stores: Sequence[Store],
    progress: Progress,
    output: Output | None,
    *,
    pairs: Sequence[Pair] = (),
    debug: bool = False,
) -> Report:
    """Run the selected checks over *tables*; figures of the whole come from the scan, if one was made."""
    from spark_jobs.report.overview import Overview, overview

    runnable = [one for one in selection.chosen if one.name not in selection.missing]
    size = sum(store.size for store in stores)
    progress.start(len(runnable) + any("scan" in one.tables for one in runnable), size)
    outcomes = run_audits(
        tables,
        selection.chosen,
        progress,
        missing=selection.missing,
        output=output,
        on_error=traceback.print_exception if debug else None,
    )
    whole = Overview({}, (), ())
    note = "Not drawn: none of these checks reads the whole log."
    if any("scan" in one.audit.tables and one.error is None and not one.missing for one in outcomes):

        def look() -> None:
            nonlocal whole
            whole = overview(tables)

        note = trouble_of(look, traceback.print_exception if debug else None) or ""
        if note:
            note = f"Not drawn: {note}"
    elif "scan" in vars(tables):
        note = "Not drawn: the log could not be read."
    if output is not None:
        output.metrics.write(whole.traffic)
    return Report(
        stores=tuple(stores),
        outcomes=tuple(noted(outcome, pairs) for outcome in outcomes),
        pairs=tuple(pairs),
        made_ms=time.time_ns() // 1_000_000,
        extents=whole.extents,
        traffic=whole.traffic,
        facts={"records": whole.facts["records"], "bytes": size} | whole.facts if whole.facts else {"bytes": size},
        output=None if output is None else str(output.directory),
        map_note=note,
    )


def noted(outcome: Outcome, pairs: Sequence[Pair]) -> Outcome:
    """*outcome*, with the stores it says less of because nobody knows what they were compared with."""
    unclear = [pair.store for pair in pairs if pair.relation == UNCLEAR]
    if not outcome.audit.earlier or outcome.missing or not unclear:
        return outcome
    return replace(outcome, note=f"{', '.join(unclear)} not compared with an earlier dump: needs --relation earlier")


# ---- what it runs on -----------------------------------------------------------------------------------------


@contextmanager
def running_session(master: str, memory: str) -> Iterator[SparkSession]:
    """The session there is, else spark-submit's, else a local one; stopped in the end if it was started here."""
    from pyspark.sql import SparkSession

    from spark_jobs.rocketmq_store.source import RocketMQStoreDataSource
    from spark_jobs.session import RELIED_ON, session

    active = SparkSession.getActiveSession()
    if active is not None:
        for name, value in RELIED_ON.items():
            active.conf.set(name, value)
        active.dataSource.register(RocketMQStoreDataSource)
        yield active
        return
    spark = session(master=master, memory=memory)
    try:
        yield spark
    finally:
        spark.stop()


def tables_of(spark: SparkSession, options: argparse.Namespace) -> Tables:
    """What the checks get."""
    from spark_jobs.tables import Tables

    ledgers = read_ledgers(spark, options.ledger) if options.ledger else None
    against = Tables(spark, options.against) if options.against else None
    return Tables(spark, options.dumps, against=against, ledgers=ledgers, relation=options.relation)


def forget(tables: Tables | None) -> None:
    """Give back what the scan holds: the session may be somebody else's, and go on."""
    if tables is not None:
        if "scan" in vars(tables):
            tables.scan.unpersist()
        forget(tables.against)


def stores_of(found: Iterable[StoreFiles], role: str) -> list[Store]:
    """Stores as the report names them."""
    return [Store(one.name, str(one.root), role, size_of(one.root), one.log_file_size) for one in found]


def size_of(root: Path) -> int:
    """Bytes the files below *root* occupy: a store's files are made at full size and filled later."""
    return sum(min(status.st_size, status.st_blocks * BLOCK_SIZE) for _, status in regular_files(root))


def progress_for(spark: SparkSession, stream: TextIO, *, quiet: bool) -> Progress:
    """A live line on a terminal, plain lines elsewhere."""
    if quiet:
        return Progress()
    return LiveProgress(stream, tasks_of(spark)) if stream.isatty() else LineProgress(stream)


def tasks_of(spark: SparkSession) -> Tasks:
    """Asks Spark how far its running stages are."""
    tracker = spark.sparkContext.statusTracker()

    def tasks() -> tuple[int, int]:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)

    return tasks


def write_page(path: Path, report: Report) -> None:
    """The page, under its name only when it is whole."""
    unfinished = path.with_name(path.name + ".partial")
    unfinished.write_text(render(report), encoding="utf-8")
    unfinished.replace(path)


if __name__ == "__main__":
    sys.exit(main())
