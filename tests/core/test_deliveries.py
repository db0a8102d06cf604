from __future__ import annotations

import pytest

from bccnd.core.deliveries import Deliveries

MANY = [((1,), b"a"), ((2, 3), b"b"), ((1,), b"c")]


@pytest.mark.parametrize("count", range(len(MANY) + 1))
def test_deliveries_are_taken_in_order_and_once(count: int) -> None:
    deliveries = Deliveries()
    for _ in range(2):
        for receivers, frame in MANY[:count]:
            deliveries.put(receivers, frame)
        assert deliveries.count == count
        assert deliveries.take() == MANY[:count]
        assert (deliveries.count, deliveries.take()) == (0, [])


def test_first_delivery_is_read_without_a_list() -> None:
    deliveries = Deliveries()
    for receivers, frame in MANY:
        deliveries.put(receivers, frame)
    assert (deliveries.receivers, deliveries.frame) == MANY[0]


def test_nothing_is_kept_after_clearing() -> None:
    deliveries = Deliveries()
    for receivers, frame in MANY:
        deliveries.put(receivers, frame)
    deliveries.clear()
    assert (deliveries.count, deliveries.receivers, deliveries.frame) == (0, (), b"")
    assert deliveries.take() == []
