"""The one page: verdict, checks, findings, pictures, in that order, and nothing that has to be fetched from anywhere.

`render` is a pure function from a `Report` to text. Every word that may come from a store goes through `escape`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from spark_jobs.report import plots
from spark_jobs.report.commands import command_for
from spark_jobs.report.file_map import file_map
from spark_jobs.report.model import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    Finding,
    Metric,
    Outcome,
    Report,
    State,
    bytes_text,
    count_of,
    seconds_text,
)
from spark_jobs.report.style import CSS, POLICY, SCRIPT
from spark_jobs.report.svg import escape, time_text

CHIPS = {State.CLEAN: "good", State.FINDINGS: "bad", State.NOT_RUN: "none", State.FAILED: "warn"}
# Metrics with a picture of their own, and the checks that measure them: where none of these ran, nothing is known.
DRAWN = {"lag": ("A9",), "lateness_ms": ("A15", "A16"), "transactions": ("A13",), "duplicates": ("A18",)}
OPEN_MAX = 100  # findings of a check that is not folded at first
METRIC_ROWS_MAX = 500
OTHER_UNITS = {"bytes"}


def render(report: Report) -> str:
    """The page."""
    title = f"Audit: {report.verdict}"
    sections = [
        head(report),
        checks(report),
        findings(report),
        pictures(report),
        other_metrics(report),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + f"\n</main>\n{foot(report)}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def head(report: Report) -> str:
    """The verdict, what it rests on, and the figures."""
    css = {EXIT_CLEAN: "good", EXIT_FINDINGS: "bad"}.get(report.exit_code, "bad" if report.total else "warn")
    facts = {"checks run": f"{len(report.of(State.CLEAN)) + len(report.of(State.FINDINGS)):,}"}
    facts |= {name: bytes_text(value) if name in OTHER_UNITS else f"{value:,}" for name, value in report.facts.items()}
    facts["took"] = seconds_text(report.seconds)
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    stores = "".join(
        f"<li><strong>{escape(store.name)}</strong> <code>{escape(store.path)}</code>"
        f' <span class="soft">{escape(store.role)}{", " + bytes_text(store.size) if store.size else ""}</span></li>'
        for store in report.stores
    )
    stores += "".join(f'<li><span class="soft">{escape(pair.words)}</span></li>' for pair in report.pairs)
    made = f"{time_text(report.made_ms)} UTC" if report.made_ms else ""
    return (
        f'<header class="verdict {css}"><p class="kicker">Store audit{" · " + escape(made) if made else ""}</p>'
        f"<h1>{escape(report.verdict)}</h1><p>{escape(summary(report))}</p></header>"
        f'<dl class="facts">{cells}</dl><ul class="stores">{stores}</ul>'
    )


def summary(report: Report) -> str:
    """Two sentences below the verdict."""
    text = report.sentence + "."
    if report.total:
        severities = Counter(finding.severity for outcome in report.outcomes for finding in outcome.findings)
        stores = {finding.store for outcome in report.outcomes for finding in outcome.findings if finding.store}
        if report.total == sum(severities.values()):
            parts = [count_of(count, name) for name, count in sorted(severities.items())]
            text += f" {' and '.join(parts)}, in {count_of(len(stores), 'store')}."
    elif report.exit_code == EXIT_CLEAN:
        text += " Every check that ran holds."
    return text


def checks(report: Report) -> str:
    """One row a check."""
    rows = "".join(check_row(outcome) for outcome in report.outcomes)
    return (
        "<section><h2>Checks</h2>"
        '<div class="frame"><table class="list cards checks sortable"><thead><tr><th>check</th><th>what it proves</th>'
        '<th>result</th><th class="n">seconds</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def check_row(outcome: Outcome) -> str:
    """A check's row; its result leads to its findings."""
    name, state = outcome.audit.name, outcome.state
    order = [State.FAILED, State.FINDINGS, State.CLEAN, State.NOT_RUN].index(state)
    chip = f'<span class="chip {CHIPS[state]}">{escape(outcome.words)}</span>'
    if outcome.total:
        chip = f'<a href="#{escape(anchor(outcome))}">{chip}</a>'
    seconds = "" if state is State.NOT_RUN else f"{outcome.seconds:.1f}"
    return (
        f'<tr class="{state.replace(" ", "-")}"><td class="name" data-name="check">{escape(name)}</td>'
        f'<td class="text" data-name="proves"><span>{escape(outcome.audit.title)}</span></td>'
        f'<td data-name="result" data-sort="{order * 10**12 - outcome.total}">{chip}</td>'
        f'<td class="n" data-name="seconds">{seconds}</td></tr>'
    )


def anchor(outcome: Outcome) -> str:
    """Where on the page a check's findings are."""
    return f"findings-{outcome.audit.name}"


# ---- findings ------------------------------------------------------------------------------------------------


def findings(report: Report) -> str:
    """A table for each check that found something."""
    if not report.found:
        return ""
    return "<section><h2>Findings</h2>" + "".join(found_by(one, report) for one in report.found) + "</section>"


def found_by(outcome: Outcome, report: Report) -> str:
    """The findings of one check. Columns nobody fills are left out."""
    columns = [name for name in Finding._fields if name not in {"check", "evidence"}]
    columns = [name for name in columns if any(getattr(finding, name) is not None for finding in outcome.findings)]
    if len(report.stores) == 1 and "store" in columns:
        columns.remove("store")
    heads = "".join(f"<th{numeric(name)}>{name}</th>" for name in columns)
    rows = "".join(finding_row(finding, columns, report) for finding in outcome.findings)
    shown = "" if len(outcome.findings) == outcome.total else f", the first {len(outcome.findings):,} of them here"
    where = f" All are in {report.output}/findings.parquet." if shown and report.output else ""
    opened = " open" if len(outcome.findings) <= OPEN_MAX else ""
    return (
        f'<details class="found" id="{escape(anchor(outcome))}"{opened}><summary>'
        f"<h3>{escape(outcome.audit.name)} · {escape(outcome.audit.title)}</h3>"
        f'<span class="chip bad">{count_of(outcome.total, "finding")}</span>'
        f'<span class="soft">{escape((shown + "." + where).removeprefix(", ") if shown else "")}</span></summary>'
        f'<div class="frame"><table class="list cards sortable"><thead><tr>{heads}<th>evidence</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def finding_row(finding: Finding, columns: Sequence[str], report: Report) -> str:
    """A finding, with the command that shows its bytes."""
    cells = []
    for name in columns:
        value = getattr(finding, name)
        if value is None:
            cells.append(f'<td data-name="{name}"></td>')
        elif name == "severity":
            css = "bad" if value == "error" else "warn"
            cells.append(f'<td data-name="{name}"><span class="chip {css}">{escape(value)}</span></td>')
        elif isinstance(value, int):
            cells.append(f'<td class="n" data-name="{name}" data-sort="{value}">{value:,}</td>')
        else:
            css = "word" if name in {"store", "topic"} else "text"
            cells.append(f'<td class="{css}" data-name="{name}"><span>{escape(value)}</span></td>')
    evidence = f"<span>{escape(finding.evidence)}</span>" if finding.evidence else ""
    cells.append(f'<td class="text" data-name="evidence">{evidence}</td>')
    command = command_for(finding, report)
    shown = f'<td colspan="{len(cells)}"><code class="command">{escape(command)}</code></td>'
    return f"<tr>{''.join(cells)}</tr>" + (f'<tr class="more">{shown}</tr>' if command else "")


def numeric(name: str) -> str:
    """The class of a heading over numbers."""
    return ' class="n"' if name in {"queue", "offset", "value"} else ""


# ---- pictures ------------------------------------------------------------------------------------------------


def pictures(report: Report) -> str:
    """The plots and the file map."""
    cards = [
        ("Traffic over time", plots.traffic(report.traffic, report.map_note), True),
        ("The log's files", file_map(report.extents, report.stores, report.map_note), True),
        ("Lag by group", drawn("lag", plots.lag, report), False),
        ("Lateness of delayed messages", drawn("lateness_ms", plots.lateness, report), False),
        ("Outcome of transactions", drawn("transactions", plots.transactions, report), False),
        ("Duplicates by source", drawn("duplicates", plots.duplicates, report), False),
    ]
    figures = "".join(
        f'<div class="card{" wide" if wide else ""}"><h3>{escape(title)}</h3>{body}</div>'
        for title, body, wide in cards
    )
    return f'<section><h2>What is in there</h2><div class="plots">{figures}</div></section>'


def drawn(name: str, plot: Callable[[list[Metric]], str], report: Report) -> str:
    """The picture of one metric; "there is none" is said only by a check that has looked."""
    metrics = report.metrics(name)
    looked = [outcome.audit.name for outcome in report.outcomes if outcome.state in {State.CLEAN, State.FINDINGS}]
    if metrics or set(DRAWN[name]) & set(looked):
        return plot(metrics)
    return plots.nothing(f"Not known: {' and '.join(DRAWN[name])} did not run.")


def other_metrics(report: Report) -> str:
    """What checks measured beside that, as one folded table."""
    rows = [metric for outcome in report.outcomes for metric in outcome.metrics if metric.name not in DRAWN]
    if not rows:
        return ""
    body = "".join(metric_row(metric) for metric in rows[:METRIC_ROWS_MAX])
    more = f", the first {METRIC_ROWS_MAX:,} here" if len(rows) > METRIC_ROWS_MAX else ""
    heads = heading(["check", "store", "name", "label", "at", "value"])
    return (
        '<section><h2>Measured by the checks</h2><details class="found"><summary>'
        f'<h3>{count_of(len(rows), "figure")}</h3><span class="soft">{more.removeprefix(", ")}</span></summary>'
        f'<div class="frame"><table class="list cards sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></details></section>"
    )


def heading(names: Iterable[str]) -> str:
    """The cells of a table's head."""
    return "".join(f"<th{numeric(name)}>{name}</th>" for name in names)


def metric_row(metric: Metric) -> str:
    """One figure."""
    at = "" if metric.at is None else time_text(metric.at)
    value = "" if metric.value is None else f"{metric.value:,}"
    return (
        f'<tr><td class="name" data-name="check">{escape(metric.check)}</td>'
        f'<td data-name="store">{escape(metric.store or "")}</td><td data-name="name">{escape(metric.name)}</td>'
        f'<td class="text" data-name="label">{escape(metric.label or "")}</td>'
        f'<td data-name="at" data-sort="{"" if metric.at is None else metric.at}">{escape(at)}</td>'
        f'<td class="n" data-name="value" data-sort="{"" if metric.value is None else metric.value}">{value}</td></tr>'
    )


def foot(report: Report) -> str:
    """How to do it again, and where the data is."""
    again = f"<p>To do it again: <code>{escape(report.command)}</code></p>" if report.command else ""
    data = (
        f"<p>All findings and metrics: <code>{escape(report.output)}/findings.parquet</code>, "
        f"<code>{escape(report.output)}/metrics.parquet</code></p>"
        if report.output
        else ""
    )
    return (
        "<footer><p>Offsets: a physical offset is a byte of the commit log, a queue offset a message's number in its "
        "queue. Times are UTC. A command below a finding shows its bytes; one click selects it.</p>"
        f"{again}{data}</footer>"
    )
