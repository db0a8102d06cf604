"""Stalls: how long each was, for how long it is shown, and what is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.stalls import LATE, SHOWN, Stalls

PAUSE = 0.25


def test_a_stall_is_as_long_as_it_was_beyond_the_pause_and_seen_while_it_lasts() -> None:
    stalls = Stalls()
    stalls.come_by(1000.0, PAUSE)
    assert stalls.longest(1000.3) == 0.0
    assert stalls.longest(1002.25) == 2.0
    assert stalls.total == 0.0
    for now in (1003.25, 1003.5, 1004.75):
        stalls.come_by(now, PAUSE)
    assert (stalls.total, stalls.longest(1004.75)) == (4.0, 3.0)


def test_the_longest_is_shown_for_a_minute_at_least_and_two_at_most() -> None:
    stalls = Stalls()
    stalls.come_by(1000.0, PAUSE)
    stalls.come_by(1005.25, PAUSE)
    now = 1005.25
    shown = []
    while now < 1005.25 + 3 * SHOWN:
        now += PAUSE
        stalls.come_by(now, PAUSE)
        shown.append((now - 1005.25, stalls.longest(now)))
    assert {longest for age, longest in shown if age < SHOWN} == {5.0}
    assert {longest for age, longest in shown if age >= 2 * SHOWN} == {0.0}
    assert stalls.total == 5.0


def test_after_a_long_rest_an_old_stall_is_not_shown() -> None:
    for rest in (2.5 * SHOWN, 10 * SHOWN):
        stalls = Stalls()
        stalls.come_by(1000.0, PAUSE)
        stalls.come_by(1002.25, rest)
        assert stalls.longest(1002.25 + 0.9 * rest) == 0.0


@given(st.lists(st.floats(0.0, 20.0), max_size=50))
def test_the_total_is_the_sum_of_what_was_too_late(lates: list[float]) -> None:
    stalls, now, expected = Stalls(), 0.0, 0.0
    stalls.come_by(now, PAUSE)
    for late in lates:
        before, now = now, now + PAUSE + late
        found = now - (before + PAUSE)
        stalls.come_by(now, PAUSE)
        expected += found if found > LATE else 0.0
        assert stalls.longest(now) >= (found if found > LATE else 0.0)
    assert stalls.total == expected
