"""Requests that were sent to the daemon and wait for their answers, and which of them an answer or refusal is for.

Source: sbus, "Control message", and the refusals of docs/bus.md.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from bccnd.client.events import Refusal
from bccnd.client.message import to_text
from bccnd.client.outgoing import Request
from bccnd.core.wire import frames

#: refusals that name something else than the request that they are about
_ABOUT: Final = {frames.STATS: "unknown_listing", frames.TAG: "bad_tag"}
#: requests that have no answer but a refusal: the answer to a sync behind them means that they were accepted
_UNANSWERED: Final = (frames.TAG, frames.LOCAL_ON, frames.LOCAL_OFF)


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
