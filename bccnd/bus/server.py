"""The local bus: the SEQPACKET server; who comes and goes, and what they send.

Law: a client's fault ends that client, never the fan-out. Who a client is comes from the kernel; what it may do, from
the rules. A publisher may be made to wait, the segment never. Source: sbus, "Protocol".
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import sys
import termios
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bccnd import log
from bccnd.bus.access import Access, Admission
from bccnd.bus.backpressure import Backpressure
from bccnd.bus.control import Control
from bccnd.bus.fanout import BusLimits, Client, Clients
from bccnd.bus.gateway_links import GatewayLinks
from bccnd.bus.recorder_reports import RecorderReports
from bccnd.core import client_records, credential_keys, frames
from bccnd.core.egress import Egress
from bccnd.core.ingress import Delivery
from bccnd.core.pattern_tree import REFILL
from bccnd.core.patterns import DIALECTS, MAX_LEVELS, Dialect
from bccnd.core.quota import Quota, UserAccount
from bccnd.core.routes import Routes
from bccnd.errors import BadDatagram, BadFrame, BadMessage
from bccnd.handover.client_log import NOTHING
from bccnd.handover.restore import Handover, Stored
from bccnd.native.inflight import PacketReceiver as LedgerInbox
from bccnd.native.inflight_layout import DATAGRAMS, PACKET, InflightInput
from bccnd.native.sockio import PacketReceiver
from bccnd.net.listen import Acceptor
from bccnd.net.loop import GONE, HALF_CLOSED, READABLE, WRITABLE, Loop
from bccnd.net.peer import Peer, PeerIdentifier

#: packets read from one client before the others have their turn
TURN: Final = 64
#: patterns of a client that is gone which are taken back in one round
PORTION: Final = 64
#: bytes that a sender's particulars take at most: src, two numbers, ``local`` and four signs
MAX_META: Final = 128 + 20 + 20 + 5 + 4
#: bytes of a key or pattern that are repeated to who named it
MAX_REPEATED: Final = 1024
#: keys of the bus itself that only the daemon may publish
_RESERVED: Final = (b"!/bccn/", frames.TAP, frames.LINK)
#: what links get of what a program of this host has published, up to the datagram
_PASSED: Final = frames.passed(0, b"")
#: what can be done about a client that was ended, by the reason
_AFTER_END: Final = {
    "slow": "make it read faster, or choose another blocking mode there",
    "pid_reused": "have programs close their connections, or not leave them to others, before they end",
}
#: refusals that a program may overlook and its people should not: what it has done, and what can be done about it
AFTER_REFUSAL: Final = {
    "frame_too_long": ("has sent a frame that is longer than any may be", "have it send less at once"),
    "no_link": ("has brought what is no datagram of a link", "bring daemon and gateway to one version"),
    "bad_report": ("has sent a gateway's report that makes no sense", "bring daemon and gateway to one version"),
    "too_many_subscriptions": (
        "has asked for more patterns than it, or its user, may hold",
        "have it subscribe to a whole branch, or raise bus.max_subscriptions or bus.user.subscriptions",
    ),
    "not_perl_safe": (
        "publishes on a channel that readers of the Perl module would discard; it stays on this host",
        "choose another channel, or set names: any if there are no such readers",
    ),
    "no_signing_key": (
        "publishes what cannot be signed, as there is no private key here; it stays on this host",
        "name one in integrity.keys ('bccnd keygen --algorithm sig' makes one)",
    ),
    "too_long": (
        "publishes what does not fit into one datagram; it stays on this host",
        "have it send less in one message: 1400 bytes with sender, channel and check",
    ),
}


@dataclass(frozen=True)
class Entrance:
    """A listening socket, the dialect that is spoken behind it, and whom it admits."""

    listener: socket.socket
    dialect: Dialect
    admits: Admission


class Bus:
    """Serves the clients of one or more listening sockets.

    ``identify`` makes an identity of a program's name and a pid, ``tagged`` puts a tag behind one (BadMessage:
    bad_tag); ``egress`` numbers and signs what clients publish and ``broadcast`` takes it to the segments: a channel
    and its datagram, giving None or the name of an error. Without an ``egress`` there is no segment, and every key is
    a good one. ``on_quiet`` is called when the last client has left. ``recorders`` takes the reports of recorders.
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
        listings: dict[bytes, Callable[[], Iterable[dict[str, Any]]]] | None = None,
        trace: Callable[[bytes], dict[str, Any]] | None = None,
        on_quiet: Callable[[], None] = lambda: None,
        recorders: RecorderReports | None = None,
        handover: Handover | None = None,
    ) -> None:
        self._loop = loop
        self._routes = routes
        routes.on_cut = self._on_cut
        loop.every(REFILL, routes.refill)
        self._identify = identify
        self._tagged = tagged
        self._access = access
        self._egress = egress
        self._broadcast = broadcast
        self._on_quiet = on_quiet
        self.recorders = recorders
        #: takes what gateways send; there are none without it
        self.links: GatewayLinks | None = None
        self._handover = handover
        if handover is not None:
            handover.image = self.image
        inflight = handover.inflight if handover is not None else None
        self._clients = Clients(
            loop, routes, limits, self._end_slow, lambda client: self._waiting.let_go_soon(client), inflight
        )
        self._waiting = Backpressure(loop, self._clients, self._watch, self._stumble)
        self.fanout = self._clients
        self.clients = self._clients.by_fd
        self.counters = self._clients.counters
        self.deliver: Callable[[list[Delivery]], None] = self._clients.deliver
        self.quota = Quota(limits.user)
        self._control = Control(self, routes, listings or {}, trace)
        self._draining = self._closed = False
        self._connections = 0
        self._inbox = PacketReceiver(frames.MAX_PACKET) if inflight is None else LedgerInbox(inflight)
        self._identifier = PeerIdentifier()
        self._acceptors = [Acceptor(loop, one.listener, "clients", partial(self._on_connect, one)) for one in entrances]

    @property
    def limits(self) -> BusLimits:
        return self._clients.limits

    @property
    def queue_bytes(self) -> int:
        """What waits for all clients."""
        return self._clients.queue_bytes

    def configure(self, limits: BusLimits, access: Access) -> None:
        """Put other limits and rules in force, also for those who are here; what they hold and may not any more is
        taken from them, and they are told."""
        self._clients.limits = limits
        self.quota.limits = limits.user
        self._access = access
        for client in list(self.clients.values()):
            client.rights = access.rights(client.peer)
            self._enforce(client)
            self._waiting.look_again(client)
            self._waiting.try_again(client)

    def _enforce(self, client: Client) -> None:
        """Take from a client what it may not have any more, and tell it."""
        for pattern, count in list(self._routes.patterns(client.fd).items()):
            if not self._may_hold(client, pattern):
                self._withdraw(client, [pattern] * count)
                self.refuse(client, "not_permitted", pattern)
        if client.identity != client.base and not client.rights.tag:
            self.rename(client, client.base)
            client.kept.asked(frames.control(frames.TAG, b""))
            self.refuse(client, "not_permitted", frames.TAG)

    # -- clients come and go

    def _on_connect(self, entrance: Entrance, sock: socket.socket) -> None:
        try:
            self._welcome(entrance, sock)
        except Exception:  # noqa: BLE001 - no connection is worth the others
            log.bug("a client could not be welcomed, because of a bug in this daemon", drop="bug")
            client = self.clients.get(sock.fileno())
            if client is not None:
                self._end(client, "bug", "a bug in this daemon; please report it")
            else:
                self.counters.refused["bug"] += 1
                sock.close()

    def _welcome(self, entrance: Entrance, sock: socket.socket) -> None:
        peer = self._identifier.identify(sock)
        if not entrance.admits(peer):
            self._turn_away(sock, peer, "not_admitted", f"{peer} may not connect", "see mode and group of the socket")
            return
        self._end_predecessors(peer)
        if len(self.clients) >= self.limits.max_clients:
            remedy = "find out who opens so many ('bccn clients'), or raise bus.max_clients"
            why = f"refused {peer}: {len(self.clients)} clients are connected"
            self._turn_away(sock, peer, "too_many_clients", why, remedy)
            return
        account = self.quota.open(peer.uid, time.monotonic())
        if account is None:
            remedy = "find out who opens so many ('bccn clients'), or raise bus.user.clients"
            why = f"refused {peer}: this user has {self.limits.user.clients} clients"
            self._turn_away(sock, peer, "too_many_clients_of_user", why, remedy)
            return
        self._connections += 1
        client = self._admit(sock, self._connections, peer, entrance.dialect, account)
        if self._handover is not None:
            self._handover.keep(client)
            self._say_seq(client)
        self._watch(client)

    def _admit(self, sock: socket.socket, number: int, peer: Peer, dialect: Dialect, account: UserAccount) -> Client:
        """A client like any other from now on, but that it is not yet read from."""
        base = self._identify(peer.program, peer.pid)
        if not peer.pid:  # those whom we cannot tell apart by their pid are told apart by their connection
            base = self._tagged(base, b"%d" % number)
        client = Client(sock, number, peer, base, dialect, account, self._access.rights(peer))
        self._clients.add(client)
        self._routes.join(client.fd, base, dialect, owner=peer.uid)
        if self._egress is not None:
            self._egress.open(base)
        return client

    # -- clients of the daemon before us

    def restore(self) -> dict[int, int]:
        """Take over the clients that were left to us: how much each had got of the unfinished input. To be done once,
        when everything else is ready."""
        handover = self._handover
        had: dict[int, int] = {}
        if handover is None:
            return had
        self._connections = handover.last_number
        for stored in handover.clients:
            client = self._restore(handover, stored)
            if client is not None and client.open:
                self._watch(client)
                had[client.fd] = stored.had
        if handover.unfinished is None:
            self._enforce_all()
        return had

    def _enforce_all(self) -> None:
        """What clients were told of before is to be worked through first: whoever comes after us counts it."""
        for client in list(self.clients.values()):
            self._enforce(client)

    def _restore(self, handover: Handover, stored: Stored) -> Client | None:
        fd = stored.sock.fileno()
        try:
            return self._admit_again(handover, stored)
        except Exception:  # noqa: BLE001 - no client is worth the others
            log.bug("a client of the daemon before this one could not be taken over")
            if fd in self.clients:
                self._end(self.clients[fd], "bug", "a bug in this daemon; please report it")
            handover.refuse(stored, "a bug in this daemon; please report it")
            return None

    def _admit_again(self, handover: Handover, stored: Stored) -> Client:
        head = stored.tape.head
        peer = self._identifier.recall(stored.sock, str(head["program"]).encode("ascii"), int(head["started"]))
        dialect = DIALECTS[str(head["dialect"])]
        client = self._admit(stored.sock, stored.number, peer, dialect, self.quota.reopen(peer.uid))
        client.since = float(head["since"])
        for what in self._live_again(client, stored.tape.records):
            handover.dropped.append(f"connection {stored.number}: {what}")
        if self._egress is not None:
            self._egress.resume(client.identity, stored.seq)
        handover.resume(client, stored)
        self._clients.resume(client)
        if client.waits is not None:
            self._waiting.hold_packet(client, client.waits)
            self._waiting.keep_waiting(client, partial(self._take_whole, client, client.waits))
            self._loop.soon(partial(self._waiting.go_on, client))
        return client

    def _live_again(self, client: Client, records: list[client_records.Record]) -> Iterator[str]:
        """Have done to a client what was done to it before, whatever it may by now; what is not understood of it."""
        for one in records:
            kind, _, number, body = one
            if kind == client_records.HOLDS:
                self._hold(client, body, number)
            elif kind == client_records.DROPS:
                self._withdraw(client, [body] * number)
            elif kind == client_records.ASKED:
                if not self._control.repeat(client, body):
                    yield f"it has asked for {body[:64]!r}"
            elif kind == client_records.WAITS:
                client.waits = body
            elif kind == client_records.GOES_ON:
                client.waits = None
            elif kind == client_records.COUNTS:
                numbers = client_records.read_counts(one)
                client.published, client.loss = int(numbers.get("published", 0)), int(numbers.get("lost", 0))
            else:
                client.loss += number if kind in (client_records.LOST, client_records.LOST_HERE) else 0
                client.queue.apply_record(kind, number, body)

    def image(self, client: Client) -> bytes:
        """All that is known of a client, as it would be written down from the beginning."""
        peer = client.peer
        head = {
            "program": peer.program.decode("ascii"),
            "started": peer.started,
            "dialect": client.dialect.name,
            "since": client.since,
            "slot": client.kept.slot,
        }
        records = [client_records.head(**head)]
        records += [client_records.record(client_records.ASKED, frame) for frame in self._control.asked_by(client)]
        records += [
            client_records.record(client_records.HOLDS, text, times)
            for text, times in self._routes.patterns(client.fd).items()
        ]
        records += [client_records.waiting(entry) for entry in client.queue]
        if client.waits is not None:
            records.append(client_records.record(client_records.WAITS, client.waits))
        records.append(client_records.counts(published=client.published, lost=client.loss))
        return b"".join(records)

    def replay_input(
        self, unfinished: InflightInput, had: dict[int, int], feed: Callable[[InflightInput], None]
    ) -> None:
        """Work through again what the daemon before us did not finish; ``feed`` sees to datagrams."""

        def work() -> None:
            if unfinished.kind == DATAGRAMS:
                feed(unfinished)
                return
            client = next((one for one in self.clients.values() if one.number == unfinished.number), None)
            if client is None:
                return
            if unfinished.kind == PACKET:
                if unfinished.packet or not _shut_down(client.sock):
                    self._take_whole(client, unfinished.packet)
            else:
                self._waiting.go_on(client, begun=True)

        try:
            self._clients.replay_input(had, work)
        except Exception:  # noqa: BLE001 - it is given up rather than met again and again
            what = "what the daemon before this one was working on is lost"
            log.bug(what)
            if self._handover is not None:
                self._handover.dropped.append(f"{what}, over a bug")
        self._clients.settle()
        self._enforce_all()

    def _watch(self, client: Client) -> None:
        self._loop.watch(client.fd, client.watched, partial(self._on_event, client))

    def _turn_away(self, sock: socket.socket, peer: Peer, reason: str, why: str, remedy: str) -> None:
        self.counters.refused[reason] += 1
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
            # What is closed unread is reported to the sender as an error, before what we have just said.
            for _ in range(TURN):
                sock.recv(1)
        sock.close()

    def _end_predecessors(self, peer: Peer) -> None:
        """A pid belongs to the process that has it now. Who still speaks under it after that one has ended (through a
        descriptor that it left to others) would speak in the name of its successor."""
        for client in list(self.clients.values()):
            if client.peer.pid == peer.pid and 0 != client.peer.started != peer.started != 0:
                self._end(client, "pid_reused", f"its pid belongs to {peer} now")

    def _end_slow(self, client: Client, why: str) -> None:
        self._end(client, "slow", why)

    def _end(self, client: Client, reason: str = "", why: str = "") -> None:
        """A client has gone or, for a ``reason``, must go; its descriptor lives until the end of the round."""
        if not client.open:
            return
        if reason:
            self.counters.ended[reason] += 1
            log.event(
                "client_ended",
                f"{client} was disconnected: {why}",
                about=f"ended/{client.identity.decode('ascii')}",
                remedy=_AFTER_END.get(reason, ""),
                reason=reason,
                drop=reason,
                **log.peer_fields(client.peer, client.identity),
            )
        client.open = False
        client.held = None
        self._waiting.release_packet(client)
        now = time.monotonic()
        self._loop.unwatch(client.fd)
        self._clients.remove(client)
        self._routes.retire(client.fd)
        client.account.subscriptions -= client.subscriptions
        self.quota.close(client.account, now)
        if self._egress is not None:
            self._egress.close(client.identity, now)
            self._pass_on_seq(client)
        if self._handover is not None:
            self._handover.forget(client)
        self._waiting.let_go_soon(client)
        with contextlib.suppress(OSError):  # whoever is in the midst of sending to it must notice
            client.sock.shutdown(socket.SHUT_RDWR)
        if self._routes.forget_some(client.fd, PORTION):
            self._loop.soon(client.sock.close)
        else:
            self._loop.later(0.0, partial(self._forget_patterns, client))
        self._loop.soon(self._see_whether_quiet)

    def _forget_patterns(self, client: Client) -> None:
        """Go on with what is left of a client that is gone, in steps that hold up nobody; then its descriptor may be
        another's."""
        if self._routes.forget_some(client.fd, PORTION):
            client.sock.close()
        else:
            self._loop.later(0.0, partial(self._forget_patterns, client))

    def _see_whether_quiet(self) -> None:
        if not self.clients:
            self._on_quiet()

    def _pass_on_seq(self, client: Client) -> None:
        """Others may go on under the identity of a client that has left it: let them know how far it has come."""
        seq = self._egress.next_seq(client.identity) if self._egress is not None else 0
        for other in self.clients.values() if seq else ():
            if other.identity == client.identity:
                other.kept.speaks(seq)

    def rename(self, client: Client, identity: bytes) -> None:
        """A client is called something else from now on."""
        if self._egress is not None:
            self._egress.open(identity)
            self._egress.close(client.identity, time.monotonic())
            self._pass_on_seq(client)
        self._routes.rename(client.fd, identity)
        client.identity = identity
        self._say_seq(client)

    def _say_seq(self, client: Client) -> None:
        """Have it known what a client is to speak under next: should a message be worked on twice, it must not get two
        numbers."""
        if self._egress is not None and client.kept is not NOTHING:
            client.kept.speaks(self._egress.begin(client.identity, time.time_ns() // 1000))

    def tag(self, client: Client, tag: bytes) -> None:
        """Put a tag behind what a client is called; an empty one is none. Raises BadMessage: bad_tag."""
        self.rename(client, self._tagged(client.base, tag) if tag else client.base)

    def _on_event(self, client: Client, events: int) -> None:
        try:
            if events & WRITABLE:
                self._clients.flush(client)
            if events & GONE and client.held is not None:
                # What it has sent is still taken when it may go on; until then the kernel need not say that it left.
                self._loop.unwatch(client.fd)
            elif events & (READABLE | HALF_CLOSED | GONE):
                self._read(client)
                if events & GONE and client.open and client.held is None and not events & READABLE:
                    self._end(client)
        except Exception:  # noqa: BLE001 - a bug of ours, which costs this client and nobody else
            self._stumble(client)

    def _stumble(self, client: Client) -> None:
        """Say what has just been raised, and end whom it concerns."""
        log.bug(f"{client} has met a bug in this daemon", **log.peer_fields(client.peer, client.identity))
        self._end(client, "bug", "a bug in this daemon; please report it")
        self._clients.settle()

    # -- from a client

    def _read(self, client: Client) -> bool:
        """Take up to a turn's packets; True when there may be more.

        A turn ends as well when the user's clients have had their share of this round; the kernel tells again that
        there is more. An empty packet looks like the end, and is it only if the peer has shut down.
        """
        account, begun = client.account, time.monotonic()
        left = account.left_of(self._loop.rounds, self.limits.share)
        if left <= 0.0 and not self._draining:
            return True
        try:
            return self._read_within(client, begun + left)
        finally:
            account.seconds += time.monotonic() - begun

    def _read_within(self, client: Client, deadline: float) -> bool:
        inbox = self._inbox
        for _ in range(TURN):
            try:
                size = inbox.receive(client.fd, client.number)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                # The peer ended without reading all it got. Said once; what it sent before is still there.
                continue
            except OSError:
                self._end(client)
                return False
            if not size and _shut_down(client.sock):
                self._clients.settle()
                self._at_end(client)
                return False
            self._take_whole(client, bytes(inbox.view[:size]))
            self._clients.settle()
            if not client.open or client.held is not None:
                return False
            if time.monotonic() > deadline and not self._draining:
                break
        return True

    def _at_end(self, client: Client) -> None:
        """Nothing more will come. One that has only shut down its side still gets what it subscribed to."""
        if (client.subscriptions or client.queue) and not _hung_up(client.sock):
            client.watched &= ~(READABLE | HALF_CLOSED)
            self._loop.change(client.fd, client.watched)
        else:
            self._end(client)

    def _take_whole(self, client: Client, packet: bytes) -> None:
        if len(packet) > frames.MAX_PACKET:
            self.refuse(client, "frame_too_long", packet[:64])
        else:
            self._take(client, packet)

    def _take(self, client: Client, packet: bytes) -> None:
        try:
            verb, key, payload = frames.read(packet)
        except BadFrame as bad:
            self.refuse(client, bad.reason, packet[:64])
            return
        if verb == frames.MSG and key == frames.LINK:
            self._bring(client, payload)
        elif verb == frames.MSG:
            wait = self.quota.publish(client.account, time.monotonic())
            if wait and self._may_wait:
                self._waiting.for_time(client, packet, wait, partial(self._take, client, packet))
            else:
                self._publish(client, key, payload, packet)
        elif verb == frames.SUB:
            self._subscribe(client, key)
        elif verb == frames.UNSUB:
            self._unsubscribe(client, key)
        else:
            self._control.take(client, key, payload)

    def _bring(self, client: Client, payload: bytes) -> None:
        """A gateway has got this over a link. Like what a segment sends, it is not counted against a user."""
        if not client.rights.link:
            self.refuse(client, "not_permitted", frames.LINK)
        elif self.links is None or not self.links.bring(payload):
            self.refuse(client, "no_link", frames.LINK)

    def _subscribe(self, client: Client, pattern: bytes) -> None:
        if len(pattern) > self.limits.max_pattern or self._routes.levels_of(client.fd, pattern) > MAX_LEVELS:
            self.refuse(client, "pattern_too_long", pattern[:64])
            return
        refused = ""
        patterns = self._meant_by(client, pattern)
        if not patterns or not all(self._may_hold(client, one) for one in patterns):
            refused = "not_permitted"
        elif (
            client.subscriptions + len(patterns) > self.limits.max_subscriptions
            or client.account.subscriptions + len(patterns) > self.limits.user.subscriptions
            or self._routes.bytes_of(client.peer.uid) > self.limits.user.pattern_bytes
        ):
            refused = "too_many_subscriptions"
        if refused:
            self.refuse(client, refused, pattern)
            return
        for one in patterns:
            self._hold(client, one, 1)

    def _hold(self, client: Client, pattern: bytes, times: int) -> None:
        client.kept.holds(pattern, times)
        for _ in range(times):
            self._routes.subscribe(client.fd, pattern)
        client.subscriptions += times
        client.account.subscriptions += times

    def _unsubscribe(self, client: Client, pattern: bytes) -> None:
        if not self._withdraw(client, self._meant_by(client, pattern)):
            self.refuse(client, "not_subscribed", pattern[: self.limits.max_pattern])

    def _withdraw(self, client: Client, patterns: Iterable[bytes]) -> int:
        """Take patterns back; how many of them the client held."""
        held = 0
        for one in patterns:
            if self._routes.unsubscribe(client.fd, one):
                client.kept.drops(one, 1)
                held += 1
        client.subscriptions -= held
        client.account.subscriptions -= held
        return held

    @staticmethod
    def _meant_by(client: Client, pattern: bytes) -> list[bytes]:
        """The patterns that one stands for: of a secret one, those that are for this client."""
        if not pattern.startswith(credential_keys.PREFIX):
            return [pattern]
        peer = client.peer
        return credential_keys.own_patterns(pattern, peer.gid, peer.uid, peer.pid) or []

    @staticmethod
    def _may_hold(client: Client, pattern: bytes) -> bool:
        if pattern.startswith(frames.TAP):
            return client.rights.tap
        if pattern.startswith(frames.LINK):
            return client.rights.link and pattern in (frames.LINK, frames.LINK_HERE)
        allowed = client.rights.subscribe
        return allowed is None or allowed.covers(pattern, client.dialect)

    def _publish(self, client: Client, key: bytes, payload: bytes, packet: bytes) -> None:
        local = key.startswith(b"!/")
        if key.startswith(_RESERVED) or (key.startswith(credential_keys.PREFIX) and not credential_keys.is_secret(key)):
            refused = "reserved_key"
        elif client.rights.publish is not None and not client.rights.publish.permits(key):
            refused = "not_permitted"
        else:
            blocker = self._blocker(client, key, packet) if self._clients.may_block() and self._may_wait else None
            if not client.open:  # what had gathered for itself has ended it
                return
            if blocker is not None:
                again = partial(self._publish, client, key, payload, packet)
                self._waiting.for_reader(client, packet, blocker, again)
                return
            refused = ""
            if local:
                self._clients.send(self._without_echo(client, self._routes.local(key)), packet)
            else:
                refused = self.publish(client.identity, key, payload, packet, client)
        self.counters.published += 1
        client.published += 1
        if refused:
            self.refuse(client, refused, key)

    def _on_cut(self, key: bytes, uids: tuple[Hashable, ...]) -> None:
        """A message was matched against only a part of some users' patterns."""
        self.counters.dropped["match_limit"] += 1
        users = ", ".join(str(uid) for uid in uids[:3])
        log.event(
            "dropped",
            f"the patterns of user {users} are too many and too deep to be matched for every message: programs of this "
            f"user may have missed some",
            about=("match_limit", users),
            remedy="have it hold fewer patterns with wildcards in the midst",
            drop="match_limit",
            count=1,
            channel=key[:MAX_REPEATED],
        )

    @property
    def _may_wait(self) -> bool:
        """Whether publishers may be made to wait; never in the midst of a message that some have got already."""
        return not self._draining and not self._clients.halfway

    def _blocker(self, client: Client, key: bytes, packet: bytes) -> Client | None:
        """A receiver that wants the publisher to wait."""
        size = len(packet)
        try:
            route = self._routes.find(key)
            receivers = route.plain + route.meta
            if route.meta:
                size += MAX_META
        except BadDatagram:
            receivers = self._routes.local(key)
        return self._clients.blocking_client(receivers, size, client)

    def publish(self, identity: bytes, key: bytes, payload: bytes, packet: bytes, client: Client | None = None) -> str:
        """Deliver a message to the clients of this host, and broadcast it if the protocol can carry it.

        ``packet`` is the message as a frame, ``client`` who sent it. Returns why it was not broadcast, empty when it
        was, where there is no segment, or for a client that speaks to this host only: that uses up no seq, and has 0.
        """
        clock_ns = time.time_ns()
        seq, datagram, refused = 0, b"", ""
        if self._egress is not None and not (client is not None and client.local):
            try:
                seq, datagram = self._egress.emit(identity, key, payload, clock_ns // 1000)
                if client is not None:
                    client.kept.speaks(seq + 1)
            except BadMessage as bad:
                refused = bad.reason
        try:
            route = self._routes.find(key)
        except BadDatagram:  # no legal channel, but perhaps a key that someone here waits for
            self._clients.send(self._without_echo(client, self._routes.local(key)), packet)
        else:
            route.carried += 1
            if route.cut:
                self._routes.report_cut(route)
            self._clients.send(self._without_echo(client, route.plain), packet)
            if route.meta:
                meta = frames.meta(identity, seq, clock_ns, "local")
                told = route.frame_head + meta + payload
                self._clients.send(self._without_echo(client, route.meta), told)
        if datagram and self._routes.links_here:
            self._clients.send(self._routes.links_here, _PASSED + datagram)
        if datagram and self._broadcast(key, datagram):
            refused = "send_failed"
        if client is None:
            self._send_apart()
        return refused

    def _send_apart(self) -> None:
        """What the daemon says by itself must not be counted among what an input brings."""
        if self._handover is not None:
            self._clients.send_batches()

    @staticmethod
    def _without_echo(client: Client | None, receivers: tuple[int, ...]) -> tuple[int, ...]:
        """The receivers, but for a publisher that does not want to hear itself."""
        if client is None or client.echo or client.fd not in receivers:
            return receivers
        return tuple(fd for fd in receivers if fd != client.fd)

    def announce(self, key: bytes, payload: bytes) -> None:
        """Tell the clients that have subscribed to a key of the bus itself."""
        self._clients.send(self._routes.local(key), frames.message(key, payload))
        self._send_apart()

    def answer(self, client: Client, key: bytes, payload: bytes) -> None:
        """Send a client a control message."""
        self._clients.tell(client, frames.control(key, payload))

    def refuse(self, client: Client, reason: str, key: bytes) -> None:
        """Tell a client what was wrong with a frame of its own."""
        self.counters.errors[reason] = self.counters.errors.get(reason, 0) + 1
        if reason == "not_permitted":
            what = repr(key[:MAX_REPEATED].decode("ascii", "backslashreplace"))
            log.event(
                "not_permitted",
                f"{client} has asked for {what} and may not",
                about=f"not_permitted/{client.peer.uid}/{client.peer.program.decode('ascii')}",
                remedy="see access in the configuration",
                channel=key[:MAX_REPEATED],
                drop=reason,
                **log.peer_fields(client.peer, client.identity),
            )
        elif reason in AFTER_REFUSAL:
            what, remedy = AFTER_REFUSAL[reason]
            log.event(
                "frame_refused",
                f"{client} {what}",
                about=(reason, client.peer.uid, client.peer.program),
                remedy=remedy,
                reason=reason,
                drop=reason,
                channel=key[:MAX_REPEATED],
                **log.peer_fields(client.peer, client.identity),
            )
        self._clients.tell(client, frames.error(reason, key[:MAX_REPEATED]))

    def set_dialect(self, client: Client, dialect: Dialect) -> None:
        """In which dialect a client that holds no pattern writes those to come."""
        client.dialect = dialect
        self._routes.set_dialect(client.fd, dialect)

    def set_batch(self, client: Client, wanted: bool) -> None:
        """Whether messages for this client go out together."""
        self._clients.set_batch(client, wanted)

    def set_mode(self, client: Client, *, soft: bytes | None = None, hard: bytes | None = None) -> None:
        """What becomes of messages that cannot be sent to a client at once."""
        self._clients.set_mode(client, soft=soft, hard=hard)

    # -- the end

    def stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()

    def drain(self, deadline: float) -> None:
        """Take what clients have already sent, then send what waits for them until ``deadline`` (monotonic); those who
        outlive us, with all that waits, are left as they are."""
        self._draining = True
        unread = [client for client in self.clients.values() if client.kept is NOTHING]
        for client in unread:
            self._waiting.go_on(client)
        while unread and time.monotonic() < deadline:
            unread = [client for client in unread if client.open and self._read(client)]
        self._clients.send_batches()
        while time.monotonic() < deadline:
            waiting = [client for client in self.clients.values() if client.queue and client.kept is NOTHING]
            if not waiting:
                break
            for client in waiting:
                self._clients.flush(client)
            time.sleep(0.005)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.stop_accepting()
        self._on_quiet = lambda: None
        for client in list(self.clients.values()):
            if client.kept is NOTHING:
                self._end(client)
                client.sock.close()
            else:  # theirs is still open in another place
                client.kept.counts(published=client.published, lost=client.loss)
        self._identifier.close()


def _shut_down(sock: socket.socket) -> bool:
    """Whether the peer will send no more and all that it sent has been read."""
    # In this order: what came before the end is there once the end is.
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0)) and not int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def _hung_up(sock: socket.socket) -> bool:
    """Whether the peer can read no more either."""
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))
