"""How the blocking client waits: in the system call that receives, or with poll."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from bccnd.client.calls import Steps
from bccnd.client.client_base import ClientBase
from bccnd.client.event_queues import Event, EventQueue, raise_refused
from bccnd.client.message import Message
from bccnd.client.pollable import PollableDescriptor
from bccnd.client.session import Session
from bccnd.client.transport import SessionSocket

R = TypeVar("R")


def is_over(deadline: float | None) -> bool:
    """Whether a moment (monotonic) has come."""
    return deadline is not None and time.monotonic() >= deadline


class BlockingDriver(ClientBase):
    """Drives the session of a program that waits in its calls."""

    def __init__(self, session: Session, wait: float | None = 0.0) -> None:
        super().__init__(session, SessionSocket(session))
        self._pollable: PollableDescriptor | None = None
        for pause in self._attempts(wait):
            time.sleep(pause)

    def fileno(self) -> int:
        """A descriptor that is readable when an event can be received: then call `receive(0)` until it returns None, or
        `dispatch`. Events that were already read and wait, such as the rest of a batch, make it readable, too.

        It stays the same across reconnections, also in select, poll and epoll; -1 once this connection is closed.
        """
        if self._socket.closed:
            return -1
        if self._pollable is None:
            self._pollable = PollableDescriptor()
        self._show()
        return self._pollable.fileno()

    def close(self) -> None:
        """Disconnect from the daemon."""
        super().close()
        if self._pollable is not None:
            self._pollable.close()
            self._pollable = None

    def _messages(self, inbox: EventQueue) -> Iterator[Message]:
        """The messages of a queue, until it is closed. Raises BusError in place of a refusal."""
        events = inbox.events
        while not inbox.closed:
            if len(events) > 1 and type(events[0]) is Message:  # nothing else has to be done for it
                event: Event | None = events.popleft()
            else:
                event = self._next(inbox, None)
            if isinstance(event, Message):
                yield event
            elif event is not None:
                raise_refused(event)

    def _next(self, inbox: EventQueue, timeout: float | None) -> Event | None:
        """The next event of a queue; None after ``timeout`` seconds. Raises ConnectionLost at the end."""
        router, session, connection = self._router, self._session, self._socket
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while (event := router.take_for(inbox)) is None:
                if deadline is None and connection.sock is not None and session.ready and not session.has_data:
                    connection.receive(self._most, wait=True)
                elif not self._turn(deadline) or (is_over(deadline) and not inbox.events):
                    session.check()
                    return None
            return event
        finally:
            if self._pollable is not None:
                self._show()

    def _finish(self, steps: Steps[R]) -> R:
        """Take the steps of a call, one after the other; returns its result."""
        try:
            while True:
                self._until(*next(steps))
        except StopIteration as end:
            result: R = end.value
            return result
        finally:
            steps.close()
            self._show()

    def _until(self, condition: Callable[[], bool], deadline: float | None, reads: bool) -> None:
        """Wait until a condition holds, or for the deadline (monotonic). Raises ConnectionLost at the end."""
        while not condition():
            if not self._turn(deadline, reads or not self._session.ready) or is_over(deadline):
                return

    def _turn(self, deadline: float | None, reads: bool = True) -> bool:
        """Take one step: send what is due, read packets, wait for the socket, or connect. False when the time is over.
        Raises ConnectionLost at the end."""
        session, connection = self._session, self._socket
        if connection.sock is not None:
            if session.has_data:
                connection.flush()
            if connection.receive(self._most) if reads else not session.has_data:
                return True
        session.check()
        now = time.monotonic()
        wait = session.next_timeout(now)
        left = None if deadline is None else max(0.0, deadline - now)
        if left == 0 and wait != 0:
            return False
        connection.wait(left if wait is None else wait if left is None else min(wait, left), reads=reads)
        now = time.monotonic()
        session.expire(now)
        if session.may_connect(now):
            connection.reconnect()
        return True

    def _show(self) -> None:
        """Make the descriptor readable where there is something to do."""
        if self._pollable is None:
            return
        wait = self._session.next_timeout(time.monotonic()) if self._socket.sock is None else None
        if self._router.listened.events or self._session.over or any(one.events for one in self._router.inboxes()):
            wait = 0.0
        self._pollable.show(self._socket.sock, self._session.has_data, wait)
