"""Accepts clients or turns them away, by the entrance that they use and by the limits on their number."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from bccnd import log
from bccnd.bus.clients.access_rules import Admission
from bccnd.bus.clients.client import BusRules, Client
from bccnd.bus.clients.registry import BUG, ClientRegistry
from bccnd.bus.incoming.packet_reader import TURN
from bccnd.core.matching.patterns import Dialect
from bccnd.core.sending.user_quota import UserAccount
from bccnd.core.wire import frames
from bccnd.handover.descriptor_store import DescriptorStore
from bccnd.net.listen import Acceptor
from bccnd.net.loop import Loop
from bccnd.net.peer import Peer, PeerIdentifier


@dataclass(frozen=True)
class Entrance:
    """A listening socket, the dialect spoken behind it, and the programs that it admits."""

    listener: socket.socket
    dialect: Dialect
    admits: Admission


class ClientAcceptor:
    """Adds the clients of ``entrances`` to ``registry`` and to ``store``, and calls ``watch`` to read from each."""

    def __init__(
        self,
        loop: Loop,
        entrances: Iterable[Entrance],
        rules: BusRules,
        registry: ClientRegistry,
        store: DescriptorStore | None,
        watch: Callable[[Client], None],
    ) -> None:
        #: clients that there ever were
        self.connections = 0
        self.identifier = PeerIdentifier()
        self._rules = rules
        self._registry = registry
        self._store = store
        self._watch = watch
        self._acceptors = [Acceptor(loop, one.listener, "clients", partial(self._on_connect, one)) for one in entrances]

    def _on_connect(self, entrance: Entrance, sock: socket.socket) -> None:
        try:
            self._accept(entrance, sock)
        except Exception:  # noqa: BLE001 - no connection is worth the others
            log.bug("a client could not be accepted, because of a bug in this daemon", drop="bug")
            client = self._registry.by_fd.get(sock.fileno())
            if client is not None:
                self._registry.end(client, "bug", BUG)
            else:
                self._registry.counters.refused.add("bug")
                sock.close()

    def _accept(self, entrance: Entrance, sock: socket.socket) -> None:
        begun = time.monotonic()
        registry, limits = self._registry, self._rules.bus
        peer = self.identifier.identify(sock)
        if not entrance.admits(peer):
            self._turn_away(sock, peer, "not_admitted", f"{peer} may not connect", "see mode and group of the socket")
            return
        registry.end_predecessors(peer)
        if len(registry.by_fd) >= limits.max_clients:
            why = f"{len(registry.by_fd)} clients are connected"
            self._refuse(sock, peer, "too_many_clients", why, "bus.max_clients", begun)
            return
        account = registry.quota.open(peer.uid, time.monotonic(), limits.user.clients)
        if account is None:
            why = f"this user has {limits.user.clients} clients"
            self._refuse(sock, peer, "too_many_clients_of_user", why, "bus.user.clients", begun)
            return
        self.connections += 1
        client = self.admit(sock, self.connections, peer, entrance.dialect, account)
        if self._store is not None:
            self._store.keep(client)
        self._watch(client)
        registry.charge(account, begun)

    def _refuse(self, sock: socket.socket, peer: Peer, reason: str, why: str, key: str, begun: float) -> None:
        """Turn away a client beyond the limit of a key, and charge the time to its user, if that has other clients."""
        remedy = f"find the program that opens so many ('bccn clients'), or raise {key}"
        self._turn_away(sock, peer, reason, f"refused {peer}: {why}", remedy)
        account = self._registry.quota.account(peer.uid)
        if account is not None:
            self._registry.charge(account, begun)

    def admit(self, sock: socket.socket, number: int, peer: Peer, dialect: Dialect, account: UserAccount) -> Client:
        """Add a client, which is not yet read from."""
        return self._registry.admit(sock, number, peer, dialect, account, self._rules.access.rights(peer))

    def _turn_away(self, sock: socket.socket, peer: Peer, reason: str, why: str, remedy: str) -> None:
        """Tell a program why it is refused, and close the connection."""
        self._registry.counters.refused.add(reason)
        log.event(
            "client_refused",
            why,
            about=(reason, peer.uid),
            remedy=remedy,
            reason=reason,
            drop=reason,
            **log.peer_fields(peer),
        )
        with contextlib.suppress(OSError):
            sock.send(frames.error(reason, b""))
            # Closing with unread data would give the peer an error before it has read this one.
            for _ in range(TURN):
                sock.recv(1)
        sock.close()

    def stop(self) -> None:
        """Accept no more clients."""
        for acceptor in self._acceptors:
            acceptor.close()
