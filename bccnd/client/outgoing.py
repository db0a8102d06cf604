"""Frames and requests that wait to be sent to the daemon, and what became of them."""

from __future__ import annotations

from collections.abc import Callable

from bccnd.client.events import Refusal
from bccnd.client.message import to_text
from bccnd.core.wire import frames
from bccnd.errors import BusError


class Outgoing:
    """A frame to be sent. ``on_sent`` is called at the moment the socket takes it. It is ``done`` then, or when it has
    failed with ``error``; ``on_failed`` is called then, if it is set. Unless it is ``patient`` it fails when the daemon
    is away for longer than `PATIENCE`."""

    def __init__(self, frame: bytes, on_sent: Callable[[], None] | None = None, *, patient: bool = False) -> None:
        self.frame = frame
        self.patient = patient
        self.deadline: float | None = None
        self.error: BusError | None = None
        self.done = False
        self.on_failed: Callable[[BusError], None] | None = None
        self._on_sent = on_sent

    def sent(self) -> None:
        if self._on_sent is not None:
            self._on_sent()
        self.done = True

    def fail(self, error: BusError) -> None:
        self.error = error
        self.done = True
        if self.on_failed is not None:
            self.on_failed(error)


class Request(Outgoing):
    """A control message that is answered under the same key. It is done when it was answered or refused, or with
    ``lost`` when the connection has ended first. ``on_settled`` is called, if it is set, at the moment at which the
    answer is read or the connection ends."""

    def __init__(self, expect: Callable[[Request], None], key: bytes, payload: bytes | None = None) -> None:
        super().__init__(frames.request(key, payload), patient=True)
        self.key = key
        self.payload = payload
        self.answer: bytes | None = None
        self.lost = False
        #: the caller no longer waits for the answer
        self.abandoned = False
        self.on_settled: Callable[[], None] | None = None
        #: messages published before it
        self.published = 0
        self._expect = expect

    def sent(self) -> None:
        self._expect(self)

    def refuse(self, refusal: Refusal) -> None:
        self.fail(BusError(refusal.reason, f"the daemon refused {to_text(self.key)}"))

    def settle(self, answer: bytes | None) -> None:
        """The answer has come, or will not come any more."""
        self.answer = answer
        self.lost = answer is None
        self.done = True
        if self.on_settled is not None:
            self.on_settled()
