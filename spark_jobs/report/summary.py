"""The result on a terminal, and as JSON for programs: verdict first in both."""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import Any, TextIO

from spark_jobs.report.commands import command_for
from spark_jobs.report.model import (
    EXIT_CLEAN,
    Finding,
    Outcome,
    Report,
    State,
    bytes_text,
    count_of,
    seconds_text,
)
from spark_jobs.report.svg import CONTROLS

FINDINGS_PRINTED_MAX = 5  # of one check; the others are in the files
WIDTH_MIN, WIDTH_MAX = 60, 160

BOLD, RED, GREEN, YELLOW, DIM, PLAIN = "\033[1m", "\033[31m", "\033[32m", "\033[33m", "\033[2m", "\033[0m"
COLOURS = {State.CLEAN: GREEN, State.FINDINGS: RED, State.NOT_RUN: DIM, State.FAILED: YELLOW}


def has_colours(stream: TextIO) -> bool:
    """Whether *stream* is a terminal whose owner did not ask for none (NO_COLOR)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: object) -> str:
    """*text* without what a terminal would act upon: it may come from a store."""
    return str(text).translate(CONTROLS)


def table(report: Report, *, colours: bool = False, width: int | None = None) -> str:
    """The verdict, a line for each check, and the first findings of each with the command that shows their bytes."""
    width = min(max(width or shutil.get_terminal_size().columns, WIDTH_MIN), WIDTH_MAX)

    def paint(text: str, *codes: str) -> str:
        return "".join(codes) + text + PLAIN if colours else text

    tone = GREEN if report.exit_code == EXIT_CLEAN else RED if report.total else YELLOW
    lines = [paint(report.verdict.upper(), BOLD, tone), foundation(report)]
    for pair in report.pairs:
        lines += textwrap.wrap(printable(pair.words), width, subsequent_indent="    ", break_on_hyphens=False)
    lines.append("")
    title_width = min(max((len(outcome.audit.title) for outcome in report.outcomes), default=0), width - 38)
    for outcome in report.outcomes:
        title = textwrap.shorten(printable(outcome.audit.title), title_width, placeholder="…")
        seconds = "" if outcome.state is State.NOT_RUN else f"{outcome.seconds:7.1f} s"
        words = paint(printable(outcome.words), COLOURS[outcome.state])
        lines.append(f"{outcome.audit.name:<4} {title:<{title_width}} {seconds:>9}  {words}")
    for outcome in report.found:
        lines += ["", paint(f"{outcome.audit.name}: {count_of(outcome.total, 'finding')}", BOLD)]
        for finding in outcome.findings[:FINDINGS_PRINTED_MAX]:
            lines += finding_lines(finding, report, width)
        if (more := outcome.total - FINDINGS_PRINTED_MAX) > 0:
            place = (
                f" in {printable(report.output)}/findings.parquet" if report.output else "; --output DIR keeps them all"
            )
            lines.append(f"  and {more:,} more{place}")
    if report.output:
        lines += ["", f"report: {printable(report.output)}/report.html"]
    return "\n".join(lines) + "\n"


def foundation(report: Report) -> str:
    """What the verdict rests on, in one line."""
    parts = [report.sentence, count_of(len(report.stores), "store")]
    if "records" in report.facts:
        parts.append(count_of(report.facts["records"], "record"))
    if "bytes" in report.facts:
        parts.append(bytes_text(report.facts["bytes"]))
    parts.append(seconds_text(report.seconds))
    return " · ".join(parts)


def finding_lines(finding: Finding, report: Report, width: int) -> list[str]:
    """A finding: where, what, and how to see it."""
    place = [
        f"{name} {value}"
        for name, value in (("store", finding.store), ("topic", finding.topic), ("queue", finding.queue))
        if value is not None
    ]
    if finding.offset is not None:
        place.append(f"offset {finding.offset}")
    text = f"{finding.severity}: {', '.join(place) or 'the whole store'}"
    if finding.expected is not None or finding.actual is not None:
        text += f": expected {finding.expected or 'nothing'}, found {finding.actual or 'nothing'}"
    if finding.evidence:
        text += f" ({finding.evidence})"
    lines = textwrap.wrap(printable(text), width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    command = command_for(finding, report)
    return [*lines, f"    {printable(command)}"] if command else lines


def as_json(report: Report) -> dict[str, Any]:
    """The same for a program; `findings` holds what was collected, `total` says how many there are."""
    return {
        "verdict": report.verdict,
        "exitCode": report.exit_code,
        "total": report.total,
        "seconds": round(report.seconds, 3),
        "facts": report.facts,
        "stores": [
            {"name": store.name, "path": store.path, "role": store.role, "size": store.size} for store in report.stores
        ],
        "pairs": [
            {"store": pair.store, "against": pair.other, "relation": pair.relation, "why": pair.why}
            for pair in report.pairs
        ],
        "checks": [check_json(outcome) for outcome in report.outcomes],
        "findings": [
            finding._asdict() | {"command": command_for(finding, report)}
            for outcome in report.outcomes
            for finding in outcome.findings
        ],
        "output": report.output,
    }


def check_json(outcome: Outcome) -> dict[str, Any]:
    """One check for a program."""
    return {
        "check": outcome.audit.name,
        "title": outcome.audit.title,
        "state": outcome.state.value,
        "total": outcome.total,
        "seconds": round(outcome.seconds, 3),
        "error": outcome.error,
        "needs": list(outcome.missing),
        "note": outcome.note,
    }
