"""Spans of datagrams that are judged together, from the times at which they came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.receiving.arrival_times import MAX_WAIT_NS, TOGETHER_NS, arrival, spans

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        ([], []),
        ([7], [(0, 1, 0.0)]),
        ([7, 7, 8], [(0, 3, 0.0)]),
        ([7, 7 + TOGETHER_NS], [(0, 2, 0.0)]),
        ([7, 8 + TOGETHER_NS], [(0, 1, 0.0), (1, 2, (TOGETHER_NS + 1) * 1e-9)]),
        ([SECOND, 2 * SECOND, 2 * SECOND, 4 * SECOND], [(0, 1, 0.0), (1, 3, 1.0), (3, 4, 3.0)]),
        # Without a stamp from the kernel a datagram counts as come with the one before.
        ([SECOND, 0, 3 * SECOND, 0], [(0, 2, 0.0), (2, 4, 2.0)]),
        ([SECOND, 0, 0], [(0, 3, 0.0)]),
    ],
)
def test_the_table(stamps: list[int], expected: list[tuple[int, int, float]]) -> None:
    found = list(spans(stamps))
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in expected])


@pytest.mark.parametrize(
    ("now", "waited", "expected"),
    [
        (100.0, 0, 100.0),
        (100.0, 30 * SECOND, 70.0),
        (100.0, -SECOND, 100.0),  # the clock was set, back or forward
        (100.0, MAX_WAIT_NS, 100.0),
        (20.0, 50 * SECOND, 0.0),  # soon after the boot
    ],
)
def test_arrival_is_a_time_of_the_monotonic_clock(now: float, waited: int, expected: float) -> None:
    assert arrival(now, waited) == expected


@given(st.lists(st.one_of(st.just(0), st.integers(1, 20 * SECOND)), max_size=64).map(sorted))
def test_every_datagram_is_in_one_span(stamps: list[int]) -> None:
    stamps = [one + SECOND if one else 0 for one in stamps]
    if stamps:
        stamps[0] = SECOND
    found = list(spans(stamps))
    assert [number for start, end, _ in found for number in range(start, end)] == list(range(len(stamps)))
    for start, end, after in found:
        known = [one for one in stamps[start:end] if one]
        assert not known or max(known) - min(known) <= TOGETHER_NS
        assert after == pytest.approx(((stamps[start] or SECOND) - SECOND) * 1e-9)
    assert [after for _, _, after in found] == sorted(after for _, _, after in found)
