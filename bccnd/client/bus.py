"""A connection to the daemon, for programs: subscribe, publish, and iterate over messages.

Law: one packet is one frame; every call that asks the daemon something waits for its answer and keeps the messages
that come before it. A daemon that has gone is called again, and where that happened something is said. Blocking, with
timeouts; for an event loop, `fileno` and `receive(timeout=0)`, or `bccnd.aio`.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final

from bccnd.client import session as shared
from bccnd.client.message import Message, to_bytes
from bccnd.client.pollable import PollableDescriptor
from bccnd.client.session import PATIENCE, Event, Gap, Question, Reconnected, Refusal, Session
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

__all__ = ["PATIENCE", "Connection", "Event", "Gap", "Reconnected", "Refusal", "connect"]

#: milliseconds; poll takes no more
_LONGEST_POLL: Final = 2**31 - 1


def connect(path: str | None = None, *, reconnect: bool = True, batch: bool = False) -> Connection:
    """Connect to the daemon at ``path``, else at ``$BCCN_SOCKET``, else at /run/bccnd/bus.sock.

    ``path`` is that of a socket, ``@name`` for an abstract address, or ``/dev/unix/abstract/<hex>``. Raises BusError:
    no_daemon when nobody answers there, bad_address.

        import bccnd

        with bccnd.connect() as bus:
            bus.subscribe("cardsys/", "door/*/opened")
            bus.publish("cardsys/hello", "hello, world")
            for message in bus:
                print(message.src, message.chan, message.payload)

    Where the daemon refuses a pattern or a message, iterating raises BusError with the reason, like not_permitted.

    A daemon that goes away (a restart, a crash) is called again for as long as it takes, and then told again what this
    program is subscribed to, its tag and its modes. `receive` waits for it like for a message, and says
    ``Reconnected`` where something may be missing:

            while (event := bus.receive(timeout=60)) is not None:
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

    With ``batch=True`` (or `Connection.batch`, later) messages that wait at the daemon come many to a packet, at a
    fraction of the cost; what is received, and in which order, is the same. A daemon that knows no batches refuses that
    (``Refusal("unknown_control", "!/bccn/batch/on")``) and goes on without.
    """
    return Connection(path or usual_path(), reconnect=reconnect, batch=batch)


class Connection:
    """A client of the local bus; see `connect`. Its methods are not to be called by several threads at once."""

    def __init__(self, path: str, *, reconnect: bool = True, batch: bool = False) -> None:
        self.path = path
        self._address = address_of(path)
        self._reconnect = reconnect
        self._session = Session(batch=batch)
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        #: what the daemon has still to be told before anything else
        self._unsaid: deque[bytes] = deque()
        #: when to call again, and when the connection was last known to be there (monotonic)
        self._due = 0.0
        self._known = time.monotonic()
        #: why the connection has gone, and whether for good
        self._why = ""
        self._over = False
        self._closed = False
        self._pollable: PollableDescriptor | None = None
        self._sock: socket.socket | None = self._call()
        try:
            for frame in self._session.opening():
                self._send(frame)
        except BusError:
            # Who was turned away at the door has been told why, and `receive` tells.
            if not self._session.events:
                self.close()
                raise

    @property
    def lost(self) -> int:
        """The messages that the gaps received so far have told of."""
        return self._session.missed

    @property
    def reconnects(self) -> int:
        """How often the connection was away, as told by what was received so far."""
        return self._session.reconnects

    # -- what to hear

    def subscribe(self, *patterns: str) -> None:
        """Ask for the messages whose channel matches; the same pattern may be asked for more than once."""
        for pattern in map(to_bytes, patterns):
            self._deliver(frames.subscribe(pattern))
            self._session.subscribed(pattern)

    def unsubscribe(self, *patterns: str) -> None:
        """Take patterns back, each as often as it was asked for."""
        for pattern in map(to_bytes, patterns):
            self._deliver(frames.unsubscribe(pattern))
            self._session.unsubscribed(pattern)

    # -- what to say

    def publish(self, chan: str, payload: bytes | str = b"") -> None:
        """Send a message to the clients of this host and to the segment. Waits while the daemon is busy.

        Raises BusError: bad_channel, too_long, connection_lost; what the daemon refuses is told by `sync`.
        """
        self._deliver(shared.publication(chan, payload))
        self._session.published()

    def send_all(self, payload: bytes | str = b"") -> None:
        """Send a message to every listener, whatever it has subscribed to."""
        self.publish("!", payload)

    def send_to(self, target: str, payload: bytes | str = b"") -> None:
        """Send a message to one identity (``host/program/pid``) or to all below a prefix (``host/program/*``).

        Raises BusError: bad_target for nobody, who is not everybody.
        """
        self.publish(shared.directed(target), payload)

    # -- how to be served

    def tag(self, text: str) -> None:
        """Be called ``<host>/<program>/<pid>/<text>`` from now on; an empty text takes that back.

        Raises BusError: bad_tag (one word of at most 32 legal characters), not_permitted.
        """
        tag = to_bytes(text)
        self._ask(lambda: self._session.tagging(tag), PATIENCE).result()
        self._session.tagged(tag)

    def echo(self, on: bool) -> None:
        """Whether this program hears what it publishes itself, if it has subscribed to it; it does at first."""
        self._set(shared.echo_mode(on))

    def batch(self, on: bool) -> None:
        """Whether messages that wait at the daemon come many to a packet; see `connect`."""
        self._set(shared.batch_mode(on))

    def local(self, on: bool) -> None:
        """Whether what this program publishes stays on this host: with it on, only clients of this daemon get it and
        nothing is broadcast, whatever the channel. It is off at first.

        Raises BusError: unknown_control, where the daemon is too old to know it and would broadcast.
        """
        self._ask(lambda: self._session.locally(on), PATIENCE).result()
        self._session.spoken_locally(on)

    def blocking(self, soft: str | None = None, hard: str | None = None) -> None:
        """What the daemon does with a message while this program does not read.

        ``soft``, as soon as the socket is full: ``queue`` keeps it, as it does at first, ``discard`` drops it,
        ``block`` makes its publisher wait, ``error`` ends this connection. ``hard``, when what is queued is as much as
        is allowed: ``discard`` (at first), ``block`` or ``error``. Raises BusError: bad_mode.
        """
        self._set(shared.blocking_modes(soft, hard))

    def order(self, order: str) -> None:
        """In which order what is queued is sent: ``queue`` (at first), ``stack`` (the latest first) or ``random``.
        Raises BusError: bad_mode."""
        self._set(shared.order_mode(order))

    def _set(self, modes: dict[str, bytes]) -> None:
        for name, frame in modes.items():
            self._deliver(frame)
            self._session.set_mode(name, frame)

    # -- questions

    def identity(self) -> str:
        """What this program is called on the segment."""
        return self.ask(frames.WHOAMI).decode("ascii")

    def sync(self, timeout: float = PATIENCE) -> list[Refusal]:
        """Wait until the daemon has dealt with all that was sent before; returns what it refused since the last
        call, and leaves messages to be received.

        Raises BusError: no_answer; connection_lost also when the daemon has come back, if the one before it has not
        confirmed all that was published.
        """
        self._ask(lambda: [self._session.sync()], timeout).result()
        if not self._session.sure():
            raise unconfirmed(self.path)
        return self._session.take_refusals()

    def ask(self, key: bytes, payload: bytes | None = None, timeout: float = PATIENCE) -> bytes:
        """Send a control message and wait for the answer under the same key; it is asked again where the connection
        was lost in between (of a listing whose pages were being turned, nothing more comes then).

        Raises BusError: no_answer, connection_lost, or what it was refused for.
        """
        return self._ask(lambda: self._session.before(Question(key, payload)), timeout).result()

    def _ask(self, make: Callable[[], list[Question]], timeout: float) -> Question:
        """Send what ``make`` makes, until the last of it is answered; returns that, or what was refused before."""
        deadline = time.monotonic() + timeout
        while True:
            questions = make()
            late = False
            try:
                for question in questions:
                    if not self._deliver(question.frame, deadline):
                        raise self._unanswered(timeout)
                    self._session.asked(question)
                while not questions[-1].done and not any(one.refusal for one in questions):
                    # Past the deadline what has come is still looked at, once: there may be no end of it.
                    if late or not self._turn(deadline):
                        raise self._unanswered(timeout)
                    late = time.monotonic() > deadline
            finally:
                for question in questions:
                    question.abandoned = True
                self._show()
            refused = next((one for one in questions if one.refusal is not None), None)
            if refused is not None or not any(one.lost for one in questions):
                return refused or questions[-1]

    # -- what comes

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next message, gap, refusal, or ``Reconnected`` where the daemon was away; None when ``timeout`` seconds
        have passed. Raises BusError at the end."""
        session = self._session
        shown = bool(session.events)
        if not shown:
            deadline = None if timeout is None else time.monotonic() + timeout
            while not session.events:
                if not self._turn(deadline):
                    self._show()
                    return None
        event = session.take()
        if not shown or not session.events:
            self._show()
        return event

    def __iter__(self) -> Iterator[Message]:
        """Messages, without end; gaps are added to `lost`, absences of the daemon to `reconnects`. Raises BusError with
        the reason where the daemon refused something (a pattern: not_permitted, too_many_subscriptions; a message; this
        program: too_many_clients), behind the messages that came before; to go on, iterate again."""
        while (event := self.receive()) is not None:
            if isinstance(event, Message):
                yield event
            else:
                shared.raise_refused(event)

    def fileno(self) -> int:
        """A descriptor that is readable when `receive(0)` has something to do: call it then until it returns None.

        What was read already and waits here, as the rest of a batch or what came before an answer, makes it readable,
        too: who calls but once each time is told again. None is returned when nothing waits here nor in the socket.

        It stays the same, in select, poll and epoll, while daemons come and go; -1 once this connection is closed.
        """
        if self._closed:
            return -1
        if self._pollable is None:
            self._pollable = PollableDescriptor()
        self._show()
        return self._pollable.fileno()

    # -- the end

    def close(self) -> None:
        """Leave the daemon."""
        self._closed = True
        if self._pollable is not None:
            self._pollable.close()
            self._pollable = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    @property
    def _daemon(self) -> str:
        return f"the daemon at {self.path}"

    def _check(self) -> None:
        if self._closed:
            raise BusError("connection_lost", f"the connection to {self.path} is closed")
        if self._over:
            raise BusError("connection_lost", self._why)

    def _away(self, patience: float) -> BusError:
        return away(self._daemon, self._session.turned_away, self._why, patience)

    def _call(self) -> socket.socket:
        """Connect for the first time; waits where others wait to be answered."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                sock = dial(self._address)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise unreachable(self.path, error) from error
                time.sleep(0.01)
            except OSError as error:
                raise unreachable(self.path, error) from error
            else:
                sock.setblocking(True)
                return sock

    def _unanswered(self, timeout: float) -> BusError:
        if self._session.welcome:
            return BusError("no_answer", f"{self._daemon} has not answered within {timeout:g} s")
        return self._away(timeout)

    def _deliver(self, frame: bytes, deadline: float | None = None) -> bool:
        """Send a frame, once. With a ``deadline`` wait no longer than that, for room in the socket or for a daemon that
        is away; False when the time is over. Without one wait for room as long as it takes, and for the daemon for
        PATIENCE. Raises BusError."""
        started = 0.0
        while True:
            self._check()
            welcome = self._session.welcome
            if welcome:
                try:
                    self._send(frame, 0 if deadline is None else socket.MSG_DONTWAIT)
                except BlockingIOError:
                    pass
                except BusError as error:
                    if error.reason != "connection_lost":
                        raise
                    continue  # it was not taken, and waits for the next daemon
                else:
                    if started:
                        self._show()
                    return True
            now = time.monotonic()
            started = started or now
            until = started + PATIENCE if deadline is None else deadline
            if now > until or not self._turn(until, writes=welcome):
                self._show()
                if deadline is None:
                    raise self._away(PATIENCE)
                return False

    def _send(self, frame: bytes, flags: int = 0) -> None:
        """Give a frame to the daemon. Raises BusError: too_long, connection_lost; BlockingIOError, as `give`."""
        sock = self._sock
        if sock is None:
            raise BusError("connection_lost", self._why)
        try:
            give(sock, frame, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise unsent(frame) from error
            self._lose(sock, f"{error.strerror}")
            raise BusError("connection_lost", self._why) from error
        self._known = time.monotonic()

    def _turn(self, deadline: float | None, *, writes: bool = False) -> bool:
        """Get on by one step: read a packet, wait for one (for room to send too, if ``writes``), or call the daemon
        again. False when the time is over."""
        self._check()
        sock = self._sock
        if sock is None:
            return self._call_again(deadline)
        try:
            while self._unsaid:
                sock.send(self._unsaid[0], socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
                self._unsaid.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(sock, f"{error.strerror}")
            return True
        try:
            size = self._read(sock)
        except BlockingIOError:
            return self._wait(sock, deadline, writes)
        except OSError as error:
            self._lose(sock, f"{error.strerror}")
        except BadFrame as error:
            self._lose(sock, f"what it sent was no frame ({error})", rest=False)
        else:
            if not size:
                self._lose(sock, "it has closed the connection", rest=False)
        return True

    def _wait(self, sock: socket.socket, deadline: float | None, writes: bool) -> bool:
        self._known = now = time.monotonic()  # there is nothing to read, and not the end either
        if deadline is not None and deadline <= now:
            return False
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if writes or self._unsaid else 0))
        poll.poll(None if deadline is None else min((deadline - now) * 1000, _LONGEST_POLL))
        self._known = time.monotonic()
        return True

    def _read(self, sock: socket.socket) -> int:
        """Take in a packet, if there is one; returns its size, 0 at the end. Raises OSError, BadFrame."""
        try:
            size = sock.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        except ConnectionResetError:  # said once; what the daemon sent before its end is still there
            size = sock.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        if size:
            self._session.read(bytes(self._view[:size]), time.monotonic(), time.time_ns())
        return size

    def _lose(self, sock: socket.socket, why: str, *, rest: bool = True) -> None:
        """The connection has gone; what had come before is still taken in, if there may be any."""
        try:
            while rest and self._read(sock):
                pass
        except (OSError, BadFrame):
            pass
        self._why = f"{self._daemon} is gone: {why}"
        self._session.lose(self._known)
        self._unsaid.clear()
        if self._reconnect:
            if self._pollable is not None:
                self._pollable.show(None, False, None)
            sock.close()
            self._sock = None
            self._due = time.monotonic() + self._session.pause(jitter())
        else:
            self._over = True

    def _call_again(self, deadline: float | None) -> bool:
        """Wait until it is time, and try once. False when the time is over before."""
        now = time.monotonic()
        if now < self._due:
            until = self._due if deadline is None else min(self._due, deadline)
            time.sleep(max(0.0, until - now))
            if until < self._due:
                return False
        try:
            sock = dial(self._address)
        except OSError as error:
            self._why = f"{self._daemon} is gone: {error.strerror}"
            self._due = time.monotonic() + self._session.pause(jitter())
        else:
            sock.setblocking(True)
            self._sock = sock
            self._unsaid.extend(self._session.greeting())
        return True

    def _show(self) -> None:
        """Let whoever waits for our descriptor know what there is to do."""
        if self._pollable is None:
            return
        wait = None
        if self._session.events:
            wait = 0.0
        elif self._sock is None:
            wait = max(0.0, self._due - time.monotonic())
        self._pollable.show(self._sock, bool(self._unsaid), wait)
