"""The event loop: timers in order, signals, no calls after unwatch, and `soon` at the end of the round."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from bccnd.net.loop import GONE, HALF_CLOSED, READABLE, WRITABLE, Loop, first_served
from tests.support import turn, turn_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe with something to read in it: where to read, where to write."""
    out, into = os.pipe2(os.O_NONBLOCK)
    os.write(into, b"x")
    yield out, into
    os.close(out)
    os.close(into)


other_pipe = pipe


def test_timers_are_called_in_order_never_early_unless_cancelled(loop: Loop) -> None:
    called: list[str] = []
    start = time.monotonic()

    def call(name: str, seconds: float) -> None:
        assert time.monotonic() >= start + seconds
        called.append(name)
        cancelled.cancel()

    for name, seconds in (("c", 0.03), ("a", 0.0), ("b", 0.02)):
        loop.later(seconds, partial(call, name, seconds))
    cancelled = loop.later(0.01, partial(call, "cancelled by another one", 0.0))
    loop.later(0.0, partial(call, "cancelled at once", 0.0)).cancel()
    loop.later(0.04, loop.stop)
    loop.run()
    assert called == ["a", "b", "c"]


def test_a_timer_armed_by_a_timer_waits_for_a_later_round(loop: Loop) -> None:
    called: list[str] = []

    def first() -> None:
        called.append("first")
        loop.later(0, lambda: called.append("second"))
        loop.soon(lambda: called.append("end of the round"))

    loop.later(0, first)
    turn_until(loop, lambda: "second" in called)
    assert called == ["first", "end of the round", "second"]


def test_soon_runs_when_all_have_been_served(loop: Loop, pipe: tuple[int, int], other_pipe: tuple[int, int]) -> None:
    called: list[str] = []

    def on_ready(fd: int, _events: int) -> None:
        os.read(fd, 1)
        called.append("served")
        loop.soon(lambda: called.append("soon"))

    for out, _ in (pipe, other_pipe):
        loop.watch(out, READABLE, partial(on_ready, out))
    turn(loop)
    assert called == ["served", "served", "soon", "soon"]
    loop.soon(lambda: loop.soon(lambda: called.append("inner")))
    turn(loop)
    assert called[4:] == ["inner"]


def test_again_reads_at_the_end_of_the_round(loop: Loop, pipe: tuple[int, int], other_pipe: tuple[int, int]) -> None:
    """A descriptor that is not watched, or no longer, is left alone."""
    rounds: list[int] = []
    out, _ = pipe
    unwatched, _ = other_pipe

    def on_ready(_events: int) -> None:
        rounds.append(loop.rounds)
        if len(rounds) == 1:
            loop.again((out, unwatched, -1))
        else:
            os.read(out, 1)

    loop.watch(out, READABLE, on_ready)
    turn(loop, 3)
    assert len(rounds) == 2
    assert rounds[0] == rounds[1]


def test_what_is_unwatched_is_called_no_more(loop: Loop, pipe: tuple[int, int], other_pipe: tuple[int, int]) -> None:
    called: list[int] = []

    def on_ready(events: int) -> None:
        called.append(events)
        for out, _ in (pipe, other_pipe):
            loop.unwatch(out)

    for out, _ in (pipe, other_pipe):
        loop.watch(out, READABLE, on_ready)
    turn(loop, 3)
    assert len(called) == 1
    loop.unwatch(pipe[0])  # to do so twice is no fault


def test_no_event_reaches_the_next_descriptor_of_its_number(
    loop: Loop, pipe: tuple[int, int], other_pipe: tuple[int, int]
) -> None:
    called: list[str] = []
    out, into = os.pipe2(os.O_NONBLOCK)

    def on_ready(own: int, other: int, _events: int) -> None:
        called.append("old")
        os.read(own, 1)
        loop.unwatch(other)
        os.dup2(out, other)  # closes the other one, for which an event waits in this round
        loop.watch(other, READABLE, lambda _events: called.append("new"))

    loop.watch(pipe[0], READABLE, partial(on_ready, pipe[0], other_pipe[0]))
    loop.watch(other_pipe[0], READABLE, partial(on_ready, other_pipe[0], pipe[0]))
    turn(loop)
    assert called == ["old"]
    os.write(into, b"x")
    turn(loop)
    assert called == ["old", "new"]
    for fd in (out, into):
        os.close(fd)


def test_a_callback_gets_what_its_descriptor_is_ready_for(loop: Loop) -> None:
    ready: dict[str, int] = {}
    out, into = os.pipe2(os.O_NONBLOCK)
    loop.watch(out, READABLE, partial(ready.__setitem__, "out"))
    loop.watch(into, WRITABLE, partial(ready.__setitem__, "into"))
    turn(loop)
    assert ready == {"into": WRITABLE}
    os.write(into, b"x")
    turn(loop)
    assert ready["out"] == READABLE
    loop.unwatch(into)
    os.close(into)
    ready.clear()
    turn(loop)
    assert ready["out"] & GONE
    loop.unwatch(out)
    os.close(out)


def test_a_change_takes_effect_at_the_next_round(loop: Loop, pipe: tuple[int, int]) -> None:
    called: list[int] = []
    again: list[int] = []
    loop.watch(pipe[0], 0, called.append)
    for wanted, calls in ((0, 0), (READABLE | HALF_CLOSED, 1), (0, 1)):
        loop.change(pipe[0], wanted)
        turn(loop)
        assert called == [READABLE] * calls
    loop.unwatch(pipe[0])
    loop.watch(pipe[0], READABLE, again.append)
    turn(loop)
    loop.unwatch(pipe[0])
    assert (len(called), again) == (1, [READABLE])


def test_a_signal_ends_the_wait_and_is_delivered_by_the_loop(loop: Loop) -> None:
    called: list[str] = []
    before = signal.getsignal(signal.SIGALRM)

    def on_alarm() -> None:
        called.append("alarm")
        loop.stop()

    try:
        loop.on_signal(signal.SIGALRM, on_alarm)
        os.kill(os.getpid(), signal.SIGALRM)
        assert called == []
        loop.run()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        loop.run()  # would wait for ever
        assert called == ["alarm"] * 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_unexpected_signal_is_ignored(loop: Loop) -> None:
    before = signal.signal(signal.SIGUSR2, lambda _number, _frame: None)
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        turn(loop, 3)
        called: list[int] = []
        loop.later(0, lambda: called.append(1))
        turn_until(loop, lambda: called)
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("every", [1, 2, 3, 4, 6, 21])
@pytest.mark.parametrize("count", [2, 3, 6, 8, 21])
def test_each_descriptor_is_served_first_now_and_then(every: int, count: int) -> None:
    firsts = Counter(first_served(rounds, count) for rounds in range(10**10, 10**10 + 100 * count * every, every))
    assert set(firsts) == set(range(count))
    assert max(firsts.values()) < 2 * min(firsts.values())
