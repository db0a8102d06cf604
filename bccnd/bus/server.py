"""The local bus: a SEQPACKET server, made of the parts that accept clients, serve them and stop.

Invariant: a client's fault ends that client, never the fan-out. The kernel identifies the program of a client, the
rules decide its rights. A publisher may be blocked, the segment never. Source: sbus, "Protocol".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bccnd.bus.client_acceptor import ClientAcceptor, Entrance
from bccnd.bus.clients.client import BusRules, Client
from bccnd.bus.clients.client_identities import Identities
from bccnd.bus.clients.registry import ClientRegistry
from bccnd.bus.clients.subscriptions import Subscriptions
from bccnd.bus.delivery.client_queues import ClientQueues
from bccnd.bus.delivery.fanout import Fanout
from bccnd.bus.delivery.replies import Replies
from bccnd.bus.incoming.backpressure import Backpressure
from bccnd.bus.incoming.packet_reader import PacketReader
from bccnd.bus.incoming.publisher import Publisher
from bccnd.bus.requests.client_requests import ClientRequests, Listing
from bccnd.bus.requests.recorder_reports import RecorderReports
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import BusCounters
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.sending.redundancy import Repeater
from bccnd.core.sending.user_quota import Quota
from bccnd.core.wire import frames
from bccnd.handover.descriptor_store import DescriptorStore
from bccnd.native.system import sockio
from bccnd.net.loop import Loop
from bccnd.net.segment_sender import SegmentSender

if TYPE_CHECKING:
    from bccnd.config.schema import BusSettings


class Bus:
    """Serves the clients of one or more listening sockets.

    For ``identify`` and ``tagged`` see `Identities`, for ``builder``, ``segments`` and ``repeater`` `Publisher`.
    ``on_quiet`` is called when the last client has left. ``recorders`` takes the reports of recorders.
    ``store`` keeps their connections.

    The constructor makes the parts, each from those before it: the registry of clients, delivery, requests, reading
    and accepting. If a part needs one that is made after it, the later one adds a call: `ClientRegistry.on_end`,
    `ClientQueues.on_room`.
    """

    def __init__(
        self,
        loop: Loop,
        entrances: Iterable[Entrance],
        routes: Routes[int],
        identify: Callable[[bytes, int], bytes],
        tagged: Callable[[bytes, bytes], bytes],
        rules: BusRules,
        *,
        builder: DatagramBuilder | None = None,
        segments: Iterable[SegmentSender] = (),
        repeater: Repeater | None = None,
        listings: Mapping[bytes, Listing] | None = None,
        trace: Callable[[bytes], dict[str, Any]] | None = None,
        on_quiet: Callable[[], None] = lambda: None,
        recorders: RecorderReports | None = None,
        store: DescriptorStore | None = None,
    ) -> None:
        self.loop = loop
        self._routes = routes
        self._rules = rules
        self._closed = False

        self.counters = BusCounters()
        self.quota = Quota()
        self.identities = Identities(routes, builder, identify, tagged)
        self.registry = ClientRegistry(loop, routes, self.quota, self.identities, self.counters, store, on_quiet)
        self.clients = self.registry.by_fd
        self.subscriptions = Subscriptions(routes, rules)

        self.queues = ClientQueues(loop, routes, rules, self.registry)
        self.fanout = Fanout(loop, self.registry, self.queues)
        self.replies = Replies(self.fanout)

        self.publisher = Publisher(loop, routes, self.fanout, builder, segments, repeater)
        self.backpressure = Backpressure(loop, self.registry, self.queues)

        self.requests = ClientRequests(
            routes,
            self.registry,
            self.subscriptions,
            self.fanout,
            self.replies,
            recorders,
            listings or {},
            trace,
        )
        self.reader = PacketReader(
            loop,
            sockio.PacketReceiver(frames.MAX_PACKET),
            self.registry,
            self.fanout,
            self.publisher,
            self.backpressure,
            self.replies,
            self.requests,
        )
        self.acceptor = ClientAcceptor(loop, entrances, rules, self.registry, store, self.reader.watch)
        self.apply_rules()

    @property
    def limits(self) -> BusSettings:
        return self._rules.bus

    @property
    def queue_bytes(self) -> int:
        """Return the bytes in all queues."""
        return self.queues.queue_bytes

    def apply_rules(self) -> None:
        """Apply rules that have changed to the users and clients that are connected."""
        self.quota.rate = self.limits.user.rate
        for client in list(self.clients.values()):
            client.grant(self._rules.access.rights(client.peer))
            self._enforce(client)
            self.backpressure.apply_limits(client)

    def enforce_rules(self) -> None:
        """Remove patterns and tags that clients have no right to any more, and send them refusals."""
        for client in list(self.clients.values()):
            self._enforce(client)

    def _enforce(self, client: Client) -> None:
        for pattern in self.subscriptions.remove_forbidden(client):
            self.replies.refuse(client, "not_permitted", pattern)
        if client.identity != client.base and not client.rights.tag:
            self.identities.rename(client, client.base)
            client.note(frames.control(frames.TAG, b""))
            self.replies.refuse(client, "not_permitted", frames.TAG)

    # -- messages of the daemon

    def publish(self, identity: bytes, key: bytes, payload: bytes) -> str:
        """Publish a message of the daemon's own; see `Publisher.publish`."""
        packet = frames.message(key, payload)
        return self.publisher.publish(identity, packet, frames.KEY + len(key), self.publisher.route(key))

    def announce(self, key: bytes, payload: bytes) -> None:
        """Send a message on a key of the bus itself to its subscribers."""
        self.fanout.send(self._routes.local(key), frames.message(key, payload))

    # -- the end

    def finish(self, deadline: float) -> None:
        """Process unread packets of clients, then send their queues, until ``deadline`` (monotonic).

        Clients that the next daemon takes over are left as they are, with their packets and queues.
        """
        self.reader.draining = True
        unread = [client for client in self.clients.values() if client.record is None]
        for client in unread:
            self.backpressure.unblock(client)
        while unread and time.monotonic() < deadline:
            unread = [client for client in unread if client.open and self.reader.read(client)]
        self.fanout.send_batches()
        while time.monotonic() < deadline:
            waiting = [client for client in self.clients.values() if client.queue and client.record is None]
            if not waiting:
                break
            for client in waiting:
                self.queues.flush(client)
            time.sleep(0.005)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.acceptor.stop()
        self.registry.on_quiet = lambda: None
        for client in list(self.clients.values()):
            if client.record is None:  # other connections stay open in the descriptor store
                self.registry.end(client)
                client.sock.close()
        self.acceptor.identifier.close()
