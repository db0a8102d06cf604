"""A frame of the asyncio client that the socket has not taken yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Outgoing:
    """A frame to be sent, and the call that waits for it; ``then`` is done at the moment when it is sent."""

    __slots__ = ("frame", "limit", "limited", "sent", "then")

    def __init__(self, frame: bytes, sent: asyncio.Future[None], then: Callable[[], Any], limited: bool) -> None:
        self.frame = frame
        self.sent = sent
        self.then = then
        #: whether it fails while the daemon is away, and what makes it do so
        self.limited = limited
        self.limit: asyncio.TimerHandle | None = None

    def stop_limit(self) -> None:
        if self.limit is not None:
            self.limit.cancel()
            self.limit = None
