"""A connection of the SP protocol BUS: greeting, frames and a bounded send queue.

Each end first sends `_GREETING`; then each message follows its length in eight bytes, on Unix sockets behind a byte 1.
Invariant: each message that `put` gets is counted once: as sent when the kernel has its last byte, or as dropped.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections import deque
from typing import Final, Protocol

from bccnd.boot_clock import now
from bccnd.gateways.base import set_tcp_options
from bccnd.gateways.status import GatewayStatus
from bccnd.snapshot import GatewayPeerState

#: 0, "SP", version 0, and the number of BUS; seconds for that and TLS
_GREETING, _GREETING_TIMEOUT = b"\0SP\0\0\x70\0\0", 5.0
#: bytes of the largest message that is read: what is a little larger than a datagram costs only itself
_MAX_MESSAGE: Final = 1 << 17
#: the most bytes read at once, gathered for one write, queued for one peer, and unread in the kernel
_READ, _WRITE, _MAX_QUEUED, _MAX_UNREAD = 1 << 16, 1 << 15, 16 << 20, 8 << 20
_LENGTH: Final = struct.Struct(">Q")
_ACKED: Final = 120  # offset of tcpi_bytes_acked in struct tcp_info
_LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class InputAge:
    """Time since an input was last empty, or in which as much was read as it holds (``room``); 0 up to ``grace``."""

    def __init__(self, grace: float, room: int) -> None:
        self._grace, self._room = grace, room
        self.mark_empty(now())

    def mark_empty(self, moment: float) -> None:
        # What is read now came after the first moment, and after the second once ``room`` was read since.
        self._since, self._mark, self._taken = moment, moment, 0

    def add(self, count: int, moment: float) -> None:
        """Count what was read while more may be left."""
        self._taken += count
        if self._taken > self._room:
            self._since, self._mark, self._taken = self._mark, moment, 0

    def age(self) -> float:
        return age if (age := now() - self._since) > self._grace else 0.0


class Owner(Protocol):
    """Gets what happens to connections; ``reason`` is one of `GATEWAY_REASONS`, empty where the peer has gone."""

    status: GatewayStatus

    def on_open(self, link: LinkConnection) -> None: ...

    def on_messages(self, link: LinkConnection, messages: list[bytes], age: float) -> None: ...

    def on_closed(self, link: LinkConnection, reason: str, detail: str) -> None: ...


class LinkConnection:
    """A connected socket, ``accepted`` or dialled. ``room`` messages may wait; in ``horizon`` seconds one is too old.
    What happens to messages is counted in ``report``, and in the status of ``owner``."""

    def __init__(
        self, sock: socket.socket, owner: Owner, report: GatewayPeerState, *, accepted: bool, room: int, horizon: float
    ) -> None:
        self.report, self.accepted = report, accepted
        #: given by the owner when it is open
        self.number, self.open = 0, False
        #: messages with the time at which they were queued
        self.queue: deque[tuple[float, bytes]] = deque()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._sock, self._owner, self._room = sock, owner, room
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._prefix = b"\1" if sock.family == socket.AF_UNIX else b""
        #: what was read and is no whole message yet
        self._rest = b""
        self._input = InputAge(horizon / 4, _MAX_UNREAD)
        #: bytes of the first message in the queue that the kernel has taken, and whether it takes no more
        self._offset, self._blocked = 0, False
        #: a position in what the kernel was given, and when that was its end
        self._mark, self._marked = 0, 0.0
        self._step = self._greet
        if not self._prefix:
            set_tcp_options(sock, idle=5, interval=1, timeout=horizon, unsent=16_384)
        self._timer = self._loop.call_later(_GREETING_TIMEOUT, self.close, "no_id")
        self._loop.add_reader(sock, self.read)
        self._loop.call_soon(self.read)

    def read(self) -> None:
        """Take what is there, up to a turn of it."""
        try:
            if not self.ended.done():
                self._step()
        except _LATER:
            pass
        except OSError as error:
            self._end(error)

    def _greet(self) -> None:
        if isinstance(self._sock, ssl.SSLSocket):
            self._sock.do_handshake()
        self._sock.send(_GREETING)
        self._step = self._read_greeting

    def _read_greeting(self) -> None:
        self._rest += (data := self._sock.recv(len(_GREETING) - len(self._rest)))
        if not data:
            self._end()
        elif not _GREETING.startswith(self._rest):
            self.close("malformed", f"its greeting is {self._rest!r}")
        elif self._rest == _GREETING:
            self._timer.cancel()
            self._rest, self._step, self.open = b"", self._read_messages, True
            self._owner.on_open(self)

    def _read_messages(self) -> None:
        before = now()
        try:
            data = self._sock.recv(_READ)
        except _LATER:
            self._input.mark_empty(before)
            raise
        age = self._input.age()
        # TLS gives one record at a time, and holds nothing else back.
        if len(data) == _READ or (self._tls and self._in_kernel(termios.FIONREAD)):
            self._input.add(len(data), before)
        else:
            self._input.mark_empty(before)
        if not data:
            self._end()
            return
        messages, fault = self._split(self._rest + data if self._rest else data)
        self.report.received += len(messages)
        self._owner.on_messages(self, messages, age)
        if fault:
            self.close(fault, "it sends invalid or too large messages")

    def _split(self, data: bytes) -> tuple[list[bytes], str]:
        """Take whole messages off what was read; returns them, and the reason to end the connection, if any."""
        messages: list[bytes] = []
        at, head, fault = 0, len(self._prefix) + _LENGTH.size, ""
        while len(data) - at >= head and not fault:
            (size,) = _LENGTH.unpack_from(data, at + head - _LENGTH.size)
            if size > _MAX_MESSAGE or not data.startswith(self._prefix, at):
                fault = "oversize" if data.startswith(self._prefix, at) else "malformed"
            elif at + head + size > len(data):
                break
            else:
                messages.append(data[at + head : at + head + size])
                at += head + size
        self._rest = data[at:]
        return messages, fault

    def put(self, message: bytes, moment: float) -> None:
        """Queue a message for `flush`, or drop it where too much waits."""
        if len(self.queue) >= self._room:
            self.flush()
        if self.ended.done():
            return
        if len(self.queue) >= self._room or self.report.queued > _MAX_QUEUED:
            self.report.dropped += 1
            self._owner.status.drop("queue_full")
        else:
            self.queue.append((moment, message))
            self.report.queued += len(message)

    def flush(self) -> None:
        """Send what waits, as far as the kernel takes it."""
        try:
            while self.queue and not self._blocked and not self.ended.done():
                pieces, size = [], 0
                for _, message in self.queue:
                    pieces += [self._prefix, _LENGTH.pack(len(message)), message]
                    size += len(message)
                    if size >= _WRITE:
                        break
                # TLS wants what it has begun to send once more: this begins with the same bytes, and is no shorter.
                self._count_sent(self._sock.send(b"".join(pieces)[self._offset :]))
        except _LATER:
            self._blocked = True
            self._loop.add_writer(self._sock, self._on_writable)
        except OSError as error:
            self._end(error)

    def _count_sent(self, taken: int) -> None:
        report, status, head = self.report, self._owner.status, len(self._prefix) + _LENGTH.size
        self._offset += taken
        while self.queue and self._offset >= head + (size := len(self.queue[0][1])):
            self.queue.popleft()
            self._offset -= head + size
            report.queued -= size
            report.sent += 1
            status.sent += 1
            status.sent_bytes += size

    def _on_writable(self) -> None:
        self._blocked = False
        self._loop.remove_writer(self._sock)
        self.flush()

    def delay(self) -> tuple[float, float]:
        """Return the seconds for which something has waited here, and at least in the kernel for the peer."""
        moment, acked, unacked = now(), 0, 0
        if not self._prefix and not self.ended.done():  # the kernel does not know of Unix sockets
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED + 8)
            (acked,), unacked = struct.unpack_from("Q", info, _ACKED), self._in_kernel(termios.TIOCOUTQ)
        if not unacked or acked >= self._mark:
            self._mark, self._marked = acked + unacked, moment
        return moment - self.queue[0][0] if self.queue else 0.0, moment - self._marked

    def _in_kernel(self, request: int) -> int:
        """Return the bytes that are unread (FIONREAD), or not acknowledged (TIOCOUTQ)."""
        return int(struct.unpack("i", fcntl.ioctl(self._sock, request, bytes(4)))[0])

    def _end(self, error: OSError | None = None) -> None:
        """The peer has closed the connection, or it has failed."""
        reason = str(getattr(error, "reason", None) or "")
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError) and not self.open:
            known = "CERTIFICATE" in reason or "_ALERT_" in reason
            self.close("untrusted" if known else "malformed", getattr(error, "verify_message", reason))
        elif self.accepted and not self.open:
            self.close("malformed" if self._rest else "no_id")
        elif self._tls and self._step == self._read_greeting:  # the peer does not accept our certificate
            self.close("untrusted", "it has closed the connection after the handshake")
        else:
            self.close()

    def close(self, reason: str = "", detail: str = "") -> None:
        """End the connection."""
        if not self.ended.done():
            self.ended.set_result(None)
            self._timer.cancel()
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._owner.on_closed(self, reason, detail)
