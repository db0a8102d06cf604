"""Deliveries of a batch, in one object that is used again."""

from __future__ import annotations

import sys

from bccnd.core.matching.receivers import Receivers
from bccnd.core.receiving.deliveries import Deliveries


def test_deliveries_come_in_order_and_are_gone_once_cleared() -> None:
    deliveries = Deliveries()
    put = [(Receivers((1,)), b"a message"), (Receivers((2, 3)), b"another"), (Receivers((1,)), b"a third")]
    before = [sys.getrefcount(one) for both in put for one in both]
    for count in (3, 1, 0, 3):
        for entry in put[:count]:
            deliveries.put(*entry)
        assert (len(deliveries), list(deliveries)) == (count, put[:count])
        deliveries.clear()
        assert (len(deliveries), list(deliveries)) == (0, [])
        assert [sys.getrefcount(one) for both in put for one in both] == before
