"""The blocking client: what programs call."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from itertools import islice, starmap
from typing import Final

from bccnd.client.blocking_driver import BlockingDriver, is_over
from bccnd.client.calls import HARD, ORDERS, SOFT, SWITCH
from bccnd.client.client_base import SubscriptionBase
from bccnd.client.event_queues import (
    MAX_EVENTS,
    Callback,
    Event,
    Refusal,
    raise_refused,
)
from bccnd.client.message import Data, Message, directed, publication
from bccnd.client.request_reply import Replies, Responder, refuse_coroutine
from bccnd.client.router import raise_errors
from bccnd.client.session import PATIENCE, Session
from bccnd.client.transport import usual_path
from bccnd.core.wire import frames

#: messages passed to callbacks by one `Connection.dispatch`
_MAX_DISPATCHED: Final = 10_000
#: messages sent with one system call
_SENT_AT_ONCE: Final = 64


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


def _not_awaited(result: object) -> TypeError:
    """The error of a callback that was no ``async def``, but has returned a coroutine all the same."""
    if isinstance(result, Coroutine):
        result.close()
    return TypeError(f"a callback returned {result!r}, which only bccnd.aio awaits")


class Connection(BlockingDriver):
    """A client of the local bus; see `connect`. Do not call its methods from several threads at once."""

    # -- what to receive

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
        self._finish(self._calls.announce())
        return subscription

    def unsubscribe(self, *patterns: str) -> None:
        """Unsubscribe from patterns; from a pattern as often as the program subscribed to it. Raises BusError:
        bad_pattern, and unsubscribes from none of them."""
        self._finish(self._calls.unsubscribe(*patterns))

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
        return self._messages(self._router.inbox)

    # -- callbacks

    def listen(self, pattern: str, callback: Callback) -> None:
        """Subscribe to a pattern; `dispatch` calls ``callback`` with each message that matches. Messages to everyone,
        and to this program, are passed to every callback. Messages for callbacks are not returned by `receive`; up to
        16,384 of them wait for `dispatch`.

        Raises BusError: bad_pattern, as `subscribe` does; and TypeError for an ``async def``, which only `bccnd.aio`
        can call.
        """
        refuse_coroutine(callback)
        self._listen(pattern, callback)

    def _listen(self, pattern: str, callback: Callable[[Message], object]) -> None:
        self._add_subscription(pattern)
        self._router.listen(pattern, callback)
        self._finish(self._calls.announce())

    def unlisten(self, pattern: str, callback: Callable[[Message], object]) -> bool:
        """Remove a callback of `listen`; False if it was not registered."""
        found = self._router.unlisten(pattern, callback)
        if found:
            self.unsubscribe(pattern)
        return found

    def respond(self, pattern: str, callback: Responder) -> None:
        """Answer requests on the channels that match a pattern: `dispatch` calls ``callback`` with each, and sends the
        returned value to the program that asks; see `request`. If ``callback`` returns None, nothing is sent.

            bus.respond("calc/add", lambda question: str(sum(map(int, question.text.split()))))
            while True:
                bus.dispatch(None)

        Other messages that match are ignored. `unlisten` removes the callback. Raises TypeError for an ``async def``.
        """
        refuse_coroutine(callback)
        self._listen(pattern, Replies(self, callback))

    def dispatch(self, timeout: float | None = 0.0) -> int:
        """Call the callbacks of `listen` with the waiting messages. If none waits, wait up to ``timeout`` seconds for
        one (None: without limit). Returns the number of messages.

        Raises BusError if the daemon refused a request. If a callback raises, the other callbacks of that message are
        called first; several errors are raised as an ExceptionGroup.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        inbox, listened = self._router.inbox, self._router.listened
        errors: list[Exception] = []
        count = 0
        try:
            while count < _MAX_DISPATCHED and not errors:
                while inbox.events and not isinstance(inbox.events[0], Message):
                    raise_refused(inbox.take())
                if listened.events:
                    count += isinstance(listened.events[0], Message)
                    results = self._router.call_next(errors.append)
                    errors += [_not_awaited(result) for result in results if isinstance(result, Awaitable)]
                elif not self._turn(0.0 if count else deadline) or (is_over(deadline) and not listened.events):
                    break
        finally:
            self._show()
        raise_errors(errors)
        return count

    # -- what to send

    def publish(self, chan: str, payload: Data = b"") -> None:
        """Send a message to the clients of this host and to the segment. Waits while the daemon is busy.

        Raises BusError: bad_channel, too_long, connection_lost. `sync` returns refusals of the daemon.
        """
        frame = publication(chan, payload)
        if self._socket.send_now(frame):  # nearly always
            self._session.published()
        else:
            self._finish(self._calls.publish(frame))

    def publish_many(self, messages: Iterable[tuple[str, Data]]) -> None:
        """Send messages, pairs of channel and payload, as `publish` does, with fewer system calls.

            bus.publish_many((f"room/{number}", text) for number, text in enumerate(texts))

        Where this raises, some of the messages may have been sent.
        """
        packets = starmap(publication, messages)
        while some := list(islice(packets, _SENT_AT_ONCE)):
            self._finish(self._calls.publish_all(some, self._socket.send_many_now))

    def send_all(self, payload: Data = b"") -> None:
        """Send a message to every listener, whatever it has subscribed to."""
        self.publish("!", payload)

    def send_to(self, target: str, payload: Data = b"") -> None:
        """Send a message to one identity (``host/program/pid``) or to all below a prefix (``host/program/*``).

        Raises BusError: bad_target where the target is empty.
        """
        self.publish(directed(target), payload)

    # -- modes

    def tag(self, text: str) -> None:
        """Change the identity to ``<host>/<program>/<pid>/<text>``; an empty text removes the tag.

        Raises BusError: bad_tag (one word of at most 32 legal characters), not_permitted.
        """
        self._finish(self._calls.set_tag(text))

    def echo(self, on: bool) -> None:
        """Whether this program also receives its own messages, if it has subscribed to them; the default is True."""
        self._finish(self._calls.set_modes(("echo", SWITCH[on], SWITCH)))

    def batch(self, on: bool) -> None:
        """Whether the daemon puts many waiting messages into one packet; see `connect`."""
        self._finish(self._calls.set_modes(("!/bccn/batch", SWITCH[on], SWITCH)))

    def local(self, on: bool) -> None:
        """Whether messages that this program publishes stay on this host: only clients of this daemon get them, and
        nothing is broadcast, whatever the channel. The default is False.

        Raises BusError: unknown_control, if the daemon is too old to know this mode and would broadcast.
        """
        self._finish(self._calls.set_local(on))

    def blocking(self, soft: str | None = None, hard: str | None = None) -> None:
        """Choose how the daemon treats a message while this program does not read.

        ``soft`` applies as soon as the socket is full: ``queue`` keeps the message (the default), ``discard`` drops it,
        ``block`` makes its publisher wait, ``error`` ends this connection. ``hard`` applies when the queue has reached
        its limit: ``discard`` (the default), ``block`` or ``error``. Raises BusError: bad_mode.
        """
        self._finish(self._calls.set_modes(("blocking/soft", soft, SOFT), ("blocking/hard", hard, HARD)))

    def order(self, order: str) -> None:
        """Choose the order in which queued messages are sent: ``queue`` (the default, the oldest first), ``stack`` (the
        latest first) or ``random`` (the largest first). Raises BusError: bad_mode."""
        self._finish(self._calls.set_modes(("order", order, ORDERS)))

    # -- requests

    def request(self, chan: str, payload: Data = b"", timeout: float = PATIENCE) -> Message:
        """Publish a request on a channel, and return the first reply, which is a message to this program. Programs on
        this host or another one reply with `respond`.

            reply = bus.request("calc/add", "1 2")
            print(reply.text)

        This is best effort, like every message: the request or the reply may be lost, and none or several programs may
        answer. Raises RequestTimeout if no reply arrives within ``timeout`` seconds, and BusError as `publish` does, or
        with the reason why the daemon refused the request.
        """
        return self._finish(self._calls.request(chan, payload, timeout))

    def identity(self) -> str:
        """The identity of this program on the segment."""
        return self.ask(frames.WHOAMI).decode("ascii")

    def sync(self, timeout: float = PATIENCE) -> list[Refusal]:
        """Wait until the daemon has processed all that was sent before. Returns its refusals since the last call;
        messages still wait to be received.

        Raises RequestTimeout; and ConnectionLost, also after a reconnection if the previous daemon did not confirm all
        messages.
        """
        return self._finish(self._calls.sync(timeout))

    def ask(self, key: Data, payload: Data | None = None, timeout: float = PATIENCE) -> bytes:
        """Send a control message and wait for the answer under the same key. If the connection is lost meanwhile, the
        control message is sent again (but a listing of several pages does not continue).

        Raises RequestTimeout, ConnectionLost, or BusError with the reason of a refusal.
        """
        return self._finish(self._calls.ask(key, payload, timeout))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Subscription(SubscriptionBase):
    """The messages of one `Connection.subscribe`: iterate over it, or call `receive`; ``with`` closes it.

        with bus.subscribe("door/*/opened") as doors:
            for message in doors:
                ...

    From its first use (iterating, `receive`, ``with``) until it is closed, a subscription takes the messages that match
    it, also those that wait in the connection. A message that matches several subscriptions in use goes to each of
    them. A subscription in use is closed when the program drops its last reference to it.

    While a program reads one subscription, messages for others wait: up to ``limit`` for each (1,024), and what was
    read at once with the last of them. Further ones are dropped: a `Gap` says how many, and ``dropped`` counts them.
    Gaps and absences of the daemon are added to ``lost`` and ``reconnects``. Iterating raises BusError if the daemon
    refused a pattern of this subscription, or a request that belongs to no other subscription.
    """

    def receive(self, timeout: float | None = None) -> Event | None:
        """Like `Connection.receive`, for the messages of this subscription; None also after `close`."""
        inbox = self._activate()
        if inbox.closed:
            return None
        event: Event | None = self._bus._next(inbox, timeout)
        return event

    def __iter__(self) -> Iterator[Message]:
        """Messages, until this is closed."""
        messages: Iterator[Message] = self._bus._messages(self._activate())
        return messages

    def __enter__(self) -> Subscription:
        self._activate()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
