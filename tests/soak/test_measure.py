"""What a soak would notice: growth, and only that; messages that came twice, out of order, or not at all."""

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


def series(values: list[float], unit: str = "MB", bound: float = 4.0) -> Series:
    found = Series("it", unit, bound)
    for number, value in enumerate(values, 1):
        found.add(number, value)
    return found


def test_what_grows_is_found_and_what_is_only_filled_is_not() -> None:
    chance = random.Random(1)
    noise = [chance.uniform(-1, 1) for _ in range(100)]
    assert series([40 + 0.2 * n + noise[n] for n in range(100)]).grows()
    assert not series([40 + min(n, 45) * 0.5 + noise[n] for n in range(100)]).grows()
    assert not series([40 + noise[n] for n in range(100)]).grows()
    assert not series([40.0] * 99 + [90.0]).grows(), "one odd round is no growth"


def test_one_descriptor_in_ten_rounds_is_too_many() -> None:
    assert series([20 + n // 10 for n in range(100)], "", 1.0).grows()
    assert not series([20 + n % 2 for n in range(100)], "", 1.0).grows()


def test_of_a_few_rounds_nothing_is_said() -> None:
    assert not series([float(n) for n in range(ENOUGH - 1)]).grows()
    assert series([float(n) for n in range(ENOUGH)]).grows()


def test_the_book_says_what_grows() -> None:
    book = Book()
    for number in range(60):
        book.add("a", "MB", 4.0, number, 10.0)
        book.add("b", "MB", 4.0, number, 10.0 + number)
        book.add("c", "", None, number, 10.0 + number)
    (found,) = book.growing()
    assert found.startswith("b grows: by ")


class Fed(Witness):
    """A witness that is given frames by hand."""

    def __init__(self) -> None:
        self.last, self.got, self.due, self.told = Counter(), Counter(), "rl", 0
        self.faults: list[str] = []

    def feed(self, *frames: bytes) -> Fed:
        for frame in frames:
            self._count(frame)
        return self


def soaked(kind: bytes, number: int) -> bytes:
    return b"MSG soak/a/1\0" + MARK + b"%b %d " % (kind, number) + bytes(20)


def test_a_witness_counts_what_came_what_is_missing_and_what_it_was_told() -> None:
    sent = Counter(r=5, l=2)
    one = Fed().feed(soaked(b"r", 1), soaked(b"l", 1), soaked(b"r", 2), b"CMSG !/bccn/gap\0" + b"2", soaked(b"r", 5))
    assert (one.faults, one.told, one.missing(sent)) == ([], 2, 3)
    assert one.feed(soaked(b"l", 2), b"MSG other\0x").missing(sent) == 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_witness_notices_what_comes_twice_or_late(number: int) -> None:
    one = Fed().feed(soaked(b"r", 1), soaked(b"r", 2), soaked(b"r", number))
    assert one.faults == [f"r{number} came after r2"]
