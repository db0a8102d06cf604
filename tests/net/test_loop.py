"""The loop: timers in order, signals from the loop, nothing after unwatch, and `soon` at the end of the round."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from bccnd.net.loop import GONE, HALF_CLOSED, READABLE, WRITABLE, Loop
from tests.support import turn, turn_until


@pytest.fixture
def loop() -> Iterator[Loop]:
    one = Loop()
    yield one
    one.close()


class Pipe:
    """A pipe whose ends are closed at the end."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe2(os.O_NONBLOCK)

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.out)
        os.close(self.into)


def test_timers_are_called_in_the_order_of_their_times_and_never_early(loop: Loop) -> None:
    called: list[tuple[str, float]] = []
    start = time.monotonic()

    def note(name: str) -> None:
        called.append((name, time.monotonic() - start))

    for name, seconds in (("c", 0.06), ("a", 0.02), ("b", 0.04)):
        loop.later(seconds, partial(note, name))
    loop.later(0.08, loop.stop)
    loop.run()
    assert [name for name, _ in called] == ["a", "b", "c"]
    assert all(after >= seconds for (_, after), seconds in zip(called, (0.02, 0.04, 0.06), strict=True))


def test_a_cancelled_timer_is_not_called_and_the_others_are(loop: Loop) -> None:
    called: list[str] = []
    first = loop.later(0, lambda: called.append("first"))
    loop.later(0, lambda: called.append("second"))
    first.cancel()
    turn_until(loop, lambda: called)
    turn(loop, 3)
    assert called == ["second"]


def test_a_timer_may_cancel_another_one_of_the_same_round(loop: Loop) -> None:
    called: list[str] = []
    later = loop.later(0.001, lambda: called.append("later"))

    def first() -> None:
        called.append("first")
        later.cancel()

    loop.later(0, first)
    time.sleep(0.005)
    turn(loop, 3)
    assert called == ["first"]


def test_every_calls_again_and_again(loop: Loop) -> None:
    called: list[int] = []
    loop.every(0.001, lambda: called.append(1))
    turn(loop)
    assert len(called) <= 1
    turn_until(loop, lambda: len(called) == 5)


def test_a_timer_armed_by_a_timer_waits_for_a_later_round(loop: Loop) -> None:
    called: list[str] = []

    def first() -> None:
        called.append("first")
        loop.later(0, lambda: called.append("second"))
        loop.soon(lambda: called.append("end of the round"))

    loop.later(0, first)
    turn_until(loop, lambda: "second" in called)
    assert called == ["first", "end of the round", "second"]


def test_soon_runs_when_all_of_the_round_have_been_served(loop: Loop) -> None:
    called: list[str] = []
    with Pipe() as one, Pipe() as other:
        for pipe in (one, other):
            os.write(pipe.into, b"x")

            def on_ready(_events: int, pipe: Pipe = pipe) -> None:
                os.read(pipe.out, 1)
                called.append("served")
                loop.soon(lambda: called.append("soon"))

            loop.watch(pipe.out, READABLE, on_ready)
        turn(loop)
    assert called == ["served", "served", "soon", "soon"]


def test_soon_from_within_soon_is_still_called(loop: Loop) -> None:
    called: list[str] = []
    loop.soon(lambda: loop.soon(lambda: called.append("inner")))
    turn(loop)
    assert called == ["inner"]


def test_what_is_unwatched_within_a_round_is_not_called_any_more(loop: Loop) -> None:
    called: list[int] = []
    with Pipe() as one, Pipe() as other:
        ends = (one.out, other.out)
        for pipe in (one, other):
            os.write(pipe.into, b"x")

            def on_ready(_events: int, fd: int = pipe.out) -> None:
                called.append(fd)
                for each in ends:
                    loop.unwatch(each)

            loop.watch(pipe.out, READABLE, on_ready)
        turn(loop, 3)
        assert len(called) == 1
        loop.unwatch(one.out)  # to do so twice is no fault


def test_a_descriptor_is_told_what_it_is_ready_for(loop: Loop) -> None:
    told: dict[str, int] = {}
    pipe = Pipe()
    loop.watch(pipe.out, READABLE, lambda events: told.__setitem__("out", events))
    loop.watch(pipe.into, WRITABLE, lambda events: told.__setitem__("into", events))
    turn(loop)
    assert told == {"into": WRITABLE}
    os.write(pipe.into, b"x")
    turn(loop)
    assert told["out"] == READABLE
    loop.unwatch(pipe.into)
    os.close(pipe.into)
    told.clear()
    turn(loop)
    assert told["out"] & GONE
    loop.unwatch(pipe.out)
    os.close(pipe.out)


def test_change_takes_effect_at_the_next_round(loop: Loop) -> None:
    called: list[int] = []
    with Pipe() as pipe:
        os.write(pipe.into, b"x")
        loop.watch(pipe.out, 0, called.append)
        turn(loop)
        assert called == []
        loop.change(pipe.out, READABLE | HALF_CLOSED)
        turn(loop)
        assert called == [READABLE]
        loop.change(pipe.out, 0)
        turn(loop)
        assert called == [READABLE]
        loop.unwatch(pipe.out)


def test_a_descriptor_that_is_watched_again_gets_its_new_callback(loop: Loop) -> None:
    called: list[str] = []
    with Pipe() as pipe:
        os.write(pipe.into, b"x")
        loop.watch(pipe.out, READABLE, lambda _events: called.append("old"))
        loop.unwatch(pipe.out)
        loop.watch(pipe.out, READABLE, lambda _events: called.append("new"))
        turn(loop)
        loop.unwatch(pipe.out)
    assert called == ["new"]


def test_a_signal_is_delivered_by_the_loop_and_not_by_the_handler(loop: Loop) -> None:
    called: list[str] = []
    before = signal.getsignal(signal.SIGUSR1)
    try:
        loop.on_signal(signal.SIGUSR1, lambda: called.append("usr1"))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert called == []
        turn_until(loop, lambda: called)
        assert called == ["usr1"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_ends_the_wait_of_a_loop_that_has_nothing_to_do(loop: Loop) -> None:
    before = signal.getsignal(signal.SIGALRM)
    try:
        loop.on_signal(signal.SIGALRM, loop.stop)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        loop.run()  # would wait for ever
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_that_nobody_asked_for_harms_nobody(loop: Loop) -> None:
    before = signal.signal(signal.SIGUSR2, lambda _number, _frame: None)
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        turn(loop, 3)
        called: list[int] = []
        loop.later(0, lambda: called.append(1))
        turn_until(loop, lambda: called)
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_stop_finishes_the_round(loop: Loop) -> None:
    called: list[str] = []

    def on_ready(_events: int) -> None:
        loop.stop()
        loop.soon(lambda: called.append("soon"))

    with Pipe() as pipe:
        os.write(pipe.into, b"x")
        loop.watch(pipe.out, READABLE, on_ready)
        loop.run()
        loop.unwatch(pipe.out)
    assert called == ["soon"]


def test_a_closed_loop_has_given_back_its_descriptors() -> None:
    before = set(os.listdir("/proc/self/fd"))
    Loop().close()
    assert set(os.listdir("/proc/self/fd")) == before
