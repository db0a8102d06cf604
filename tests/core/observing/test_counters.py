"""Counters: which numbers they hold."""

from __future__ import annotations

from math import inf

import pytest

from bccnd.core.observing.counters import MAX_COUNT, read_count


@pytest.mark.parametrize("value", [1.5, inf, "7", None, MAX_COUNT + 1, -MAX_COUNT - 1])
def test_read_count_accepts_64_bit_integers_only(value: object) -> None:
    assert [read_count(one) for one in (0, 7, MAX_COUNT, -3)] == [0, 7, MAX_COUNT, 0]
    with pytest.raises(ValueError, match="64 bits"):
        read_count(value)
