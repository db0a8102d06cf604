"""The send queue of a client does what a plain list does, for any sequence of operations."""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.sending import send_queue
from bccnd.core.sending.message_groups import LENGTH, MAX_PORTION
from bccnd.core.sending.send_queue import ORDERS, QUEUE, RANDOM, STACK, Entry, SendQueue
from tests.core.material import examples


class Naive:
    """A list in the order in which things came; what is next is searched for. Gaps that meet are one."""

    def __init__(self) -> None:
        self.order = QUEUE
        self.line: list[Entry] = []

    def note(self, count: int, at: int) -> None:
        """A gap before the entry at a place, which is one with the gap that stands there already."""
        for beside in (at - 1, at):
            if 0 <= beside < len(self.line):
                there = self.line[beside]
                if isinstance(there, int):
                    self.line[beside] = there + count
                    return
        self.line.insert(at, count)

    def put(self, frame: bytes) -> None:
        self.line.append(frame)
        self.settle()

    def add_gap(self, count: int) -> None:
        self.note(count, len(self.line))

    def set_order(self, order: int) -> None:
        self.order = order
        self.settle()

    def settle(self) -> None:
        """In random order gaps have no place: they are one, behind everything."""
        if self.order == RANDOM:
            lost = sum(entry for entry in self.line if isinstance(entry, int))
            self.line = [entry for entry in self.line if not isinstance(entry, int)]
            if lost:
                self.line.append(lost)

    def at_head(self) -> int:
        if self.order == QUEUE:
            return 0
        if self.order == STACK:
            return len(self.line) - 1
        sizes = [0 if isinstance(entry, int) else len(entry) for entry in self.line]
        return sizes.index(max(sizes))

    def take(self) -> Entry:
        return self.line.pop(self.at_head())

    def next_batch(self, limit: int) -> list[bytes]:
        """Taken off a copy, one after the other, for as long as they are messages and there is room."""
        other = Naive()
        other.order, other.line = self.order, self.line.copy()
        found: list[bytes] = []
        while other.line:
            entry = other.take()
            if isinstance(entry, int) or not entry.startswith(b"MSG"):
                break
            if found and sum(LENGTH + len(one) for one in (*found, entry)) > limit:
                break
            found.append(entry)
            if self.order == RANDOM:  # where the largest is first, there is no hurry
                break
        return found

    def add_gap_here(self) -> None:
        self.note(1, 0 if self.order == QUEUE else len(self.line))

    def clear(self) -> None:
        self.line.clear()

    @property
    def frames(self) -> list[bytes]:
        return [entry for entry in self.line if not isinstance(entry, int)]


class Deed(NamedTuple):
    name: str
    frame: bytes = b""
    number: int = 0


VERBS = st.sampled_from([b"MSG", b"MSG", b"MSG", b"CMSG"])
#: messages and control messages, many of one size, and no two alike in what they hold
FRAMES = st.builds(
    lambda verb, size, text: verb + b" k\0" + b"x" * size + text, VERBS, st.integers(0, 3), st.binary(max_size=2)
)
LOSE = st.builds(Deed, st.just("add_gap"), number=st.integers(1, 3))
ORDER = st.builds(Deed, st.just("set_order"), number=st.sampled_from([QUEUE, STACK, RANDOM]))
PUT = st.builds(Deed, st.just("put"), FRAMES)
TAKE, CLEAR = st.just(Deed("take")), st.just(Deed("clear"))
#: as the callers do: the next message is removed, and a gap put in its place
SKIP = st.just(Deed("skip"))
DEEDS = st.lists(st.one_of(PUT, PUT, PUT, LOSE, ORDER, TAKE, TAKE, SKIP, SKIP, CLEAR), max_size=50)


def apply(deed: Deed, queue: SendQueue, naive: Naive) -> None:
    """Apply an operation to an outbox and to the list."""
    if deed.name not in ("take", "skip"):
        args = {"put": (deed.frame,), "clear": ()}.get(deed.name, (deed.number,))
        for one in (queue, naive):
            getattr(one, deed.name)(*args)
    elif not naive.line:
        with pytest.raises(IndexError):
            queue.head()
        with pytest.raises(IndexError):
            queue.take()
    else:
        head, taken = queue.head(), queue.take()
        assert (type(head), head) == (type(taken), taken)
        assert taken == naive.take()
        if deed.name == "skip" and not isinstance(taken, int):
            queue.add_gap_here()
            naive.add_gap_here()


@given(DEEDS, st.sampled_from([0, 30, 64, MAX_PORTION]))
@example([Deed("put", b"MSG a\0"), Deed("add_gap", number=4), Deed("skip")], 64)
@example([Deed("put", b"MSG a\0"), Deed("put", b"MSG b\0"), Deed("skip")], 64)
@example([Deed("put", b"MSG a\0"), Deed("put", b"MSG b\0"), Deed("put", b"MSG c\0")], 2 * (LENGTH + 6))
@example([Deed("put", b"MSG a\0"), Deed("put", b"MSG b\0"), Deed("put", b"MSG c\0")], 2 * (LENGTH + 6) - 1)
@example(
    [Deed("set_order", number=STACK), Deed("put", b"MSG a\0"), Deed("add_gap", number=2), Deed("take"), Deed("skip")],
    64,
)
@examples(800)
def test_an_outbox_agrees_with_a_list(history: list[Deed], limit: int) -> None:
    queue, naive = SendQueue(), Naive()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send_queue, "MAX_PORTION", limit)
        for deed in history:
            apply(deed, queue, naive)
            assert queue.bytes == sum(map(len, naive.frames))
            assert queue.messages == sum(frame.startswith(b"MSG") for frame in naive.frames)
            assert (queue.order, len(queue)) == (naive.order, len(naive.line))
            if naive.line:
                head = naive.line[naive.at_head()]
                assert queue.head() == head
                assert queue.has_message_next == (not isinstance(head, int) and head.startswith(b"MSG"))
            assert queue.next_batch() == queue.next_batch() == naive.next_batch(limit)
        while naive.line:
            # All of a portion can be taken, and what comes next where there is none.
            for _ in queue.next_batch() or [b""]:
                assert queue.take() == naive.take()
    assert (queue.bytes, queue.messages, len(queue)) == (0, 0, 0)


def test_the_orders_are_called_as_sbus_calls_them() -> None:
    assert ORDERS == {b"queue": QUEUE, b"stack": STACK, b"random": RANDOM}


@pytest.mark.parametrize("order", ORDERS.values())
@pytest.mark.parametrize("size", [0, 30, 1000])
def test_a_queue_is_charged_for_the_memory_it_takes(order: int, size: int) -> None:
    queue = SendQueue()
    queue.set_order(order)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1000):
            queue.put(b"MSG a\0%d" % number + b"x" * size)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 2 <= queue.memory <= 2 * taken
    while queue:
        queue.take()
    assert queue.memory == 0
