"""The state that the blocking and the asyncio client share: a session, its socket, and what programs can ask of them
without waiting."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from bccnd.client.calls import Calls
from bccnd.client.event_queues import MAX_EVENTS, MAX_INBOX, EventQueue
from bccnd.client.logs import log_event
from bccnd.client.message import to_bytes
from bccnd.client.session import PATIENCE, Session
from bccnd.client.transport import MOST, SessionSocket, unreachable
from bccnd.errors import BusError, ConnectionLost


class ClientBase:
    """A connection of a program to the daemon."""

    def __init__(self, session: Session, socket: SessionSocket) -> None:
        self.path = session.path
        self._session = session
        self._socket = socket
        self._calls = Calls(session)
        #: packets read at once: no more than the smallest queue holds
        self._most = MOST
        self._router = session.router
        self._router.inbox.limit = self._router.listened.limit = MAX_INBOX
        self._router.on_notice = partial(log_event, session.daemon)

    def _attempts(self, wait: float | None) -> Iterator[float]:
        """Connect; gives the seconds to pause before each further attempt. Where no daemon listens, that goes on for
        ``wait`` seconds (None: for ever). Raises BusError."""
        now = time.monotonic()
        until = now + math.inf if wait is None else now + wait
        while True:
            try:
                if self._open(max(until, now + PATIENCE)):
                    return
            except BusError as error:
                if error.reason != "no_daemon" or time.monotonic() >= until:
                    raise
                yield min(0.1, max(0.0, until - time.monotonic()))
            else:
                yield 0.01

    def _open(self, deadline: float) -> bool:
        """Connect; False where the backlog of the listener is full, before ``deadline``. Raises BusError."""
        try:
            self._socket.connect()
        except OSError as error:
            if isinstance(error, BlockingIOError) and time.monotonic() <= deadline:
                return False
            raise unreachable(self.path, error) from error
        self._socket.flush()
        # A client that is not served is sent the reason first, and `receive` returns that.
        if self._socket.sock is None and not self._session.events:
            why = self._session.why
            self.close()
            raise ConnectionLost("connection_lost", why)
        return True

    def _add_subscription(self, *patterns: str) -> None:
        """Subscribe to patterns, which `Calls.announce` sends. Raises BusError."""
        self._session.check()
        self._session.subscribe(*map(to_bytes, patterns))

    @property
    def lost(self) -> int:
        """The messages that were dropped, by the gaps received so far that know their number."""
        return self._router.inbox.lost + self._router.listened.lost

    @property
    def connected(self) -> bool:
        """Whether the daemon serves this program, as far as this program has read its socket."""
        return self._socket.sock is not None and self._session.ready

    @property
    def reconnects(self) -> int:
        """How often the connection was away, by the events received so far."""
        return self._router.inbox.reconnects

    def close(self) -> None:
        """Disconnect from the daemon. Calls that wait raise ConnectionLost."""
        self._socket.close()
        self._session.end(f"the connection to {self.path} is closed")


class SubscriptionBase:
    """The messages that match some patterns, on a connection."""

    def __init__(self, bus: Any, patterns: Sequence[str], limit: int = MAX_EVENTS) -> None:
        self._bus = bus
        self._inbox = EventQueue(tuple(map(to_bytes, patterns)), limit)
        bus._add_subscription(*patterns)
        bus._most = max(1, min(bus._most, limit))
        bus._router.register(self._inbox)

    def _activate(self) -> EventQueue:
        """From now on, take the messages that match; returns their queue."""
        if not self._inbox.active:
            self._bus._router.activate(self._inbox)
        return self._inbox

    @property
    def closed(self) -> bool:
        """Whether this subscription was closed: it receives nothing more."""
        return self._inbox.closed

    @property
    def lost(self) -> int:
        """The messages that were dropped, by the gaps received so far that know their number."""
        return self._inbox.lost

    @property
    def dropped(self) -> int:
        """How many messages of this subscription were dropped because ``limit`` events already waited."""
        return self._inbox.dropped

    @property
    def reconnects(self) -> int:
        """How often the connection was away, by the events received so far."""
        return self._inbox.reconnects

    def close(self) -> None:
        """Unsubscribe, and drop the waiting messages; iterating ends."""
        if not self._inbox.closed:
            self._inbox.closed = True
            self._inbox.events.clear()
            self._bus._router.remove(self._inbox)
            for pattern in self._inbox.patterns:
                self._bus._session.drop(pattern)
            self._bus._socket.flush()
