"""An endpoint over fork(), with real processes, and under signal handlers and threads that interrupt its calls."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from bccnd.endpoint.endpoint import Endpoint
from bccnd.errors import EndpointError
from tests.e2e.harness import KEY
from tests.endpoint.segments import Segment, heard, in_threads, refused, until_now
from tests.support import PATIENCE, examples, wait

# From Python 3.12 on it warns of what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

PARENT = "relay01/cardsys-relay/12345"


@contextlib.contextmanager
def forked(work: Callable[[], object]) -> Iterator[int]:
    """A child that does this and nothing else, which must succeed; yields its pid."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    try:
        assert child.pid is not None
        yield child.pid
        child.join(PATIENCE)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()
        child.close()


def fork(work: Callable[[], object]) -> int:
    """Have a child do this, and wait for its end; returns its pid."""
    with forked(work) as pid:
        return pid


def adopt_a_name(endpoint: Endpoint) -> None:
    """The parent's name and our own pid behind it."""
    endpoint.name = f"{endpoint.name}/{os.getpid()}"


@pytest.mark.parametrize("fresh", [True, False], ids=["pattern A", "pattern B"])
def test_a_child_has_a_name_and_numbers_of_its_own(segment: Segment, fresh: bool) -> None:
    endpoint, other = segment.endpoint(PARENT, keys=[KEY]), segment.endpoint("observer", keys=[KEY], dedup=True)
    first = endpoint.send("x", "before")
    # A number that goes on tells that the child came after that message of its parent; the name, that it is another.
    begin = 1 if fresh else first + 1

    def child() -> None:
        adopt_a_name(endpoint)
        if fresh:
            endpoint.seq = 1
        assert [endpoint.send("x", f"child {number}") for number in (1, 2)] == [begin, begin + 1]

    name = f"{PARENT}/{fork(child)}"
    assert (endpoint.name, endpoint.seq) == (PARENT, first + 1)
    endpoint.send("x", "behind")
    assert [(message.src, message.seq, message.payload) for message in until_now(other)] == [
        *((PARENT, first, b"before"), (name, begin, b"child 1"), (name, begin + 1, b"child 2")),
        (PARENT, first + 1, b"behind"),
    ]


def test_a_child_takes_nothing_from_its_parent(segment: Segment) -> None:
    endpoint, other = segment.endpoint(PARENT), segment.endpoint("observer")

    def child() -> None:
        # What is read from the socket that came over the fork is missing for the parent.
        endpoint.close()
        endpoint.open()
        endpoint.send("ready")
        while heard(endpoint).payload != b"for both":
            pass

    with forked(child):
        while heard(other).chan != "ready":
            pass
        other.send("x", "for both")
    assert [message.payload for message in until_now(endpoint)] == [b"", b"for both"]
    fork(endpoint.close)
    endpoint.send("x", "still here")
    while heard(other).payload != b"still here":
        pass
    other.send_to(PARENT, "me too")
    assert [heard(endpoint).payload for _ in range(2)] == [b"still here", b"me too"]


def test_a_child_sends_no_heartbeats_until_it_starts_its_own(segment: Segment) -> None:
    endpoint, other = segment.endpoint(PARENT), segment.endpoint("observer")
    endpoint.heartbeat_start(0.001)

    def child() -> None:
        adopt_a_name(endpoint)
        endpoint.seq = 1
        assert threading.active_count() == 1
        endpoint.heartbeat_start(0.001)
        endpoint.send("x")
        while endpoint.seq < 6:
            time.sleep(0.001)
        endpoint.close()

    numbers: dict[int, str] = {}
    with forked(child) as pid:
        name = f"{PARENT}/{pid}"
        while len(numbers) < 5 or "x" not in numbers.values():
            message = heard(other)
            if message.src == name:
                numbers[message.seq] = message.chan
    assert list(numbers) == list(range(1, len(numbers) + 1))
    assert set(numbers.values()) == {"x", f"heartbeat/{name}"}
    endpoint.heartbeat_stop()
    until_now(other)


def test_no_child_waits_for_a_thread_of_its_parent(segment: Segment, hasty: None) -> None:
    """A lock that one of the threads held at the fork would be held in the child for ever."""
    endpoints = [segment.endpoint(f"a/b/{number}", keys=[KEY]) for number in (1, 2)]
    over = threading.Event()

    def send(endpoint: Endpoint) -> None:
        while not over.is_set():
            endpoint.send("y")

    def child() -> None:
        for endpoint in endpoints:
            adopt_a_name(endpoint)
            endpoint.seq = 1
            assert endpoint.send("x") == 1
            endpoint.beat()
            assert endpoint.notify("x", "." * 2000) is False
            assert endpoint.seq == 3

    for endpoint in endpoints:
        endpoint.heartbeat_start(1e-6)
    with in_threads(*(partial(send, endpoint) for endpoint in endpoints), over=over):
        for _ in range(examples(60)):
            fork(child)


# -- signal handlers, and a thread that closes what waits

COUNT = 1000


@contextlib.contextmanager
def interrupted(handler: Callable[[], object], seconds: float = 0.0002) -> Iterator[None]:
    """Have a signal handler called again and again; it is not interrupted itself."""

    def handle(_number: int, _frame: object) -> None:
        handler()
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("keys", [[], [KEY]])
def test_a_signal_handler_sends_under_numbers_of_its_own(segment: Segment, keys: list[bytes]) -> None:
    endpoint, wire = segment.endpoint("a", keys=keys), segment.wire
    first = endpoint.seq
    numbers: list[int] = []
    received: list[int] = []

    def handle() -> None:
        numbers.append(endpoint.send("handler"))
        endpoint.notify("handler", "." * 2000)  # which fails, and leaves no gap

    def receive() -> None:
        packet = b""
        while b":last|" not in packet:
            packet = wire.receive(b"BCCN1")
            received.append(int(packet.split(b":")[-2]))

    with in_threads(receive):
        with interrupted(handle):
            numbers += [endpoint.send("program") for _ in range(COUNT)]
        numbers.append(endpoint.send("last"))
    assert len(numbers) > COUNT + 10  # the handler has sent, too
    assert received == sorted(numbers) == list(range(first, endpoint.seq))  # and in order


def test_a_signal_handler_may_close_what_it_has_interrupted(segment: Segment) -> None:
    endpoint = segment.endpoint("a", keys=[KEY])

    def handle() -> None:
        endpoint.heartbeat_stop()
        endpoint.close()
        endpoint.open()
        endpoint.heartbeat_start(0.0001)

    with interrupted(handle, 0.001):
        for _ in range(COUNT):
            with contextlib.suppress(EndpointError):
                endpoint.send("program")
    endpoint.close()
    wait(lambda: not [one for one in threading.enumerate() if one.name == "bccn-heartbeat"], "the threads to end")


class Behind(socket.socket):
    """A socket whose interface takes nothing; another thread closes its endpoint when it is about to wait for that."""

    endpoint: Endpoint | None = None

    def sendto(self, *_arguments: Any) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def fileno(self) -> int:
        if self.endpoint is not None:
            closing = threading.Thread(target=self.endpoint.close)
            closing.start()
            closing.join(PATIENCE)
        return super().fileno()


def test_a_call_that_waits_for_the_interface_is_told_of_the_end(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Behind)
        endpoint = segment.endpoint("a")
        patch.setattr(Behind, "endpoint", endpoint)
        assert refused(endpoint.send, "x").reason == "not_open"
