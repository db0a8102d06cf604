"""What waits for one subscriber."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.gateways.broker_queue import Queue


@given(st.integers(10, 400), st.lists(st.one_of(st.binary(min_size=1, max_size=60), st.integers(0, 300)), max_size=120))
def test_what_was_queued_goes_out_in_its_order_and_never_in_part(limit: int, steps: list[bytes | int]) -> None:
    """A message is offered, or the socket takes so many bytes."""
    queue = Queue(limit)
    taken_in, out, finished = b"", b"", 0
    sizes: list[int] = []
    for step in steps:
        if isinstance(step, bytes):
            waiting = queue.waiting
            if queue.offer(step, 0.0):
                taken_in += step
                sizes.append(len(step))
            else:
                assert waiting + len(step) > limit
        else:
            piece = queue.piece()[:step]
            out += piece
            if piece:
                finished += queue.taken(len(piece), 0.0)
        assert queue.waiting == len(taken_in) - len(out) <= limit
        assert taken_in.startswith(out)
        assert sum(sizes[:finished]) <= len(out)
        assert finished == len(sizes) or len(out) < sum(sizes[: finished + 1])
        assert len(queue) == len(sizes) - finished
    while piece := queue.piece():
        out += piece
        queue.taken(len(piece), 0.0)
    assert out == taken_in


def test_it_is_stuck_when_it_takes_nothing_while_messages_are_lost() -> None:
    queue = Queue(20)
    assert queue.offer(b"x" * 15, 100.0)
    assert not queue.stuck(1000.0, 30.0)  # nothing was lost over it
    assert not queue.offer(b"x" * 15, 105.0)
    assert not queue.stuck(129.9, 30.0)
    assert queue.stuck(130.0, 30.0)
    queue.taken(1, 131.0)
    assert not queue.stuck(1000.0, 30.0)  # it takes little, but it takes
    assert not queue.offer(b"x" * 15, 140.0)
    assert not queue.stuck(160.9, 30.0)
    assert queue.stuck(161.0, 30.0)


def test_time_without_anything_to_take_does_not_count() -> None:
    queue = Queue(20)
    assert queue.offer(b"x" * 15, 0.0)
    queue.taken(15, 1.0)
    assert queue.offer(b"x" * 15, 500.0)
    assert not queue.offer(b"x" * 15, 501.0)
    assert not queue.stuck(529.0, 30.0)
    assert queue.stuck(530.0, 30.0)
