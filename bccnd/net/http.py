"""A small HTTP server on the daemon's own loop: a few pages, GET and HEAD, one request to a connection.

Law: it answers between two batches of datagrams, so that a page shows numbers that belong together and an answer
proves that the loop turns; connections, header sizes and patience are capped, so that no visitor can hold it up.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import h11

from bccnd import log
from bccnd.net.http_hosts import HostNames
from bccnd.net.listen import Acceptor
from bccnd.net.loop import READABLE, WRITABLE, Loop, Timer

#: scrapers and people, not crowds
MAX_CONNECTIONS: Final = 32
MAX_HEADERS: Final = 16_384
#: seconds for a visitor to send a request and take the answer
PATIENCE: Final = 10.0

#: why a visitor got no page
REASONS: Final = ("too_many_visitors", "slow_visitor", "bad_request", "foreign_host", "bug")
#: what a page may do: show itself, with style, script and picture from here, and ask here for more; nobody may frame
#: it, and nothing of it is told elsewhere
_GUARDS: Final = (
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

_FOREIGN: Final = (
    b"This name is not one of this host's. Ask by address, as localhost or by the host's own name,\n"
    b"or add the name to metrics.hosts in the configuration.\n"
)

#: status, content type and body of a page; the argument is the request's Accept header
Page = Callable[[str], tuple[int, str, bytes]]


class HttpServer:
    """Serves ``pages`` by path. ``refused`` counts those who got no page, by `REASONS`; ``hosts`` are names by which
    this host may be asked beside its own (see `HostNames`)."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        pages: Mapping[str, Page],
        refused: dict[str, int] | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self._loop = loop
        self._pages = pages
        self._visits: set[_Visit] = set()
        self._names = HostNames(hosts)
        self._refused = dict.fromkeys(REASONS, 0) if refused is None else refused
        self._acceptor = Acceptor(loop, listener, "visitors", self._welcome)

    def _welcome(self, sock: socket.socket) -> None:
        if len(self._visits) >= MAX_CONNECTIONS:
            self._refused["too_many_visitors"] += 1
            sock.close()
        else:
            self._visits.add(_Visit(self._loop, sock, self._pages, self._names, self._leave))

    def _leave(self, visit: _Visit, reason: str) -> None:
        self._visits.discard(visit)
        if reason:
            self._refused[reason] += 1

    def close(self) -> None:
        for visit in list(self._visits):
            visit.end()
        self._acceptor.close()


class _Visit:
    """One connection: a request in, an answer out."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        pages: Mapping[str, Page],
        names: HostNames,
        on_end: Callable[[_Visit, str], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._pages = pages
        self._names = names
        self._on_end = on_end
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADERS)
        self._out = b""
        #: why the answer is no page
        self._reason = ""
        self._timer: Timer = loop.later(PATIENCE, lambda: self.end("slow_visitor"))
        loop.watch(sock.fileno(), READABLE, self._on_event)

    def _on_event(self, events: int) -> None:
        try:
            if self._out:
                self._send()
            elif events:
                self._receive()
        except OSError:
            self.end()
        except Exception:  # noqa: BLE001 - a bug of ours, which costs this visitor and nobody else
            log.bug("a visitor was cut off by a bug in this daemon", drop="bug")
            self.end("bug")

    def _receive(self) -> None:
        data = self._sock.recv(MAX_HEADERS)
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return
            if not isinstance(event, h11.Request):
                self.end()
                return
            self._answer(event)
        except h11.RemoteProtocolError:
            self.end("bad_request")

    def _answer(self, request: h11.Request) -> None:
        path = request.target.split(b"?", 1)[0].decode("ascii", "replace")
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        host = headers.get(b"host")
        page = self._pages.get(path)
        if not self._names.admits(host, self._sock.getsockname()):
            self._reason, status, kind, body = "foreign_host", 421, "text/plain", _FOREIGN
        elif request.method not in (b"GET", b"HEAD"):
            status, kind, body = 405, "text/plain", b"only GET\n"
        elif page is None:
            status, kind, body = 404, "text/plain", b"no such page\n"
        else:
            status, kind, body = page(headers.get(b"accept", ""))
        head = h11.Response(
            status_code=status,
            headers=[
                ("content-type", kind),
                ("content-length", str(len(body))),
                ("cache-control", "no-store"),
                *_GUARDS,
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
        """Close the connection, whatever it is at; for a ``reason`` where that is no end that a visitor wants."""
        if self._sock.fileno() < 0:
            return
        self._timer.cancel()
        self._loop.unwatch(self._sock.fileno())
        self._sock.close()
        self._on_end(self, reason)
