"""Histograms count each duration in its bucket, and numbers that others tell are read within bounds."""

from __future__ import annotations

import pytest

from bccnd.core.counters import LATENCY_BOUNDS, MAX_COUNT, Histogram, SegmentCounters, read_count


def test_a_duration_is_counted_in_the_first_bucket_that_holds_it() -> None:
    for number, bound in enumerate(LATENCY_BOUNDS):
        histogram = Histogram()
        histogram.add(bound)
        histogram.add(bound * 1.01)
        assert [histogram.buckets[number], histogram.buckets[number + 1], sum(histogram.buckets)] == [1, 1, 2]
        assert histogram.sum == pytest.approx(bound * 2.01)


def test_a_clock_that_was_set_back_takes_no_time_away() -> None:
    histogram = Histogram()
    histogram.add(-5.0)
    assert (histogram.buckets[0], histogram.sum) == (1, 0.0)


@pytest.mark.parametrize("value", [1.5, float("inf"), "7", None, MAX_COUNT + 1, -MAX_COUNT - 1])
def test_a_count_is_an_integer_of_64_bits(value: object) -> None:
    assert [read_count(one) for one in (0, 7, MAX_COUNT, -3)] == [0, 7, MAX_COUNT, 0]
    with pytest.raises(ValueError, match="64 bits"):
        read_count(value)


def test_failures_of_sending_are_counted_by_error() -> None:
    counters = SegmentCounters("a")
    for error in ("ENETDOWN", "EPERM", "ENETDOWN"):
        counters.send_failed(error)
    assert counters.send_errors == {"ENETDOWN": 2, "EPERM": 1}
