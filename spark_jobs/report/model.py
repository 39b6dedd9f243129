"""What an audit found, as plain values: everything the report shows is made of these.

No Spark in here: an `Outcome` is made by `spark_jobs.audit` from data frames, or by a test by hand.

    Report
      stores      what was looked at
      outcomes    one for each check: its findings, at most FINDINGS_SHOWN_MAX of `total`, or why there are none
      extents     the log's files with what is damaged in them, for the map
      traffic     messages over time
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from spark_jobs.audits.base import Audit
    from spark_jobs.relations import Pair

FINDINGS_SHOWN_MAX = 1_000  # of one check, on the page and in JSON; the Parquet file has them all

EXIT_CLEAN, EXIT_FINDINGS, EXIT_COULD_NOT_RUN = 0, 1, 2

# What a check may need, and the option that gives it.
NEEDS = {"against": "--against", "ledgers": "--ledger", "earlier": "--relation earlier"}


class Finding(NamedTuple):
    """One row of the findings schema (`audits.base.FINDINGS`)."""

    check: str
    severity: str
    store: str | None = None
    topic: str | None = None
    queue: int | None = None
    offset: int | None = None
    expected: str | None = None
    actual: str | None = None
    evidence: str | None = None


class Metric(NamedTuple):
    """One row of the metrics schema (`audits.base.METRICS`)."""

    check: str
    store: str | None
    name: str
    label: str | None = None
    at: int | None = None
    value: int | None = None


class Extent(NamedTuple):
    """Bytes [begin, end) of a store's log: a file as far as it is written, or damage when *status* is no good one."""

    store: str
    file: str
    begin: int
    end: int
    status: str = "ok"
    detail: str | None = None


@dataclass(frozen=True)
class Store:
    """One store or dump that was looked at.

    Attributes:
        name: its value of the `store` column.
        path: where it is; what `spark_jobs.show` is given.
        role: "audited", or "against" for what it was compared with.
        size: bytes its files occupy.
        file_size: of one log file; 0 when not known.
    """

    name: str
    path: str
    role: str = "audited"
    size: int = 0
    file_size: int = 0


class State(StrEnum):
    """How a check ended."""

    CLEAN = "clean"
    FINDINGS = "findings"
    NOT_RUN = "not run"
    FAILED = "could not run"


@dataclass(frozen=True)
class Outcome:
    """One check and how it ended.

    Attributes:
        findings: the first FINDINGS_SHOWN_MAX of *total*, in order of place.
        error: one line saying why it could not run.
        missing: what it needed and was not given (keys of NEEDS); it was not run then.
        note: what of it was not looked at, although it ran.
    """

    audit: Audit
    findings: tuple[Finding, ...] = ()
    metrics: tuple[Metric, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    total: int = -1
    missing: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        """All findings are shown unless somebody says there are more."""
        if self.total < 0:
            object.__setattr__(self, "total", len(self.findings))

    @property
    def state(self) -> State:
        """How it ended; a check that failed half way is a failure, whatever it found before."""
        if self.error is not None:
            return State.FAILED
        if self.missing:
            return State.NOT_RUN
        return State.FINDINGS if self.total else State.CLEAN

    @property
    def words(self) -> str:
        """The state in a cell of a table."""
        match self.state:
            case State.FINDINGS:
                return count_of(self.total, "finding") + self.remark
            case State.NOT_RUN:
                return "not run: needs " + " and ".join(NEEDS.get(need, need) for need in self.missing)
            case State.FAILED:
                return f"could not run: {self.error}"
            case _:
                return "clean" + self.remark

    @property
    def remark(self) -> str:
        """The note, behind the state."""
        return f" ({self.note})" if self.note else ""


@dataclass(frozen=True)
class Report:
    """A whole run.

    Attributes:
        pairs: which of the stores was compared with which, and as what.
        made_ms: when the audit ended, ms since the epoch.
        facts: figures for the head of the page, in order: {"records": 20_000_000, …}.
        command: what was typed, to do it again.
        output: the directory with the Parquet files; None without one.
        map_note: why there is no file map, if there is none.
    """

    stores: tuple[Store, ...]
    outcomes: tuple[Outcome, ...]
    pairs: tuple[Pair, ...] = ()
    seconds: float = 0.0
    made_ms: int = 0
    extents: tuple[Extent, ...] = ()
    traffic: tuple[Metric, ...] = ()
    facts: dict[str, int] = field(default_factory=dict)
    command: str = ""
    output: str | None = None
    map_note: str = ""

    def of(self, state: State) -> list[Outcome]:
        """The outcomes that ended so."""
        return [outcome for outcome in self.outcomes if outcome.state is state]

    @property
    def found(self) -> list[Outcome]:
        """Those that found something, whether or not they came to their end."""
        return [outcome for outcome in self.outcomes if outcome.total]

    @cached_property
    def total(self) -> int:
        """Findings of all checks."""
        return sum(outcome.total for outcome in self.outcomes)

    @cached_property
    def exit_code(self) -> int:
        """0 clean, 1 findings, 2 could not run: nobody knows what a check that failed would have found."""
        if self.of(State.FAILED) or not (self.of(State.CLEAN) or self.of(State.FINDINGS)):
            return EXIT_COULD_NOT_RUN
        return EXIT_FINDINGS if self.total else EXIT_CLEAN

    @property
    def verdict(self) -> str:
        """The first thing to read: one line."""
        found, failed = self.of(State.FINDINGS), self.of(State.FAILED)
        parts = []
        if found:
            parts.append(f"{count_of(self.total, 'finding')} in {count_of(len(found), 'check')}")
        if failed:
            parts.append(f"{count_of(len(failed), 'check')} could not run")
        if parts:
            return ", ".join(parts)
        return "Clean" if self.exit_code == EXIT_CLEAN else "No check ran"

    @property
    def sentence(self) -> str:
        """What the verdict rests on."""
        clean = len(self.of(State.CLEAN))
        text = f"{clean} of {count_of(len(self.outcomes), 'check')} clean"
        if skipped := self.of(State.NOT_RUN):
            text += f", {len(skipped)} not run"
        return text

    def metrics(self, name: str) -> list[Metric]:
        """Every check's metrics of one name."""
        return [metric for outcome in self.outcomes for metric in outcome.metrics if metric.name == name]

    def path_of(self, store: str | None) -> str | None:
        """Where the store of that name is; the only one when a finding names none."""
        for one in self.stores:
            if one.name == store:
                return one.path
        return self.stores[0].path if store is None and len(self.stores) == 1 else None


def count_of(number: int, noun: str) -> str:
    """`1 finding`, `1,200 findings`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bytes_text(size: float) -> str:
    """`917 B`, `1.5 MiB`, `10.0 GiB`."""
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size >= 1024**power:
            return f"{size / 1024**power:.1f} {unit}"
    return f"{size:.0f} B"


def seconds_text(seconds: float) -> str:
    """`0.4 s`, `42 s`, `3 min 12 s`, `1 h 4 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def by_store(extents: Iterable[Extent]) -> dict[str, list[Extent]]:
    """Extents of each store, in order of place."""
    stores: dict[str, list[Extent]] = {}
    for extent in sorted(extents, key=lambda one: (one.store, one.begin, one.end)):
        stores.setdefault(extent.store, []).append(extent)
    return stores
