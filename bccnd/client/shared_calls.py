"""The calls of both clients. Each is written once, as a coroutine; the blocking client runs it to its end at once."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, starmap
from typing import Any, Final

from bccnd.client.events import MAX_EVENTS, MAX_INBOX, AsyncCallback, EventQueue, Refusal, raise_refused
from bccnd.client.logs import log_event
from bccnd.client.message import Data, Message, check_key, directed, publication, to_bytes
from bccnd.client.outgoing import Outgoing, Request
from bccnd.client.request_reply import AsyncReplies, AsyncResponder, write_request
from bccnd.client.session import PATIENCE, Session
from bccnd.client.transport import TURN, SessionSocket, unreachable
from bccnd.core.wire import frames
from bccnd.errors import BusError, ConnectionLost, RequestTimeout

SOFT: Final = ("queue", "discard", "block", "error")
HARD: Final = ("discard", "block", "error")
ORDERS: Final = ("queue", "stack", "random")
_SWITCH: Final = ("off", "on")


class Client:
    """What both clients do on their session and its socket."""

    closed = False

    def __init__(self, session: Session, socket: SessionSocket) -> None:
        self.path = session.path
        self._session = session
        self._router = session.router
        self._router.limit(MAX_INBOX)
        self._router.on_notice = partial(log_event, session.daemon)
        self._socket = socket

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

    async def _until(self, condition: Callable[[], bool], deadline: float | None = None, *, reads: bool = True) -> bool:
        """Wait until a condition holds; False when it does not at the deadline (monotonic). Unless it ``reads``, what
        comes meanwhile is not needed. Raises ConnectionLost at the end."""
        raise NotImplementedError

    async def _transmit(self, outgoing: Sequence[Outgoing], deadline: float | None = None) -> None:
        """Send frames, and wait until the last is done or one has failed."""
        last = outgoing[-1]

        def settled() -> bool:
            # Past the deadline what comes is of no interest: there may be no end of it.
            late = deadline is not None and time.monotonic() > deadline
            return late or last.done or any(one.error for one in outgoing)

        try:
            for one in outgoing:
                self._session.enqueue(one, time.monotonic())
            self._socket.flush()
            await self._until(settled, deadline, reads=isinstance(last, Request))
        finally:
            for one in outgoing:
                self._session.withdraw(one)
                if isinstance(one, Request) and not one.done:
                    one.abandoned = True
        for one in outgoing:
            if one.error is not None:
                raise one.error

    async def _send(self, frame: bytes, on_sent: Callable[[], None]) -> None:
        """Send a frame, once; waits for room in the socket, or up to PATIENCE for the daemon. Raises BusError."""
        if self._socket.send_now(frame):
            on_sent()
        else:
            await self._transmit([Outgoing(frame, on_sent)])

    async def _send_many(self, packets: list[bytes], on_sent: Callable[[], None]) -> None:
        """Send frames, each once, as `_send` does."""
        while packets:
            taken = self._socket.send_many_now(packets)
            for _ in range(taken):
                on_sent()
            if taken < len(packets):
                await self._send(packets[taken], on_sent)
            packets = packets[taken + 1 :]

    async def _set(self, *changes: tuple[str, str | None, tuple[str, ...]]) -> None:
        """Set modes: name, value, and the values that there are. Raises BusError: bad_mode."""
        for _, value, values in changes:
            if value not in values:
                raise BusError("bad_mode", f"{value!r} is none of {', '.join(values)}")
        for name, value, _ in changes:
            frame = frames.request(f"{name}/{value}".encode("ascii"))
            await self._send(frame, partial(self._session.modes.__setitem__, name, frame))

    async def _perform(self, make: Callable[[], list[Request]], timeout: float = PATIENCE) -> list[Request]:
        """Send requests until the last is answered. Raises BusError where one is refused."""
        deadline = time.monotonic() + timeout
        while True:
            requests = make()
            await self._transmit(requests, deadline)
            if not requests[-1].done:
                raise self._session.timeout_error(timeout)
            if not any(one.lost for one in requests):
                return requests

    def _hold(self, *patterns: str) -> None:
        """Subscribe to patterns; `_tell` sends that. Raises BusError."""
        self._session.check()
        self._session.subscribe(*map(to_bytes, patterns))

    async def _tell(self) -> None:
        """Send changes of patterns. A daemon that is away is told of them when it comes."""
        self._socket.flush()
        session = self._session
        await self._until(lambda: session.over or session.is_told, reads=False)


def _nothing() -> None:
    pass


class Calls(Client):
    """The calls, as coroutines."""

    # -- what to receive

    async def unsubscribe(self, *patterns: str) -> None:
        """Unsubscribe from patterns; from a pattern as often as the program subscribed to it. Raises BusError:
        bad_pattern, and unsubscribes from none of them."""
        keys = list(map(to_bytes, patterns))
        for pattern in keys:
            check_key(pattern, "bad_pattern")
        for pattern in keys:
            self._session.check()
            if not self._session.unsubscribe(pattern):  # the daemon refuses that
                await self._send(frames.unsubscribe(pattern), _nothing)
        await self._tell()

    async def listen(self, pattern: str, callback: AsyncCallback) -> None:
        """Subscribe to a pattern; ``callback`` is called with each message that matches. Messages to everyone, and to
        this program, are passed to every callback. Messages for callbacks are not returned by `receive`.

        If a callback returns an awaitable, as an ``async def`` does, it is awaited before the callbacks of the next
        message are called. If one raises, the loop's exception handler gets the error, and the others are called.

        Raises BusError: bad_pattern, as `subscribe` does.
        """
        self._hold(pattern)
        self._router.listen(pattern, callback)
        await self._tell()

    async def unlisten(self, pattern: str, callback: Callable[[Message], object]) -> bool:
        """Remove a callback of `listen`; False if it was not registered."""
        found = self._router.unlisten(pattern, callback)
        if found:
            await Calls.unsubscribe(self, pattern)
        return found

    async def respond(self, pattern: str, callback: AsyncResponder) -> None:
        """Answer requests on the channels that match a pattern: ``callback`` is called with each, and what it returns
        (awaited, if that is an awaitable) is sent to the program that asks; see `request`. With None nothing is sent.

            async def add(question):
                return str(sum(map(int, question.text.split())))

            await bus.respond("calc/add", add)

        Other messages that match are ignored. As with `listen`, callbacks are called one after the other.
        """
        await Calls.listen(self, pattern, AsyncReplies(self, callback))

    # -- what to send

    async def publish(self, chan: str, payload: Data = b"") -> None:
        """Send a message to the clients of this host and to the segment. Waits while the daemon is busy.

        Raises BusError: bad_channel, too_long, connection_lost. `sync` returns refusals of the daemon.
        """
        await self._send(publication(chan, payload), self._session.published)

    async def publish_many(self, messages: Iterable[tuple[str, Data]]) -> None:
        """Send messages, pairs of channel and payload, as `publish` does, with fewer system calls.

            await bus.publish_many((f"room/{number}", text) for number, text in enumerate(texts))

        Where this raises, some of the messages may have been sent.
        """
        packets = starmap(publication, messages)
        while some := list(islice(packets, TURN)):
            await self._send_many(some, self._session.published)

    async def send_all(self, payload: Data = b"") -> None:
        """Send a message to every listener, whatever it has subscribed to."""
        await Calls.publish(self, "!", payload)

    async def send_to(self, target: str, payload: Data = b"") -> None:
        """Send a message to one identity (``host/program/pid``) or to all below a prefix (``host/program/*``).

        Raises BusError: bad_target where the target is empty.
        """
        await Calls.publish(self, directed(target), payload)

    # -- modes

    async def tag(self, text: str) -> None:
        """Change the identity to ``<host>/<program>/<pid>/<text>``; an empty text removes the tag.

        Raises BusError: bad_tag (one word of at most 32 legal characters), not_permitted.
        """
        await self._perform(lambda: self._session.accepted(frames.TAG, to_bytes(text)))
        self._session.tag = to_bytes(text)

    async def echo(self, on: bool) -> None:
        """Whether this program also receives its own messages, if it has subscribed to them; the default is True."""
        await self._set(("echo", _SWITCH[on], _SWITCH))

    async def batch(self, on: bool) -> None:
        """Whether the daemon puts many waiting messages into one packet; see `connect`."""
        await self._set(("!/bccn/batch", _SWITCH[on], _SWITCH))

    async def local(self, on: bool) -> None:
        """Whether messages that this program publishes stay on this host: only clients of this daemon get them, and
        nothing is broadcast, whatever the channel. The default is False.

        Raises BusError: unknown_control, if the daemon is too old to know this mode and would broadcast.
        """
        key = frames.LOCAL_ON if on else frames.LOCAL_OFF
        await self._perform(lambda: self._session.accepted(key))
        self._session.modes["local"] = frames.request(key)

    async def blocking(self, soft: str | None = None, hard: str | None = None) -> None:
        """Choose how the daemon treats a message while this program does not read.

        ``soft`` applies as soon as the socket is full: ``queue`` keeps the message (the default), ``discard`` drops it,
        ``block`` makes its publisher wait, ``error`` ends this connection. ``hard`` applies when the queue has reached
        its limit: ``discard`` (the default), ``block`` or ``error``. Raises BusError: bad_mode.
        """
        changes = (("blocking/soft", soft, SOFT), ("blocking/hard", hard, HARD))
        await self._set(*(change for change in changes if change[1] is not None))

    async def order(self, order: str) -> None:
        """Choose the order in which queued messages are sent: ``queue`` (the default, the oldest first), ``stack`` (the
        latest first) or ``random`` (the largest first). Raises BusError: bad_mode."""
        await self._set(("order", order, ORDERS))

    # -- requests

    async def request(self, chan: str, payload: Data = b"", timeout: float = PATIENCE) -> Message:
        """Publish a request on a channel, and return the first reply, which is a message to this program. Programs on
        this host or another one reply with `respond`.

            reply = await bus.request("calc/add", "1 2")
            print(reply.text)

        This is best effort, like every message: the request or the reply may be lost, and none or several programs may
        answer. Raises RequestTimeout if no reply arrives within ``timeout`` seconds, and BusError as `publish` does, or
        with the reason why the daemon refused the request.
        """
        deadline = time.monotonic() + timeout
        token = b"%x" % int.from_bytes(os.urandom(8))
        question = Outgoing(publication(chan, write_request(token, to_bytes(payload))), self._session.published)
        pending = self._router.expect_reply(token, chan)
        try:
            await self._transmit([question], deadline)
            if not question.done:
                raise self._session.timeout_error(timeout)
            await self._until(lambda: pending.answer is not None, deadline)
        finally:
            self._router.forget_reply(token)
        if isinstance(pending.answer, Refusal):
            raise_refused(pending.answer)
        if not isinstance(pending.answer, Message):
            raise RequestTimeout("no_answer", f"no program answered on {chan} within {timeout:g} s")
        return pending.answer

    async def identity(self) -> str:
        """The identity of this program on the segment."""
        return (await Calls.ask(self, frames.WHOAMI)).decode("ascii")

    async def sync(self, timeout: float = PATIENCE) -> list[Refusal]:
        """Wait until the daemon has processed all that was sent before. Returns its refusals since the last call;
        messages still wait to be received.

        Raises RequestTimeout; and ConnectionLost, also after a reconnection if the previous daemon did not confirm all
        messages.
        """
        await self._perform(lambda: [self._session.sync()], timeout)
        self._session.check_confirmed()
        return self._router.take_refusals()

    async def ask(self, key: Data, payload: Data | None = None, timeout: float = PATIENCE) -> bytes:
        """Send a control message and wait for the answer under the same key. If the connection is lost meanwhile, the
        control message is sent again (but a listing of several pages does not continue).

        Raises RequestTimeout, ConnectionLost, or BusError with the reason of a refusal.
        """
        control = to_bytes(key), None if payload is None else to_bytes(payload)
        return (await self._perform(lambda: self._session.request(*control), timeout))[-1].answer or b""


class PatternMessages:
    """What the subscriptions of both clients have in common."""

    def __init__(self, bus: Any, patterns: Sequence[str], limit: int = MAX_EVENTS) -> None:
        self._bus = bus
        self._inbox = EventQueue(tuple(map(to_bytes, patterns)), limit)
        bus._hold(*patterns)
        bus._router.register(self._inbox)

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
