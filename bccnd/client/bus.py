"""The blocking client: a loop around poll that drives the session of a connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from bccnd.client.events import (
    MAX_EVENTS,
    Away,
    Callback,
    Event,
    EventQueue,
    Gap,
    Reconnected,
    Refusal,
    raise_refused,
)
from bccnd.client.message import Data, Message, publication
from bccnd.client.pollable import PollableDescriptor
from bccnd.client.request_reply import Replies, Responder, is_awaitable, refuse_coroutine
from bccnd.client.router import raise_errors
from bccnd.client.session import PATIENCE, Session
from bccnd.client.shared_calls import Calls, Client, PatternMessages
from bccnd.client.transport import TURN, SessionSocket, usual_path

__all__ = [
    "PATIENCE",
    "Away",
    "Callback",
    "Connection",
    "Data",
    "Event",
    "Gap",
    "Reconnected",
    "Refusal",
    "Subscription",
    "connect",
]

#: messages passed to callbacks by one `Connection.dispatch`
_MAX_DISPATCHED: Final = 10_000

P = ParamSpec("P")
R = TypeVar("R")


def connect(
    path: str | None = None,
    *,
    reconnect: bool = True,
    batch: bool = True,
    dialect: str | None = None,
    wait: float | None = 0.0,
    away: bool = False,
) -> Connection:
    """Connect to the daemon at ``path``, else at ``$BCCN_SOCKET``, else at /run/bccnd/bus.sock.

        import bccnd

        with bccnd.connect() as bus:
            bus.publish("cardsys/hello", "hello, world")
            for message in bus.subscribe("cardsys/", "door/*/opened"):
                print(message.src, message.chan, message.text)

    ``path`` is the path of a socket, ``@name`` for an abstract address, or ``/dev/unix/abstract/<hex>``. Raises
    BusError: no_daemon if no daemon listens, bad_address. ``wait`` is how many seconds to wait for a daemon (None:
    without limit).

    A program can receive in three ways, and combine them:

    - Iterate over the subscription that `Connection.subscribe` returns, or call its `receive`: only messages that match
      its patterns.
    - `Connection.listen` registers a callback for a pattern; `Connection.dispatch` calls the callbacks.
    - Iterate over the connection, or call its `receive`: everything that no subscription in use and no callback takes.

    If the daemon refuses a pattern or a message, iterating raises BusError with a ``reason`` such as not_permitted;
    `Connection.sync` returns such refusals instead.

    If the daemon restarts or crashes, the client tries to connect until it succeeds, and then restores subscriptions,
    tag and modes. `receive` returns such events in order with the messages:

            while (event := bus.receive(timeout=60)) is not None:
                match event:
                    case bccnd.Message(src=src, chan=chan, payload=payload):
                        ...
                    case bccnd.Gap(lost=lost):                     # so many messages were dropped here; 0: unknown
                        ...
                    case bccnd.Reconnected(seconds=seconds):       # messages may be missing here
                        ...
                    case bccnd.Refusal(reason=reason, key=key):    # the daemon refused what was sent
                        ...

    With ``away=True`` it also returns ``Away(reason)`` when the connection is lost. `Connection.connected` says whether
    the daemon serves this program now. All of these events are also logged, by the logger ``bccnd.client``.

    Calls that send wait up to 5 s for a daemon that is away and then raise ConnectionLost. A subscription made while
    the daemon is away is sent when it is back. A message is sent at most once: if a daemon ends after it took a
    message, the client does not send that message to the next daemon, and `sync` raises ConnectionLost. With
    ``reconnect=False`` the client does not reconnect: messages that arrived before the loss are still received, then
    every call raises ConnectionLost.

    Messages that wait for this program come in one packet, at a fraction of the cost; the messages and their order are
    the same. ``batch=False`` (or `Connection.batch`, later) turns that off. A daemon that does not know it sends the
    messages one by one.

    ``dialect`` (path, sbus, sbus-dot, broker) is the dialect of the patterns. The default is the dialect of the socket;
    to distribute messages to several subscriptions, the client assumes ``path``.

    A connection cannot be used after a fork, because both processes would share its socket. A child process makes a
    connection of its own, and does not touch that of its parent.
    """
    session = Session(path or usual_path(), batch=batch, reconnect=reconnect, dialect=dialect)
    session.router.shows_away = away
    return Connection(session, wait)


def _run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that waits by itself, and so is at its end when it returns."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it was suspended")


def _blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """The blocking form of a call."""

    @wraps(call)
    def run(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        return _run(call(self, *arguments, **options))

    run.__doc__ = call.__doc__ and call.__doc__.replace("await ", "")  # in examples
    return run


def _not_awaited(result: object) -> TypeError:
    """The error of a callback that was no ``async def``, but has returned a coroutine all the same."""
    if isinstance(result, Coroutine):
        result.close()
    return TypeError(f"a callback returned {result!r}, which only bccnd.aio awaits")


class _Deadline:
    """When to stop reading: at a moment (monotonic), and some packets later where something was there by then."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._left = TURN

    def goes_on(self) -> bool:
        """Whether to read on, after a packet."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._left -= 1
        return self._left > 0


#: a deadline that never comes
_FOREVER: Final = _Deadline(None)


def _messages(bus: Connection, inbox: EventQueue) -> Iterator[Message]:
    events = inbox.events
    while not inbox.closed:
        if len(events) > 1 and type(events[0]) is Message:  # nothing else has to be done for it
            event: Event | None = events.popleft()
        else:
            event = bus._take(inbox) if events else bus._next(inbox, None)
        if isinstance(event, Message):
            yield event
        elif event is not None:
            raise_refused(event)


class Connection(Client):
    """A client of the local bus; see `connect`. Do not call its methods from several threads at once."""

    def __init__(self, session: Session, wait: float | None = 0.0) -> None:
        super().__init__(session, SessionSocket(session))
        self._pollable: PollableDescriptor | None = None
        for pause in self._attempts(wait):
            time.sleep(pause)

    def subscribe(self, *patterns: str, limit: int = MAX_EVENTS) -> Subscription:
        """Subscribe to the messages whose channel matches one of the patterns. A pattern may be subscribed to
        repeatedly.

            for message in bus.subscribe("a/>"):
                ...

        A program that ignores the returned subscription receives its messages from the connection. From its first use
        on, the subscription takes the messages that match it; see `Subscription`. At most ``limit`` of them wait while
        other calls read; further ones are dropped and reported by a `Gap`.

        Raises BusError, and subscribes to nothing: bad_pattern (a pattern holds no NUL), too_long.
        """
        subscription = Subscription(self, patterns, limit)
        _run(self._tell())
        return subscription

    unsubscribe = _blocking(Calls.unsubscribe)

    def listen(self, pattern: str, callback: Callback) -> None:
        """Subscribe to a pattern; `dispatch` calls ``callback`` with each message that matches. Messages to everyone,
        and to this program, are passed to every callback. Messages for callbacks are not returned by `receive`; up to
        16,384 of them wait for `dispatch`.

        Raises BusError: bad_pattern, as `subscribe` does; and TypeError for an ``async def``, which only `bccnd.aio`
        can call.
        """
        refuse_coroutine(callback)
        _run(Calls.listen(self, pattern, callback))  # type: ignore[arg-type]

    unlisten = _blocking(Calls.unlisten)

    def respond(self, pattern: str, callback: Responder) -> None:
        """Answer requests on the channels that match a pattern: `dispatch` calls ``callback`` with each, and sends the
        returned value to the program that asks; see `request`. If ``callback`` returns None, nothing is sent.

            bus.respond("calc/add", lambda question: str(sum(map(int, question.text.split()))))
            while True:
                bus.dispatch(None)

        Other messages that match are ignored. `unlisten` removes the callback. Raises TypeError for an ``async def``.
        """
        refuse_coroutine(callback)
        _run(Calls.listen(self, pattern, Replies(self, callback)))  # type: ignore[arg-type]

    def dispatch(self, timeout: float | None = 0.0) -> int:
        """Call the callbacks of `listen` with the waiting messages. If none waits, wait up to ``timeout`` seconds for
        one (None: without limit). Returns the number of messages.

        Raises BusError if the daemon refused a request. If a callback raises, the other callbacks of that message are
        called first; several errors are raised as an ExceptionGroup.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        reading, inbox, listened = _Deadline(deadline), self._router.inbox, self._router.listened
        errors: list[Exception] = []
        count = 0
        try:
            while count < _MAX_DISPATCHED and not errors:
                while inbox.events and not isinstance(inbox.events[0], Message):
                    raise_refused(inbox.take())
                if listened.events:
                    count += isinstance(listened.events[0], Message)
                    results = self._router.call_next(errors.append)
                    errors += [_not_awaited(result) for result in results if is_awaitable(result)]
                elif not self._turn(0.0 if count else deadline) or not reading.goes_on():
                    break
        finally:
            self._show()
        raise_errors(errors)
        return count

    def publish(self, chan: str, payload: Data = b"") -> None:
        frame = publication(chan, payload)
        if self._socket.send_now(frame):  # nearly always, and then without a coroutine
            self._session.published()
        else:
            _run(self._send(frame, self._session.published))

    publish.__doc__ = Calls.publish.__doc__
    publish_many = _blocking(Calls.publish_many)
    send_all = _blocking(Calls.send_all)
    send_to = _blocking(Calls.send_to)
    tag = _blocking(Calls.tag)
    echo = _blocking(Calls.echo)
    batch = _blocking(Calls.batch)
    local = _blocking(Calls.local)
    blocking = _blocking(Calls.blocking)
    order = _blocking(Calls.order)
    identity = _blocking(Calls.identity)
    sync = _blocking(Calls.sync)
    ask = _blocking(Calls.ask)
    request = _blocking(Calls.request)

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next message, gap, refusal, or ``Reconnected`` after the daemon was away; None after ``timeout`` seconds.
        Raises ConnectionLost when the connection has ended.

        Up to 16,384 events that other calls read wait here; a `Gap` reports how many further messages were dropped.
        """
        return self._next(self._router.inbox, timeout)

    def __iter__(self) -> Iterator[Message]:
        """Messages, without end, but for those that subscriptions in use and callbacks take; gaps are added to `lost`,
        absences of the daemon to `reconnects`. Raises BusError where the daemon refused something (a pattern:
        not_permitted, too_many_subscriptions; a message; this program: too_many_clients), after the messages that came
        before; to go on, iterate again."""
        return _messages(self, self._router.inbox)

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

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _next(self, inbox: EventQueue, timeout: float | None) -> Event | None:
        if inbox.events:
            return self._take(inbox)
        deadline = None if timeout is None else time.monotonic() + timeout
        router, session, connection = self._router, self._session, self._socket
        reading = _FOREVER if deadline is None else _Deadline(deadline)
        try:
            while not inbox.events:
                if inbox is not router.inbox and router.has_refused and (refused := router.unowned()):
                    return router.take(refused[:1])[0]
                sock = connection.sock
                if deadline is None and sock is not None and session.ready and not session.has_data:
                    connection.wait_and_receive(sock)
                elif not self._turn(deadline) or not (inbox.events or reading.goes_on()):
                    return None
            return inbox.take()
        finally:
            if self._pollable is not None:
                self._show()

    def _take(self, inbox: EventQueue) -> Event:
        event = inbox.take()
        if self._pollable is not None and not inbox.events:
            self._show()
        return event

    async def _until(self, condition: Callable[[], bool], deadline: float | None = None, *, reads: bool = True) -> bool:
        reading = _Deadline(deadline)
        try:
            while not condition():
                if not self._turn(deadline, reads or not self._session.ready) or not reading.goes_on():
                    return condition()
            return True
        finally:
            self._show()

    def _turn(self, deadline: float | None, reads: bool = True) -> bool:
        """Take one step: send what is due, read a packet, wait for the socket, or connect. False when the time is
        over. Raises ConnectionLost at the end."""
        session, connection = self._session, self._socket
        if connection.sock is not None:
            if session.has_data:
                connection.flush()
            if connection.receive() if reads else not session.has_data:
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


class Subscription(PatternMessages):
    """The messages of one `Connection.subscribe`: iterate over it, or call `receive`; ``with`` closes it.

        with bus.subscribe("door/*/opened") as doors:
            for message in doors:
                ...

    From its first use (iterating, `receive`, ``with``) until it is closed, a subscription takes the messages that match
    it, also those that wait in the connection. A message that matches several subscriptions in use goes to each of
    them. A subscription in use is closed when the program drops its last reference to it.

    While a program reads one subscription, messages for others wait: up to ``limit`` for each (1,024), and the rest of
    the packet that reaches it. Further ones are dropped: a `Gap` says how many, and ``dropped`` counts them. Gaps and
    absences of the daemon are added to ``lost`` and ``reconnects``. Iterating raises BusError if the daemon refused a
    pattern of this subscription, or a request that belongs to no other subscription.
    """

    def receive(self, timeout: float | None = None) -> Event | None:
        """Like `Connection.receive`, for the messages of this subscription; None also after `close`."""
        if self._inbox.closed:
            return None
        self._bus._router.activate(self._inbox)
        event: Event | None = self._bus._next(self._inbox, timeout)
        return event

    def __iter__(self) -> Iterator[Message]:
        """Messages, until this is closed."""
        if not self._inbox.closed:
            self._bus._router.activate(self._inbox)
        return _messages(self._bus, self._inbox)

    def __enter__(self) -> Subscription:
        self._bus._router.activate(self._inbox)
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
