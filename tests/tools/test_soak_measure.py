"""The soak notices growth and nothing else, and messages that came twice, out of order, or not at all."""

from __future__ import annotations

import random
from collections import Counter

from tools.soak.measure import ENOUGH, Book
from tools.soak.streams import MARK, Witness


def grows(values: list[float], unit: str = "MB", bound: float = 4.0) -> bool:
    book = Book()
    for number, value in enumerate(values):
        book.add("it", unit, bound, number, value)
    return bool(book.growing())


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


def test_a_witness_counts_what_came_and_crashes_and_notices_what_comes_twice_or_late() -> None:
    one = Witness.__new__(Witness)
    one.last, one.got, one.due = Counter(), Counter(), "rl"
    one.reported, one.crashes, one.again = 0, 0, []

    def feed(*messages: bytes) -> None:
        for message in messages:
            one.count(b"MSG soak/a/1\0" + MARK + message + b" ")

    feed(b"r 1", b"l 1", b"r 2", b"r 5")
    one.count(b"CMSG !/bccn/gap\0" + b"2")
    assert (one.again, one.reported, one.crashes, one.missing(Counter(r=5, l=2))) == ([], 2, 0, 3)
    feed(b"r 5")
    assert len(one.again) == 1
    feed(b"r 2")
    assert len(one.again) == 2
    one.count(b"CMSG !/bccn/gap\0" + b"0")
    assert (one.reported, one.crashes) == (2, 1)
