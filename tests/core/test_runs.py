"""Messages that go out together: whoever shares a run with whom, each receiver gets exactly its own, in order."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import frames, runs
from bccnd.core.frames import MAX_BATCH
from bccnd.core.runs import CACHE, LENGTH, MAX_PORTION, TOGETHER, Runs, portions
from tests.core.material import examples

Receivers = tuple[int, ...]
Taken = list[tuple[Receivers, list[bytes]]]

#: the tuples that come again and again, as those of routes do
POOL: list[Receivers] = [(), (1,), (2,), (1, 2), (2, 1), (3, 4), (1, 2, 3), (1, 2, 3, 4, 5), (5, 3, 1), (9,)]


@contextmanager
def limits(together: int, cache: int) -> Iterator[None]:
    """With so little, what is forgotten now and then is forgotten often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "TOGETHER", together)
        patch.setattr(runs, "CACHE", cache)
        yield


class Naive:
    """Each receiver has a list of its own."""

    def __init__(self) -> None:
        self.due: dict[int, list[bytes]] = {}

    def put(self, receivers: Receivers, message: bytes) -> None:
        for one in receivers:
            self.due.setdefault(one, []).append(message)

    def check(self, taken: Taken) -> None:
        """What was taken is what was due, and everybody is named once."""
        named = [one for receivers, _ in taken for one in receivers]
        assert len(named) == len(set(named))
        assert {one: messages for receivers, messages in taken for one in receivers} == self.due
        assert all(receivers and messages for receivers, messages in taken)
        self.due = {}


class Deed(NamedTuple):
    """A message for receivers of the pool (the very ones, or others that equal them) or for some that are new; or all
    is taken."""

    name: str
    which: int = 0
    receivers: Receivers = ()


SAME = st.builds(Deed, st.just("same"), st.integers(0, len(POOL) - 1))
EQUAL = st.builds(Deed, st.just("equal"), st.integers(0, len(POOL) - 1))
NEW = st.builds(lambda found: Deed("new", receivers=tuple(found)), st.lists(st.integers(1, 9), unique=True, max_size=6))
TAKE = st.just(Deed("take"))


def play(history: list[Deed]) -> None:
    """Do it all to the runs and to the lists."""
    both, naive = Runs(), Naive()
    for number, deed in enumerate([*history, Deed("take")]):
        message = b"%d" % number
        if deed.name == "take":
            assert bool(both) is bool(naive.due)
            naive.check(both.take())
            assert not both
            continue
        receivers = deed.receivers if deed.name == "new" else POOL[deed.which]
        if deed.name == "equal":
            receivers = (*receivers,)
        both.put(receivers, message)
        naive.put(receivers, message)
    assert both.take() == []


@given(st.lists(st.one_of(SAME, SAME, EQUAL, NEW, TAKE), max_size=60))
@examples(400)
def test_every_receiver_gets_its_messages_in_order_and_is_named_once(history: list[Deed]) -> None:
    play(history)


@given(
    st.lists(st.one_of(SAME, SAME, EQUAL, NEW, TAKE, TAKE), max_size=80), st.integers(1, 4), st.sampled_from([0, 5, 20])
)
@examples(400)
def test_what_is_forgotten_in_between_changes_nothing(history: list[Deed], together: int, cache: int) -> None:
    with limits(together, cache):
        play(history)


def shared(taken: Taken) -> set[frozenset[int]]:
    """Who was together with whom."""
    return {frozenset(receivers) for receivers, _ in taken}


def groups(*found: Receivers) -> set[frozenset[int]]:
    return set(map(frozenset, found))


# -- who shares


def test_those_that_always_get_the_same_share_one_run() -> None:
    both = Runs()
    everybody = tuple(range(100))
    for number in range(50):
        both.put(everybody, b"%d" % number)
    assert both.take() == [(everybody, [b"%d" % number for number in range(50)])]
    for _ in range(3):
        both.put(everybody, b"x")
        both.put(tuple(reversed(everybody)), b"y")
        (((receivers, messages)),) = both.take()
        assert (set(receivers), messages) == (set(everybody), [b"x", b"y"])


def test_they_part_as_soon_as_one_gets_what_another_does_not_and_not_before() -> None:
    both = Runs()
    both.put((1, 2, 3), b"a")
    both.put((4, 5), b"b")
    assert shared(both.take()) == groups((1, 2, 3), (4, 5))
    both.put((1, 2, 3), b"c")
    both.put((2,), b"d")
    both.put((1, 2, 3), b"e")
    taken = both.take()
    assert shared(taken) == groups((2,), (1, 3))
    assert sorted(messages for _, messages in taken) == [[b"c", b"d", b"e"], [b"c", b"e"]]
    # Two runs that get the same are still two, and others are not torn apart by a message for both.
    both.put((1, 2, 3, 4, 5), b"f")
    assert shared(both.take()) == groups((2,), (1, 3), (4, 5))


def test_who_gets_nothing_is_not_named() -> None:
    both = Runs()
    both.put((1, 2), b"a")
    both.take()
    both.put((2,), b"b")
    assert both.take() == [((2,), [b"b"])]
    both.put((), b"c")
    assert not both
    assert both.take() == []


def test_after_a_while_those_that_were_parted_are_together_again() -> None:
    both = Runs()
    pair = (1, 2)
    both.put(pair, b"a")
    both.put((1,), b"b")
    assert len(both.take()) == 2
    together = 0
    for number in range(TOGETHER + 1):
        both.put(pair, b"%d" % number)
        taken = both.take()
        together += len(taken) == 1
        assert {one: messages for receivers, messages in taken for one in receivers} == {
            1: [b"%d" % number],
            2: [b"%d" % number],
        }
    assert 1 <= together <= 10


def test_to_take_where_nothing_is_brings_them_together_too() -> None:
    both = Runs()
    both.put((1, 2), b"a")
    both.put((1,), b"b")
    for _ in range(TOGETHER):
        both.take()
    both.put((1, 2), b"c")
    assert both.take() == [((1, 2), [b"c"])]


def test_what_was_taken_is_nobody_elses_any_more() -> None:
    both = Runs()
    receivers = (1, 2)
    both.put(receivers, b"a")
    ((_, first),) = both.take()
    both.put(receivers, b"b")
    both.put((1,), b"c")
    assert first == [b"a"]
    taken = both.take()
    assert first == [b"a"]
    lists = [messages for _, messages in taken]
    assert len({id(one) for one in lists}) == len(lists)
    for one in lists:
        one.clear()
    both.put(receivers, b"d")
    assert [messages for _, messages in both.take()] == [[b"d"], [b"d"]]


def test_receivers_that_vanish_and_come_again_as_somebody_else_get_only_their_own() -> None:
    both, naive = Runs(), Naive()
    for number in range(300):
        # One after the other vanishes, and its number is somebody else's a while later.
        everybody = tuple(one for one in range(20) if (one + number) % 7)
        newcomers = tuple(one for one in range(20) if (one + number) % 7 == 1)
        for message, receivers in ((b"all", everybody), (b"new", newcomers), (b"all again", everybody)):
            both.put(receivers, message)
            naive.put(receivers, message)
        naive.check(both.take())


def test_each_has_its_own() -> None:
    pair = Runs(), Runs()
    receivers = (1, 2)
    pair[0].put(receivers, b"a")
    pair[1].put(receivers, b"b")
    assert [one.take() for one in pair] == [[(receivers, [b"a"])], [(receivers, [b"b"])]]


# -- what is remembered


def is_held(made: list[Receivers]) -> list[bool]:
    """Whether somebody has them beside this list, and this line for a moment."""
    return [sys.getrefcount(one) > 3 for one in made]


def test_what_is_remembered_is_bounded_where_nobody_comes_twice() -> None:
    both = Runs()
    width = 255
    most = CACHE // (width + 1)
    made = [tuple(range(number, number + width)) for number in range(most + most // 2)]
    places = []
    for number, receivers in enumerate(made):
        both.put(receivers, b"x")
        if number % 64 == 0:
            both.take()
        if number % 128 == 127:
            places.append(sum(is_held(made)))
    # One more than that is in use just now.
    assert max(places) <= most + 1
    # All of it goes at once, and then it begins anew.
    forgotten = next(number for number, (early, late) in enumerate(pairwise(places), 1) if late < early)
    assert max(places[forgotten:]) > most // 4
    both.take()
    del receivers
    for _ in range(TOGETHER):
        both.take()
    assert not any(is_held(made))


def test_an_address_that_is_used_again_is_not_mistaken_for_who_had_it() -> None:
    both, naive = Runs(), Naive()
    with limits(together=50, cache=100):
        for number in range(5000):
            # Made and thrown away, so that the next one stands in its place as soon as nobody holds on to it.
            receivers = (number % 7, 10 + number % 11, 30 + number % 3)
            message = b"%d" % number
            both.put(receivers, message)
            naive.put(receivers, message)
            del receivers
            if number % 13 == 0:
                naive.check(both.take())


def test_messages_are_not_kept_once_they_were_taken() -> None:
    both, message = Runs(), b"a message of ours"
    before = sys.getrefcount(message)
    for receivers in ((1, 2, 3), (1,), (2, 3), (1, 2, 3)):
        both.put(receivers, message)
    assert sys.getrefcount(message) > before
    both.take()
    assert sys.getrefcount(message) == before


# -- portions


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=40), st.integers(0, 100))
@examples(400)
def test_portions_are_all_of_it_in_order_and_each_fits_or_is_one_message(messages: list[bytes], limit: int) -> None:
    found = list(portions(messages, limit))
    assert [one for portion in found for one in portion] == messages
    for portion in found:
        assert portion
        assert size_of(portion) <= limit or len(portion) == 1
    for portion, following in pairwise(found):
        # None of them ends before it has to.
        assert size_of([*portion, following[0]]) > limit


def size_of(portion: list[bytes]) -> int:
    return sum(LENGTH + len(message) for message in portion)


@pytest.mark.parametrize("size", [0, 1, 100, 1004, 16_000, 21_800, 32_756, 32_757, 65_515, 65_516])
def test_what_is_made_of_a_portion_is_a_packet_of_the_size_that_was_promised(size: int) -> None:
    message = frames.message(b"a", b"x" * (size - 6)) if size >= 6 else b"x" * size
    count = 5 + 200_000 // (size + 1)
    found = list(portions([message] * count))
    assert sum(map(len, found)) == count
    for portion in found:
        assert len(frames.batch(portion)) <= MAX_BATCH
    # And not of half that size either, where it could be more.
    assert all(len(frames.batch(portion)) + LENGTH + size > MAX_BATCH - 16 for portion in found[:-1])


def test_one_that_is_too_large_for_any_portion_comes_alone() -> None:
    largest, larger = b"x" * (MAX_PORTION - LENGTH), b"x" * (MAX_PORTION - LENGTH + 1)
    assert list(portions([b"a", largest, b"b"])) == [[b"a"], [largest], [b"b"]]
    assert list(portions([larger])) == [[larger]]
    assert list(portions([b"a", b"b", larger, larger, b"c", b"d"])) == [[b"a", b"b"], [larger], [larger], [b"c", b"d"]]
    assert len(frames.batch([largest])) <= MAX_BATCH


def test_a_message_that_just_fills_a_portion_is_still_in_it() -> None:
    assert list(portions([b"123456", b"12"], 16)) == [[b"123456", b"12"]]
    assert list(portions([b"123456", b"123"], 16)) == [[b"123456"], [b"123"]]
