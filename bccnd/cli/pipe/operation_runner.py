"""Carries out the operations of `bccn pipe` over a connection to the daemon, and answers each in its place.

Invariant: answers and messages are written in the order in which the daemon has sent them. Behind each operation with
an id the daemon is sent a sync (before it too, if operations without one were sent since the last), so that what it
refuses in between belongs to that operation.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from bccnd.cli.pipe.json_lines import (
    BadLineError,
    Operation,
    read_operation,
    write_bad_line,
    write_event,
    write_line,
    write_refused,
)
from bccnd.client.event_queues import NOT_SERVED, Reconnected, Refusal
from bccnd.client.message import to_text
from bccnd.client.outgoing import Outgoing, Request
from bccnd.client.session import Session
from bccnd.client.transport import MOST, Transport
from bccnd.core.wire import frames
from bccnd.errors import BusError, ConnectionLost

#: frames that wait for the daemon, and answers that are waited for, before no more lines are read
MAX_WAITING: Final = 1024
#: bytes of a key that a refusal names
_NAMED: Final = 1024
#: bytes of a key that a refusal names at least
_CUT: Final = 64


class _Pending:
    """An operation, and why it is refused, if it is."""

    def __init__(self, operation: Operation, key: bytes) -> None:
        self.operation = operation
        self.about = to_text(key[:_NAMED])
        self.refusal: Refusal | None = None

    def is_named_by(self, key: str) -> bool:
        """Whether a refusal with this key, of which the daemon may have cut the end, is about this."""
        if self.operation.name == "sync":
            return False
        return self.about == key or (len(key) >= _CUT and self.about.startswith(key))

    def refuse(self, reason: str) -> None:
        """It is refused here."""
        self.refusal = self.refusal or Refusal(reason, self.about)


class OperationRunner:
    """``write`` takes the lines that go out, ``has_room`` says whether more may be read for them; ``on_refused`` is
    called when the daemon does not serve this program, or refuses its tag; ``on_idle`` when lines may be read again."""

    def __init__(
        self,
        path: str,
        tag: str,
        *,
        write: Callable[[bytes], None],
        has_room: Callable[[], bool],
        on_refused: Callable[[Refusal], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._write, self._on_refused, self._on_idle = write, on_refused, on_idle
        self._tag = tag
        self._session = Session(path)
        self._session.tag = tag.encode("utf-8", "surrogateescape")
        self._session.router.shows_away = True
        loop = asyncio.get_running_loop()
        self._transport = Transport(self._session, loop, self._on_turn, room=lambda _reads: MOST if has_room() else 0)
        self._line = 0
        #: operations that wait for an answer, in the order in which they were sent
        self._pending: deque[_Pending] = deque()
        #: what was sent before each sync that is not answered yet: an operation with an id, or others (None)
        self._windows: deque[_Pending | None] = deque()
        #: whether operations without an id were sent behind the last sync
        self._unmarked = False

    def connect(self) -> None:
        """Connect now. Raises OSError."""
        self._transport.connect()
        self._transport.flush()

    def close(self) -> None:
        self._transport.close()

    @property
    def is_busy(self) -> bool:
        """Whether no more lines should be read for now."""
        return len(self._session.queue) >= MAX_WAITING or len(self._pending) >= MAX_WAITING

    def resume(self) -> None:
        """There is room for output again."""
        self._transport.arrange()

    def feed(self, line: bytes) -> None:
        """Carry out a line."""
        self._line += 1
        try:
            operation = read_operation(line)
        except BadLineError as error:
            self._write(write_bad_line(self._line, str(error)))
        else:
            self._do(operation)

    def finish(self, on_finished: Callable[[], None], on_failed: Callable[[BusError], None]) -> None:
        """Call ``on_finished`` when everything that was taken is published and answered, or ``on_failed`` where the
        daemon is away for too long."""

        def settled(asked: Request) -> None:
            if asked.lost:
                self.finish(on_finished, on_failed)
            else:
                on_finished()

        last = self._session.sync()
        last.patient = False
        last.on_failed = on_failed
        self._sync(None, settled, last)

    # -- operations

    def _do(self, operation: Operation) -> None:
        match operation.name:
            case "whoami":
                self._whoami(operation)
            case "sync":
                self._mark(_Pending(operation, b""))
            case "subscribe" | "unsubscribe":
                self._change(operation)
            case _:
                self._publish(operation)

    def _change(self, operation: Operation) -> None:
        pattern = operation.target
        pending = self._begin(operation, pattern)
        try:
            if operation.name == "subscribe":
                self._session.subscribe(pattern)
            elif not self._session.unsubscribe(pattern):
                pending.refuse("not_subscribed")
        except BusError as error:
            pending.refuse(error.reason)
        self._transport.flush()
        self._end(pending)

    def _publish(self, operation: Operation) -> None:
        key = {"publish": operation.target, "send_all": b"!"}.get(operation.name, b"!" + operation.target)
        pending = self._begin(operation, key)
        if operation.name == "send_to" and not operation.target:
            pending.refuse("bad_target")
        else:
            message = Outgoing(frames.message(key, operation.payload), self._session.published)
            message.on_failed = partial(self._fail, pending)
            self._send(message)
        self._end(pending)

    def _whoami(self, operation: Operation) -> None:
        def settled(asked: Request) -> None:
            if asked.answer is None:
                self._whoami(operation)
            else:
                self._write_events()
                self._write(write_line("identity", {"src": to_text(asked.answer), **operation.answers}))

        self._ask(self._session.request(frames.WHOAMI)[-1], settled)

    def _begin(self, operation: Operation, key: bytes) -> _Pending:
        """What waits for the answer to an operation."""
        if not operation.answers:
            self._unmarked = True
        elif self._unmarked:
            self._sync(None, lambda _asked: None)
        return _Pending(operation, key)

    def _end(self, pending: _Pending) -> None:
        """An operation is on its way, or refused here."""
        if pending.operation.answers:
            self._mark(pending)
        elif pending.refusal is not None:
            self._write(write_refused({}, pending.refusal))

    def _mark(self, pending: _Pending) -> None:
        """Answer an operation when the daemon has done all that was sent so far."""
        self._pending.append(pending)

        def settled(asked: Request) -> None:
            if asked.lost and pending.operation.name not in ("publish", "send_to", "send_all"):
                self._sync(pending, settled)
                return
            if asked.lost:  # whether the daemon had this message is unknown
                pending.refuse("connection_lost")
            self._answer(pending)

        self._sync(pending, settled)
        self._unmarked = False

    def _answer(self, pending: _Pending) -> None:
        if pending not in self._pending:  # it has failed, and was answered then
            return
        self._pending.remove(pending)
        answers = pending.operation.answers
        if pending.operation.name == "sync":
            try:
                self._session.check_confirmed()
            except ConnectionLost as error:
                pending.refuse(error.reason)
        if pending.refusal is not None:
            self._write(write_refused(answers, pending.refusal))
        elif answers:
            self._write(write_line("done", answers))
        self._on_idle()

    def _fail(self, pending: _Pending, error: BusError) -> None:
        """A message cannot be sent."""
        pending.refuse(error.reason)
        if not pending.operation.answers:
            self._write(write_refused({}, Refusal(error.reason, pending.about)))
        elif error.reason == "connection_lost":
            self._answer(pending)  # now, and not when the daemon is back

    # -- the connection

    def _sync(
        self, pending: _Pending | None, on_settled: Callable[[Request], None], request: Request | None = None
    ) -> None:
        """Send a sync behind an operation, or behind several without an id."""

        def settled(asked: Request) -> None:
            self._write_events()
            self._windows.popleft()
            on_settled(asked)

        self._windows.append(pending)
        self._ask(request or self._session.sync(), settled)

    def _ask(self, request: Request, on_settled: Callable[[Request], None]) -> None:
        request.on_settled = partial(on_settled, request)
        self._send(request)

    def _send(self, outgoing: Outgoing) -> None:
        self._session.enqueue(outgoing, time.monotonic())
        self._transport.flush()

    def _on_turn(self) -> None:
        self._write_events()
        self._on_idle()

    def _write_events(self) -> None:
        """Write what has come."""
        events = self._session.events
        while events:
            event = events[0]
            if isinstance(event, Reconnected) and not self._session.ready:
                return  # what is subscribed to is not restored yet
            events.popleft()
            if isinstance(event, Refusal):
                self._take_refusal(event)
            else:
                self._write(write_event(event))

    def _take_refusal(self, refusal: Refusal) -> None:
        about_tag = refusal.key in (to_text(frames.TAG), self._tag) and refusal.reason in ("bad_tag", "not_permitted")
        if (not refusal.key and refusal.reason in NOT_SERVED) or (self._tag and about_tag):
            self._on_refused(refusal)
            return
        # A pattern may be sent before messages that wait for room.
        changes = (one for one in self._pending if one.operation.name in ("subscribe", "unsubscribe"))
        for pending in (*list(self._windows)[:1], *changes):
            if pending is not None and pending.refusal is None and pending.is_named_by(refusal.key):
                pending.refusal = refusal
                return
        self._write(write_event(refusal))
