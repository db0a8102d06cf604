"""A connection to the daemon, for programs that run on asyncio.

Law: as in `bccnd.client.bus`, and nothing blocks: neither the loop, nor one task another. Everything is done by
callbacks of the loop; there is no task and no thread, and so none to be left behind. A program that does not keep up is
not read for: the daemon notices, and says what it dropped.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final

from bccnd.client import session as shared
from bccnd.client.message import Message, to_bytes
from bccnd.client.outgoing import Outgoing
from bccnd.client.session import PATIENCE, Event, Question, Refusal, Session
from bccnd.client.transport import (
    BUFFER,
    address_of,
    away,
    dial,
    give,
    jitter,
    unconfirmed,
    unreachable,
    unsent,
    usual_path,
)
from bccnd.core import frames
from bccnd.errors import BadFrame, BusError

__all__ = ["AsyncConnection", "connect"]

#: events that wait to be received; while there are so many, nothing more is read (the last batch may go beyond)
MAX_EVENTS: Final = 1024
#: packets read, or frames sent by one task, before others have their turn
TURN: Final = 64


async def connect(path: str | None = None, *, reconnect: bool = True, batch: bool = False) -> AsyncConnection:
    """Connect to the daemon at ``path``, else at ``$BCCN_SOCKET``, else at /run/bccnd/bus.sock.

    ``path`` is that of a socket, ``@name`` for an abstract address, or ``/dev/unix/abstract/<hex>``. Raises BusError:
    no_daemon when nobody answers there, bad_address.

        import asyncio
        import bccnd.aio

        async def main():
            async with await bccnd.aio.connect() as bus:
                await bus.subscribe("cardsys/", "door/*/opened")
                await bus.publish("cardsys/hello", "hello, world")
                async for message in bus:
                    print(message.src, message.chan, message.payload)

        asyncio.run(main())

    Where the daemon refuses a pattern or a message, iterating raises BusError with the reason, like not_permitted.

    Several tasks may publish, ask and receive at once; of those that receive, each event goes to one. What is
    cancelled leaves the connection usable, and takes no event with it.

    A daemon that goes away (a restart, a crash) is called again for as long as it takes, and then told again what this
    program is subscribed to, its tag and its modes. `receive` says ``Reconnected`` where something may be missing:

            while (event := await bus.receive(timeout=60)) is not None:
                match event:
                    case bccnd.Message(src=src, chan=chan, payload=payload):
                        ...
                    case bccnd.Gap(lost=lost):                     # too slow: so many messages were dropped here
                        ...
                    case bccnd.Reconnected(seconds=seconds):       # nobody knows how many are missing here
                        ...
                    case bccnd.Refusal(reason=reason, key=key):    # the daemon refused what was sent
                        ...

    Calls that send wait for a daemon that is away for 5 s and then raise BusError: connection_lost. A message is sent
    at most once: what a daemon had taken when it ended is not sent to the next one, and `sync` says so. With
    ``reconnect=False`` the first loss is the end: what had come is still received, and then every call raises
    BusError: connection_lost.

    With ``batch=True`` (or `AsyncConnection.batch`, later) messages that wait at the daemon come many to a packet, at a
    fraction of the cost; what is received, and in which order, is the same. A daemon that knows no batches refuses that
    (``Refusal("unknown_control", "!/bccn/batch/on")``) and goes on without.
    """
    path = path or usual_path()
    address = address_of(path)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            sock = dial(address)
        except BlockingIOError as error:  # others wait to be answered
            if time.monotonic() > deadline:
                raise unreachable(path, error) from error
            await asyncio.sleep(0.01)
        except OSError as error:
            raise unreachable(path, error) from error
        else:
            return AsyncConnection(path, address, sock, reconnect=reconnect, batch=batch)


class AsyncConnection:
    """A client of the local bus; see `connect`. To be used on the loop that it was made on."""

    def __init__(
        self, path: str, address: str | bytes, sock: socket.socket, *, reconnect: bool, batch: bool = False
    ) -> None:
        self.path = path
        self._address = address
        self._reconnect = reconnect
        self._loop = asyncio.get_running_loop()
        self._session = Session(batch=batch)
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._sock: socket.socket | None = sock
        self._reads = self._writes = False
        #: since when nothing is read: because too much waits, or because this connection has only just been made
        self._paused_since = time.monotonic()
        #: what the daemon has still to be told before anything else
        self._unsaid: deque[bytes] = deque(self._session.opening())
        self._outbox: deque[Outgoing] = deque()
        #: who waits for an event, and how many wait for an answer
        self._receivers: deque[asyncio.Future[None]] = deque()
        self._askers = 0
        self._sent_at_once = 0
        self._retry: asyncio.TimerHandle | None = None
        self._why = ""
        self._over = False
        self._closed = False
        self._flush()
        # Who was turned away at the door has been told why, and `receive` tells.
        if self._why and not self._session.events:
            why = self._why
            self.close()
            raise BusError("connection_lost", why)

    @property
    def lost(self) -> int:
        """The messages that the gaps received so far have told of."""
        return self._session.missed

    @property
    def reconnects(self) -> int:
        """How often the connection was away, as told by what was received so far."""
        return self._session.reconnects

    # -- what to hear

    async def subscribe(self, *patterns: str) -> None:
        """Ask for the messages whose channel matches; the same pattern may be asked for more than once."""
        for pattern in map(to_bytes, patterns):
            await self._send(frames.subscribe(pattern), partial(self._session.subscribed, pattern))

    async def unsubscribe(self, *patterns: str) -> None:
        """Take patterns back, each as often as it was asked for."""
        for pattern in map(to_bytes, patterns):
            await self._send(frames.unsubscribe(pattern), partial(self._session.unsubscribed, pattern))

    # -- what to say

    async def publish(self, chan: str, payload: bytes | str = b"") -> None:
        """Send a message to the clients of this host and to the segment. Waits while the daemon is busy.

        Raises BusError: bad_channel, too_long, connection_lost; what the daemon refuses is told by `sync`.
        """
        await self._send(shared.publication(chan, payload), self._session.published)

    async def send_all(self, payload: bytes | str = b"") -> None:
        """Send a message to every listener, whatever it has subscribed to."""
        await self.publish("!", payload)

    async def send_to(self, target: str, payload: bytes | str = b"") -> None:
        """Send a message to one identity (``host/program/pid``) or to all below a prefix (``host/program/*``).

        Raises BusError: bad_target for nobody, who is not everybody.
        """
        await self.publish(shared.directed(target), payload)

    # -- how to be served

    async def tag(self, text: str) -> None:
        """Be called ``<host>/<program>/<pid>/<text>`` from now on; an empty text takes that back.

        Raises BusError: bad_tag (one word of at most 32 legal characters), not_permitted.
        """
        tag = to_bytes(text)
        (await self._ask(lambda: self._session.tagging(tag), PATIENCE)).result()
        self._session.tagged(tag)

    async def echo(self, on: bool) -> None:
        """Whether this program hears what it publishes itself, if it has subscribed to it; it does at first."""
        await self._set(shared.echo_mode(on))

    async def batch(self, on: bool) -> None:
        """Whether messages that wait at the daemon come many to a packet; see `connect`."""
        await self._set(shared.batch_mode(on))

    async def local(self, on: bool) -> None:
        """Whether what this program publishes stays on this host: with it on, only clients of this daemon get it and
        nothing is broadcast, whatever the channel. It is off at first.

        Raises BusError: unknown_control, where the daemon is too old to know it and would broadcast.
        """
        (await self._ask(lambda: self._session.locally(on), PATIENCE)).result()
        self._session.spoken_locally(on)

    async def blocking(self, soft: str | None = None, hard: str | None = None) -> None:
        """What the daemon does with a message while this program does not read.

        ``soft``, as soon as the socket is full: ``queue`` keeps it, as it does at first, ``discard`` drops it,
        ``block`` makes its publisher wait, ``error`` ends this connection. ``hard``, when what is queued is as much as
        is allowed: ``discard`` (at first), ``block`` or ``error``. Raises BusError: bad_mode.
        """
        await self._set(shared.blocking_modes(soft, hard))

    async def order(self, order: str) -> None:
        """In which order what is queued is sent: ``queue`` (at first), ``stack`` (the latest first) or ``random``.
        Raises BusError: bad_mode."""
        await self._set(shared.order_mode(order))

    async def _set(self, modes: dict[str, bytes]) -> None:
        for name, frame in modes.items():
            await self._send(frame, partial(self._session.set_mode, name, frame))

    # -- questions

    async def identity(self) -> str:
        """What this program is called on the segment."""
        return (await self.ask(frames.WHOAMI)).decode("ascii")

    async def sync(self, timeout: float = PATIENCE) -> list[Refusal]:
        """Wait until the daemon has dealt with all that was sent before, by whatever task; returns what it refused
        since the last call, and leaves messages to be received.

        Raises BusError: no_answer; connection_lost also when the daemon has come back, if the one before it has not
        confirmed all that was published.
        """
        (await self._ask(lambda: [self._session.sync()], timeout)).result()
        if not self._session.sure():
            raise unconfirmed(self.path)
        refused = self._session.take_refusals()
        self._arrange()
        return refused

    async def ask(self, key: bytes, payload: bytes | None = None, timeout: float = PATIENCE) -> bytes:
        """Send a control message and wait for the answer under the same key; it is asked again where the connection
        was lost in between (of a listing whose pages were being turned, nothing more comes then).

        Raises BusError: no_answer, connection_lost, or what it was refused for.
        """
        return (await self._ask(lambda: self._session.before(Question(key, payload)), timeout)).result()

    async def _ask(self, make: Callable[[], list[Question]], timeout: float) -> Question:
        """Send what ``make`` makes, until the last of it is answered; returns that, or what was refused before."""
        self._askers += 1
        try:
            async with asyncio.timeout(timeout):
                while True:
                    questions = make()
                    await self._ask_once(questions)
                    refused = next((one for one in questions if one.refusal is not None), None)
                    if refused is not None or not any(one.lost for one in questions):
                        return refused or questions[-1]
        except TimeoutError:
            if self._session.welcome:
                raise BusError("no_answer", f"{self._daemon} has not answered within {timeout:g} s") from None
            raise self._away(timeout) from None
        finally:
            self._askers -= 1
            self._arrange()

    async def _ask_once(self, questions: list[Question]) -> None:
        last = questions[-1]
        settled = asyncio.Event()

        def on_done() -> None:
            if last.done or any(one.refusal for one in questions):
                settled.set()

        try:
            for question in questions:
                question.on_done = on_done
                await self._send(question.frame, partial(self._session.asked, question), limited=False)
            self._arrange()
            await settled.wait()
        finally:
            for question in questions:
                question.abandoned = True

    # -- what comes

    async def receive(self, timeout: float | None = None) -> Event | None:
        """The next message, gap, refusal, or ``Reconnected`` where the daemon was away; None when ``timeout`` seconds
        have passed. Raises BusError at the end."""
        events = self._session.events
        if not events:
            if timeout is not None and timeout <= 0:
                await asyncio.sleep(0)  # others have their turn, however often somebody looks
                if not events and self._reads:
                    self._on_readable()
            else:
                await self._wait_for_event(timeout)
        if not events:
            self._check()
            return None
        event = self._session.take()
        self._arrange()
        return event

    async def _wait_for_event(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not self._session.events:
                    self._check()
                    woken = self._loop.create_future()
                    self._receivers.append(woken)
                    try:
                        await woken
                    finally:
                        if woken in self._receivers:
                            self._receivers.remove(woken)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._wake()  # it may have been woken for an event that somebody else can have now
            raise

    def __aiter__(self) -> AsyncConnection:
        """Messages, without end; gaps are added to `lost`, absences of the daemon to `reconnects`. Raises BusError with
        the reason where the daemon refused something, as the blocking client does; to go on, iterate again."""
        return self

    async def __anext__(self) -> Message:
        while True:
            event = await self.receive()
            if isinstance(event, Message):
                return event
            if event is not None:
                shared.raise_refused(event)

    def fileno(self) -> int:
        """The descriptor of the socket; another one after each loss, and -1 while the daemon is away. It is read by
        this connection alone."""
        return -1 if self._sock is None else self._sock.fileno()

    # -- the end

    def close(self) -> None:
        """Leave the daemon. Whoever waits is told: connection_lost."""
        if self._closed:
            return
        self._closed = True
        self._why = f"the connection to {self.path} is closed"
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._sock is not None:
            self._hang_up(self._sock)
            self._session.lose(time.monotonic())
        self._end()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    @property
    def _daemon(self) -> str:
        return f"the daemon at {self.path}"

    def _check(self) -> None:
        if self._over or self._closed:
            raise BusError("connection_lost", self._why)

    def _away(self, patience: float) -> BusError:
        return away(self._daemon, self._session.turned_away, self._why, patience)

    async def _send(self, frame: bytes, then: Callable[[], Any], *, limited: bool = True) -> None:
        """Send a frame, once, behind those that wait already, and do ``then`` at that moment.

        Raises BusError: too_long; connection_lost when the daemon has been away for too long, if that is ``limited``.
        """
        self._check()
        self._sent_at_once += 1
        if self._sent_at_once >= TURN:
            self._sent_at_once = 0
            await asyncio.sleep(0)
            self._check()
        if self._sock is not None and self._session.welcome and not self._outbox and not self._unsaid:
            try:
                give(self._sock, frame)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    raise unsent(frame) from error
                self._lose(self._sock, f"{error.strerror}")
                self._check()
            else:
                then()
                return
        outgoing = Outgoing(frame, self._loop.create_future(), then, limited)
        self._outbox.append(outgoing)
        if not self._session.welcome:
            self._limit(outgoing)
        self._arrange()
        try:
            await outgoing.sent
        except asyncio.CancelledError:
            if outgoing in self._outbox:
                self._outbox.remove(outgoing)
                self._arrange()
            elif not outgoing.sent.cancelled():
                outgoing.sent.exception()  # nobody else will hear of it
            raise
        finally:
            outgoing.stop_limit()

    def _flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        sock = self._sock
        if sock is None:
            return
        try:
            while self._unsaid:
                sock.send(self._unsaid[0], socket.MSG_NOSIGNAL)
                self._unsaid.popleft()
            while self._outbox and self._session.welcome:
                self._send_next(sock, self._outbox[0])
                self._outbox.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(sock, f"{error.strerror}")
        self._arrange()

    @staticmethod
    def _send_next(sock: socket.socket, outgoing: Outgoing) -> None:
        if outgoing.sent.done():  # given up
            return
        try:
            give(sock, outgoing.frame)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            outgoing.sent.set_exception(unsent(outgoing.frame))
        else:
            outgoing.then()
            outgoing.sent.set_result(None)

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        session = self._session
        was_welcome = session.welcome
        try:
            for _ in range(TURN):
                if not self._read(sock):
                    self._lose(sock, "it has closed the connection", rest=False)
                    return
                if not self._may_read():
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(sock, f"{error.strerror}")
            return
        except BadFrame as error:
            self._lose(sock, f"what it sent was no frame ({error})", rest=False)
            return
        if session.welcome and not was_welcome:
            for outgoing in self._outbox:
                outgoing.stop_limit()
            self._flush()
        self._wake()
        self._arrange()

    def _read(self, sock: socket.socket) -> int:
        """Take in a packet, if there is one; returns its size, 0 at the end. Raises OSError, BadFrame."""
        try:
            size = sock.recv_into(self._buffer)
        except ConnectionResetError:  # said once; what the daemon sent before its end is still there
            size = sock.recv_into(self._buffer)
        if size:
            self._session.read(bytes(self._view[:size]), time.monotonic(), time.time_ns())
        return size

    def _may_read(self) -> bool:
        """Whether there is room for what may come. Who waits for an answer is read for in any case; and who is slow is
        given the time to take half of what he has."""
        limit = MAX_EVENTS if self._reads else MAX_EVENTS // 2
        return len(self._session.events) < limit or self._askers > 0 or not self._session.welcome

    def _arrange(self) -> None:
        """Have the loop watch for what we can do something about."""
        sock = self._sock
        if sock is None:
            return
        reads = self._may_read()
        if reads != self._reads:
            self._reads = reads
            if reads:
                self._loop.add_reader(sock, self._on_readable)
            else:
                self._paused_since = time.monotonic()
                self._loop.remove_reader(sock)
        writes = bool(self._unsaid or (self._outbox and self._session.welcome))
        if writes != self._writes:
            self._writes = writes
            if writes:
                self._loop.add_writer(sock, self._flush)
            else:
                self._loop.remove_writer(sock)

    def _wake(self) -> None:
        """Wake as many of those who wait for an event as there are events."""
        left = len(self._session.events)
        while left and self._receivers:
            woken = self._receivers.popleft()
            if not woken.done():
                woken.set_result(None)
                left -= 1

    # -- losing the daemon

    def _lose(self, sock: socket.socket, why: str, *, rest: bool = True) -> None:
        """The connection has gone; what had come before is still taken in, if there may be any."""
        try:
            while rest and self._read(sock):
                pass
        except (OSError, BadFrame):
            pass
        since = time.monotonic() if self._reads else self._paused_since
        self._hang_up(sock)
        self._why = f"{self._daemon} is gone: {why}"
        self._session.lose(since)
        if not self._reconnect:
            self._over = True
            self._end()
            return
        for outgoing in self._outbox:
            self._limit(outgoing)
        self._wake()
        self._call_later()

    def _hang_up(self, sock: socket.socket) -> None:
        if self._reads:
            self._loop.remove_reader(sock)
        if self._writes:
            self._loop.remove_writer(sock)
        self._reads = self._writes = False
        self._unsaid.clear()
        self._sock = None
        sock.close()

    def _call_later(self) -> None:
        self._retry = self._loop.call_later(self._session.pause(jitter()), self._call_again)

    def _call_again(self) -> None:
        self._retry = None
        try:
            self._sock = dial(self._address)
        except OSError as error:
            self._why = f"{self._daemon} is gone: {error.strerror}"
            self._call_later()
            return
        self._unsaid.extend(self._session.greeting())
        self._flush()

    def _limit(self, outgoing: Outgoing) -> None:
        """While the daemon is away, nobody waits for longer than PATIENCE to send; who asks has a limit of his own."""
        if outgoing.limited and outgoing.limit is None:
            outgoing.limit = self._loop.call_later(PATIENCE, self._give_up, outgoing)

    def _give_up(self, outgoing: Outgoing) -> None:
        if not outgoing.sent.done():
            self._outbox.remove(outgoing)
            outgoing.sent.set_exception(self._away(PATIENCE))

    def _end(self) -> None:
        """It is over: tell everybody who waits."""
        while self._outbox:
            outgoing = self._outbox.popleft()
            outgoing.stop_limit()
            if not outgoing.sent.done():
                outgoing.sent.set_exception(BusError("connection_lost", self._why))
        while self._receivers:
            woken = self._receivers.popleft()
            if not woken.done():
                woken.set_result(None)
