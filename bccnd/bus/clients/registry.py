"""Keeps the connected clients: adds them, ends them, and removes the patterns of ended ones.

Invariant: a client is ended once, at once, by whatever part of the bus finds the reason; its descriptor is closed only
after the round, and only when no pattern is left of it. The parts that keep something of a client add a call to
``on_end``.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from bccnd import log
from bccnd.bus.clients.access_rules import Rights
from bccnd.bus.clients.client import Client
from bccnd.bus.clients.client_identities import Identities
from bccnd.core.matching.patterns import Dialect
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import BusCounters
from bccnd.core.sending.user_quota import Quota, UserAccount
from bccnd.drop_catalog.drops import BY_NAME
from bccnd.handover.descriptor_store import DescriptorStore
from bccnd.net.loop import Loop
from bccnd.net.peer import Peer

#: patterns of an ended client that are removed in one step, and steps in one round
PORTION: Final = 64
PORTIONS: Final = 8
#: why a client is disconnected over an exception
BUG: Final = "a bug in this daemon; please report it"


class ClientsByPid:
    """Connected clients by the pid of their process, so that a new one need not be compared with all."""

    def __init__(self) -> None:
        self._by_pid: dict[int, dict[Client, None]] = {}

    def of(self, pid: int) -> list[Client]:
        return list(self._by_pid.get(pid, ()))

    def add(self, client: Client) -> None:
        self._by_pid.setdefault(client.peer.pid, {})[client] = None

    def remove(self, client: Client) -> None:
        group = self._by_pid[client.peer.pid]
        del group[client]
        if not group:
            del self._by_pid[client.peer.pid]

    def __len__(self) -> int:
        return sum(map(len, self._by_pid.values()))


class ClientRegistry:
    """The clients by descriptor and by process. ``on_quiet`` is called when the last one has ended."""

    def __init__(
        self,
        loop: Loop,
        routes: Routes[int],
        quota: Quota,
        identities: Identities,
        counters: BusCounters,
        store: DescriptorStore | None,
        on_quiet: Callable[[], None],
    ) -> None:
        self.by_fd: dict[int, Client] = {}
        self.by_pid = ClientsByPid()
        self.quota = quota
        self.identities = identities
        self.counters = counters
        self.on_quiet = on_quiet
        #: called with a client that ends; the last call added is the first made, as its part builds on the others
        self.on_end: list[Callable[[Client], None]] = []
        self._loop = loop
        self._routes = routes
        self._store = store
        #: ended clients whose patterns are being removed
        self._leaving: deque[Client] = deque()

    def admit(
        self, sock: socket.socket, number: int, peer: Peer, dialect: Dialect, account: UserAccount, rights: Rights
    ) -> Client:
        """Add a client, which is not yet read from."""
        base = self.identities.base_of(peer, number)
        client = Client(sock, number, peer, base, dialect, account, rights)
        self.by_fd[client.fd] = client
        self.by_pid.add(client)
        self._routes.join(client.fd, base, dialect, owner=peer.uid)
        self.identities.open(base)
        return client

    def charge(self, account: UserAccount, begun: float) -> None:
        """Charge a user for the time since ``begun`` (monotonic)."""
        account.charge(self._loop.rounds, self.quota.round_seconds, time.monotonic() - begun)

    def end_predecessors(self, peer: Peer) -> None:
        """End clients of a process that had this pid before: a descriptor that it has left to another process would
        publish in the name of its successor."""
        for client in self.by_pid.of(peer.pid) if peer.started else ():
            if 0 != client.peer.started != peer.started:
                self.end(client, "pid_reused", f"its pid belongs to {peer} now")

    def end_after_bug(self, client: Client) -> None:
        """Log the exception being handled, and end the client that it concerns."""
        log.bug(
            f"{client} caused an internal error of this daemon (a bug)", **log.peer_fields(client.peer, client.identity)
        )
        self.end(client, "bug", BUG)

    def end(self, client: Client, reason: str = "", why: str = "") -> None:
        """Remove a client that has left or, for a ``reason``, must; its descriptor is closed after this round."""
        if not client.open:
            return
        if reason:
            self.counters.ended.add(reason)
            _log_end(client, reason, why)
        client.open = False
        self._loop.unwatch(client.fd)
        client.events = None
        for forget in reversed(self.on_end):
            forget(client)
        del self.by_fd[client.fd]
        self.by_pid.remove(client)
        self._routes.retire(client.fd)
        client.account.subscriptions -= client.subscriptions
        now = time.monotonic()
        self.quota.close(client.account, now)
        self.identities.close(client, now)
        if self._store is not None:
            self._store.forget(client)
        with contextlib.suppress(OSError):  # a process that is sending to it gets an error
            client.sock.shutdown(socket.SHUT_RDWR)
        if self._routes.forget_some(client.fd, PORTION):
            self._loop.soon(client.sock.close)
        else:
            self._leaving.append(client)
            if len(self._leaving) == 1:
                self._loop.later(0.0, self._forget_patterns)
        self._loop.soon(self._check_quiet)

    def _forget_patterns(self) -> None:
        """Remove patterns of ended clients, in steps that delay no other client; then close their descriptors."""
        for _ in range(min(PORTIONS, len(self._leaving))):
            client, begun = self._leaving.popleft(), time.monotonic()
            if self._routes.forget_some(client.fd, PORTION):
                client.sock.close()
            else:
                self._leaving.append(client)
            self.charge(client.account, begun)
        if self._leaving:
            self._loop.later(0.0, self._forget_patterns)

    def _check_quiet(self) -> None:
        if not self.by_fd:
            self.on_quiet()


def _log_end(client: Client, reason: str, why: str) -> None:
    """Log that a client was disconnected."""
    log.event(
        "client_ended",
        f"{client} was disconnected: {why}",
        about=f"ended/{client.identity.decode('ascii')}",
        remedy=BY_NAME["clients_ended", reason].explain()[1],
        reason=reason,
        drop=reason,
        **log.peer_fields(client.peer, client.identity),
    )
