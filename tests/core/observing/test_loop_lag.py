"""Stalls: how long each was, for how long it is shown, and what is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.observing.loop_lag import LATE, SHOWN, LoopLag

PAUSE = 0.25


def test_a_stall_is_seen_while_it_lasts() -> None:
    loop_lag = LoopLag()
    assert loop_lag.longest(1000.0) == 0.0
    loop_lag.observe(1000.0, PAUSE)
    assert loop_lag.longest(1000.3) == 0.0
    assert loop_lag.longest(1002.25) == 2.0
    assert loop_lag.total == 0.0
    for now in (1003.25, 1003.5, 1004.75):
        loop_lag.observe(now, PAUSE)
    assert (loop_lag.total, loop_lag.longest(1004.75)) == (4.0, 3.0)


def test_the_longest_stall_is_shown_for_one_to_two_minutes() -> None:
    loop_lag = LoopLag()
    loop_lag.observe(1000.0, PAUSE)
    loop_lag.observe(1005.25, PAUSE)
    now = 1005.25
    shown = []
    while now < 1005.25 + 3 * SHOWN:
        now += PAUSE
        loop_lag.observe(now, PAUSE)
        shown.append((now - 1005.25, loop_lag.longest(now)))
    assert {longest for age, longest in shown if age < SHOWN} == {5.0}
    assert {longest for age, longest in shown if age >= 2 * SHOWN} == {0.0}
    assert loop_lag.total == 5.0


def test_after_a_long_rest_an_old_stall_is_not_shown() -> None:
    for rest in (2.5 * SHOWN, 10 * SHOWN):
        loop_lag = LoopLag()
        loop_lag.observe(1000.0, PAUSE)
        loop_lag.observe(1002.25, rest)
        assert loop_lag.longest(1002.25 + 0.9 * rest) == 0.0


@given(st.lists(st.floats(0.0, 20.0), max_size=50))
def test_the_total_is_the_sum_of_what_was_too_late(lates: list[float]) -> None:
    loop_lag, now, expected = LoopLag(), 0.0, 0.0
    loop_lag.observe(now, PAUSE)
    for late in lates:
        before, now = now, now + PAUSE + late
        found = now - (before + PAUSE)
        loop_lag.observe(now, PAUSE)
        expected += found if found > LATE else 0.0
        assert loop_lag.longest(now) >= (found if found > LATE else 0.0)
    assert loop_lag.total == expected
