"""Spans of datagrams that are judged together, from the times at which they came."""

from __future__ import annotations

import pytest

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
