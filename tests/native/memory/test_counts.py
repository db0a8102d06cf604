from __future__ import annotations

from typing import Any

import pytest

from tests.native.twins import each


@each("counts")
def test_counts_are_added_by_number(counts: Any) -> None:
    some = counts.Counts(3)
    some.add(0)
    some.add(2, 5)
    some.add(2)
    assert some.values() == [1, 0, 6]


@each("counts")
def test_values_are_a_copy(counts: Any) -> None:
    some = counts.Counts(1)
    before = some.values()
    some.add(0)
    assert (before, some.values()) == ([0], [1])


@each("counts")
def test_counts_hold_more_than_32_bits(counts: Any) -> None:
    some = counts.Counts(1)
    some.add(0, 2**62)
    some.add(0, 2**62)
    assert some.values() == [2**63]


@each("counts")
@pytest.mark.parametrize("number", [-1, 2, 2**40])
def test_a_number_that_there_is_not_is_refused(counts: Any, number: int) -> None:
    some = counts.Counts(2)
    with pytest.raises(IndexError):
        some.add(number)
    assert some.values() == [0, 0]


@each("counts")
def test_there_may_be_none(counts: Any) -> None:
    assert counts.Counts(0).values() == []
