"""Publishes messages: delivers them to clients of this host, numbers, signs and broadcasts them to the segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bccnd.bus.clients.client import Client
from bccnd.bus.delivery.fanout import Fanout
from bccnd.core.matching import credential_keys
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.receivers import Receivers
from bccnd.core.matching.routes import Route, Routes
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.sending.redundancy import Repeater, RepeatRules
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire import frames
from bccnd.core.wire.frames import KEY
from bccnd.errors import BadDatagram, BadMessage
from bccnd.native.system import clock
from bccnd.net.loop import Loop
from bccnd.net.segment_sender import SegmentSender

#: bytes of the metadata of a sender at most: src, two numbers, ``local`` and four signs
MAX_META: Final = 128 + 20 + 20 + 5 + 4
#: begins keys of the bus itself; those with one of the others only the daemon may publish
_BUS: Final = b"!/"
_RESERVED: Final = (b"!/bccn/", frames.TAP, frames.LINK)
#: the packet that gateways receive for a local publish, up to the datagram
_PASSED: Final = frames.forwarded(0, b"")


class Publisher:
    """Publishes messages of clients and of the daemon, and sends every datagram that this host broadcasts.

    ``builder`` numbers and signs; without one every key is legal. ``repeater`` decides which datagrams are sent again.
    """

    def __init__(
        self,
        loop: Loop,
        routes: Routes[int],
        fanout: Fanout,
        builder: DatagramBuilder | None,
        segments: Iterable[SegmentSender],
        repeater: Repeater | None,
    ) -> None:
        self._routes = routes
        self._fanout = fanout
        self._builder = builder
        self._loop = loop
        self._segments = tuple(segments)
        self._fds = tuple([segment.fd for segment in self._segments])
        self._repeater = repeater or Repeater(RepeatRules((), DIALECTS["path"]), TrackerLimits())
        #: when timers for copies are due, the earliest last; one is added only if it is earlier, so no rule has two
        self._timers: list[float] = []

    def refusal(self, client: Client, key: bytes) -> str:
        """Return why a client may not publish on a key; empty if it may."""
        if key.startswith(_BUS) and (
            key.startswith(_RESERVED) or (key.startswith(credential_keys.PREFIX) and not credential_keys.is_secret(key))
        ):
            return "reserved_key"
        if self._builder is not None and key.startswith(frames.REPORT):  # other hosts trust these reports
            return "reserved_key"
        allowed = client.publishes
        return "" if allowed is None or allowed.permits(key) else "not_permitted"

    def permitted_route(self, client: Client, packet: bytes, nul: int) -> Route | None:
        """Look up the receivers of a message, whose key ends at ``nul``; None unless all that `refusal` and `route`
        decide is known from an earlier message."""
        route: Route | None = self._routes.known.get_slice(packet, KEY, nul)
        return route if route is not None and route.permitted is client.publishes else None

    def route(self, key: bytes) -> Route | None:
        """Look up the receivers of a channel; None for a key that no datagram can carry."""
        if key.startswith(_BUS):
            return None
        try:
            return self._routes.find(key)
        except BadDatagram:
            return None

    def blocking_client(self, client: Client, key: bytes, route: Route | None, size: int) -> Client | None:
        """Return a receiver that blocks the publisher; worth asking where `Fanout.may_block`."""
        if route is None:
            return self._fanout.blocking_client(self._routes.local(key).all, size, client)
        plain, meta = route.plain.all, route.meta.all
        return self._fanout.blocking_client(plain + meta, size + MAX_META if meta else size, client)

    def publish(
        self, identity: bytes, packet: bytes, nul: int, route: Route | None, client: Client | None = None
    ) -> str:
        """Deliver a message to the clients of this host, and broadcast it if the protocol can carry it.

        ``packet`` is the message as a frame, and its key ends at ``nul``; ``client`` is None for the daemon's own.
        Returns why it was not broadcast: empty where it was, for keys of the bus itself, where there is no segment, or
        for a client that publishes for this host only (such a message uses no sequence number, and has 0).
        """
        if route is None and packet.startswith(_BUS, KEY):
            self._send_locally(client, packet, nul)
            return ""
        clock_ns = clock.time_ns()
        seq, datagram, refused = 0, b"", ""
        if self._builder is not None and not (client is not None and client.local):
            try:
                datagram = self._builder.build(identity, packet, clock_ns // 1000, route is not None)
                seq = self._builder.seq
            except BadMessage as bad:
                refused = bad.reason
        if route is None:  # no legal channel, but perhaps a key that a client here has subscribed to
            self._send_locally(client, packet, nul)
        else:
            route.carried += 1
            self._fanout.send(_without_echo(client, route.plain), packet)
            if route.meta.all:
                frame = route.frame_head + frames.meta(identity, seq, clock_ns, "local") + packet[nul + 1 :]
                self._fanout.send(_without_echo(client, route.meta), frame)
        if datagram and self._routes.links_here.all:
            self._fanout.send(self._routes.links_here, _PASSED + datagram)
        if datagram:
            if self.send(datagram) is not None:
                refused = "send_failed"
            if self._repeater.rules and self._repeater.add(packet[KEY:nul], datagram, clock.monotonic()):
                self.send_due_copies()
        return refused

    def _send_locally(self, client: Client | None, packet: bytes, nul: int) -> None:
        """Deliver a message whose key is no channel."""
        self._fanout.send(_without_echo(client, self._routes.local(packet[KEY:nul])), packet)

    def send(self, datagram: bytes) -> str | None:
        """Send a datagram on all segments, once; return the name of the last error, if there was one.

        It comes back at once: the segments are read at the end of this round, too.
        """
        failed = None
        self._loop.again(self._fds)
        for segment in self._segments:
            error = segment.send(datagram)
            if error is not None:
                failed = error
        return failed

    def send_remaining_copies(self) -> None:
        """Send at once all copies that are scheduled; for the end of the process."""
        for datagram in self._repeater.rest():
            self.send(datagram)

    def send_due_copies(self) -> None:
        """Send the copies that are due, and set a timer for the next ones."""
        for datagram in self._repeater.due(clock.monotonic()):
            self.send(datagram)
        due = self._repeater.next_due
        if due is not None and (not self._timers or due < self._timers[-1]):
            self._timers.append(due)
            self._loop.later(max(0.0, due - clock.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timers.pop()
        self.send_due_copies()


def _without_echo(client: Client | None, receivers: Receivers) -> Receivers:
    """Return the receivers without a publisher that has switched its echo off."""
    if client is None or client.echo or client.fd not in receivers.all:
        return receivers
    return Receivers(tuple([fd for fd in receivers.all if fd != client.fd]))
