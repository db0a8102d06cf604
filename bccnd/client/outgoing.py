"""Frames and requests to the daemon: what became of them, and which request an answer or refusal is for.

Source: sbus, "Control message", and the refusals of docs/bus.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from bccnd.client.event_queues import Refusal
from bccnd.client.message import to_text
from bccnd.core.wire import frames
from bccnd.errors import BusError

#: refusals that name something else than the request that they are about
_ABOUT: Final = {frames.STATS: "unknown_listing", frames.TAG: "bad_tag"}
#: requests that have no answer but a refusal: the answer to a sync behind them means that they were accepted
_UNANSWERED: Final = (frames.TAG, frames.LOCAL_ON, frames.LOCAL_OFF)


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


class PendingRequests:
    """Requests in the order in which they were sent."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()

    def append(self, request: Request) -> None:
        self._waiting.append(request)

    @property
    def has_abandoned(self) -> bool:
        """Whether an answer may still come that its caller does not wait for any more."""
        return any(one.abandoned for one in self._waiting)

    def take_refused(self, refusal: Refusal) -> Request | None:
        """Remove and return the request that a refusal is about; None if it is about none."""
        for request in self._waiting:
            if refusal.key == to_text(request.key) or _ABOUT.get(request.key) == refusal.reason:
                self._waiting.remove(request)
                return request
        return None

    def take_answered(self, key: bytes, payload: bytes) -> Request | None:
        """Remove and return the request that an answer is for; None if it is for none."""
        waiting = self._waiting
        request = next(
            (one for one in waiting if one.key == key and (key != frames.SYNC or one.payload == payload)), None
        )
        if request is None:
            return None
        if key == frames.SYNC:
            # Earlier requests that were given up will not be answered any more, and some have no answer but a refusal.
            # (With another order of the queue an answer may come later: those are still waited for.)
            earlier = []
            while (one := waiting.popleft()) is not request:
                if not one.abandoned and one.key not in _UNANSWERED:
                    earlier.append(one)
            waiting.extendleft(reversed(earlier))
        else:
            waiting.remove(request)
        return request

    def settle_all(self) -> None:
        """No answer will come any more."""
        requests, self._waiting = self._waiting, deque()
        for request in requests:
            request.settle(None)
