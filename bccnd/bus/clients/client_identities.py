"""Gives clients identities on the segment, and counts sequence numbers for each identity."""

from __future__ import annotations

import time
from collections.abc import Callable

from bccnd.bus.clients.client import Client
from bccnd.core.matching.routes import Routes
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.net.peer import Peer


class Identities:
    """Gives clients identities; ``builder`` counts for each of them, unless there is no segment.

    ``identify`` makes an identity of a program's name and a pid, ``tagged`` adds a tag to one (BadMessage: bad_tag).
    """

    def __init__(
        self,
        routes: Routes[int],
        builder: DatagramBuilder | None,
        identify: Callable[[bytes, int], bytes],
        tagged: Callable[[bytes, bytes], bytes],
    ) -> None:
        self._routes = routes
        self._builder = builder
        self._identify = identify
        self._tagged = tagged

    def base_of(self, peer: Peer, number: int) -> bytes:
        """Return the identity of a program; ``number`` is that of its connection."""
        base = self._identify(peer.program, peer.pid)
        # From another pid namespace: the connection tells such clients apart.
        return base if peer.pid else self._tagged(base, b"%d" % number)

    def open(self, identity: bytes) -> None:
        """Begin to count for an identity."""
        if self._builder is not None:
            self._builder.open(identity)

    def close(self, client: Client, now: float) -> None:
        """End the count for a client that leaves its identity; others of the same identity continue it."""
        if self._builder is None:
            return
        self._builder.close(client.identity, now)

    def rename(self, client: Client, identity: bytes) -> None:
        """Give a client another identity."""
        self.open(identity)
        self.close(client, time.monotonic())
        self._routes.rename(client.fd, identity)
        client.identity = identity

    def tag(self, client: Client, tag: bytes) -> None:
        """Add a tag to the identity of a client; an empty one removes it. Raises BadMessage: bad_tag."""
        self.rename(client, self._tagged(client.base, tag) if tag else client.base)
