"""A small HTTP server on the daemon's event loop: GET and HEAD of a few pages, one request per connection.

A page is rendered between two batches of datagrams, so that its numbers are consistent, and a response proves that the
loop runs. Invariant: connections, header sizes and times are bounded, so that no client can stall the daemon.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from bccnd.net.http_hosts import HostNames
from bccnd.net.listen import Acceptor
from bccnd.net.loop import Loop

if TYPE_CHECKING:
    from bccnd.net.http_connection import HttpConnection

#: connections at once
MAX_CONNECTIONS: Final = 32

#: why a connection got no page
REASONS: Final = ("too_many_visitors", "slow_visitor", "bad_request", "foreign_host", "bug")
#: status, content type and body of a page; the argument is the request's Accept header
Page = Callable[[str], tuple[int, str, bytes]]


class HttpServer:
    """Serves ``pages`` by path. ``refused`` counts connections without a page, by `REASONS`; ``hosts`` are names that
    requests may use besides those of this host, see `HostNames`."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        pages: Mapping[str, Page],
        refused: dict[str, int],
        hosts: Iterable[str] = (),
    ) -> None:
        self.loop = loop
        self.pages = pages
        self.names = HostNames(hosts)
        self._connections: set[HttpConnection] = set()
        self._refused = refused
        self._acceptor = Acceptor(loop, listener, "HTTP connections", self._serve)

    def _serve(self, sock: socket.socket) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            self._refused["too_many_visitors"] += 1
            sock.close()
        else:
            # Not loaded before: the start of a daemon does not wait for the parser.
            from bccnd.net.http_connection import HttpConnection

            self._connections.add(HttpConnection(self, sock))

    def discard(self, connection: HttpConnection, reason: str) -> None:
        """Forget a closed connection; count it if there is a ``reason``."""
        self._connections.discard(connection)
        if reason:
            self._refused[reason] += 1

    def close(self) -> None:
        for connection in list(self._connections):
            connection.end()
        self._acceptor.close()
