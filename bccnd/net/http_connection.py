"""A connection of the HTTP server: reads one request, sends its page."""

from __future__ import annotations

import socket
import time
from typing import Final

import h11

from bccnd.net.http import HttpServer, failure_of
from bccnd.net.loop import READABLE, WRITABLE, Timer

MAX_HEADERS: Final = 16_384
#: seconds to send a request and to read the response
TIMEOUT: Final = 10.0

#: a page may load style, script, image and data from here only, cannot be framed, and sends no referrer
_SECURITY_HEADERS: Final = (
    (
        "content-security-policy",
        (
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)

_FOREIGN_HOST: Final = (
    b"The Host of this request is not a name of this host. Use an address, localhost or the host name,\n"
    b"or add the name to metrics.hosts in the configuration.\n"
)


class HttpConnection:
    """One connection: reads a request, sends the response."""

    def __init__(self, server: HttpServer, sock: socket.socket) -> None:
        self._server = server
        self._loop = server.loop
        self._sock = sock
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADERS)
        self._out = b""
        #: why the response is not a page
        self._reason = ""
        self._timer: Timer = self._loop.later(TIMEOUT, lambda: self.end("slow_visitor"))
        self._loop.watch(sock.fileno(), READABLE, self._on_event)

    def _on_event(self, events: int) -> None:
        if not self._server.has_time():
            return
        begun = time.monotonic()
        try:
            if self._out:
                self._send()
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
        path = request.target.split(b"?", 1)[0].decode("ascii", "replace")
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        if not self._server.names.accepts(headers.get(b"host"), self._sock.getsockname()[0]):
            self._reason, status, kind, body = "foreign_host", 421, "text/plain", _FOREIGN_HOST
        elif request.method not in (b"GET", b"HEAD"):
            status, kind, body = 405, "text/plain", b"only GET\n"
        elif (answer := self._server.answer(path, headers.get(b"accept", ""))) is None:
            status, kind, body = 404, "text/plain", b"no such page\n"
        else:
            status, kind, body = answer
        head = h11.Response(
            status_code=status,
            headers=[
                ("content-type", kind),
                ("content-length", str(len(body))),
                ("cache-control", "no-store"),
                *_SECURITY_HEADERS,
                *([("allow", "GET, HEAD")] if status == 405 else []),
                ("connection", "close"),
            ],
        )
        self._out = self._http.send(head) or b""
        if request.method != b"HEAD":
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
