"""What a query asks of a table, as far as a reader can make use of it: fewer files, fewer ranges, fewer rows.

Spark hands over the conjuncts of a WHERE clause that compare one column with literals. Those that are understood narrow
a `Wanted`; a reader that gets one may give more rows than it lets through, and never fewer. Rows whose column could
not be read (null) may always be left out, because a comparison with null is not true.

Filters are looked at by name and by attribute, so that this module needs no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class Wanted:
    """Rows that are wanted: all conditions together. Spans are half-open, [begin, end); LONG_MAX is no end.

    Attributes:
        stores: None for any.
        topics: None for any.
        queue_ids: None for any.
        begin, end: physical offsets.
        queue_begin, queue_end: queue offsets.
        time_begin, time_end: store timestamps, in ms.
    """

    stores: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    begin: int = LONG_MIN
    end: int = LONG_MAX
    queue_begin: int = LONG_MIN
    queue_end: int = LONG_MAX
    time_begin: int = LONG_MIN
    time_end: int = LONG_MAX

    def wants_topic(self, topic: str) -> bool:
        """Whether rows of *topic* may be wanted."""
        return self.topics is None or topic in self.topics

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Whether rows of this queue may be wanted."""
        return self.wants_topic(topic) and (self.queue_ids is None or queue_id in self.queue_ids)


ALL_ROWS: Final = Wanted()

# Column to the attributes that bound it.
SPANS: Final = {
    "physical_offset": ("begin", "end"),
    "queue_offset": ("queue_begin", "queue_end"),
    "store_timestamp": ("time_begin", "time_end"),
}
SETS: Final = {"store": ("stores", str), "topic": ("topics", str), "queue_id": ("queue_ids", int)}
BOUNDS: Final = {
    "GreaterThan": (1, None),
    "GreaterThanOrEqual": (0, None),
    "LessThan": (None, 0),
    "LessThanOrEqual": (None, 1),
    "EqualTo": (0, 1),
    "EqualNullSafe": (0, 1),
}


def narrow(wanted: Wanted, conjunct: Any, columns: Iterable[str]) -> Wanted:
    """*wanted* and one of Spark's filters; *wanted* as it is where the filter says nothing a reader understands.

    *columns* are those of the table that mean what Wanted says: a decoded table's `topic` may be another one.
    """
    kind = type(conjunct).__name__
    path: tuple[str, ...] = getattr(conjunct, "attribute", ())
    if len(path) != 1 or path[0] not in columns:
        return wanted
    column = path[0]
    value: Any = getattr(conjunct, "value", None)
    if column in SETS and kind in ("EqualTo", "EqualNullSafe", "In"):
        attribute, of = SETS[column]
        chosen: frozenset[Any] = frozenset(value) - {None} if kind == "In" else frozenset([value])
        if not all(isinstance(one, of) and not isinstance(one, bool) for one in chosen):
            return wanted
        before = getattr(wanted, attribute)
        changes: dict[str, Any] = {attribute: chosen if before is None else before & chosen}
        return replace(wanted, **changes)
    if column in SPANS:
        return narrow_span(wanted, kind, SPANS[column], value)
    return wanted


def narrow_span(wanted: Wanted, kind: str, names: tuple[str, str], value: Any) -> Wanted:
    """The span called *names*, made smaller by a comparison."""
    if kind == "In":
        numbers = [one for one in value if one is not None]
        if not numbers or not all(is_whole(one) for one in numbers):
            return wanted
        low, high = min(numbers), max(numbers) + 1
    elif kind in BOUNDS and is_whole(value):
        above, below = BOUNDS[kind]
        low = LONG_MIN if above is None else value + above
        high = LONG_MAX if below is None else value + below
    else:
        return wanted
    begin, end = names
    low = max(low, getattr(wanted, begin))
    high = min(high, getattr(wanted, end))
    return replace(wanted, **{begin: min(low, LONG_MAX), end: max(high, LONG_MIN)})


def is_whole(value: Any) -> bool:
    """Whether *value* is a whole number; True is none."""
    return isinstance(value, int) and not isinstance(value, bool)
