"""Fan-out in runs of receivers that get the same messages: each receiver gets exactly its own, in order."""

from __future__ import annotations

import sys
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import fanout_groups, frames
from bccnd.core.fanout_groups import CACHE, LENGTH, MERGE_AFTER, PLACEMENT_BYTES, FanoutGroups, portions
from bccnd.core.frames import MAX_BATCH
from tests.core.material import examples

Receivers = tuple[int, ...]
Taken = list[tuple[Receivers, list[bytes]]]

#: tuples that come again and again, as those of routes do
POOL: list[Receivers] = [(), (1,), (2,), (1, 2), (2, 1), (3, 4), (1, 2, 3), (1, 2, 3, 4, 5), (5, 3, 1), (9,)]
#: receivers of a message: the tuple of the pool, one that equals it, or a new one
SAME = st.sampled_from(POOL)
EQUAL = st.sampled_from(POOL).map(lambda one: (*one,))
NEW = st.lists(st.integers(1, 9), unique=True, max_size=6).map(tuple)


class Naive:
    """Each receiver has a list of its own."""

    def __init__(self) -> None:
        self.due: dict[int, list[bytes]] = {}

    def put(self, receivers: Receivers, message: bytes) -> None:
        for one in receivers:
            self.due.setdefault(one, []).append(message)

    def check(self, taken: Taken) -> None:
        """What was taken is what was due, and each receiver is named once."""
        named = [one for receivers, _ in taken for one in receivers]
        assert len(named) == len(set(named))
        assert {one: messages for receivers, messages in taken for one in receivers} == self.due
        assert all(receivers and messages for receivers, messages in taken)
        self.due = {}


@given(
    st.lists(st.one_of(SAME, SAME, EQUAL, NEW, st.none(), st.none()), max_size=80),
    st.sampled_from([1, 2, 3, 4, MERGE_AFTER]),
    st.sampled_from([0, 1000, 3000, CACHE]),
)
@examples(600)
def test_every_receiver_gets_its_messages_in_order(history: list[Receivers | None], together: int, cache: int) -> None:
    """None in the history is to take all."""
    both, naive = FanoutGroups(), Naive()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fanout_groups, "MERGE_AFTER", together)
        patch.setattr(fanout_groups, "CACHE", cache)
        for number, receivers in enumerate([*history, None]):
            if receivers is None:
                assert bool(both) is bool(naive.due)
                naive.check(both.take())
                assert not both
            else:
                both.put(receivers, b"%d" % number)
                naive.put(receivers, b"%d" % number)
        assert both.take() == []


def shared(taken: Taken) -> list[list[int]]:
    """The receivers of each run."""
    return sorted(sorted(receivers) for receivers, _ in taken)


def test_receivers_that_always_get_the_same_share_one_run() -> None:
    both = FanoutGroups()
    everybody = tuple(range(100))
    for number in range(50):
        both.put(everybody, b"%d" % number)
    assert both.take() == [(everybody, [b"%d" % number for number in range(50)])]
    both.put(everybody, b"x")
    both.put(tuple(reversed(everybody)), b"y")
    [(receivers, messages)] = both.take()
    assert (set(receivers), messages) == (set(everybody), [b"x", b"y"])


def test_groups_split_when_receivers_differ() -> None:
    both = FanoutGroups()
    both.put((1, 2, 3), b"a")
    both.put((4, 5), b"b")
    assert shared(both.take()) == [[1, 2, 3], [4, 5]]
    both.put((1, 2, 3), b"c")
    both.put((2,), b"d")
    both.put((1, 2, 3), b"e")
    taken = both.take()
    assert shared(taken) == [[1, 3], [2]]
    assert sorted(messages for _, messages in taken) == [[b"c", b"d", b"e"], [b"c", b"e"]]
    # Two runs that get the same are still two, and others are not torn apart by a message for both.
    both.put((1, 2, 3, 4, 5), b"f")
    assert shared(both.take()) == [[1, 3], [2], [4, 5]]


@pytest.mark.parametrize("idle", [False, True])
def test_after_a_while_receivers_that_were_parted_are_together_again(idle: bool) -> None:
    both, pair, together = FanoutGroups(), (1, 2), 0
    both.put(pair, b"a")
    both.put((1,), b"b")
    assert len(both.take()) == 2
    for number in range(MERGE_AFTER + 1):
        if not idle or number == MERGE_AFTER:
            both.put(pair, b"%d" % number)
        together += len(both.take()) == 1
    assert 1 <= together <= 10


def test_what_was_taken_is_not_changed_later() -> None:
    both = FanoutGroups()
    receivers = (1, 2)
    both.put(receivers, b"a")
    [(_, first)] = both.take()
    both.put(receivers, b"b")
    both.put((1,), b"c")
    lists = [messages for _, messages in both.take()]
    assert first == [b"a"]
    for one in lists:  # each its own: the other is not cleared by this
        assert one
        one.clear()
    both.put(receivers, b"d")
    assert [messages for _, messages in both.take()] == [[b"d"], [b"d"]]


def is_held(made: list[Receivers]) -> list[bool]:
    """Whether there are references to them besides this list and this line."""
    return [sys.getrefcount(one) > 3 for one in made]


def test_memory_is_bounded_without_repeated_groups() -> None:
    both = FanoutGroups()
    width = 255
    most = CACHE // (PLACEMENT_BYTES + 16 * width)
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
    for _ in range(MERGE_AFTER):
        both.take()
    assert not any(is_held(made))


class Counted(int):
    """A receiver that counts how often one is hashed or compared."""

    steps = 0

    def __hash__(self) -> int:
        Counted.steps += 1
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Counted.steps += 1
        return int.__eq__(self, other)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("parts", [2, 100, 1000])
def test_a_group_is_split_in_a_number_of_steps_that_grows_with_its_receivers(parts: int, taken: bool) -> None:
    def split(count: int) -> int:
        receivers = tuple(Counted(number) for number in range(count))
        some = [receivers[part::parts] for part in range(parts)]
        both = FanoutGroups()
        both.put(receivers, b"x")
        if taken:
            both.take()
        before = Counted.steps
        for part in some:
            both.put(part, b"y")
        found = both.take()
        steps = Counted.steps - before
        assert shared(found) == sorted(sorted(part) for part in some)
        return steps

    assert split(4000) <= 2.5 * split(2000)
    assert split(2000) <= 20 * 2000


@pytest.mark.parametrize("size", [1, 3, 40])
def test_the_memory_of_placements_is_bounded(size: int) -> None:
    both = FanoutGroups()
    everybody = [*range(1000)]
    made = [tuple(everybody[place % 900 : place % 900 + size]) for place in range(30_000)]
    for receiver in everybody:  # each is a group of its own
        both.put((receiver,), b"x")
    both.take()
    tracemalloc.start()
    try:
        before, most = tracemalloc.get_traced_memory()[0], 0
        for number, receivers in enumerate(made):
            both.put(receivers, b"x")
            if number % 64 == 0:
                both.take()
                most = max(most, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    # The tuples themselves were there before.
    assert CACHE / 4 <= most <= CACHE


def test_an_address_that_is_used_again_is_not_mistaken_for_the_tuple_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout_groups, "CACHE", 10_000)
    both, naive = FanoutGroups(), Naive()
    for number in range(5000):
        # Made and freed, so that the next one is likely to get its address.
        receivers = (number % 7, 10 + number % 11, 30 + number % 3)
        both.put(receivers, b"%d" % number)
        naive.put(receivers, b"%d" % number)
        del receivers
        if number % 13 == 0:
            naive.check(both.take())


def test_messages_are_not_kept_once_they_were_taken() -> None:
    both, message = FanoutGroups(), b"a message of ours"
    before = sys.getrefcount(message)
    for receivers in ((1, 2, 3), (1,), (2, 3), (1, 2, 3)):
        both.put(receivers, message)
    assert sys.getrefcount(message) > before
    both.take()
    assert sys.getrefcount(message) == before


def size_of(next_batch: list[bytes]) -> int:
    return sum(LENGTH + len(message) for message in next_batch)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=40), st.integers(0, 100))
@examples(400)
def test_portions_are_all_of_it_and_as_large_as_fits(messages: list[bytes], limit: int) -> None:
    found = list(portions(messages, limit))
    assert [one for next_batch in found for one in next_batch] == messages
    assert all(next_batch and (size_of(next_batch) <= limit or len(next_batch) == 1) for next_batch in found)
    assert all(size_of([*next_batch, following[0]]) > limit for next_batch, following in pairwise(found))


def test_a_portion_makes_a_batch_that_is_as_large_as_fits() -> None:
    for size in (0, 1, 100, 1004, 16_000, 21_800, 32_756, 32_757, 65_515, 65_516):
        message = frames.message(b"a", b"x" * (size - 6)) if size >= 6 else b"x" * size
        count = 5 + 200_000 // (size + 1)
        found = list(portions([message] * count))
        assert sum(map(len, found)) == count
        sizes = [len(frames.batch(next_batch)) for next_batch in found]
        assert max(sizes) <= MAX_BATCH
        assert all(one + LENGTH + size > MAX_BATCH - 16 for one in sizes[:-1])
