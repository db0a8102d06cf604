"""The local bus: a SEQPACKET server that accepts clients, reads their frames and dispatches them.

Invariant: a client's fault ends that client, never the fan-out. The kernel says which program a client is, the rules
say what it may do. A publisher may be made to wait, the segment never. Source: sbus, "Protocol".
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bccnd import log
from bccnd.bus.clients.access import Access, Admission
from bccnd.bus.clients.client import BusLimits, Client
from bccnd.bus.clients.client_state import client_image
from bccnd.bus.clients.identities import ClientsByPid, Identities
from bccnd.bus.clients.refusals import MAX_REPEATED, log_end, log_refusal
from bccnd.bus.clients.subscriptions import Subscriptions
from bccnd.bus.delivery.fanout import Fanout
from bccnd.bus.delivery.send_queues import SendQueues
from bccnd.bus.incoming.backpressure import Backpressure
from bccnd.bus.incoming.input_transaction import InputTransaction
from bccnd.bus.incoming.packet_reader import TURN, ClientEvents, PacketReader
from bccnd.bus.incoming.publisher import Publisher
from bccnd.bus.requests.control import Control, Listing
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.bus.requests.recorder_reports import RecorderReports
from bccnd.core.matching.pattern_tree import REFILL
from bccnd.core.matching.patterns import MAX_PATTERN, Dialect
from bccnd.core.matching.routes import Routes
from bccnd.core.sending.egress import Egress
from bccnd.core.sending.user_quota import Quota, UserAccount
from bccnd.core.wire import frames
from bccnd.handover.client_log import NOTHING
from bccnd.handover.stored_state import Handover
from bccnd.native.memory.inflight import PacketReceiver as InflightPacketReceiver
from bccnd.native.memory.slots import SlotMemory
from bccnd.native.system import sockio
from bccnd.net.listen import Acceptor
from bccnd.net.loop import Loop
from bccnd.net.peer import Peer, PeerIdentifier

#: patterns of a client that has gone which are removed in one step, and steps in one round
PORTION: Final = 64
PORTIONS: Final = 8
#: why a client is disconnected over an exception
BUG: Final = "a bug in this daemon; please report it"


@dataclass(frozen=True)
class Entrance:
    """A listening socket, the dialect spoken behind it, and the programs that it admits."""

    listener: socket.socket
    dialect: Dialect
    admits: Admission


class Bus:
    """Serves the clients of one or more listening sockets.

    For ``identify`` and ``tagged`` see `Identities`, for ``egress`` and ``broadcast`` `Publisher`. ``on_quiet`` is
    called when the last client has left. ``recorders`` takes the reports of recorders. The counters are kept in
    ``memory``.
    """

    def __init__(
        self,
        loop: Loop,
        entrances: Iterable[Entrance],
        routes: Routes[int],
        identify: Callable[[bytes, int], bytes],
        tagged: Callable[[bytes, bytes], bytes],
        access: Access,
        limits: BusLimits,
        *,
        egress: Egress | None = None,
        broadcast: Callable[[bytes, bytes], str | None] = lambda _chan, _datagram: None,
        listings: Mapping[bytes, Listing] | None = None,
        trace: Callable[[bytes], dict[str, Any]] | None = None,
        on_quiet: Callable[[], None] = lambda: None,
        recorders: RecorderReports | None = None,
        handover: Handover | None = None,
        memory: SlotMemory | None = None,
    ) -> None:
        self.loop = loop
        self._routes = routes
        routes.refill()
        loop.every(REFILL, routes.refill)
        self._access = access
        self._on_quiet = on_quiet
        self.recorders = recorders
        #: processes what gateways send; without it there are none
        self.links: GatewayLinks | None = None
        self._handover = handover
        inflight = None
        if handover is not None:
            handover.image = self._image
            inflight = handover.inflight
        self.queues = SendQueues(
            loop,
            routes,
            limits,
            self._end_slow,
            lambda client: self.backpressure.unblock_soon(client),
            inflight,
            memory,
        )
        self.fanout = Fanout(loop, self.queues)
        self.transaction = InputTransaction(self.fanout, inflight)
        self.subscriptions = Subscriptions(routes, limits)
        self._publisher = Publisher(routes, self.fanout, egress, broadcast)
        self.clients = self.queues.by_fd
        self.counters = self.queues.counters
        self._by_pid = ClientsByPid()
        self.identities = Identities(routes, egress, self._by_pid, identify, tagged)
        self.quota = Quota(limits.user)
        self.backpressure = Backpressure(
            loop, self.queues, self.quota, self.transaction, self.watch, self.end_after_bug
        )
        self.control = Control(self, routes, listings or {}, trace)
        self._closed = False
        #: clients that have gone, and whose patterns are being removed
        self._leaving: deque[Client] = deque()
        #: clients that there ever were
        self.connections = 0
        self.reader = PacketReader(
            loop,
            sockio.PacketReceiver(frames.MAX_PACKET) if inflight is None else InflightPacketReceiver(inflight),
            self._publisher,
            self.fanout,
            self.quota,
            self.transaction,
            self.backpressure,
            self,
        )
        self.identifier = PeerIdentifier()
        self._acceptors = [Acceptor(loop, one.listener, "clients", partial(self._on_connect, one)) for one in entrances]

    @property
    def limits(self) -> BusLimits:
        limits: BusLimits = self.queues.limits
        return limits

    @property
    def queue_bytes(self) -> int:
        """Return the bytes that wait for all clients."""
        return self.queues.queue_bytes

    def configure(self, limits: BusLimits, access: Access) -> None:
        """Put other limits and rules in force, also for the clients that are connected."""
        self.queues.limits = self.subscriptions.limits = limits
        self.quota.limits = limits.user
        self._access = access
        for client in list(self.clients.values()):
            client.rights = access.rights(client.peer)
            self._enforce(client)
            self.backpressure.reconsider(client)

    def enforce_rules(self) -> None:
        """Take from each client what it may not have any more, and tell it."""
        for client in list(self.clients.values()):
            self._enforce(client)

    def _enforce(self, client: Client) -> None:
        for pattern in self.subscriptions.remove_forbidden(client):
            self.refuse(client, "not_permitted", pattern)
        if client.identity != client.base and not client.rights.tag:
            self.identities.rename(client, client.base)
            client.state_log.requested(frames.control(frames.TAG, b""))
            self.refuse(client, "not_permitted", frames.TAG)

    # -- clients connect

    def _on_connect(self, entrance: Entrance, sock: socket.socket) -> None:
        try:
            self._accept(entrance, sock)
        except Exception:  # noqa: BLE001 - no connection is worth the others
            log.bug("a client could not be accepted, because of a bug in this daemon", drop="bug")
            client = self.clients.get(sock.fileno())
            if client is not None:
                self.end(client, "bug", BUG)
            else:
                self.counters.refused.add("bug")
                sock.close()

    def _accept(self, entrance: Entrance, sock: socket.socket) -> None:
        begun = time.monotonic()
        peer = self.identifier.identify(sock)
        if not entrance.admits(peer):
            self._turn_away(sock, peer, "not_admitted", f"{peer} may not connect", "see mode and group of the socket")
            return
        self._end_predecessors(peer)
        if len(self.clients) >= self.limits.max_clients:
            remedy = "find the program that opens so many ('bccn clients'), or raise bus.max_clients"
            why = f"refused {peer}: {len(self.clients)} clients are connected"
            self._turn_away(sock, peer, "too_many_clients", why, remedy)
            self._charge_uid(peer.uid, begun)
            return
        account = self.quota.open(peer.uid, time.monotonic())
        if account is None:
            remedy = "find the program that opens so many ('bccn clients'), or raise bus.user.clients"
            why = f"refused {peer}: this user has {self.limits.user.clients} clients"
            self._turn_away(sock, peer, "too_many_clients_of_user", why, remedy)
            self._charge_uid(peer.uid, begun)
            return
        self.connections += 1
        client = self.admit(sock, self.connections, peer, entrance.dialect, account)
        if self._handover is not None:
            self._handover.keep(client)
            self.identities.record_seq(client)
        self.watch(client)
        self._charge(account, begun)

    def _charge_uid(self, uid: int, begun: float) -> None:
        """Charge a user that was refused a client, if it has others."""
        account = self.quota.account(uid)
        if account is not None:
            self._charge(account, begun)

    def _charge(self, account: UserAccount, begun: float) -> None:
        """Charge a user for the time since ``begun`` (monotonic)."""
        account.charge(self.loop.rounds, self.quota.round_seconds, time.monotonic() - begun)

    def admit(self, sock: socket.socket, number: int, peer: Peer, dialect: Dialect, account: UserAccount) -> Client:
        """Add a client, which is not yet read from."""
        base = self.identities.base_of(peer, number)
        client = Client(sock, number, peer, base, dialect, account, self._access.rights(peer))
        self.fanout.add(client)
        self._by_pid.add(client)
        self._routes.join(client.fd, base, dialect, owner=peer.uid)
        self.identities.open(base)
        return client

    def watch(self, client: Client) -> None:
        """Read from a client from now on."""
        self.loop.watch(client.fd, client.watched, ClientEvents(self.reader, client))

    def _image(self, client: Client) -> bytes:
        return client_image(client, self.control.requests_of(client), self._routes.patterns(client.fd))

    def _turn_away(self, sock: socket.socket, peer: Peer, reason: str, why: str, remedy: str) -> None:
        self.counters.refused.add(reason)
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

    # -- clients leave

    def _end_predecessors(self, peer: Peer) -> None:
        """End clients of a process that had this pid before: a descriptor that it has left to another process would
        publish in the name of its successor."""
        for client in self._by_pid.of(peer.pid) if peer.started else ():
            if 0 != client.peer.started != peer.started:
                self.end(client, "pid_reused", f"its pid belongs to {peer} now")

    def _end_slow(self, client: Client, why: str) -> None:
        self.end(client, "slow", why)

    def end_after_bug(self, client: Client) -> None:
        """Log the exception being handled, and end the client that it concerns."""
        log.bug(f"{client} has met a bug in this daemon", **log.peer_fields(client.peer, client.identity))
        self.end(client, "bug", BUG)
        self.transaction.commit()

    def end(self, client: Client, reason: str = "", why: str = "") -> None:
        """Remove a client that has left or, for a ``reason``, must; its descriptor is closed after this round."""
        if not client.open:
            return
        if reason:
            self.counters.ended.add(reason)
            log_end(client, reason, why)
        client.open = False
        self.control.drop_listing(client)
        self.backpressure.forget(client)
        now = time.monotonic()
        self.loop.unwatch(client.fd)
        self.fanout.remove(client)
        self._by_pid.remove(client)
        self._routes.retire(client.fd)
        client.account.subscriptions -= client.subscriptions
        self.quota.close(client.account, now)
        self.identities.close(client, now)
        if self._handover is not None:
            self._handover.forget(client)
        self.backpressure.unblock_soon(client)
        with contextlib.suppress(OSError):  # a process that is sending to it must notice
            client.sock.shutdown(socket.SHUT_RDWR)
        if self._routes.forget_some(client.fd, PORTION):
            self.loop.soon(client.sock.close)
        else:
            self._leaving.append(client)
            if len(self._leaving) == 1:
                self.loop.later(0.0, self._forget_patterns)
        self.loop.soon(self._check_quiet)

    def _forget_patterns(self) -> None:
        """Remove patterns of clients that have gone, in steps that block no other client; then close descriptors."""
        for _ in range(min(PORTIONS, len(self._leaving))):
            client, begun = self._leaving.popleft(), time.monotonic()
            if self._routes.forget_some(client.fd, PORTION):
                client.sock.close()
            else:
                self._leaving.append(client)
            self._charge(client.account, begun)
        if self._leaving:
            self.loop.later(0.0, self._forget_patterns)

    def _check_quiet(self) -> None:
        if not self.clients:
            self._on_quiet()

    # -- frames that are no messages

    def process_request(self, client: Client, verb: bytes, key: bytes, payload: bytes) -> None:
        """Process a frame that is no message, or a message of a gateway."""
        if verb == frames.SUB:
            refused = self.subscriptions.subscribe(client, key)
            if refused:
                self.refuse(client, refused, key[:64] if refused == "pattern_too_long" else key)
        elif verb == frames.UNSUB:
            if not self.subscriptions.unsubscribe(client, key):
                self.refuse(client, "not_subscribed", key[:MAX_PATTERN])
        elif verb == frames.MSG:
            self._on_link_message(client, payload)
        else:
            self.control.process(client, key, payload)

    def _on_link_message(self, client: Client, payload: bytes) -> None:
        """Pass on what a gateway brings. Like a segment's datagrams, it is not counted against a user."""
        if not client.rights.link:
            self.refuse(client, "not_permitted", frames.LINK)
        elif self.links is None or not self.links.bring(payload):
            self.refuse(client, "no_link", frames.LINK)

    # -- what the daemon sends

    def publish(self, identity: bytes, key: bytes, payload: bytes, packet: bytes) -> str:
        """Publish a message of the daemon's own; see `Publisher.publish`."""
        refused = self._publisher.publish(identity, key, payload, packet, self._publisher.route(key))
        self._send_apart()
        return refused

    def announce(self, key: bytes, payload: bytes) -> None:
        """Send a message on a key of the bus itself to its subscribers."""
        self.fanout.send(self._routes.local(key), frames.message(key, payload))
        self._send_apart()

    def _send_apart(self) -> None:
        """Keep the daemon's own messages out of what the next input brings."""
        if self._handover is not None:
            self.fanout.send_batches()

    def answer(self, client: Client, key: bytes, payload: bytes) -> None:
        """Send a client a control message."""
        self.fanout.send_control(client, frames.control(key, payload))

    def refuse(self, client: Client, reason: str, key: bytes) -> None:
        """Tell a client that a frame about ``key`` was refused; count and log it."""
        self.counters.errors.add(reason)
        log_refusal(client, reason, key)
        self.fanout.send_control(client, frames.error(reason, key[:MAX_REPEATED]))

    def set_dialect(self, client: Client, dialect: Dialect) -> None:
        """Choose the dialect of the patterns to come of a client that holds none."""
        client.dialect = dialect
        self._routes.set_dialect(client.fd, dialect)

    # -- the end

    def stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()

    def drain(self, deadline: float) -> None:
        """Process what clients have sent, then send what waits for them, until ``deadline`` (monotonic).

        Clients that the next daemon takes over are left as they are, with all that waits.
        """
        self.reader.draining = True
        unread = [client for client in self.clients.values() if client.state_log is NOTHING]
        for client in unread:
            self.backpressure.resume(client)
        while unread and time.monotonic() < deadline:
            unread = [client for client in unread if client.open and self.reader.read(client)]
        self.fanout.send_batches()
        while time.monotonic() < deadline:
            waiting = [client for client in self.clients.values() if client.queue and client.state_log is NOTHING]
            if not waiting:
                break
            for client in waiting:
                self.queues.flush(client)
            time.sleep(0.005)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.stop_accepting()
        self._on_quiet = lambda: None
        for client in list(self.clients.values()):
            if client.state_log is NOTHING:
                self.end(client)
                client.sock.close()
            else:  # its connection is still open in the descriptor store
                client.state_log.counts(published=client.published, lost=client.lost)
        self.identifier.close()
