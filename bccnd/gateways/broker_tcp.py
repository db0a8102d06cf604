"""The sockets of the broker's subscribers: bytes to ids and requests, and messages to bytes.

Law: nothing blocks. A subscriber that does not read, sends rubbish or vanishes costs its own queue and its own
descriptor, and both only for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Callable
from typing import Final, Protocol

from bccnd.errors import StartError
from bccnd.gateways.base import Peer
from bccnd.gateways.broker_codec import HELLO, REQUEST, read_hello, read_request
from bccnd.gateways.broker_queue import Queue

#: bytes read of one subscriber before others have their turn: some 300 requests
_READ: Final = 16_384
#: requests of one subscriber within a second: more wait, as each is work for the daemon, too
MAX_REQUESTS: Final = 1000
#: connections accepted before anything else has its turn
_TURN: Final = 64
#: connections that may wait to be accepted
_BACKLOG: Final = 1024
#: seconds without accepting where there are no descriptors left
_PAUSE: Final = 1.0
#: bytes that the kernel keeps beside those that are on their way: what waits is to wait here, where it is counted
_UNSENT: Final = 65_536

Address = tuple[str, int] | tuple[str, int, int, int]


def text_of(address: Address) -> str:
    """An address as people write it."""
    host, port = address[:2]
    host = host.removeprefix("::ffff:") if "." in host else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(kind: socket.SocketKind, where: tuple[str, int]) -> socket.socket:
    """A socket, not blocking, for subscribers (SOCK_STREAM) or publishers (SOCK_DGRAM).

    Raises StartError: address_taken, cannot_listen.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in where[0] else socket.AF_INET, kind | socket.SOCK_NONBLOCK)
    try:
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        if kind == socket.SOCK_STREAM:
            sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        key = "tcp" if kind == socket.SOCK_STREAM else "udp"
        raise StartError(
            "address_taken" if error.errno == errno.EADDRINUSE else "cannot_listen",
            f"cannot listen on {text_of(where)} ({key.upper()}): {error.strerror}",
            f"end who has it ('ss -lnp'), or set another address in gateways.broker.{key}",
        ) from error
    return sock


class Owner(Protocol):
    """Who decides about subscribers."""

    def on_hello(self, subscriber: Subscriber, name: bytes) -> None:
        """A connection has said its id."""

    def on_request(self, subscriber: Subscriber, kind: int, topic: bytes) -> None:
        """One with an id asks for something."""

    def on_gone(self, subscriber: Subscriber, reason: str) -> None:
        """It is closed: by the other end (``reason`` is empty), or by us."""


class Subscriber:
    """One connection. ``name`` is its id, empty until it has said it; ``heard`` is when something last came."""

    def __init__(self, sock: socket.socket, address: Address, owner: Owner, queue: int, silence: float) -> None:
        self.sock = sock
        self.peer = Peer(text_of(address), since=time.time())
        self.name = b""
        self.heard = time.monotonic()
        self.queue = Queue(queue)
        self.closed = False
        self._owner = owner
        self._inbox = b""
        #: in the second that began then: requests that came; and when reading goes on, if there were too many
        self._second, self._requests = 0.0, 0
        self._resume: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._writes = False
        with contextlib.suppress(OSError):  # it has gone already, which reading will tell
            _prepare(sock, silence)
        self._loop.add_reader(sock, self._on_readable)

    def _on_readable(self) -> None:
        try:
            data = self.sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end("")
            return
        self.heard = time.monotonic()
        self._inbox += data
        self._take()

    def _take(self) -> None:
        """Take what is whole; what is left is less than a request."""
        data, at = self._inbox, 0
        if not self.name and len(data) >= HELLO:
            at = HELLO
            self._owner.on_hello(self, read_hello(data[:HELLO]))
        while self.name and len(data) - at >= REQUEST and not self.closed:
            found = read_request(data[at : at + REQUEST])
            at += REQUEST
            self._requests += 1
            if found is None:
                self.end("malformed")
            else:
                self._owner.on_request(self, *found)
        self._inbox = data[at:]
        if self._requests >= MAX_REQUESTS and not self.closed:
            self._wait()

    def _wait(self) -> None:
        """Read nothing for the rest of this second if there were too many requests in it."""
        now = self.heard
        if now - self._second >= 1.0:
            self._second, self._requests = now, 0
            return
        self._loop.remove_reader(self.sock)
        self._resume = self._loop.call_later(self._second + 1.0 - now, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self.sock, self._on_readable)

    def offer(self, message: bytes, now: float) -> bool:
        """Queue a message; `flush` sends it. False where there is no room, nor in the kernel."""
        if self.queue.offer(message, now):
            return True
        if not self._writes:  # there was room when we last asked
            self.flush()
        return not self.closed and self.queue.offer(message, now)

    def flush(self) -> None:
        """Send what waits, as far as the kernel takes it."""
        if self.closed:
            return
        queue = self.queue
        try:
            while queue.waiting:
                taken = self.sock.send(queue.piece(), socket.MSG_NOSIGNAL)
                self.peer.sent += queue.taken(taken, time.monotonic())
        except BlockingIOError:
            pass
        except OSError:
            self.end("")
            return
        writes = queue.waiting > 0
        if writes != self._writes:
            self._writes = writes
            if writes:
                self._loop.add_writer(self.sock, self.flush)
            else:
                self._loop.remove_writer(self.sock)

    def end(self, reason: str) -> None:
        """Close it; its owner is told why."""
        if self.closed:
            return
        self.closed = True
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self.sock)
        if self._writes:
            self._loop.remove_writer(self.sock)
        self.sock.close()
        self._owner.on_gone(self, reason)


def _prepare(sock: socket.socket, silence: float) -> None:
    """Messages go at once, few wait in the kernel, and who does not answer for so many seconds has gone."""
    sock.setblocking(False)
    tcp = socket.IPPROTO_TCP
    sock.setsockopt(tcp, socket.TCP_NODELAY, 1)
    sock.setsockopt(tcp, socket.TCP_NOTSENT_LOWAT, _UNSENT)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(tcp, socket.TCP_KEEPIDLE, max(1, int(silence / 2)))
    sock.setsockopt(tcp, socket.TCP_KEEPINTVL, max(1, int(silence / 6)))
    sock.setsockopt(tcp, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(tcp, socket.TCP_USER_TIMEOUT, int(silence * 1000))


class Door:
    """Where subscribers connect; ``admit`` gets each of them."""

    def __init__(self, sock: socket.socket, admit: Callable[[socket.socket, Address], None]) -> None:
        self._sock = sock
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock, self._on_readable)

    def _on_readable(self) -> None:
        for _ in range(_TURN):
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it has gone before it was accepted
                continue
            except OSError:  # there are no descriptors; those who wait go on waiting
                self._loop.remove_reader(self._sock)
                self._resume = self._loop.call_later(_PAUSE, self._again)
                return
            self._admit(sock, address)

    def _again(self) -> None:
        self._resume = None
        self._loop.add_reader(self._sock, self._on_readable)

    def shut(self) -> None:
        """Nobody comes in any more; the address stays ours."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        self._loop.remove_reader(self._sock)

    def close(self) -> None:
        """Give the address back."""
        self._sock.close()
