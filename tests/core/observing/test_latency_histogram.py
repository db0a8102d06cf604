"""Histogram of latencies: buckets, sum, bounds."""

from __future__ import annotations

from math import fsum, inf, isclose, nextafter

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.observing.latency_histogram import LATENCY_BOUNDS, LatencyHistogram
from tests.core.material import examples

EDGES = [*LATENCY_BOUNDS, *(nextafter(bound, inf) for bound in LATENCY_BOUNDS), 0.0, 1e6]


@given(st.lists(st.one_of(st.floats(-1, 4), st.sampled_from(EDGES)), max_size=50))
@examples(200)
def test_a_histogram_counts_every_value_once_and_sums_them(values: list[float]) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.add(value)
    assert len(histogram.buckets) == len(LATENCY_BOUNDS) + 1
    for number, bound in enumerate(LATENCY_BOUNDS):
        # As Prometheus shows it: how many were at most the bound.
        assert sum(histogram.buckets[: number + 1]) == sum(1 for value in values if value <= bound)
    assert sum(histogram.buckets) == len(values)
    # A clock that went back takes no time away.
    assert isclose(histogram.sum, fsum(max(0.0, value) for value in values), abs_tol=1e-9)
