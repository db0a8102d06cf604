"""Reads the packets of clients, each client for a turn, and publishes the messages among them.

Invariant: a round of the loop spends only so much time on the packets of one user. A bug triggered by a packet
disconnects only that client. A blocked publisher is not read from.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from bccnd.bus.clients.client import Client
from bccnd.bus.clients.registry import ClientRegistry
from bccnd.bus.delivery.client_queues import ClientQueues
from bccnd.bus.delivery.fanout import Fanout
from bccnd.bus.delivery.replies import Replies
from bccnd.bus.incoming.backpressure import Backpressure
from bccnd.bus.incoming.publisher import Publisher
from bccnd.core.sending.user_quota import UserAccount
from bccnd.core.wire import frames
from bccnd.core.wire.frames import KEY, MAX_PACKET
from bccnd.errors import BadFrame
from bccnd.native.buffers.datagram import find_nul
from bccnd.native.system import clock
from bccnd.native.system.sockio import PacketReceiver
from bccnd.net.loop import GONE, HALF_CLOSED, READABLE, WRITABLE, Handler, Loop
from bccnd.net.peer import is_hung_up, is_shut_down

#: packets read from one client before the others have their turn
TURN: Final = 64
#: seconds since the last turn of a client within which it is expected to have sent more than one packet
BUSY: Final = 0.0001
#: begins a message, and a key that is no plain channel
_MESSAGE: Final = b"MSG "
_MARK: Final = ord("!")


class Requests(Protocol):
    """Processes the frames that are not published."""

    def process(self, client: Client, verb: bytes, key: bytes, payload: bytes) -> None:
        """Process a frame that is no message, or a message of a gateway."""


class ClientEvents(Handler):
    """Handles the events of one client's socket."""

    def __init__(self, reader: PacketReader, client: Client) -> None:
        self._reader = reader
        self._client = client

    def on_events(self, events: int) -> None:
        self._reader.on_events(self._client, events)


class PacketReader:
    """Takes packets of clients from ``receiver``. At the end of the process ``draining`` is set: then no publisher is
    blocked, and no turn is limited in time."""

    def __init__(
        self,
        loop: Loop,
        receiver: PacketReceiver,
        registry: ClientRegistry,
        fanout: Fanout,
        publisher: Publisher,
        backpressure: Backpressure,
        replies: Replies,
        requests: Requests,
    ) -> None:
        self._loop = loop
        self.receiver = receiver
        self._registry = registry
        self._quota = registry.quota
        self._counters = registry.counters
        self._fanout = fanout
        self._queues: ClientQueues = fanout.queues
        self._publisher = publisher
        self._backpressure = backpressure
        self._replies = replies
        self._requests = requests
        self.draining = False

    def watch(self, client: Client) -> None:
        """Read from a client from now on."""
        client.events = ClientEvents(self, client)
        self._loop.watch(client.fd, client.watched, client.events)

    def on_events(self, client: Client, events: int) -> None:
        """Handle events of a client's socket."""
        try:
            if events & WRITABLE:
                begun = clock.monotonic()
                self._queues.flush(client)
                self._charge(client.account, begun)
            if events & GONE and client.retry is not None:
                # Its blocked packet is still processed; until then the kernel need not report that it left.
                self._loop.unwatch(client.fd)
            elif events & (READABLE | HALF_CLOSED | GONE):
                self.read(client)
                if events & GONE and client.open and client.retry is None and not events & READABLE:
                    begun = clock.monotonic()
                    self._registry.end(client)
                    self._charge(client.account, begun)
        except Exception:  # noqa: BLE001 - a bug here costs this client only
            self._registry.end_after_bug(client)

    def _charge(self, account: UserAccount, begun: float) -> None:
        """Charge a user for the time since ``begun``."""
        account.charge(self._loop.rounds, self._quota.round_seconds, clock.monotonic() - begun)

    def read(self, client: Client) -> bool:
        """Process up to a turn of packets, within the user's seconds of this round; True when there may be more."""
        account, begun = client.account, clock.monotonic()
        left = account.left_of(self._loop.rounds, self._quota.round_seconds)
        if left <= 0.0 and not self.draining:
            return True
        # A client that sends rarely has sent one packet: trying to receive a second costs more than another round.
        busy = begun - client.turn < BUSY or self.draining
        client.turn = begun
        self._fanout.gathers = busy
        try:
            return self._read_until(client, begun + left, TURN if busy else 1)
        finally:
            self._fanout.gathers = False
            self._fanout.send_batches()
            account.seconds += clock.monotonic() - begun

    def _read_until(self, client: Client, deadline: float, most: int) -> bool:
        receiver = self.receiver
        for _ in range(most):
            try:
                packet = receiver.receive(client.fd)
            except ConnectionResetError:
                # The peer has closed with unread packets. Reported once; its last packets can still be received.
                continue
            except OSError:
                self._registry.end(client)
                return False
            if packet is None:
                return False
            # An empty packet looks like the end of the connection; it is the end only if the peer has shut down.
            if not packet and is_shut_down(client.sock):
                self._fanout.send_batches()
                self._on_end_of_file(client)
                return False
            self.process(client, packet)
            if not client.open or client.retry is not None:
                return False
            if most > 1 and clock.monotonic() > deadline and not self.draining:
                break
        return True

    def _on_end_of_file(self, client: Client) -> None:
        """End a client that will send no more, unless it still receives: it may have shut down its side only."""
        if (client.subscriptions or client.queue) and not is_hung_up(client.sock):
            client.watched &= ~(READABLE | HALF_CLOSED)
            self._loop.change(client.fd, client.watched)
        else:
            self._registry.end(client)

    def process(self, client: Client, packet: bytes) -> None:
        """Process one frame of a client."""
        nul = find_nul(packet)
        plain = nul >= KEY and packet.startswith(_MESSAGE) and packet[KEY] != _MARK and len(packet) <= MAX_PACKET
        if not plain and not self._is_message(client, packet):
            return
        quota = self._quota
        if quota.rate and quota.exceeds_rate(client.account, clock.monotonic()) and not self.draining:
            self._backpressure.block_for_rate(client, packet, partial(self.publish, client, packet, nul))
        else:
            self.publish(client, packet, nul)

    def _is_message(self, client: Client, packet: bytes) -> bool:
        """Process a frame that is not published, and refuse bytes that are no frame; True for a message."""
        if len(packet) > MAX_PACKET:
            self._replies.refuse(client, "frame_too_long", packet[:64])
            return False
        try:
            verb, key, payload = frames.read(packet)
        except BadFrame as bad:
            self._replies.refuse(client, bad.reason, packet[:64])
            return False
        if verb == frames.MSG and key != frames.LINK:
            return True
        self._requests.process(client, verb, key, payload)
        return False

    def publish(self, client: Client, packet: bytes, nul: int) -> None:
        """Publish a message of a client, whose key ends at ``nul``, at once or when its receivers are ready, if it may
        be published."""
        publisher, refused = self._publisher, ""
        route = publisher.permitted_route(client, packet, nul)
        if route is None:
            key = packet[KEY:nul]
            refused = publisher.refusal(client, key)
            if not refused:
                route = publisher.route(key)
                if route is not None:
                    route.permitted = client.publishes
        if not refused:
            blocker = None
            if self._fanout.may_block() and not self.draining:
                blocker = publisher.blocking_client(client, packet[KEY:nul], route, len(packet))
            if not client.open:  # sending its gathered messages has ended it
                return
            if blocker is not None:
                retry = partial(self.publish, client, packet, nul)
                self._backpressure.block_for_reader(client, packet, blocker, retry)
                return
            refused = publisher.publish(client.identity, packet, nul, route, client)
        self._counters.published += 1
        client.published += 1
        if refused:
            self._replies.refuse(client, refused, packet[KEY:nul])
