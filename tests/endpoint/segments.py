"""A port of its own on the loopback broadcast, endpoints on it, and what they hear."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import pytest

from bccnd.client.message import Message
from bccnd.endpoint.endpoint import Endpoint
from bccnd.errors import EndpointError
from tests.e2e.harness import Wire
from tests.support import BROADCAST, PATIENCE, free_port, wait


class Segment:
    """A port of its own on the loopback broadcast; the endpoints on it end with the test."""

    def __init__(self, ends: ExitStack) -> None:
        self.port = free_port()
        self._ends = ends

    def closed(self, name: str = "?", **options: Any) -> Endpoint:
        """An endpoint that is not open yet."""
        endpoint = Endpoint(name, options.pop("address", BROADCAST), self.port, **options)
        self._ends.callback(endpoint.close)
        return endpoint

    def endpoint(self, name: str = "?", **options: Any) -> Endpoint:
        """An open one."""
        endpoint = self.closed(name, **options)
        endpoint.open()
        return endpoint

    @cached_property
    def wire(self) -> Wire:
        """A plain socket, of a program that knows the wire format by heart."""
        return self._ends.enter_context(Wire(self.port))


def heard(endpoint: Endpoint) -> Message:
    message = endpoint.recv(PATIENCE)
    assert message is not None, "waited in vain for a message"
    return message


_fences = iter(range(sys.maxsize))


def until_now(endpoint: Endpoint, sender: Endpoint | None = None) -> list[Message]:
    """All messages that were sent so far: those before the one that this sends itself."""
    fence = b"fence %d" % next(_fences)
    (sender or endpoint).send_all(fence)
    messages = []
    while (message := heard(endpoint)).payload != fence:
        messages.append(message)
    return messages


def payloads(messages: Sequence[Message]) -> list[bytes]:
    return [message.payload for message in messages]


def verdicts(endpoint: Endpoint) -> dict[str, int]:
    found: dict[str, int] = endpoint.stats()["VERDICTS"]
    return found


def judged(endpoint: Endpoint, count: int) -> list[Message]:
    """Read until so many datagrams in all have got a verdict; what was accepted meanwhile."""
    messages = []

    def done() -> bool:
        while (message := endpoint.recv(0)) is not None:
            messages.append(message)
        return sum(verdicts(endpoint).values()) >= count

    wait(done, f"{count} datagrams")
    assert sum(verdicts(endpoint).values()) == count
    return messages


def refused(call: Callable[..., object], *arguments: object, **options: object) -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        call(*arguments, **options)
    return caught.value


@contextlib.contextmanager
def soon(call: Callable[[], object], delay: float = 0.05) -> Iterator[None]:
    """Have another thread call after a moment."""
    timer = threading.Timer(delay, call)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextlib.contextmanager
def in_threads(*calls: Callable[[], object], over: threading.Event | None = None) -> Iterator[None]:
    """Have each call made by a thread of its own, and wait for their ends; ``over`` is set before."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        if over is not None:
            over.set()
        for thread in threads:
            thread.join()
