"""The soak notices growth and nothing else, and messages that came twice, out of order, or not at all."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.soak.measure import ENOUGH, Book, Series, slope
from tests.soak.streams import MARK, Witness


def test_the_slope_is_that_of_most_pairs() -> None:
    xs = list(range(20))
    ys = [3.0 * x + 7 for x in xs]
    ys[4], ys[9] = 1e9, -1e9
    assert slope(xs, ys) == pytest.approx(3.0)
    assert slope([1], [1]) == slope([], []) == 0.0


def grows(values: list[float], unit: str = "MB", bound: float = 4.0) -> bool:
    found = Series("it", unit, bound)
    for number, value in enumerate(values, 1):
        found.add(number, value)
    return found.grows()


def test_growth_is_found_and_neither_noise_nor_a_table_that_fills() -> None:
    chance = random.Random(1)
    noise = [chance.uniform(-1, 1) for _ in range(100)]
    assert grows([40 + 0.2 * n + noise[n] for n in range(100)])
    assert not grows([40 + min(n, 45) * 0.5 + noise[n] for n in range(100)])
    assert not grows([40.0] * 99 + [90.0])
    # One descriptor in ten rounds is too many.
    assert grows([20 + n // 10 for n in range(100)], "", 1.0)
    assert not grows([20 + n % 2 for n in range(100)], "", 1.0)
    # A few rounds say nothing.
    assert not grows([float(n) for n in range(ENOUGH - 1)])
    assert grows([float(n) for n in range(ENOUGH)])


def test_the_book_says_what_grows() -> None:
    book = Book()
    for number in range(60):
        book.add("a", "MB", 4.0, number, 10.0)
        book.add("b", "MB", 4.0, number, 10.0 + number)
        book.add("c", "", None, number, 10.0 + number)
    (found,) = book.growing()
    assert found.startswith("b ")


class Fed(Witness):
    """A witness that is given frames by hand."""

    def __init__(self) -> None:
        self.last, self.got, self.due, self.told = Counter(), Counter(), "rl", 0
        self.faults: list[str] = []

    def feed(self, *messages: str | bytes) -> Fed:
        """Messages by kind and number, or frames."""
        for one in messages:
            kind = f"{one[0]} {one[1:]} " if isinstance(one, str) else ""
            self._count(b"MSG soak/a/1\0" + MARK + kind.encode() if isinstance(one, str) else one)
        return self


def test_a_witness_counts_what_came_and_notices_what_comes_twice_or_late() -> None:
    sent = Counter(r=5, l=2)
    one = Fed().feed("r1", "l1", "r2", b"CMSG !/bccn/gap\0" + b"2", "r5")
    assert (one.faults, one.told, one.missing(sent)) == ([], 2, 3)
    assert one.feed("l2", b"MSG other\0x").missing(sent) == 2
    assert len(one.feed("r5").faults) == 1
    assert len(one.feed("r2").faults) == 2
