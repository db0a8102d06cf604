"""A small HTTP server on the daemon's event loop: GET and HEAD of a few pages, one request per connection.

A page is rendered between two batches of datagrams, so that its numbers are consistent, and a response proves that the
loop runs. Invariant: connections, header sizes and times are bounded, and so is what all requests together take of a
round of the loop, so that no client can stall the daemon.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from bccnd import log
from bccnd.core.user_quota import UserAccount, UserLimits
from bccnd.net.http_hosts import HostNames
from bccnd.net.listen import Acceptor
from bccnd.net.loop import EXHAUSTED, Loop

if TYPE_CHECKING:
    from bccnd.net.http_connection import HttpConnection

#: connections at once
MAX_CONNECTIONS: Final = 32

#: why a connection got no page
REASONS: Final = ("too_many_visitors", "slow_visitor", "bad_request", "foreign_host", "out_of_descriptors", "bug")
#: status, content type and body of a page; the argument is the request's Accept header
Page = Callable[[str], tuple[int, str, bytes]]


def failure_of(error: Exception) -> str:
    """Return why the exception being handled ends a connection, empty if its peer has gone; a bug is logged."""
    if isinstance(error, OSError):
        return "out_of_descriptors" if error.errno in EXHAUSTED else ""
    log.bug("an HTTP connection was closed because of a bug in this daemon", drop="bug")
    return "bug"


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
        round_seconds: float = UserLimits.round_seconds,
    ) -> None:
        self.loop = loop
        self.pages = pages
        self.names = HostNames(hosts)
        self._connections: set[HttpConnection] = set()
        self._refused = refused
        #: what requests share of a round of the loop, as the clients of one user of the bus do
        self._account = UserAccount(-1)
        self._round_seconds = round_seconds
        #: pages rendered in this round, by path and Accept header
        self._answers: dict[tuple[str, str], tuple[int, str, bytes]] = {}
        self._acceptor = Acceptor(loop, listener, "HTTP connections", self._serve)

    def _serve(self, sock: socket.socket) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            self._refused["too_many_visitors"] += 1
            sock.close()
            return
        try:
            # Not loaded before: the start of a daemon does not wait for the parser.
            from bccnd.net.http_connection import HttpConnection

            self._connections.add(HttpConnection(self, sock))
        except Exception as error:  # noqa: BLE001 - no connection is worth the daemon
            self._count(failure_of(error))
            sock.close()

    def has_time(self) -> bool:
        """Whether requests have not used up their share of this round; the others wait for one of the next."""
        return self._account.left_of(self.loop.rounds, self._round_seconds) > 0.0

    def charge(self, begun: float) -> None:
        """Charge the time since ``begun`` (monotonic) to requests."""
        self._account.charge(self.loop.rounds, self._round_seconds, time.monotonic() - begun)

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes] | None:
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
        self._connections.discard(connection)
        self._count(reason)

    def _count(self, reason: str) -> None:
        if reason:
            self._refused[reason] += 1

    def close(self) -> None:
        for connection in list(self._connections):
            connection.end()
        self._acceptor.close()
