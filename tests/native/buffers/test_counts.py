from __future__ import annotations

from typing import Any

import pytest

from tests.native.twins import each


@each("counts")
def test_counts_of_64_bits_are_added_by_number(counts: Any) -> None:
    some = counts.Counts(3)
    before = some.values()
    some.add(0)
    for _ in range(2):
        some.add(2, 2**62)
    assert (before, some.values()) == ([0, 0, 0], [1, 0, 2**63])
    assert counts.Counts(0).values() == []


@each("counts")
@pytest.mark.parametrize("number", [-1, 2, 2**40])
def test_a_number_that_there_is_not_is_refused(counts: Any, number: int) -> None:
    some = counts.Counts(2)
    with pytest.raises(IndexError):
        some.add(number)
    assert some.values() == [0, 0]
