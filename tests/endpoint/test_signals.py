"""Signal handlers that use an endpoint which they have interrupted, and threads that wait while it is closed."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from bccnd.endpoint.endpoint import Endpoint
from bccnd.errors import EndpointError
from tests.e2e.harness import KEY
from tests.endpoint.segments import Segment, refused
from tests.support import PATIENCE, wait

COUNT = 1000


@contextmanager
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
            with suppress(EndpointError):
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
