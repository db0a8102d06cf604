"""The TCP connection of one subscriber: bytes in, an id and requests out; messages in, bytes out.

Invariant: nothing blocks, and what waits is bounded. A subscriber that does not read costs its own queue only, and
each message is sent whole, or counted as dropped.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any, Final, Protocol, cast

from bccnd.gateways.broker.codec import HELLO, MESSAGE, REQUEST, read_request, read_text
from bccnd.snapshot import GatewayPeerState

#: requests of one subscriber within a second, as each is work for the daemon too; more wait
MAX_REQUESTS: Final = 1000
#: bytes read at once, before other subscribers have their turn; parsed before the next are read
_BUFFER: Final = memoryview(bytearray(16_384))


class CountingSocket(socket.socket):
    """Counts the bytes that the kernel has accepted, as a transport that fails discards the rest unseen."""

    accepted = 0

    def send(self, *arguments: Any) -> int:
        count = super().send(*arguments)
        self.accepted += count
        return count

    def sendmsg(self, *arguments: Any) -> int:
        count = super().sendmsg(*arguments)
        self.accepted += count
        return count


class Server(Protocol):
    """What a subscriber needs of its server."""

    subscribers: dict[Subscriber, None]

    def on_hello(self, subscriber: Subscriber, name: bytes) -> None: ...
    def on_request(self, subscriber: Subscriber, kind: int, topic: bytes) -> None: ...
    def on_end(self, subscriber: Subscriber, reason: str) -> None: ...


class Subscriber(asyncio.BufferedProtocol):
    """``name`` is the id, empty until it came; ``limit`` bytes may wait."""

    def __init__(self, sock: CountingSocket, address: str, server: Server, limit: int) -> None:
        self.peer = GatewayPeerState(address, since=time.time())
        self.name = b""
        self.last_received = time.monotonic()
        self.ended = False
        self._sock = sock
        self._server = server
        self._limit = limit
        self._rest = b""
        #: requests in the second that began then
        self._second, self._requests = 0.0, 0
        #: messages for the transport, how many more of them fit, how many it got, and whether it takes no more
        self._pending: list[bytes] = []
        self._room, self._given, self._full = 0, 0, False
        #: bytes accepted when that was last checked, since when there were no more, and whether messages were dropped
        self._progress, self._since, self._overflown = 0, self.last_received, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limit - MESSAGE, low=self._limit - MESSAGE)
        self._server.subscribers[self] = None

    def connection_lost(self, _error: Exception | None) -> None:
        self.end("")

    def eof_received(self) -> None:
        self.end("")

    def end(self, reason: str) -> None:
        """Close the connection, with what waits for it; without ``reason`` the other end wants it so."""
        if not self.ended:
            self.ended = True
            self._transport.abort()
            self._server.on_end(self, reason)

    # -- requests

    def get_buffer(self, _size: int) -> memoryview:
        return _BUFFER

    def buffer_updated(self, count: int) -> None:
        self.last_received = time.monotonic()
        if self.last_received - self._second >= 1.0:
            self._second, self._requests = self.last_received, 0
        data, at = self._rest + _BUFFER[:count], 0
        if not self.name and len(data) >= HELLO:
            at = HELLO
            self._server.on_hello(self, read_text(data[:HELLO]))
        while self.name and len(data) - at >= REQUEST and not self.ended:
            request = read_request(data[at : at + REQUEST])
            at += REQUEST
            self._requests += 1
            if request is None:
                self.end("malformed")
            else:
                self._server.on_request(self, *request)
        self._rest = data[at:]
        if self._requests >= MAX_REQUESTS:
            self._transport.pause_reading()
            delay = self._second + 1.0 - self.last_received
            asyncio.get_running_loop().call_later(delay, self._transport.resume_reading)

    # -- messages

    @property
    def sent(self) -> int:
        """Messages that the kernel has accepted as a whole."""
        return self._sock.accepted // MESSAGE

    @property
    def waiting(self) -> int:
        """Bytes that the kernel has not accepted."""
        return (self._given + len(self._pending)) * MESSAGE - self._sock.accepted

    def offer(self, message: bytes) -> bool:
        """Queue a message, which `flush` sends; return whether there was room."""
        if not self._full and len(self._pending) >= self._room:
            self.flush()
        if self._full:
            self._overflown = True
            return False
        self._pending.append(message)
        return True

    def flush(self) -> None:
        """Send what was queued, with one call."""
        if self._pending and not self._transport.is_closing():
            self._transport.write(b"".join(self._pending))
        self._given += len(self._pending)
        self._pending.clear()
        self._room = (self._limit - self._transport.get_write_buffer_size()) // MESSAGE

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def is_stuck(self, now: float, patience: float) -> bool:
        """Return whether nothing was accepted for so many seconds, and messages were dropped meanwhile."""
        if self._sock.accepted != self._progress or not self.waiting:
            self._progress, self._since, self._overflown = self._sock.accepted, now, False
        return self._overflown and now - self._since >= patience
