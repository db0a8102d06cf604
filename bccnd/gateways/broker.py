"""The TCP broker: publishers over UDP, subscribers over TCP, and the bus between them and everybody else.

Law: what a publisher sends goes to the subscribers as it came, and to the bus as text; what the bus brings goes to the
subscribers as text. A message reaches a subscriber once, however many of its patterns match, and nothing waits for a
subscriber, a publisher, the daemon or the disk. Everything that strangers can make grow is bounded, and what falls is
counted with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from bccnd.client.message import Message, to_bytes
from bccnd.client.session import Refusal
from bccnd.config import BrokerSettings
from bccnd.core.patterns import DIALECTS
from bccnd.core.routes import Routes
from bccnd.errors import BusError, StartError
from bccnd.gateways import broker_state
from bccnd.gateways.base import (
    REPORT,
    TAKEOVER,
    Hourly,
    Status,
    Supervisor,
    Voice,
    listen_patiently,
    say_bug,
    say_dropped,
)
from bccnd.gateways.broker_bus import BusLink
from bccnd.gateways.broker_codec import (
    DISCONNECT,
    MAX_PUBLICATION,
    MAX_TOPIC,
    MESSAGE,
    STRING,
    SUBSCRIBE,
    message,
    read_publication,
)
from bccnd.gateways.broker_keeper import Keeper
from bccnd.gateways.broker_sessions import Sessions
from bccnd.gateways.broker_tcp import Address, Door, Subscriber, listen, text_of
from bccnd.gateways.broker_topics import Interests, channel_of, topic_of
from bccnd.gateways.drop_texts import BROKER_DROPPED, BROKER_ENDED
from bccnd.gateways.tcp import raise_descriptor_limit

#: seconds after which a subscriber that takes nothing, while messages for it are dropped, is ended
PATIENCE: Final = 30.0
#: seconds after which a subscriber's host that does not answer has gone; more than PATIENCE, for the kernel counts a
#: host that answers but takes nothing among them
SILENCE: Final = 45.0
#: seconds a daemon is away before that is said: a restart is no news
_AWAY: Final = 2.0
#: publications read before anything else has its turn
_TURN: Final = 64
#: bytes asked of the kernel for publications that wait; it gives what net.core.rmem_max allows
_RECEIVE: Final = 4 << 20
#: from <asm-generic/socket.h> and <linux/sock_diag.h>: nine numbers, of which the last one is of datagrams dropped
_SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("=9I")
#: seconds between two looks at who has become too old
_MINUTE: Final = 60.0
#: seconds from a peer's coming or going to the next report, so that a crowd makes one
_SOON: Final = 0.1
#: descriptors beside those of subscribers, which strangers can never take: for the bus, the file, the log
_OTHERS: Final = 32
#: refusals remembered, each of which is said once
_MAX_REFUSED: Final = 16
#: as whom a program of this host speaks
_LOCAL: Final = "127.0.0.1:0"


class BrokerGateway:
    """The gateway ``broker``. ``folder`` is what a relative ``state`` counts from; ``patience``, ``silence``
    and ``takeover`` are seconds, as PATIENCE, SILENCE and TAKEOVER."""

    def __init__(
        self,
        settings: BrokerSettings,
        bus: str,
        voice: Voice,
        *,
        folder: str,
        patience: float = PATIENCE,
        silence: float = SILENCE,
        takeover: float = TAKEOVER,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._voice = voice
        self._folder = folder
        self._patience = patience
        self._silence = silence
        self._takeover = takeover
        self.status = Status("broker")

    async def run(self, stop: asyncio.Event, supervisor: Supervisor | None = None) -> None:
        """As `Gateway.run`."""
        service = _Service(self._settings, self._bus, self._voice, self.status, self._patience, self._silence)
        try:
            await service.open(self._folder, lambda listen: listen_patiently(listen, self._takeover, stop, supervisor))
            if supervisor is not None:
                supervisor.ready("serving")
            tick = min(REPORT, self._settings.hello)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), tick)
                service.tick()
        finally:
            await service.close()


class _Service:
    """The running gateway: what its sockets, the bus and the clock call."""

    def __init__(
        self, settings: BrokerSettings, bus: str, voice: Voice, status: Status, patience: float, silence: float
    ) -> None:
        self._settings = settings
        self._voice = voice
        self._patience = patience
        self._silence = silence
        self._status = status
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_bug)
        try:
            self._bus = BusLink(
                bus, self._on_messages, self._on_refusal, self._on_gap, status.drop, local=not settings.broadcast
            )
        except BusError as error:
            raise StartError(error.reason, error.detail, "set bus.path to the daemon's socket") from error
        self._routes: Routes[Subscriber] = Routes(DIALECTS["broker"])
        self._interests = Interests()
        self._sessions = Sessions(settings.max_ids, settings.max_subscriptions, settings.expire)
        self._subscribers: dict[Subscriber, None] = {}
        #: how many of them there may be
        self._room = 0
        #: those for whom something was queued in this turn
        self._dirty: dict[Subscriber, None] = {}
        self._door: Door | None = None
        self._udp: socket.socket | None = None
        self._keeper: Keeper | None = None
        #: messages that those have taken who have gone
        self._sent = 0
        #: what the daemon has refused of what it is asked for all the time
        self._refused: set[Refusal] = set()
        self._away_said = False
        self._hourly = Hourly(voice, status, time.monotonic())
        #: what others have counted, as it stands in the status
        self._seen: dict[str, int] = {}
        self._reported = self._looked = 0.0
        self._report_soon: asyncio.TimerHandle | None = None

    async def open(
        self, folder: str, patiently: Callable[[Callable[[], socket.socket]], Awaitable[socket.socket]]
    ) -> None:
        settings = self._settings
        where = []
        if settings.tcp is not None:
            listener = await patiently(partial(listen, socket.SOCK_STREAM, settings.tcp))
            room = raise_descriptor_limit(settings.max_connections + _OTHERS) - _OTHERS
            self._room = min(settings.max_connections, max(1, room))
            where.append(f"subscribers at {text_of(settings.tcp)}")
            path = settings.state and os.path.join(folder, settings.state)
            self._keeper = Keeper(path or broker_state.place(settings.tcp, os.environ), self._sessions, self._voice)
            self._keeper.load()
            self._door = Door(listener, self._admit)
        if settings.udp is not None:
            self._udp = await patiently(partial(listen, socket.SOCK_DGRAM, settings.udp))
            self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE)
            self._loop.add_reader(self._udp, self._on_publications)
            where.append(f"publishers at {text_of(settings.udp)}")
        if settings.udp is not None and settings.broadcasts_for_strangers:
            self._voice.say(
                "strangers",
                "doubtful_setting",
                f"whoever reaches {text_of(settings.udp)} can have this host broadcast with its own check",
                remedy="listen at 127.0.0.1, or see that only those reach it whom you trust (docs/broker.md)",
                setting="gateways.broker.broadcast_strangers",
            )
        self._bus.open()
        self._voice.say("ready", "gateway_ready", f"the broker serves {' and '.join(where)}", gateway="broker")

    async def close(self) -> None:
        self._count()
        if self._udp is not None:
            self._loop.remove_reader(self._udp)
            self._udp.close()
        if self._door is not None:
            self._door.shut()
        self._bus.close()
        for subscriber in list(self._subscribers):
            subscriber.flush()
            subscriber.end("")
        if self._report_soon is not None:
            self._report_soon.cancel()
        if self._keeper is not None:
            await self._keeper.close()
        # Only now: who gets the address next reads what was written.
        if self._door is not None:
            self._door.close()
        self._hourly.end()

    # -- publications

    def _on_publications(self) -> None:
        udp = self._udp
        if udp is None:
            return
        now = time.monotonic()
        for _ in range(_TURN):
            try:
                datagram, address = udp.recvfrom(MAX_PUBLICATION + 1)
            except BlockingIOError:
                break
            except OSError:  # what became of something else; the next one may be well
                continue
            self._on_publication(datagram, address, now)
        self._flush()

    def _on_publication(self, datagram: bytes, address: Address, now: float) -> None:
        status = self._status
        status.received += 1
        status.received_bytes += len(datagram)
        found = read_publication(datagram)
        if found is None:
            status.drop("oversize" if len(datagram) > MAX_PUBLICATION else "malformed")
            return
        topic, kind, content, value = found
        if not topic:
            status.drop("no_topic")
            return
        chan = channel_of(topic)
        reason = self._bus.publish(chan, value)
        if reason:
            status.drop(reason)
        self._deliver(chan, text_of(address), topic, kind, content, now)

    def _deliver(self, chan: bytes, peer: str, topic: bytes, kind: int, content: bytes, now: float) -> None:
        receivers = self._routes.find(chan).plain
        if not receivers:
            return
        made = message(peer, topic, kind, content)
        for subscriber in receivers:
            if subscriber.offer(made, now):
                self._dirty[subscriber] = None
            elif not subscriber.closed:
                subscriber.peer.dropped += 1
                self._status.drop("queue_full")

    def _flush(self) -> None:
        """Send what this turn has queued: many messages with one call."""
        dirty, self._dirty = self._dirty, {}
        for subscriber in dirty:
            subscriber.flush()

    # -- the bus

    def _on_messages(self, messages: list[Message]) -> None:
        now = time.monotonic()
        for one in messages:
            chan = to_bytes(one.chan)
            if chan.startswith(b"!"):  # to everybody, to one program, or of the bus itself: no topic
                continue
            topic = topic_of(chan)
            if topic is None:
                self._status.drop("no_topic")
                continue
            peer = _LOCAL if one.peer == "local" else one.peer
            self._deliver(channel_of(topic), peer, topic, STRING, one.payload, now)
        self._flush()

    def _on_refusal(self, refusal: Refusal) -> None:
        reason = _REFUSED.get(refusal.reason, "")
        if reason or refusal.key:
            self._status.drop(reason or "filtered")
        if not reason and refusal.key and refusal not in self._refused and len(self._refused) < _MAX_REFUSED:
            self._refused.add(refusal)
            remedy = "let this user publish, subscribe and report (access: link)"
            if refusal.reason == "unknown_control":
                remedy = "bring daemon and gateway to one version"
            self._voice.say(
                ("refused", refusal),
                "gateway_dropped",
                f"the daemon has refused '{refusal.key}' ({refusal.reason})",
                remedy=remedy,
                gateway="broker",
                reason="filtered",
                drop="filtered",
                count=1,
            )

    def _on_gap(self, lost: int) -> None:
        self._status.drop("queue_full", lost)

    # -- subscribers

    def _admit(self, sock: socket.socket, address: Address) -> None:
        self._status.connects += 1
        if len(self._subscribers) >= self._room:
            self._status.drop("too_many_peers")
            remedy = "allow more with gateways.broker.max_connections"
            if self._room < self._settings.max_connections:
                remedy = "allow this process more descriptors (LimitNOFILE)"
            text = f"{text_of(address)} was refused: there are {len(self._subscribers)} connections"
            self._voice.say(
                (text_of(address), "peer_refused"),
                "peer_refused",
                text,
                gateway="broker",
                remedy=remedy,
                peer=text_of(address),
                reason="too_many_peers",
                drop="too_many_peers",
            )
            sock.close()
            return
        self._subscribers[Subscriber(sock, address, self, self._settings.queue, self._silence)] = None

    def on_hello(self, subscriber: Subscriber, name: bytes) -> None:
        reason = self._sessions.connect(name, time.time()) if name else "no_id"
        if reason:
            subscriber.end(reason)
            return
        subscriber.name = name
        subscriber.peer.name = _shown(name)
        topics = list(self._sessions.topics(name))
        self._routes.join(subscriber, b"broker", owner=subscriber)
        for topic in topics:
            self._routes.subscribe(subscriber, channel_of(topic))
        self._ask(self._interests.add(topics))
        kept = f", with {len(topics)} subscriptions from before" if topics else ""
        peer = subscriber.peer.peer
        self._voice.say(
            (peer, "peer_connected"),
            "peer_connected",
            f"{subscriber.peer.name} has connected from {peer}{kept}",
            gateway="broker",
            peer=peer,
        )
        self._tell_daemon_soon()

    def on_request(self, subscriber: Subscriber, kind: int, topic: bytes) -> None:
        subscriber.peer.received += 1
        name = subscriber.name
        if kind == DISCONNECT:
            subscriber.end("")
            return
        if not topic or len(topic) > MAX_TOPIC:
            self._status.drop("malformed")
            return
        if kind == SUBSCRIBE:
            new = self._sessions.subscribe(name, topic)
            if new:
                self._routes.subscribe(subscriber, channel_of(topic))
                self._ask(self._interests.add((topic,)))
                self._changed()
            elif new is None:
                self._status.drop("too_many_subscriptions")
        elif self._sessions.unsubscribe(name, topic):
            self._routes.unsubscribe(subscriber, channel_of(topic))
            self._ask(self._interests.remove((topic,)))
            self._changed()

    def on_gone(self, subscriber: Subscriber, reason: str) -> None:
        del self._subscribers[subscriber]
        self._dirty.pop(subscriber, None)
        name, peer = subscriber.name, subscriber.peer.peer
        if reason:
            self._status.drop(reason)
        if not name:
            if reason:
                text, remedy = BROKER_ENDED[reason]
                self._voice.say(
                    (peer, "peer_refused"),
                    "peer_refused",
                    f"{peer} was refused: {text}",
                    gateway="broker",
                    remedy=remedy,
                    peer=peer,
                    reason=reason,
                    drop=reason,
                )
            return
        if len(subscriber.queue):
            self._status.drop("not_connected", len(subscriber.queue))
        self._sent += subscriber.peer.sent
        self._routes.leave(subscriber)
        topics = list(self._sessions.topics(name))
        self._ask(self._interests.remove(topics))
        self._sessions.disconnect(name, time.time())
        if topics:
            self._changed()
        if reason:
            text, remedy = BROKER_ENDED[reason]
            shown = subscriber.peer.name
            self._voice.say(
                (peer, "peer_ended"),
                "peer_ended",
                f"{shown} at {peer} was ended: {text}",
                gateway="broker",
                remedy=remedy,
                peer=peer,
                reason=reason,
                drop=reason,
            )
        else:
            self._voice.say(
                (peer, "peer_gone"),
                "peer_gone",
                f"{subscriber.peer.name} at {peer} has gone",
                gateway="broker",
                peer=peer,
            )
        self._tell_daemon_soon()

    def _ask(self, changes: list[tuple[bool, bytes]]) -> None:
        for wanted, pattern in changes:
            if wanted:
                self._bus.subscribe(pattern)
            else:
                self._bus.unsubscribe(pattern)

    def _changed(self) -> None:
        if self._keeper is not None:
            self._keeper.changed()

    # -- the time

    def tick(self) -> None:
        """What is due: who has said nothing, takes nothing or is too old; what there is to say of it."""
        now = time.monotonic()
        for subscriber in list(self._subscribers):
            reason = self._over(subscriber, now)
            if reason:
                subscriber.end(reason)
        if now - self._looked >= _MINUTE:
            self._looked = now
            if self._sessions.forget(time.time()):
                self._changed()
        self._look_for_daemon(now)
        self._count()
        say_dropped(self._voice, self._status, BROKER_DROPPED)
        self._hourly.look(now)
        if now - self._reported >= REPORT * 0.9:  # a tick may come a little early
            self._report()

    def _count(self) -> None:
        """Bring into the status what was dropped elsewhere."""
        counts = {"id_expired": self._sessions.expired, "id_evicted": self._sessions.evicted}
        counts["too_many_subscriptions"] = self._sessions.left_out
        if self._keeper is not None:
            counts["state_dropped"] = self._keeper.dropped
        if self._udp is not None:
            counts["socket_drops"] = _kernel_drops(self._udp)
        for reason, count in counts.items():
            if count != self._seen.get(reason, 0):
                self._status.drop(reason, count - self._seen.get(reason, 0))
        self._seen = counts

    def _over(self, subscriber: Subscriber, now: float) -> str:
        settings = self._settings
        quiet = now - subscriber.heard
        if not subscriber.name:
            return "no_id" if quiet >= settings.hello else ""
        if subscriber.queue.stuck(now, self._patience):
            return "slow"
        if settings.idle and quiet >= settings.idle and not self._sessions.topics(subscriber.name):
            return "idle"
        return ""

    def _look_for_daemon(self, now: float) -> None:
        since = self._bus.away_since
        if since is None:
            self._away_said = False
        elif not self._away_said and now - since >= _AWAY:
            self._away_said = True
            reason = self._bus.turned_away
            why = f"does not serve us ({reason})" if reason else f"is away: {self._bus.why}"
            self._voice.say(
                "away",
                "daemon_away",
                f"the daemon at {self._bus.path} {why}; publishers and subscribers are served without it meanwhile",
                remedy="start it (systemctl start bccnd), or see whether this user may connect",
                reason=reason or "no_daemon",
            )

    def _tell_daemon_soon(self) -> None:
        if self._report_soon is None:
            self._report_soon = self._loop.call_later(_SOON, self._report)

    def _report(self) -> None:
        if self._report_soon is not None:
            self._report_soon.cancel()
            self._report_soon = None
        self._reported = time.monotonic()
        status = self._status
        known = [subscriber for subscriber in self._subscribers if subscriber.name]
        for subscriber in known:
            subscriber.peer.queued = subscriber.queue.waiting
        status.peers = [subscriber.peer for subscriber in known]
        status.sent = self._sent + sum(peer.sent for peer in status.peers)
        status.sent_bytes = status.sent * MESSAGE
        self._bus.report(status.report())

    def _on_bug(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        say_bug(self._voice, "broker", context)


#: what a refusal of the daemon is counted as
_REFUSED: Final = {
    "too_long": "oversize",
    "not_permitted": "filtered",
    "too_many_subscriptions": "too_many_subscriptions",
    "send_failed": "filtered",
}


def _kernel_drops(sock: socket.socket) -> int:
    """Datagrams that the kernel dropped for want of room in this socket's buffer."""
    info = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    drops: int = _MEMINFO.unpack(info)[-1]
    return drops


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
