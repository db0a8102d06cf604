"""Fan-out in runs of receivers that get the same messages: each receiver gets exactly its own, in order."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.receivers import Part
from bccnd.core.sending import message_groups
from bccnd.core.sending.message_groups import LENGTH, MERGE_AFTER, MessageGroups, portions
from bccnd.core.wire import frames
from bccnd.core.wire.frames import MAX_BATCH
from tests.core.material import examples

Receivers = tuple[int, ...]
Taken = list[tuple[Receivers, list[bytes]]]

#: receivers that come again and again, as those of routes do
POOL: list[Receivers] = [(), (1,), (2,), (1, 2), (2, 1), (3, 4), (1, 2, 3), (1, 2, 3, 4, 5), (5, 3, 1), (9,)]
#: receivers of a message: those at a place of the pool, or new ones, which may equal them
SAME = st.integers(0, len(POOL) - 1)
EQUAL = st.sampled_from(POOL)
NEW = st.lists(st.integers(1, 9), unique=True, max_size=6).map(tuple)


class Naive:
    """Each receiver has a list of its own."""

    def __init__(self) -> None:
        self.due: dict[int, list[bytes]] = {}
        #: what was taken, with copies: it must not change later
        self.kept: list[tuple[list[bytes], list[bytes]]] = []

    def put(self, receivers: Receivers, message: bytes) -> None:
        for one in receivers:
            self.due.setdefault(one, []).append(message)

    def check(self, taken: Taken) -> None:
        """What was taken is what was due, and each receiver is named once."""
        named = [one for receivers, _ in taken for one in receivers]
        assert len(named) == len(set(named))
        assert {one: messages for receivers, messages in taken for one in receivers} == self.due
        assert all(receivers and messages for receivers, messages in taken)
        assert all(messages == copy for messages, copy in self.kept)
        assert len({id(messages) for _, messages in taken}) == len(taken)
        self.kept += [(messages, messages.copy()) for _, messages in taken]
        self.due = {}


@given(
    st.lists(st.one_of(SAME, SAME, EQUAL, NEW, st.none(), st.none()), max_size=80),
    st.sampled_from([1, 2, 3, 4, MERGE_AFTER]),
)
@examples(600)
def test_every_receiver_gets_its_messages_in_order(history: list[Receivers | int | None], together: int) -> None:
    """None in the history is to take all."""
    both, naive = MessageGroups(), Naive()
    pool = [Part(receivers) for receivers in POOL]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_groups, "MERGE_AFTER", together)
        for number, receivers in enumerate([*history, None]):
            if receivers is None:
                assert bool(both) is bool(naive.due)
                naive.check(both.take())
                assert not both
            else:
                part = pool[receivers] if isinstance(receivers, int) else Part(receivers)
                both.put(part, b"%d" % number)
                naive.put(part.all, b"%d" % number)
        assert both.take() == []
        both.reset()
        assert not any(part.groups for part in pool)


def shared(taken: Taken) -> list[list[int]]:
    """The receivers of each run."""
    return sorted(sorted(receivers) for receivers, _ in taken)


@pytest.mark.parametrize("idle", [False, True])
def test_parted_receivers_are_together_again_after_a_while(idle: bool) -> None:
    both, pair, together = MessageGroups(), Part((1, 2)), 0
    both.put(pair, b"a")
    both.put(Part((1,)), b"b")
    assert len(both.take()) == 2
    for number in range(MERGE_AFTER + 1):
        if not idle or number == MERGE_AFTER:
            both.put(pair, b"%d" % number)
        together += len(both.take()) == 1
    assert 1 <= together <= 10


def test_memory_of_parts_that_come_once_is_bounded() -> None:
    both = MessageGroups()
    everybody = [*range(1000)]
    for receiver in everybody:  # each is a group of its own
        both.put(Part((receiver,)), b"x")
    both.take()
    tracemalloc.start()
    try:
        before, most = tracemalloc.get_traced_memory()[0], 0
        for place in range(5_000):
            both.put(Part(tuple(everybody[place % 900 : place % 900 + 40])), b"x")
            if place % 64 == 0:
                both.take()
                most = max(most, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert most <= 1 << 20


class Counted(int):
    """A receiver that counts how often one is hashed or compared."""

    steps = 0

    def __hash__(self) -> int:
        Counted.steps += 1
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Counted.steps += 1
        return int.__eq__(self, other)


@pytest.mark.parametrize("parts", [2, 1000])
def test_the_steps_of_a_split_grow_with_its_receivers(parts: int) -> None:
    def split(count: int) -> int:
        receivers, both = tuple(Counted(number) for number in range(count)), MessageGroups()
        both.put(Part(receivers), b"x")
        before = Counted.steps
        for part in range(parts):
            both.put(Part(receivers[part::parts]), b"y")
        found = both.take()
        steps = Counted.steps - before
        assert shared(found) == sorted(list(range(part, count, parts)) for part in range(parts))
        return steps

    assert split(4000) <= 2.5 * split(2000)
    assert split(2000) <= 20 * 2000


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
