"""Serves HTTP on the daemon's event loop: GET and HEAD of a few pages, one request per connection.

A page is rendered between two batches of datagrams, so that its numbers are consistent, and a response proves that the
loop runs. Invariant: connections, header sizes and times are bounded, and so is the time of all requests together in a
round of the loop, so that no client can stall the daemon.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import h11

from bccnd import log
from bccnd.core.sending.user_quota import ROUND_SECONDS, UserAccount
from bccnd.net.http_hosts import HostNames
from bccnd.net.listen import Acceptor
from bccnd.net.loop import EXHAUSTED, READABLE, WRITABLE, Loop, Timer

#: connections at once
MAX_CONNECTIONS: Final = 32
MAX_HEADERS: Final = 16_384
#: seconds to send a request and to read the response
TIMEOUT: Final = 10.0
#: seconds of a job in one round of the loop
WORK_SECONDS: Final = 0.001

#: no page may load anything, send forms or be framed
_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#: the type of a page is not guessed, it cannot be framed, and sends no referrer
_SECURITY_HEADERS: Final = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)

_FOREIGN_HOST: Final = (
    b"The Host of this request is not a name of this host. Use an address, localhost or the host name,\n"
    b"or add the name to metrics.hosts in the configuration.\n"
)

#: why a connection got no page
REASONS: Final = ("too_many_visitors", "slow_visitor", "bad_request", "foreign_host", "out_of_descriptors", "bug")
#: status, content type and body of a page
Answer = tuple[int, str, bytes]


class Job(Protocol):
    """A page that takes several steps to make."""

    def step(self) -> Answer | None:
        """Do one step of less than a millisecond; return the page once it is made."""


#: makes a page; the argument is the request's Accept header
Page = Callable[[str], Answer | Job]


def failure_of(error: Exception) -> str:
    """Return why the exception being handled ends a connection, empty if its peer has gone; a bug is logged."""
    if isinstance(error, OSError):
        return "out_of_descriptors" if error.errno in EXHAUSTED else ""
    log.bug("an HTTP connection was closed because of a bug in this daemon", drop="bug")
    return "bug"


class HttpServer:
    """Serves ``pages`` by path. ``count_refused`` gets one of `REASONS` for each connection without a page; ``hosts``
    are names that requests may use besides those of this host, see `HostNames`; ``policy`` are directives of the
    content security policy that permit something."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        pages: Mapping[str, Page],
        count_refused: Callable[[str], None],
        hosts: Iterable[str] = (),
        round_seconds: float = ROUND_SECONDS,
        policy: str = "",
    ) -> None:
        self.loop = loop
        self.pages = pages
        self.names = HostNames(hosts)
        self.policy = f"{_POLICY}; {policy}" if policy else _POLICY
        #: the oldest first
        self._connections: dict[HttpConnection, None] = {}
        self._count_refused = count_refused
        #: the share of all requests in a round of the loop, like that of one user of the bus
        self._account = UserAccount(-1)
        self._round_seconds = round_seconds
        #: pages rendered in this round, by path and Accept header
        self._answers: dict[tuple[str, str], Answer | Job] = {}
        self._acceptor = Acceptor(loop, listener, "HTTP connections", self._serve)

    def _serve(self, sock: socket.socket) -> None:
        if not self._has_room():
            self._count_refused("too_many_visitors")
            sock.close()
            return
        try:
            self._connections[HttpConnection(self, sock)] = None
        except Exception as error:  # noqa: BLE001 - no connection is worth the daemon
            self._count(failure_of(error))
            sock.close()

    def _has_room(self) -> bool:
        """Whether one more connection may be open; if need be, end the oldest one that has sent no whole request."""
        for connection in list(self._connections):
            if len(self._connections) < MAX_CONNECTIONS:
                break
            if not connection.has_request():
                connection.end("too_many_visitors")
        return len(self._connections) < MAX_CONNECTIONS

    def has_time(self) -> bool:
        """Whether requests have not used up their share of this round; the others wait for one of the next."""
        return self._account.left_of(self.loop.rounds, self._round_seconds) > 0.0

    def charge(self, begun: float) -> None:
        """Charge the time since ``begun`` (monotonic) to requests."""
        self._account.charge(self.loop.rounds, self._round_seconds, time.monotonic() - begun)

    def answer(self, path: str, accept: str) -> Answer | Job | None:
        """Return a page, rendered once in a round for all requests that accept the same; None if there is none."""
        page = self.pages.get(path)
        if page is None:
            return None
        if not self._answers:
            self.loop.soon(self._answers.clear)
        found = self._answers.get((path, accept))
        if found is None:
            found = self._answers[path, accept] = page(accept)
        return found

    def discard(self, connection: HttpConnection, reason: str) -> None:
        """Forget a closed connection; count it if there is a ``reason``."""
        self._connections.pop(connection, None)
        self._count(reason)

    def _count(self, reason: str) -> None:
        if reason:
            self._count_refused(reason)

    def close(self) -> None:
        for connection in list(self._connections):
            connection.end()
        self._acceptor.close()


class HttpConnection:
    """One connection: reads a request, sends the response."""

    def __init__(self, server: HttpServer, sock: socket.socket) -> None:
        self._server = server
        self._loop = server.loop
        self._sock = sock
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADERS)
        self._out = b""
        #: the page that is being made for the request
        self._job: Job | None = None
        self._head_only = False
        #: why the response is not a page
        self._reason = ""
        self._timer: Timer = self._loop.later(TIMEOUT, lambda: self.end("slow_visitor"))
        self._loop.watch(sock.fileno(), READABLE, self._on_event)

    def has_request(self) -> bool:
        """Whether a whole request may have arrived; unread bytes are processed, if there is time."""
        if not self._out and self._job is None and self._has_unread():
            self._on_event(READABLE)
        return bool(self._out) or self._job is not None or self._has_unread()

    def _has_unread(self) -> bool:
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:  # nothing, or the connection has ended
            return False

    def _on_event(self, events: int) -> None:
        if not self._server.has_time():
            return
        begun = time.monotonic()
        try:
            if self._out:
                self._send()
            elif self._job is not None:
                self._work(self._job)
            elif events:
                self._receive()
        except Exception as error:  # noqa: BLE001 - a bug here costs this connection only
            self.end(failure_of(error))
        finally:
            self._server.charge(begun)

    def _receive(self) -> None:
        data = self._sock.recv(MAX_HEADERS)
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return
            if isinstance(event, h11.Request):
                self._answer(event)
            else:
                self.end()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None  # in whose frames h11 keeps the error itself, and we this connection
            self.end("bad_request")

    def _answer(self, request: h11.Request) -> None:
        self._head_only = request.method == b"HEAD"
        path = request.target.split(b"?", 1)[0].decode("ascii", "replace")
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        if not self._server.names.accepts(headers.get(b"host"), self._sock.getsockname()[0]):
            self._reason = "foreign_host"
            self._respond(421, "text/plain", _FOREIGN_HOST)
        elif request.method not in (b"GET", b"HEAD"):
            self._respond(405, "text/plain", b"only GET\n")
        elif (answer := self._server.answer(path, headers.get(b"accept", ""))) is None:
            self._respond(404, "text/plain", b"no such page\n")
        elif isinstance(answer, tuple):
            self._respond(*answer)
        else:
            self._job = answer
            self._loop.change(self._sock.fileno(), WRITABLE)
            self._work(answer)

    def _work(self, job: Job) -> None:
        """Do steps of a job for a millisecond; the connection is writable, so the next round of the loop does more."""
        until = time.monotonic() + WORK_SECONDS
        while (answer := job.step()) is None:
            if time.monotonic() >= until:
                return
        self._respond(*answer)

    def _respond(self, status: int, kind: str, body: bytes) -> None:
        head = h11.Response(
            status_code=status,
            headers=[
                ("content-type", kind),
                ("content-length", str(len(body))),
                ("cache-control", "no-store"),
                ("content-security-policy", self._server.policy),
                *_SECURITY_HEADERS,
                *([("allow", "GET, HEAD")] if status == 405 else []),
                ("connection", "close"),
            ],
        )
        self._out = self._http.send(head) or b""
        if not self._head_only:
            self._out += self._http.send(h11.Data(data=body)) or b""
        self._loop.change(self._sock.fileno(), WRITABLE)
        self._send()

    def _send(self) -> None:
        try:
            self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            return
        if not self._out:
            self.end(self._reason)

    def end(self, reason: str = "") -> None:
        """Close the connection; ``reason`` is one of `REASONS` if it got no page."""
        if self._sock.fileno() < 0:
            return
        self._timer.cancel()
        self._loop.unwatch(self._sock.fileno())
        self._sock.close()
        self._server.discard(self, reason)
