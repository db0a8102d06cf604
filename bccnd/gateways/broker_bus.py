"""The broker's connection to the bus: the broker's dialect, messages in, publications out.

Invariant: nothing waits, nothing blocks, and nothing grows without a bound: what the daemon does not take is dropped
with a reason, and a daemon that has gone is called again, for ever, and told again what is wanted. What every client of
the bus must know of that is in `bccnd.client.session`; here is its socket.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from bccnd.client.message import Message
from bccnd.client.session import Gap, Reconnected, Refusal, Session
from bccnd.client.transport import BUFFER, address_of, dial, give, jitter
from bccnd.core import frames
from bccnd.errors import BadFrame

#: packets taken at once, before anything else has its turn
_TURN: Final = 64
#: frames that wait for a daemon that is busy; more are dropped
MAX_WAITING: Final = 1024


class BusLink:
    """``on_messages`` gets what has come at once, ``on_refusal`` what the daemon refused, ``on_gap`` how many messages
    it has dropped because we did not read, ``on_lost`` why a publication of ours was dropped after all, and how many
    they were. With ``local`` what is published stays on this host.

    Raises BusError: bad_address, where no daemon can ever be.
    """

    def __init__(
        self,
        path: str,
        on_messages: Callable[[list[Message]], None],
        on_refusal: Callable[[Refusal], None],
        on_gap: Callable[[int], None],
        on_lost: Callable[[str, int], None],
        *,
        local: bool,
    ) -> None:
        self.path = path
        self._address = address_of(path)
        self._on_messages = on_messages
        self._on_refusal = on_refusal
        self._on_gap = on_gap
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._session = Session(batch=True)
        self._session.set_mode("dialect", frames.request(frames.DIALECT, b"broker"))
        self._session.set_mode("echo", frames.request(frames.ECHO + b"off"))
        self._session.set_mode("local", frames.request(frames.LOCAL_ON if local else frames.LOCAL_OFF))
        self._session.lose(time.monotonic())
        self._sock: socket.socket | None = None
        #: what this daemon has not taken yet: how it is greeted, then changes (a pattern, and whether it is wanted),
        #: then messages and reports
        self._greeting: deque[bytes] = deque()
        self._changes: dict[bytes, bool] = {}
        self._outbox: deque[bytes] = deque()
        self._writes = False
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        #: why there is no daemon, and since when (monotonic)
        self.why = "it was not called yet"
        self.away_since: float | None = time.monotonic()

    @property
    def there(self) -> bool:
        """Whether the daemon serves us."""
        return self._session.welcome

    @property
    def turned_away(self) -> str:
        """Why a daemon that is there does not serve us; empty where it does, or is not there."""
        return self._session.turned_away

    def open(self) -> None:
        """Call the daemon; if it is not there, again and again."""
        self._call()

    def close(self) -> None:
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._sock is not None:
            self._hang_up(self._sock)

    # -- what is said

    def subscribe(self, pattern: bytes) -> None:
        self._session.subscribed(pattern)
        self._change(pattern, wanted=True)

    def unsubscribe(self, pattern: bytes) -> None:
        self._session.unsubscribed(pattern)
        self._change(pattern, wanted=False)

    def publish(self, chan: bytes, payload: bytes) -> str:
        """Publish a message; empty, or why it was dropped: not_connected, bus_full."""
        if not self._session.welcome:
            return "not_connected"
        if len(self._outbox) >= MAX_WAITING:
            return "bus_full"
        self._send(frames.message(chan, payload))
        return ""

    def report(self, text: bytes) -> None:
        """Tell the daemon how this gateway is, unless it has too much to do for that."""
        if self._session.welcome and not self._writes:
            self._send(frames.request(frames.GATEWAY, text))

    def _change(self, pattern: bytes, *, wanted: bool) -> None:
        """Tell the daemon of a change; one that it has not been told of yet is undone by its opposite. Each pattern is
        held at most once."""
        if self._sock is None:  # it is told with the greeting
            return
        if self._changes.get(pattern) is not (not wanted):
            self._changes[pattern] = wanted
        else:
            del self._changes[pattern]
        if not self._writes:
            self._flush()

    def _send(self, frame: bytes) -> None:
        self._outbox.append(frame)
        if not self._writes:
            self._flush()

    def _flush(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            while self._greeting:
                give(sock, self._greeting[0])
                self._greeting.popleft()
            while self._changes:
                pattern, wanted = next(iter(self._changes.items()))
                give(sock, frames.subscribe(pattern) if wanted else frames.unsubscribe(pattern))
                del self._changes[pattern]
            while self._outbox:
                try:
                    give(sock, self._outbox[0])
                except OSError as error:
                    if error.errno != errno.EMSGSIZE:
                        raise
                    self._on_lost("oversize", _publications([self._outbox[0]]))
                self._outbox.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(sock, error.strerror or str(error))
            return
        writes = bool(self._greeting or self._changes or self._outbox)
        if writes != self._writes:
            self._writes = writes
            if writes:
                self._loop.add_writer(sock, self._flush)
            else:
                self._loop.remove_writer(sock)

    # -- what comes

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        why = ""
        try:
            for _ in range(_TURN):
                size = sock.recv_into(self._buffer)
                if not size:
                    why = "it has closed the connection"
                    break
                self._session.read(bytes(self._view[:size]), time.monotonic(), time.time_ns())
        except BlockingIOError:
            pass
        except OSError as error:
            why = error.strerror or str(error)
        except BadFrame as error:
            why = f"what it sent was no frame ({error})"
        self._hand_on()
        if why:
            self._lose(sock, why)
        elif self._session.welcome:
            self.away_since = None

    def _hand_on(self) -> None:
        messages: list[Message] = []
        while self._session.events:
            event = self._session.take()
            if isinstance(event, Message):
                messages.append(event)
            elif isinstance(event, Gap):
                self._on_gap(event.lost)
            elif not isinstance(event, Reconnected):
                self._on_refusal(event)
        if messages:
            self._on_messages(messages)

    # -- losing the daemon

    def _call(self) -> None:
        self._retry = None
        try:
            sock = dial(self._address)
        except OSError as error:
            self.why = error.strerror or str(error)
            self._call_later()
            return
        self._sock = sock
        self._loop.add_reader(sock, self._on_readable)
        self._greeting.extend(self._session.greeting())
        self._flush()

    def _lose(self, sock: socket.socket, why: str) -> None:
        if sock is not self._sock:  # what was done with its last messages has found that out already
            return
        self._hang_up(sock)
        now = time.monotonic()
        self.why = why
        if self.away_since is None:
            self.away_since = now
        self._session.lose(now)
        self._call_later()

    def _hang_up(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        if self._writes:
            self._loop.remove_writer(sock)
        self._writes = False
        self._sock = None
        lost = _publications(self._outbox)
        for waiting in (self._greeting, self._changes, self._outbox):
            waiting.clear()
        sock.close()
        if lost:
            self._on_lost("not_connected", lost)

    def _call_later(self) -> None:
        if not self._closed:
            self._retry = self._loop.call_later(self._session.pause(jitter()), self._call)


def _publications(waiting: Iterable[bytes]) -> int:
    """How many of these frames are messages; the rest are reports."""
    return sum(frame.startswith(frames.MSG) for frame in waiting)
