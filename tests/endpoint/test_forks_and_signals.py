"""An endpoint over fork(), with real processes, and under signal handlers and threads that interrupt its calls."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
import traceback
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


class Children:
    """Forks, and leaves none behind: a child that has not ended in time is killed, and then the test fails."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def fork(self, work: Callable[[], object]) -> int:
        """A child that does this and nothing else; its exit status is 0 when that has succeeded."""
        pid = os.fork()
        if pid == 0:
            status = 1
            # Whatever happens, a child must never go on with the tests.
            with contextlib.suppress(BaseException):
                try:
                    work()
                    status = 0
                except BaseException:  # noqa: BLE001 - it belongs to the test, which is in another process
                    traceback.print_exc()
            os._exit(status)
        self.pids.append(pid)
        return pid

    def join(self, pid: int) -> None:
        """Wait for a child, which must have succeeded."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self.pids.remove(pid)
                assert os.waitstatus_to_exitcode(status) == 0, f"child {pid}: {status}"
                return
            assert time.monotonic() < deadline, f"child {pid} does not end"
            time.sleep(0.0005)

    def run(self, work: Callable[[], object]) -> int:
        """`fork` and `join`; the pid."""
        pid = self.fork(work)
        self.join(pid)
        return pid

    def close(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.fixture
def children() -> Iterator[Children]:
    one = Children()
    yield one
    one.close()


def adopt_a_name(endpoint: Endpoint) -> None:
    """The parent's name and our own pid behind it."""
    endpoint.name = f"{endpoint.name}/{os.getpid()}"


def have_a_socket(endpoint: Endpoint) -> None:
    """A socket of our own: what is read from the one that came over the fork is missing for the parent."""
    endpoint.close()
    endpoint.open()


@pytest.mark.parametrize("fresh", [True, False], ids=["pattern A", "pattern B"])
def test_a_child_has_a_name_and_numbers_of_its_own(segment: Segment, children: Children, fresh: bool) -> None:
    endpoint, other = segment.endpoint(PARENT, keys=[KEY]), segment.endpoint("observer", keys=[KEY], dedup=True)
    first = endpoint.send("x", "before")
    # A number that goes on tells that the child came after that message of its parent; the name, that it is another.
    begin = 1 if fresh else first + 1

    def child() -> None:
        adopt_a_name(endpoint)
        if fresh:
            endpoint.seq = 1
        assert [endpoint.send("x", f"child {number}") for number in (1, 2)] == [begin, begin + 1]

    name = f"{PARENT}/{children.run(child)}"
    assert (endpoint.name, endpoint.seq) == (PARENT, first + 1)
    endpoint.send("x", "behind")
    assert [(message.src, message.seq, message.payload) for message in until_now(other)] == [
        *((PARENT, first, b"before"), (name, begin, b"child 1"), (name, begin + 1, b"child 2")),
        (PARENT, first + 1, b"behind"),
    ]


def test_a_child_takes_nothing_from_its_parent(segment: Segment, children: Children) -> None:
    endpoint, other = segment.endpoint(PARENT), segment.endpoint("observer")

    def child() -> None:
        have_a_socket(endpoint)
        endpoint.send("ready")
        while heard(endpoint).payload != b"for both":
            pass

    pid = children.fork(child)
    while heard(other).chan != "ready":
        pass
    other.send("x", "for both")
    children.join(pid)
    assert [message.payload for message in until_now(endpoint)] == [b"", b"for both"]
    children.run(endpoint.close)
    endpoint.send("x", "still here")
    while heard(other).payload != b"still here":
        pass
    other.send_to(PARENT, "me too")
    assert [heard(endpoint).payload for _ in range(2)] == [b"still here", b"me too"]


def test_a_child_sends_no_heartbeats_until_it_starts_its_own(segment: Segment, children: Children) -> None:
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

    pid = children.fork(child)
    name = f"{PARENT}/{pid}"
    numbers: dict[int, str] = {}
    while len(numbers) < 5 or "x" not in numbers.values():
        message = heard(other)
        if message.src == name:
            numbers[message.seq] = message.chan
    children.join(pid)
    assert list(numbers) == list(range(1, len(numbers) + 1))
    assert set(numbers.values()) == {"x", f"heartbeat/{name}"}
    endpoint.heartbeat_stop()
    until_now(other)


def forking(endpoints: list[Endpoint], children: Children, times: int) -> None:
    """Fork again and again; each child takes part in the traffic at once."""

    def child() -> None:
        for endpoint in endpoints:
            adopt_a_name(endpoint)
            endpoint.seq = 1
            assert endpoint.send("x") == 1
            endpoint.beat()
            have = endpoint.notify("x", "." * 2000)
            assert have is False
            assert endpoint.seq == 3

    for _ in range(times):
        children.run(child)


def test_no_child_waits_for_a_thread_of_its_parent(segment: Segment, children: Children, hasty: None) -> None:
    """A lock that one of the threads held at the fork would be held in the child for ever."""
    endpoints = [segment.endpoint(f"a/b/{number}", keys=[KEY]) for number in (1, 2)]
    first = [endpoint.seq for endpoint in endpoints]
    over = threading.Event()
    sent: list[list[int]] = [[], []]

    def send(number: int) -> None:
        while not over.is_set():
            sent[number].append(endpoints[number].send("y"))

    for endpoint in endpoints:
        endpoint.heartbeat_start(1e-6)
    with in_threads(partial(send, 0), partial(send, 1), over=over):
        forking(endpoints, children, examples(60))
    for endpoint in endpoints:
        endpoint.heartbeat_stop()
    # And the parent's numbers were not disturbed: each was given once.
    for endpoint, start, seqs in zip(endpoints, first, sent, strict=True):
        assert len(set(seqs)) == len(seqs)
        assert seqs == sorted(seqs)
        assert set(seqs) <= set(range(start, endpoint.seq))


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

    def receive() -> None:
        packet = b""
        while b":last|" not in packet:
            packet = wire.receive(b"BCCN1")
            received.append(int(packet.split(b":")[-2]))

    def handle() -> None:
        numbers.append(endpoint.send("handler"))
        endpoint.notify("handler", "." * 2000)  # which fails, and leaves no gap

    reader = threading.Thread(target=receive)
    reader.start()
    with interrupted(handle):
        numbers += [endpoint.send("program") for _ in range(COUNT)]
    numbers.append(endpoint.send("last"))
    reader.join()
    assert len(numbers) > COUNT + 10  # the handler has sent, too
    assert sorted(numbers) == list(range(first, endpoint.seq))
    assert received == sorted(numbers)  # and in order


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
