"""Serves the broker's subscribers: admits them, keeps what each has subscribed to, and delivers messages to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from bccnd import boot_clock
from bccnd.config import BrokerSettings
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.gateways.base import cannot_listen, format_address, log_peer, report_failure, set_tcp_options
from bccnd.gateways.broker import codec
from bccnd.gateways.broker.bus_client import BusClient
from bccnd.gateways.broker.sessions import Sessions
from bccnd.gateways.broker.subscriber import CountingSocket, Subscriber
from bccnd.gateways.broker.topics import MergedSubscriptions, channel_of
from bccnd.gateways.status import GatewayStatus
from bccnd.net.host_lookup import look_up

#: connections that may wait to be accepted
_BACKLOG: Final = 1024
#: places of wildcards of one id, as many as a topic can have: 1,024 connections delay a message on a new topic by at
#: most 15 ms
MAX_WILDCARDS: Final = 52
#: seconds without accepting when no descriptor is left
_PAUSE: Final = 1.0


def listen(kind: socket.SocketKind, where: tuple[str, int], silence: float) -> socket.socket:
    """Return a non-blocking socket for subscribers (SOCK_STREAM), whose connections end when the other host does not
    answer for ``silence`` seconds, or for publishers (SOCK_DGRAM).

    Raises StartError: address_taken, cannot_listen.
    """
    stream, sock = kind == socket.SOCK_STREAM, None
    try:
        family, address = look_up(*where, kind)[0]
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, stream)
        sock.bind(address)
        if stream:
            set_tcp_options(sock, idle=silence / 2, interval=silence / 6, timeout=silence, unsent=65_536)
            sock.listen(_BACKLOG)
    except OSError as error:
        if sock is not None:
            sock.close()
        key = "tcp" if stream else "udp"
        remedy = f"stop the program that has it ('ss -lnp'), or set another address in gateways.broker.{key}"
        raise cannot_listen(f"on {format_address(where)} ({key.upper()})", error, remedy) from error
    return sock


class SubscriberServer:
    """``changed`` is set when a subscriber has come or gone. ``patience``: seconds after which a subscriber is ended
    that takes nothing while messages for it are dropped."""

    def __init__(self, settings: BrokerSettings, bus: BusClient, status: GatewayStatus, patience: float) -> None:
        self._settings = settings
        self._bus = bus
        self._status = status
        self._patience = patience
        self._routes: Routes[Subscriber] = Routes(DIALECTS["broker"])
        self._merged = MergedSubscriptions()
        self.sessions = Sessions(settings.max_ids, settings.max_subscriptions, settings.expire, status.drop)
        self.changed = asyncio.Event()
        self.subscribers: dict[Subscriber, None] = {}
        #: those with messages to flush
        self._dirty: dict[Subscriber, None] = {}
        #: messages sent to subscribers that have gone
        self._sent = 0

    async def accept(self, listener: socket.socket, room: int) -> None:
        """Accept connections, at most ``room`` at a time, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except ConnectionError:  # it has gone before it was accepted
                continue
            except OSError:  # no descriptor is left; connections go on waiting
                await asyncio.sleep(_PAUSE)
                continue
            self._status.connects += 1
            peer = format_address(address)
            if len(self.subscribers) >= room:
                self._end_nameless()
            if len(self.subscribers) < room:
                sock = CountingSocket(fileno=accepted.detach())
                try:
                    subscriber = Subscriber(sock, peer, self, self._settings.queue)
                    await loop.connect_accepted_socket(lambda one=subscriber: one, sock)  # type: ignore[misc]
                except Exception as error:  # noqa: BLE001 - costs this connection only
                    sock.close()
                    report_failure(self._status, error, f"the connection of {peer}")
            else:
                accepted.close()
                self._status.drop("too_many_peers")
                log_peer("peer_refused", "broker", peer, "was refused", "too_many_peers")
                await asyncio.sleep(0)

    def _end_nameless(self) -> None:
        """End the oldest connection without an id, if there is one, to make room for another."""
        oldest = next((subscriber for subscriber in self.subscribers if not subscriber.name), None)
        if oldest is not None:
            oldest.end("no_id")

    def close(self) -> None:
        """End all connections."""
        self.flush()
        for subscriber in list(self.subscribers):
            subscriber.end("")

    def on_hello(self, subscriber: Subscriber, name: bytes) -> None:
        reason = self.sessions.connect(name, boot_clock.now()) if name else "no_id"
        if reason:
            subscriber.end(reason)
            return
        subscriber.name = name
        subscriber.peer.name = name.decode("utf-8", "backslashreplace")
        self._routes.join(subscriber, b"broker", owner=subscriber)
        for topic in list(self.sessions.topics(name)):
            if self._has_room(subscriber, topic):
                self._routes.subscribe(subscriber, channel_of(topic))
            else:
                self.sessions.unsubscribe(name, topic)
        topics = list(self.sessions.topics(name))
        self._change_bus(topics, wanted=True)
        text = f"is connected as {subscriber.peer.name}, with {len(topics)} earlier subscriptions"
        log_peer("peer_connected", "broker", subscriber.peer.peer, text)
        self.changed.set()

    def on_request(self, subscriber: Subscriber, kind: int, topic: bytes) -> None:
        subscriber.peer.received += 1
        if kind == codec.DISCONNECT:
            subscriber.end("")
        elif not topic or len(topic) > codec.MAX_TOPIC:
            self._status.drop("malformed")
        elif kind == codec.SUBSCRIBE:
            if self._has_room(subscriber, topic) and self.sessions.subscribe(subscriber.name, topic):
                self._routes.subscribe(subscriber, channel_of(topic))
                self._change_bus((topic,), wanted=True)
        elif kind == codec.UNSUBSCRIBE and self.sessions.unsubscribe(subscriber.name, topic):
            self._routes.unsubscribe(subscriber, channel_of(topic))
            self._change_bus((topic,), wanted=False)

    def _has_room(self, subscriber: Subscriber, topic: bytes) -> bool:
        """Whether an id may hold the wildcards of a topic, too; otherwise count that it may not."""
        if self._routes.has_room(subscriber, (channel_of(topic),), MAX_WILDCARDS):
            return True
        self._status.drop("too_many_wildcards")
        return False

    def on_end(self, subscriber: Subscriber, reason: str) -> None:
        del self.subscribers[subscriber]
        self._dirty.pop(subscriber, None)
        name, peer = subscriber.name, subscriber.peer
        if reason:
            self._status.drop(reason)
        if name:
            if subscriber.waiting:
                self._status.drop("not_connected", -(-subscriber.waiting // codec.MESSAGE))
            self._sent += subscriber.sent
            self._routes.leave(subscriber)
            self._change_bus(self.sessions.topics(name), wanted=False)
            self.sessions.disconnect(name, boot_clock.now())
            what = f"({peer.name}) was ended" if reason else f"({peer.name}) has gone"
            log_peer("peer_ended" if reason else "peer_gone", "broker", peer.peer, what, reason)
            self.changed.set()
        elif reason:
            log_peer("peer_refused", "broker", peer.peer, "was refused", reason)

    def _change_bus(self, topics: Iterable[bytes], *, wanted: bool) -> None:
        for subscribe, pattern in self._merged.change(topics, wanted=wanted):
            (self._bus.subscribe if subscribe else self._bus.unsubscribe)(pattern)

    def deliver(self, chan: bytes, peer: str, topic: bytes, kind: int, content: bytes) -> None:
        """Queue a message once for each subscriber with a matching subscription; `flush` sends it."""
        receivers = self._routes.find(chan).plain.all
        message = codec.message(peer, topic, kind, content) if receivers else b""
        for subscriber in receivers:
            if subscriber.offer(message):
                self._dirty[subscriber] = None
            else:
                subscriber.peer.dropped += 1
                self._status.drop("queue_full")

    def flush(self) -> None:
        """Send what was queued, the messages for a subscriber with one call."""
        dirty, self._dirty = self._dirty, {}
        for subscriber in dirty:
            subscriber.flush()

    def check(self, now: float) -> None:
        """End connections without an id, stuck and idle ones; forget ids that have been absent for too long."""
        settings = self._settings
        for subscriber in list(self.subscribers):
            quiet = now - subscriber.last_received
            if not subscriber.name:
                if quiet >= settings.hello:
                    subscriber.end("no_id")
            elif subscriber.is_stuck(now, self._patience):
                subscriber.end("slow")
            elif settings.idle and quiet >= settings.idle and not self.sessions.topics(subscriber.name):
                subscriber.end("idle")
        self.sessions.expire(boot_clock.now())

    def update_status(self) -> None:
        """Bring the figures of the subscribers into the status."""
        known = [subscriber for subscriber in self.subscribers if subscriber.name]
        for subscriber in known:
            subscriber.peer.queued, subscriber.peer.sent = subscriber.waiting, subscriber.sent
        self._status.peers = [subscriber.peer for subscriber in known]
        self._status.sent = self._sent + sum(peer.sent for peer in self._status.peers)
        self._status.sent_bytes = self._status.sent * codec.MESSAGE
