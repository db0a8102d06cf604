"""Deliveries of a batch, in one object that is used again."""

from __future__ import annotations

import sys

import pytest

from bccnd.core.matching.receivers import Receivers
from bccnd.core.receiving.deliveries import Deliveries

MANY = [(Receivers((1,)), b"a"), (Receivers((2, 3)), b"b"), (Receivers((1,)), b"c")]


@pytest.mark.parametrize("counts", [[0, 1], [1, 1], [3, 1, 3], [2, 0, 3]])
def test_deliveries_come_in_order_and_are_gone_once_cleared(counts: list[int]) -> None:
    deliveries = Deliveries()
    for count in counts:
        for receivers, frame in MANY[:count]:
            deliveries.put(receivers, frame)
        assert (len(deliveries), list(deliveries)) == (count, MANY[:count])
        deliveries.clear()
        assert (len(deliveries), list(deliveries)) == (0, [])


def test_nothing_is_kept_after_clearing() -> None:
    receivers, frame = Receivers((1, 2)), b"a message of ours"
    before = sys.getrefcount(receivers), sys.getrefcount(frame)
    deliveries = Deliveries()
    for _ in range(3):
        deliveries.put(receivers, frame)
    assert sys.getrefcount(frame) > before[1]
    deliveries.clear()
    assert (sys.getrefcount(receivers), sys.getrefcount(frame)) == before
