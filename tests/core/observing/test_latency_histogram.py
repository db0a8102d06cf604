"""Histogram of latencies: buckets, sum, bounds."""

from __future__ import annotations

from math import fsum, inf, isclose, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.observing.latency_histogram import LATENCY_BOUNDS, LatencyHistogram
from tests.core.material import examples


def bucket_of(seconds: float) -> int:
    histogram = LatencyHistogram()
    histogram.add(seconds)
    assert sum(histogram.buckets) == 1
    return histogram.buckets.index(1)


@pytest.mark.parametrize("number", range(len(LATENCY_BOUNDS)))
def test_a_bound_belongs_to_the_bucket_below_it(number: int) -> None:
    bound = LATENCY_BOUNDS[number]
    assert bucket_of(nextafter(bound, 0.0)) == number
    assert bucket_of(bound) == number
    assert bucket_of(nextafter(bound, inf)) == number + 1


def test_values_outside_all_bounds_have_a_bucket() -> None:
    assert LatencyHistogram().buckets == [0] * (len(LATENCY_BOUNDS) + 1)
    assert bucket_of(1e9) == len(LATENCY_BOUNDS)
    assert bucket_of(0.0) == bucket_of(-1.0) == 0


def test_a_clock_that_went_back_takes_no_time_away() -> None:
    histogram = LatencyHistogram()
    histogram.add(-1.0)
    assert histogram.sum == 0.0


@given(st.lists(st.one_of(st.floats(0, 4), st.sampled_from(LATENCY_BOUNDS)), max_size=50))
@examples(200)
def test_a_histogram_counts_every_value_once_and_sums_them(values: list[float]) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.add(value)
    for number, bound in enumerate(LATENCY_BOUNDS):
        # As Prometheus shows it: how many were at most the bound.
        assert sum(histogram.buckets[: number + 1]) == sum(1 for value in values if value <= bound)
    assert sum(histogram.buckets) == len(values)
    assert isclose(histogram.sum, fsum(values), abs_tol=1e-9)
