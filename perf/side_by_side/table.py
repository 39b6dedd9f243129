"""The table of figures: theirs, ours, the ratio, the mark, and whether it is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from perf.side_by_side import plan as plans
from perf.side_by_side.plan import Shape
from perf.side_by_side.stages import key

Numbers = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Mark:
    """What ours must be, as a multiple of theirs: at least, or at most."""

    at_least: float | None = None
    at_most: float | None = None
    absolute: bool = False  # of ours alone, not of the ratio

    def text(self) -> str:
        """As the issue writes it."""
        if self.at_least is not None:
            return f"≥ {self.at_least:.0%}" if self.absolute else f"≥ {self.at_least:g}×"
        assert self.at_most is not None
        if self.absolute:
            return f"≤ {self.at_most:g}"
        return f"≤ {self.at_most:g}×" if self.at_most >= 1 else f"≤ 1/{1 / self.at_most:g}"

    def is_met(self, theirs: float | None, ours: float) -> bool | None:
        """None when there is nothing to compare with."""
        if not self.absolute and not theirs:
            return None
        value = ours if self.absolute or theirs is None else ours / theirs
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    title: str
    key: str
    mark: Mark | None
    form: str  # of the number
    higher_is_better: bool = False


def rows() -> list[Row]:
    """Every figure in the order of the issue."""
    return [
        *_per_shape(
            "pipelined sends 8 × 64, messages/s", "pipelined.rate", plans.PIPELINED, Mark(at_least=5), "{:,.0f}"
        ),
        *_per_shape("  CPU-s per million", "pipelined.cpu", plans.PIPELINED, Mark(at_most=1 / 8), "{:.2f}"),
        *_per_shape("one at a time, p50 µs", "round_trip.p50_us", plans.ROUND_TRIP, Mark(at_most=1 / 3), "{:.0f}"),
        *_per_shape("  p99 µs", "round_trip.p99_us", plans.ROUND_TRIP, None, "{:.0f}"),
        Row("sync flush, 64 senders, messages/s", "sync.rate", Mark(at_least=1.5), "{:,.0f}", higher_is_better=True),
        Row("  share of 64 ÷ fdatasync", "sync.share", Mark(at_least=0.5, absolute=True), "{:.0%}"),
        Row("  fdatasync of the same bytes, µs", "sync.fdatasync_us", None, "{:.0f}"),
        Row("sends' p99 with ÷ without a cold reader", "cold.growth", Mark(at_most=2, absolute=True), "{:.2f}"),
        Row("  p99 alone, µs", "cold.alone_p99_us", None, "{:.0f}"),
        Row("  p99 beside it, µs", "cold.beside_p99_us", None, "{:.0f}"),
        Row("  the cold reader's messages/s", "cold.reader_rate", None, "{:,.0f}", higher_is_better=True),
        Row("  read from disk meanwhile, MiB", "cold.read_mib", None, "{:,.0f}"),
        *_per_shape("catch-up pull, 32 a batch, messages/s", "pull.rate", plans.PULL, Mark(at_least=1.7), "{:,.0f}"),
        *_per_shape("  CPU-s per million", "pull.cpu", plans.PULL, Mark(at_most=1 / 3), "{:.2f}"),
        *_per_shape("batch of 32, 8 × 8, messages/s", "batch.rate", plans.BATCH, Mark(at_least=1.7), "{:,.0f}"),
        *_per_shape("  CPU-s per million", "batch.cpu", plans.BATCH, None, "{:.2f}"),
        *_per_shape("long-poll delivery, p99 µs", "deliver.p99_us", (plans.DELIVER,), Mark(at_most=1 / 4), "{:.0f}"),
        *_per_shape("  p50 µs", "deliver.p50_us", (plans.DELIVER,), None, "{:.0f}"),
        *_feature("delayed messages delivered/s", "delay"),
        *_feature("transactions (half and commit)/s", "transaction"),
        Row("  commits alone/s", "transaction.commit_rate", None, "{:,.0f}", higher_is_better=True),
        *_feature("messages sent back/s", "retry"),
        *_feature("SQL-filtered pull, messages looked at/s", "filter"),
        Row("start to first acknowledged message, s", "start_s", Mark(at_most=1 / 8), "{:.2f}"),
        Row("idle anonymous memory, MiB", "idle_mib", Mark(at_most=1 / 5), "{:.0f}"),
        Row("anonymous memory after the load, MiB", "loaded_mib", Mark(at_most=1 / 10), "{:.0f}"),
        Row("  messages by then", "loaded_count", None, "{:,.0f}"),
    ]


def _feature(title: str, figure: str) -> list[Row]:
    """What a consumer group relies on: no slower than theirs, at half of their CPU."""
    return [
        Row(title, f"{figure}.rate", Mark(at_least=1), "{:,.0f}", higher_is_better=True),
        Row("  CPU-s per million", f"{figure}.cpu", Mark(at_most=1 / 2), "{:.2f}"),
    ]


def _per_shape(title: str, figure: str, shapes: Sequence[Shape], mark: Mark | None, form: str) -> list[Row]:
    higher = figure.endswith("rate")
    return [Row(f"{title} ({shape.label})", key(figure, shape), mark, form, higher) for shape in shapes]


def ratio_text(theirs: float, ours: float, *, higher_is_better: bool) -> str:
    """`6.1×` where more is better, `1/9.0` where less is."""
    if not theirs or not ours:
        return "-"
    return f"{ours / theirs:.2f}×" if higher_is_better or ours >= theirs else f"1/{theirs / ours:.1f}"


def _cell(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    text = form.format(median(values))
    return text if len(values) == 1 else f"{text} ({form.format(min(values))}–{form.format(max(values))})"


def table(theirs: Numbers, ours: Numbers) -> list[dict[str, Any]]:
    """The rows with their numbers; what neither side measured is left out."""
    lines = []
    for row in rows():
        left, right = theirs.get(row.key, ()), ours.get(row.key, ())
        if not left and not right:
            continue
        both = bool(left) and bool(right)
        met = row.mark.is_met(median(left) if left else None, median(right)) if row.mark and right else None
        lines.append(
            {
                "figure": row.title,
                "key": row.key,
                "theirs": list(left),
                "ours": list(right),
                "theirs_text": _cell(left, row.form),
                "ours_text": _cell(right, row.form),
                "ratio": median(right) / median(left) if both and median(left) else None,
                "ratio_text": ratio_text(median(left), median(right), higher_is_better=row.higher_is_better)
                if both
                else "-",
                "mark": row.mark.text() if row.mark else "",
                "met": met,
            }
        )
    return lines


def render(lines: Sequence[Mapping[str, Any]]) -> str:
    """The table for people."""
    head = ("figure", "Apache 5.5.0", "pymq", "ratio", "mark", "")
    verdicts = {True: "met", False: "MISSED", None: ""}
    cells = [
        (
            line["figure"],
            line["theirs_text"],
            line["ours_text"],
            line["ratio_text"],
            line["mark"],
            verdicts[line["met"]],
        )
        for line in lines
    ]
    widths = [max(len(str(row[column])) for row in [head, *cells]) for column in range(len(head))]
    printed = []
    for row in [head, tuple("-" * width for width in widths), *cells]:
        left = f"{row[0]:<{widths[0]}}"
        printed.append("  ".join([left, *(f"{row[i]:>{widths[i]}}" for i in range(1, len(head)))]).rstrip())
    return "\n".join(printed)
