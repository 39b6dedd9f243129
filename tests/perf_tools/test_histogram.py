"""The histogram against exact percentiles of the same values."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable, Sequence

import pytest

from tests.perf_tools.generator import library

SUB_BITS = 7
BUCKET_COUNT = (64 - SUB_BITS + 1) * (1 << SUB_BITS)
QUANTILES = (1, 1_000, 250_000, 500_000, 900_000, 990_000, 999_000, 999_999, 1_000_000)


class Histogram(ctypes.Structure):
    """`struct histogram`."""

    _fields_ = (
        ("count", ctypes.c_uint64),
        ("sum", ctypes.c_uint64),
        ("smallest", ctypes.c_uint64),
        ("largest", ctypes.c_uint64),
        ("buckets", ctypes.c_uint64 * BUCKET_COUNT),
    )


def histogram_of(values: Sequence[int]) -> Histogram:
    """A histogram with *values* added one by one."""
    histogram = Histogram()
    library().histogram_clear(ctypes.byref(histogram))
    for value in values:
        library().histogram_add(ctypes.byref(histogram), ctypes.c_int64(value))
    return histogram


def quantile(histogram: Histogram, per_million: int) -> int:
    """`histogram_quantile`."""
    function = library().histogram_quantile
    function.restype = ctypes.c_uint64
    return int(function(ctypes.byref(histogram), ctypes.c_uint32(per_million)))


def exact(values: Sequence[int], per_million: int) -> int:
    """The smallest value that at least the given share of *values* does not exceed."""
    rank = max(1, math.ceil(len(values) * per_million / 1_000_000))
    return sorted(values)[rank - 1]


def bounded(draw: Callable[[], float], count: int) -> list[int]:
    """Draws as durations."""
    return [max(0, int(draw())) for _ in range(count)]


SEED = 20261116
RANDOM = random.Random(SEED)
DISTRIBUTIONS = {
    "uniform": bounded(lambda: RANDOM.uniform(0, 5e6), 10_007),
    "log-normal, as latencies are": bounded(lambda: RANDOM.lognormvariate(11, 1.5), 10_007),
    "two peaks far apart": bounded(lambda: RANDOM.choice([50_000, 3e9]) * RANDOM.uniform(0.9, 1.1), 5_003),
    "small": bounded(lambda: RANDOM.uniform(0, 300), 1_009),
    "one value": [123_456_789],
    "powers of two and their neighbours": [max(0, (1 << bit) + step) for bit in range(62) for step in (-1, 0, 1)],
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_are_within_one_bucket_above_the_exact_ones(name: str):
    """Goal: printed percentiles can be believed. Method: sort the same values; at most 1/128 above."""
    values = DISTRIBUTIONS[name]
    histogram = histogram_of(values)
    for per_million in QUANTILES:
        expected, found = exact(values, per_million), quantile(histogram, per_million)
        assert expected <= found <= expected + expected // (1 << SUB_BITS), (per_million, f"seed {SEED}")


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_count_sum_and_extremes_are_exact(name: str):
    """Goal: mean and maximum carry no bucket's error. Method: compare with Python's sum, min and max."""
    values = DISTRIBUTIONS[name]
    histogram = histogram_of(values)
    assert (histogram.count, histogram.sum) == (len(values), sum(values))
    assert (histogram.smallest, histogram.largest) == (min(values), max(values))
    assert quantile(histogram, 1_000_000) == max(values)


def test_merging_equals_adding_everything_to_one():
    """Goal: histograms of several connections can be put together. Method: merge two, compare every bucket with one."""
    values = DISTRIBUTIONS["log-normal, as latencies are"]
    merged, other = histogram_of(values[:4_001]), histogram_of(values[4_001:])
    library().histogram_merge(ctypes.byref(merged), ctypes.byref(other))
    assert bytes(merged) == bytes(histogram_of(values))


def test_empty_and_negative_values_are_harmless():
    """Goal: a run without messages, or a clock that stepped, gives zeros. Method: an empty one, a negative duration."""
    assert quantile(histogram_of([]), 990_000) == 0
    stepped = histogram_of([-5])
    assert (stepped.count, stepped.sum, quantile(stepped, 500_000)) == (1, 0, 0)


def test_every_value_falls_into_exactly_one_bucket():
    """Goal: nothing is written outside the array. Method: the largest duration there is; sum the buckets."""
    values = [0, 127, 128, 255, 256, (1 << 63) - 1]
    assert sum(histogram_of(values).buckets) == len(values)
