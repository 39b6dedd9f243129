"""A WHERE clause narrows what is read, and never below what it asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from spark_jobs.rocketmq_store.pushdown import ALL_ROWS, LONG_MAX, LONG_MIN, Wanted, narrow

COLUMNS = ("store", "topic", "queue_id", "physical_offset", "queue_offset", "store_timestamp")
HOLDS = {
    "EqualTo": lambda value, bound: value == bound,
    "EqualNullSafe": lambda value, bound: value == bound,
    "GreaterThan": lambda value, bound: value > bound,
    "GreaterThanOrEqual": lambda value, bound: value >= bound,
    "LessThan": lambda value, bound: value < bound,
    "LessThanOrEqual": lambda value, bound: value <= bound,
    "In": lambda value, bound: value in bound,
}
COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
LONGS = st.integers(-20, 20) | st.sampled_from([LONG_MIN, LONG_MAX - 1, LONG_MAX])


@given(
    st.lists(
        st.builds(lambda kind, bound: kind(("physical_offset",), bound), st.sampled_from(COMPARISONS), LONGS)
        | st.builds(lambda bounds: In(("physical_offset",), tuple(bounds)), st.lists(LONGS, min_size=1)),
        max_size=4,
    ),
    LONGS,
)
def test_span_keeps_every_offset_the_filters_let_through(filters: list, value: int):
    """Goal: never fewer. Method: random comparisons, the edges of a long among them, held against their meaning."""
    wanted = ALL_ROWS
    for one in filters:
        wanted = narrow(wanted, one, COLUMNS)
    if all(HOLDS[type(one).__name__](value, one.value) for one in filters):
        assert wanted.begin <= value
        assert value < wanted.end or wanted.end == LONG_MAX


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (EqualTo(("physical_offset",), 5), Wanted(begin=5, end=6)),
        (GreaterThan(("queue_offset",), 5), Wanted(queue_begin=6)),
        (LessThanOrEqual(("store_timestamp",), 5), Wanted(time_end=6)),
        (In(("physical_offset",), (9, 3, None)), Wanted(begin=3, end=10)),
        (EqualTo(("topic",), "orders"), Wanted(topics=frozenset({"orders"}))),
        (In(("topic",), ("a", None, "b")), Wanted(topics=frozenset({"a", "b"}))),
        (EqualTo(("queue_id",), 3), Wanted(queue_ids=frozenset({3}))),
        (EqualTo(("store",), "dump"), Wanted(stores=frozenset({"dump"}))),
    ],
)
def test_comparison_narrows_what_it_is_about(one: object, expected: Wanted):
    """Goal: less is read. Method: one filter of each kind."""
    assert narrow(ALL_ROWS, one, COLUMNS) == expected


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("topic",), "orders")),
        StringStartsWith(("topic",), "ord"),
        IsNotNull(("topic",)),
        EqualTo(("tags",), "a"),
        EqualTo(("topic", "inner"), "a"),
        EqualNullSafe(("topic",), None),
        EqualNullSafe(("physical_offset",), None),
        EqualTo(("queue_id",), "3"),
        EqualTo(("physical_offset",), 3.5),
        EqualTo(("queue_id",), True),
        In(("physical_offset",), (None,)),
    ],
    ids=str,
)
def test_what_is_not_understood_narrows_nothing(one: object):
    """Goal: correct where there is nothing to gain. Method: filters of other kinds, columns and types."""
    assert narrow(ALL_ROWS, one, COLUMNS) == ALL_ROWS


def test_column_of_another_meaning_narrows_nothing():
    """Goal: a decoded table's `topic` is not the record's. Method: the same filter with and without the column."""
    one = EqualTo(("topic",), "orders")
    assert narrow(ALL_ROWS, one, ("physical_offset",)) == ALL_ROWS
    assert narrow(ALL_ROWS, one, ("topic",)) != ALL_ROWS


def test_two_sets_meet():
    """Goal: conjuncts are all true. Method: two of topics, with one in common and with none."""
    first = narrow(ALL_ROWS, In(("topic",), ("a", "b")), COLUMNS)
    assert narrow(first, EqualTo(("topic",), "b"), COLUMNS).topics == frozenset({"b"})
    assert narrow(first, EqualTo(("topic",), "c"), COLUMNS).topics == frozenset()
    assert not narrow(first, EqualTo(("topic",), "c"), COLUMNS).wants_topic("a")
