"""A connection to the daemon, for programs: subscribe, publish, and iterate over messages.

Law: one packet is one frame; every call that asks the daemon something waits for its answer and keeps the messages
that come before it. Blocking, with timeouts; for an event loop, `fileno` and `receive(timeout=0)`.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple

from bccnd.client.message import Message, to_bytes, to_text
from bccnd.core import frames, targets
from bccnd.core.bccn1 import check_chan
from bccnd.errors import BadDatagram, BadFrame, BusError

#: seconds to wait for the daemon's answer to a request
PATIENCE: Final = 5.0


class Gap(NamedTuple):
    """At this place ``lost`` messages were dropped, because this client did not read fast enough."""

    lost: int


class Refusal(NamedTuple):
    """The daemon refused a frame of ours; ``key`` is the channel or pattern it was about."""

    reason: str
    key: str


Event = Message | Gap | Refusal


def connect(path: str | None = None) -> Connection:
    """Connect to the daemon at ``path``, else at ``$BCCN_SOCKET``, else at /run/bccnd/bus.sock. Raises BusError."""
    return Connection(path or os.environ.get("BCCN_SOCKET") or frames.DEFAULT_SOCKET)


class Connection:
    """A client of the local bus. ``lost`` counts the messages that gaps have told of so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lost = 0
        self._events: deque[Event] = deque()
        self._answers: deque[tuple[bytes, bytes]] = deque()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._sock.connect(path)
        except OSError as error:
            self._sock.close()
            raise BusError("no_daemon", f"cannot reach the daemon at {path}: {error.strerror or error}") from error
        try:
            self._greet()
        except BusError:
            self._sock.close()
            raise

    def _greet(self) -> None:
        try:
            self._send(frames.request(frames.META_ON))
        except BusError:
            # Turned away at the door; then it has said why, and `receive` tells.
            if not self._wait(0):
                raise
            self._read()

    def subscribe(self, *patterns: str) -> None:
        """Ask for the messages whose channel matches; the same pattern may be asked for more than once."""
        for pattern in patterns:
            self._send(frames.subscribe(to_bytes(pattern)))

    def unsubscribe(self, *patterns: str) -> None:
        """Take patterns back, each as often as it was asked for."""
        for pattern in patterns:
            self._send(frames.unsubscribe(to_bytes(pattern)))

    def publish(self, chan: str, payload: bytes | str = b"") -> None:
        """Send a message to the clients of this host and to the segment. Waits while the daemon is busy.

        Raises BusError: bad_channel, too_long, connection_lost; what the daemon refuses is told by `sync`.
        """
        key = to_bytes(chan)
        if b"\0" in key:
            raise BusError("bad_channel", f"a channel holds no NUL: {chan!r}")
        self._send(frames.message(key, to_bytes(payload)))

    def send_all(self, payload: bytes | str = b"") -> None:
        """Send a message to every listener, whatever it has subscribed to."""
        self.publish("!", payload)

    def send_to(self, target: str, payload: bytes | str = b"") -> None:
        """Send a message to one identity (``host/program/pid``) or to all below a prefix (``host/program/*``).

        Raises BusError: bad_target for nobody, who is not everybody.
        """
        if not target:
            raise BusError("bad_target", "nobody is called nothing; send_all reaches everyone")
        self.publish("!" + target, payload)

    def identity(self) -> str:
        """What this program is called on the segment."""
        return self.ask(frames.WHOAMI).decode("ascii")

    def sync(self, timeout: float = PATIENCE) -> list[Refusal]:
        """Wait until the daemon has dealt with all that was sent before; returns what it refused since the last
        call, and leaves messages to be received."""
        self.ask(frames.SYNC, b"%d" % time.monotonic_ns(), timeout)
        refused = [event for event in self._events if isinstance(event, Refusal)]
        self._events = deque(event for event in self._events if not isinstance(event, Refusal))
        return refused

    def ask(self, key: bytes, payload: bytes | None = None, timeout: float = PATIENCE) -> bytes:
        """Send a control message and wait for the answer under the same key. Raises BusError."""
        self._send(frames.request(key, payload))
        deadline = time.monotonic() + timeout
        while True:
            while self._answers:
                answered, answer = self._answers.popleft()
                # A sync is answered with its own words: an answer that came too late is not taken for this one.
                if answered == key and (key != frames.SYNC or answer == payload):
                    return answer
            last = self._events[-1] if self._events else None
            if isinstance(last, Refusal) and last.key == to_text(key):
                raise BusError(last.reason, f"the daemon refused {last.key}")
            if not self._wait(deadline - time.monotonic()):
                raise BusError("no_answer", f"the daemon at {self.path} has not answered within {timeout:g} s")
            self._read()

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next message, gap or refusal; None when ``timeout`` seconds have passed. Raises BusError at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            if not self._wait(None if deadline is None else deadline - time.monotonic()):
                return None
            self._read()
        event = self._events.popleft()
        if isinstance(event, Gap):
            self.lost += event.lost
        return event

    def __iter__(self) -> Iterator[Message]:
        """Messages, for ever; gaps are added to `lost`, refusals are left out."""
        while True:
            event = self.receive()
            if isinstance(event, Message):
                yield event

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, frame: bytes) -> None:
        try:
            self._sock.send(frame)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise BusError("too_long", f"{len(frame)} bytes are more than the socket takes") from error
            raise BusError("connection_lost", f"the daemon at {self.path} is gone: {error.strerror}") from error

    def _wait(self, timeout: float | None) -> bool:
        if self._sock.fileno() < 0:
            raise BusError("connection_lost", f"the connection to {self.path} is closed")
        milliseconds = None if timeout is None else max(0.0, timeout * 1000)
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(milliseconds))

    def _read(self) -> None:
        try:
            try:
                packet = self._sock.recv(frames.MAX_PACKET)
            except ConnectionResetError:  # said once; what the daemon sent before its end is still there
                packet = self._sock.recv(frames.MAX_PACKET)
        except OSError as error:
            raise BusError("connection_lost", f"the daemon at {self.path} is gone: {error.strerror}") from error
        if not packet:
            raise BusError("connection_lost", f"the daemon at {self.path} has closed the connection")
        verb, key, payload = frames.read(packet)
        if verb == frames.MSG:
            self._events.append(_message(key, payload))
        elif key == frames.GAP:
            self._events.append(Gap(int(payload)))
        elif key == frames.ERROR:
            reason, _, about = payload.partition(b" ")
            self._events.append(Refusal(to_text(reason), to_text(about)))
        else:
            self._answers.append((key, payload))


def _message(key: bytes, payload: bytes) -> Message:
    form = targets.FORM_NAMES[targets.PLAIN if key.startswith(b"!/") else targets.form_of(key)]
    try:
        check_chan(key)
        src, seq, received_ns, peer, rest = frames.read_meta(payload)
    except (BadDatagram, BadFrame):
        # A key that is no channel was never on its way to a segment and carries nothing but its payload.
        return Message("", 0, to_text(key), payload, form, "local", time.time_ns())
    return Message(to_text(src), seq, to_text(key), rest, form, peer, received_ns)
