from __future__ import annotations

import pytest

from bccnd.native.buffers.counts import Counts


def test_counts_of_64_bits_are_added_by_number() -> None:
    counts = Counts(3)
    before = counts.values()
    counts.add(0)
    for _ in range(2):
        counts.add(2, 2**62)
    for number in (-1, 3, 2**40):
        with pytest.raises(IndexError):
            counts.add(number)
    assert (before, counts.values(), Counts(0).values()) == ([0, 0, 0], [1, 0, 2**63], [])
