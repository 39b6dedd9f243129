"""A very small drawing kit: enough SVG for bars, stacks and axes, and round numbers for their ticks.

Everything that comes from a store passes `escape` here; colours are CSS classes, so that the page's light, dark and
print styles apply to the drawings too.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from datetime import UTC, datetime

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# Widths of a time bucket that people can read off an axis.
TIME_STEPS_MS = (
    *(count * MINUTE_MS for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR_MS for count in (1, 2, 3, 6, 12)),
    *(count * DAY_MS for count in (1, 2, 7, 14, 28, 91, 182, 364)),
)

# Not legal in XML 1.0 and shown by no browser; what a store holds may contain them. Made visible as control pictures.
CONTROLS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡"}
CONTROLS |= dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "�")
# Characters that reorder or hide what stands around them: a topic's name must not be able to.
CONTROLS |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C], "�")


def escape(text: object) -> str:
    """*text* as it may stand in HTML, in an element or in a quoted attribute, controls made visible."""
    return html.escape(str(text).translate(CONTROLS), quote=True)


class Canvas:
    """An SVG drawing in the making; coordinates are those of its viewBox."""

    def __init__(self, width: float, height: float, *, label: str, stretch: bool = False, css: str = "plot") -> None:
        """*label* is what a screen reader says; *stretch* lets the drawing fill whatever box it is given."""
        self.width, self.height = width, height
        aspect = ' preserveAspectRatio="none"' if stretch else ""
        self._parts = [
            f'<svg class="{css}" viewBox="0 0 {number(width)} {number(height)}"{aspect} '
            f'role="img" aria-label="{escape(label)}">'
        ]

    def rect(self, x: float, y: float, width: float, height: float, css: str, title: str = "") -> None:
        """A filled rectangle, with what is said when a pointer rests on it."""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self._parts.append(
            f'<rect class="{css}" {place}><title>{escape(title)}</title></rect>'
            if title
            else f'<rect class="{css}" {place}/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """A line."""
        self._parts.append(
            f'<line class="{css}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"/>'
        )

    def text(self, x: float, y: float, text: object, *, anchor: str = "start", css: str = "") -> None:
        """Text; *anchor* says which end of it stands at *x*."""
        name = f' class="{css}"' if css else ""
        self._parts.append(f'<text{name} x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escape(text)}</text>')

    def render(self) -> str:
        """The drawing."""
        return "".join([*self._parts, "</svg>"])


def number(value: float) -> str:
    """A coordinate: two decimals at most, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def ticks(value_max: float, count: int = 4) -> list[int]:
    """Round whole numbers from 0 to at least *value_max*, about *count* steps of 1, 2, 2.5 or 5 tens."""
    if value_max <= 0:
        return [0, 1]
    rough = max(value_max / count, 1)
    power = 10 ** math.floor(math.log10(rough))
    factors = (1, 2, 2.5, 5, 10) if power >= 10 else (1, 2, 5, 10)
    step = next(int(factor * power) for factor in factors if factor * power >= rough)
    return list(range(0, math.ceil(value_max / step) * step + 1, step))


def short(value: float) -> str:
    """`950`, `12k`, `3.4M`: a number on an axis."""
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.1f}".removesuffix(".0") + unit
    return f"{value:g}"


def time_step(span_ms: int, count_max: int) -> int:
    """The narrowest readable bucket that divides *span_ms* into at most *count_max* of them."""
    for step in TIME_STEPS_MS:
        if span_ms < step * count_max:
            return step
    return math.ceil(span_ms / count_max / DAY_MS) * DAY_MS


def time_text(at_ms: int, step_ms: int = MINUTE_MS) -> str:
    """A time in UTC, as finely as buckets of *step_ms* need; the number itself where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return moment.strftime("%Y-%m-%d" if step_ms >= DAY_MS else "%Y-%m-%d %H:%M")


def span_text(step_ms: int) -> str:
    """`minute`, `15 minutes`, `2 days`: the width of a bucket."""
    for unit_ms, unit in ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute")):
        if step_ms >= unit_ms:
            count = step_ms // unit_ms
            return unit if count == 1 else f"{count} {unit}s"
    return f"{step_ms} ms"


def legend(names: Iterable[tuple[str, str]]) -> str:
    """Coloured squares with names: pairs of CSS class and text."""
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 1 1" aria-hidden="true"><rect class="{css}" width="1" height="1"/></svg>'
        f"{escape(name)}</li>"
        for css, name in names
    )
    return f'<ul class="legend">{items}</ul>'
