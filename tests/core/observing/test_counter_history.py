"""The history of counters: rates, when they began and ceased to rise, and an hour in slots."""

from __future__ import annotations

import tracemalloc

import pytest

from bccnd.core.observing.counter_history import MEMORY, QUIET, SLOT, SLOTS, STEP, History, Rise

T0 = 3_000.0


def history(*counts: int, step: float = STEP, charted: bool = True) -> History:
    """One counter, sampled every few seconds."""
    made = History(["x"] if charted else [])
    for number, count in enumerate(counts):
        made.sample(T0 + number * step, {"x": count})
    return made


@pytest.mark.parametrize(
    ("counts", "now", "count", "seconds", "rate"),
    [
        ((), 0.0, 7, 10.0, 0.0),  # nothing is known
        ((7,), 0.0, 7, 10.0, 0.0),  # no time has passed
        ((0,), 2.0, 10, 10.0, 5.0),  # less is known than is asked for
        ((0, 50, 100), 10.0, 100, 10.0, 10.0),
        ((0, 50, 100), 12.0, 112, 10.0, 112 / 12),  # at least what is asked for
        ((0, 0, 0, 0, 100), 20.0, 100, 10.0, 10.0),
        ((0, 0, 0, 0, 100), 20.0, 100, 60.0, 5.0),
        ((900, 900), 5.0, 10, 5.0, 2.0),  # it has begun anew
    ],
)
def test_a_rate(counts: tuple[int, ...], now: float, count: int, seconds: float, rate: float) -> None:
    assert history(*counts).rate("x", T0 + now, count, seconds) == pytest.approx(rate)


def test_new_counters_rise_from_zero_and_removed_ones_go() -> None:
    made = history(5, 5)
    made.sample(T0 + 10, {"new": 3})
    assert made.rise("new") == Rise(T0 + 10, T0 + 10, T0 + 10)
    assert made.rate("new", T0 + 10, 3, 10.0) == pytest.approx(0.3)
    assert made.rise("x") is None
    made.sample(T0 + 15, {"x": 2})
    assert made.chart("x", T0 + 15)[-1] == 2
    assert made.rise("x") == Rise(T0 + 15, T0 + 15, T0 + 15)


@pytest.mark.parametrize(
    ("samples", "rise"),
    [
        ([(0, 0)], None),
        ([(0, 0), (5, 0)], None),
        ([(0, 0), (5, 1)], Rise(5, 5, 5)),
        ([(0, 0), (5, 1), (10, 1)], Rise(5, 5, 5)),
        ([(0, 0), (5, 1), (10, 2)], Rise(5, 5, 10)),
        ([(0, 0), (5, 1), (5 + QUIET, 2)], Rise(5, 5, 5 + QUIET)),
        ([(0, 0), (5, 1), (6 + QUIET, 2)], Rise(5, 6 + QUIET, 6 + QUIET)),
        ([(0, 7)], Rise(None, None, None)),  # from before the first sample
        ([(0, 7), (5, 7)], Rise(None, None, None)),
        ([(0, 7), (5, 8)], Rise(None, 5, 5)),
        ([(0, 7), (5, 3)], Rise(None, 5, 5)),
        ([(0, 7), (5, 0)], Rise(None, None, None)),
    ],
)
def test_a_rise_has_a_beginning_and_an_end(samples: list[tuple[float, int]], rise: Rise) -> None:
    made = History()
    for now, count in samples:
        made.sample(now, {"x": count})
    assert made.rise("x") == rise


def test_chart_is_an_hour_in_slots() -> None:
    assert History(["x"]).chart("x", T0) == [None] * SLOTS
    made = history(0, 3, step=SLOT)
    made.sample(T0 + SLOT + 5, {"x": 4})
    chart = made.chart("x", T0 + 2 * SLOT)
    assert len(chart) == SLOTS
    assert chart[-3:] == [0, 4, 0]
    assert set(chart[:-3]) == {None}
    assert made.chart("x", T0 + SLOTS * SLOT)[0] == 4
    assert made.chart("x", T0 + (SLOTS + 1) * SLOT) == [0] * SLOTS


def test_no_more_is_kept_than_the_longest_rate_needs() -> None:
    made = History()
    tracemalloc.start()
    try:
        for number in range(20_000):
            made.sample(T0 + number, {"x": number})
        assert tracemalloc.get_traced_memory()[0] < 60_000
    finally:
        tracemalloc.stop()
    assert made.rate("x", T0 + 20_000, 20_000, MEMORY) == pytest.approx(1.0)
