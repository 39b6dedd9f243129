"""The page's pictures: pure functions from values to HTML with inline SVG, a sentence where there is nothing to draw.

Only traffic and lateness are drawings with axes. The others are rows of text with a strip beside them, because text in
an SVG shrinks with it and a phone could not show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from spark_jobs.report.model import Metric, bytes_text, count_of
from spark_jobs.report.svg import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Canvas,
    escape,
    legend,
    short,
    span_text,
    ticks,
    time_step,
    time_text,
)

TIME_BUCKETS_MAX = 120
TIME_BUCKETS_MIN = 12  # a run of one minute is one bar of twelve, not a wall
TOPICS_MAX = 6  # colours; the rest is one more
BARS_MAX = 20
STRIP = 1000  # width of a strip's viewBox

WIDE, NARROW, PLOT_HEIGHT = 1040, 560, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 10, 26
TIME_LABELS_MAX = 9
COLUMN_WIDTH_MAX = 72

OTHERS = "\0others"  # no topic is called so


def nothing(sentence: str) -> str:
    """What stands where a picture would be."""
    return f'<p class="nothing">{escape(sentence)}</p>'


# ---- traffic -------------------------------------------------------------------------------------------------


def traffic(metrics: Iterable[Metric], note: str = "") -> str:
    """Messages over time by topic: metrics `records` (label: the topic) with `at`; `bytes` beside them is summed up."""
    rows = [metric for metric in metrics if metric.at is not None and metric.value]
    counts = [metric for metric in rows if metric.name == "records"]
    if not counts:
        return nothing(note or "No message with a store time: nothing to draw over time.")
    first, last = time_window(counts)
    whole, counts = len(counts), [metric for metric in counts if first <= metric.at <= last]
    step = time_step(last - first, TIME_BUCKETS_MAX)
    bucket_first = first // step
    bucket_count = max(last // step - bucket_first + 1, TIME_BUCKETS_MIN)
    totals = Counter[str]()
    for metric in counts:
        totals[metric.label or ""] += metric.value
    named = [topic for topic, _ in totals.most_common(TOPICS_MAX)]
    classes = {topic: f"c{index}" for index, topic in enumerate(named, 1)}
    stacks: list[Counter[str]] = [Counter() for _ in range(bucket_count)]
    for metric in counts:
        topic = metric.label or ""
        stacks[metric.at // step - bucket_first][topic if topic in classes else OTHERS] += metric.value
    labels = time_labels(bucket_first * step, step, bucket_count)
    columns = [
        Column(
            time_text((bucket_first + index) * step, step),
            [(classes.get(topic, "c0"), topic, stack[topic]) for topic in [*named, OTHERS] if stack[topic]],
            labels.get(index, ""),
        )
        for index, stack in enumerate(stacks)
    ]
    keys = [(classes[topic], topic or "(no topic)") for topic in named]
    if len(totals) > len(named):
        keys.append(("c0", f"{count_of(len(totals) - len(named), 'other topic')}"))
    size = sum(metric.value for metric in rows if metric.name == "bytes")
    text = f"{sum(totals.values()):,} messages" + (f", {bytes_text(size)}" if size else "")
    caption = f"{text}; one column is one {span_text(step)} of store time, UTC."
    if whole > len(counts):
        caption += " Store times far outside of this are not drawn."
    return (
        chart(columns, f"Messages over time: {text}", WIDE) + legend(keys) + f'<p class="caption">{escape(caption)}</p>'
    )


def time_window(counts: Sequence[Metric]) -> tuple[int, int]:
    """First and last time worth drawing.

    One flipped bit may put a record into the year 9000, and then all others would share one column: what lies further
    from the middle 99% than these are wide is left out.
    """
    times = sorted((metric.at, metric.value) for metric in counts)
    tail = sum(value for _, value in times) / 200
    low, high = times[0][0], times[-1][0]
    passed = 0
    for at, value in times:
        passed += value
        if passed > tail:
            low = at
            break
    passed = 0
    for at, value in reversed(times):
        passed += value
        if passed > tail:
            high = at
            break
    margin = max(high - low, HOUR_MS)
    inside = [at for at, _ in times if low - margin <= at <= high + margin]
    return inside[0], inside[-1]


def time_labels(first_ms: int, step_ms: int, count: int) -> dict[int, str]:
    """What stands below which column: round times, the day with the first of them and wherever it changes."""
    every = time_step(step_ms * count, TIME_LABELS_MAX)
    columns = [index for index in range(count) if (first_ms + index * step_ms) % every == 0]
    labels, day = {}, ""
    for index in columns or [0]:
        text = time_text(first_ms + index * step_ms, step_ms)
        date, _, clock = text.partition(" ")
        labels[index] = clock if clock and date == day else text if clock != "00:00" else date
        day = date
    return labels


class Column:
    """One column of a chart: its name, its parts from the bottom up (CSS class, name, value), what stands below it."""

    def __init__(self, label: str, parts: Sequence[tuple[str, str, int]], below: str) -> None:
        self.label, self.below = label, below
        self.parts = parts
        self.total = sum(value for _, _, value in parts)


def chart(columns: Sequence[Column], label: str, width: int) -> str:
    """Stacked columns over an axis."""
    canvas = Canvas(width, PLOT_HEIGHT, label=label, css="plot wide" if width == WIDE else "plot")
    steps = ticks(max((column.total for column in columns), default=0))
    floor, room = PLOT_HEIGHT - BOTTOM, PLOT_HEIGHT - BOTTOM - TOP

    def height(value: float) -> float:
        return value / steps[-1] * room

    for value in steps:
        y = floor - height(value)
        canvas.line(LEFT, y, width - RIGHT, y, "axis" if value == 0 else "grid")
        canvas.text(LEFT - 7, y + 4, short(value), anchor="end")
    pitch = (width - LEFT - RIGHT) / max(len(columns), 1)
    wide = min(pitch - min(pitch * 0.18, 6), COLUMN_WIDTH_MAX)
    for index, column in enumerate(columns):
        x, y = LEFT + (index + 0.5) * pitch - wide / 2, float(floor)
        for css, name, value in column.parts:
            tall = max(height(value), 0.75)  # one message among a million is still seen
            y -= tall
            shown = "other topics" if name == OTHERS else name
            canvas.rect(x, y, wide, tall, css, f"{column.label}\n{shown}: {value:,}".strip())
        if column.below:
            # What would run over an edge is moved inside.
            half = len(column.below) * 3.3
            middle = min(max(LEFT + (index + 0.5) * pitch, half), width - half)
            canvas.text(middle, floor + 18, column.below, anchor="middle")
    return f'<div class="scroll">{canvas.render()}</div>'


# ---- bars ----------------------------------------------------------------------------------------------------


def bars(pairs: Iterable[tuple[str, int]], *, noun: str, empty: str, css: str = "c1") -> str:
    """Horizontal bars, the longest first, at most BARS_MAX; equal names are added up."""
    totals = Counter[str]()
    for name, value in pairs:
        totals[name] += value
    shown = [(name, value) for name, value in sorted(totals.items(), key=lambda pair: (-pair[1], pair[0])) if value > 0]
    if not shown:
        return nothing(empty)
    longest = shown[0][1]
    rows = "".join(
        f'<tr><th scope="row" title="{escape(name)}">{escape(name or "(none)")}</th>'
        f"<td>{strip([(0, value / longest, css, '')], f'{value:,} {noun}')}</td>"
        f'<td class="n">{value:,}</td></tr>'
        for name, value in shown[:BARS_MAX]
    )
    more = len(shown) - BARS_MAX
    rest = f'<p class="caption">and {more:,} more, with fewer</p>' if more > 0 else ""
    return f'<table class="bars"><tbody>{rows}</tbody></table>{rest}'


def lag(metrics: Iterable[Metric]) -> str:
    """Messages a group has still to consume."""
    pairs = [(metric.label or "", metric.value or 0) for metric in metrics]
    if pairs and not any(value for _, value in pairs):
        groups = len({name for name, _ in pairs})
        return nothing(f"No lag: {count_of(groups, 'group')}, and everything consumed.")
    return bars(pairs, noun="messages behind", empty="No consumer group has an offset here.")


def duplicates(metrics: Iterable[Metric]) -> str:
    """Second copies, by where they come from."""
    return bars(
        [(metric.label or "", metric.value or 0) for metric in metrics],
        noun="copies",
        empty="No message has a second copy.",
        css="c3",
    )


def lateness(metrics: Iterable[Metric]) -> str:
    """Deliveries by how late they were: labels are upper bounds of buckets in ms, `inf` for the last."""
    totals = Counter[str]()
    for metric in metrics:
        totals[metric.label or "?"] += metric.value or 0
    if not sum(totals.values()):
        return nothing("No delayed message was delivered.")
    columns = [
        Column(bound_text(label), [("c2", "deliveries", totals[label])], bound_text(label))
        for label in sorted(totals, key=bound_order)
    ]
    count = sum(totals.values())
    return (
        chart(columns, f"Lateness of {count:,} delayed messages", NARROW)
        + f'<p class="caption">{count:,} delayed messages, by delivery time less due time.</p>'
    )


def bound_order(label: str) -> tuple[int, float, str]:
    """Words (as "early") first, then bounds by size, then infinity."""
    try:
        return (1, float(label), "")
    except ValueError:
        return (0, 0, label)


def bound_text(label: str) -> str:
    """`≤ 100 ms`, `≤ 2 s`, `more`."""
    kind, bound, word = bound_order(label)
    if kind == 0:
        return word
    if bound == float("inf"):
        return "more"
    for unit_ms, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (1_000, "s")):
        if abs(bound) >= unit_ms and bound % unit_ms == 0:
            return f"≤ {bound / unit_ms:g} {unit}"
    return f"≤ {bound:g} ms"


def transactions(metrics: Iterable[Metric]) -> str:
    """What became of half messages: one bar in parts, and the counts below it."""
    totals = Counter[str]()
    for metric in metrics:
        totals[metric.label or "?"] += metric.value or 0
    parts = [(name, value) for name, value in totals.most_common() if value > 0]
    whole = sum(value for _, value in parts)
    if not whole:
        return nothing("No transaction was begun.")
    pieces, begin = [], 0.0
    for index, (name, value) in enumerate(parts):
        css = f"c{index + 1}" if index < TOPICS_MAX else "c0"
        pieces.append((begin, begin + value / whole, css, f"{name}: {value:,}"))
        begin += value / whole
    rows = "".join(
        f'<tr><th scope="row"><svg class="key" viewBox="0 0 1 1" aria-hidden="true">'
        f'<rect class="{piece[2]}" width="1" height="1"/></svg>{escape(name)}</th>'
        f'<td class="n">{value:,}</td><td class="n">{value / whole:.1%}</td></tr>'
        for piece, (name, value) in zip(pieces, parts, strict=True)
    )
    return (
        strip(pieces, f"{whole:,} half messages", css="strip tall")
        + f'<table class="bars shares"><tbody>{rows}</tbody></table>'
    )


def strip(pieces: Iterable[tuple[float, float, str, str]], label: str, *, css: str = "strip") -> str:
    """A bar as wide as its place: pieces (from, to, CSS class, title) as shares of one."""
    canvas = Canvas(STRIP, 10, label=label, stretch=True, css=css)
    for begin, end, name, title in pieces:
        canvas.rect(begin * STRIP, 0, max((end - begin) * STRIP, 1.0), 10, name, title)
    return canvas.render()
