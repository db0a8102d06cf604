"""The local bus: the SEQPACKET server, its clients and their queues.

Law: a client's fault ends that client, never the fan-out. No send blocks: what a client's socket does not take
waits in its queue, what its queue does not take is dropped (the newest first), counted, and told to it in place.
Who a client is comes from the kernel. Source: sbus, "Protocol".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import socket
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from os import write
from typing import Any, Final

from bccnd.core import frames
from bccnd.core.counters import BusCounters
from bccnd.core.egress import Egress
from bccnd.core.identity import token
from bccnd.core.ingress import Delivery
from bccnd.core.routes import Routes
from bccnd.errors import BadDatagram, BadFrame, BadMessage
from bccnd.net import log
from bccnd.net.listen import Acceptor, peer_credentials
from bccnd.net.loop import GONE, HALF_CLOSED, READABLE, WRITABLE, Loop

#: packets read from one client before the others have their turn
TURN: Final = 64
#: entries in one page of a listing, so that a page is made in well under a millisecond
PAGE: Final = 100
#: and characters after which a page ends all the same, so that it fits in a packet
PAGE_SIZE: Final = 65_536
#: bytes of a key or pattern that are repeated to who named it
MAX_REPEATED: Final = 1024
#: keys of the bus itself that only the daemon may publish
_RESERVED: Final = (b"!/bccn/", b"!/tap/", b"!/cred/")


@dataclass(frozen=True)
class BusLimits:
    """What one client, and all of them, may take up."""

    queue_messages: int = 1024
    queue_bytes: int = 4 << 20
    max_clients: int = 1024
    max_subscriptions: int = 4096
    max_pattern: int = 1024


class Client:
    """One connection. ``queue`` holds frames, and numbers that stand for messages lost at that place."""

    __slots__ = (
        "fd",
        "identity",
        "listing",
        "loss",
        "open",
        "pid",
        "program",
        "published",
        "queue",
        "queue_bytes",
        "queue_messages",
        "since",
        "sock",
        "subscriptions",
        "uid",
        "watched",
    )

    def __init__(self, sock: socket.socket, name: bytes, program: bytes, pid: int, uid: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.identity = name
        self.program = program
        self.pid = pid
        self.uid = uid
        self.since = time.time()
        self.subscriptions = 0
        self.queue: deque[bytes | int] = deque()
        self.queue_bytes = 0
        self.queue_messages = 0
        self.published = 0
        self.loss = 0
        self.open = True
        self.watched = READABLE | HALF_CLOSED
        self.listing: Iterator[dict[str, Any]] = iter(())

    def __str__(self) -> str:
        return f"{self.program.decode('ascii')} (pid {self.pid}, uid {self.uid})"


class Bus:
    """Serves the clients of one listening socket.

    ``identify`` makes an identity of a program's name and pid; ``broadcast`` takes a datagram and its channel to the
    segments and returns None or the name of an error; ``listings`` are what `!/bccn/stats` offers beside the clients,
    by name.
    """

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        identify: Callable[[bytes, int], bytes],
        routes: Routes[int],
        egress: Egress,
        broadcast: Callable[[bytes, bytes], str | None],
        limits: BusLimits,
        listings: dict[bytes, Callable[[], Iterable[dict[str, Any]]]],
    ) -> None:
        self.limits = limits
        self.counters = BusCounters()
        self.clients: dict[int, Client] = {}
        #: descriptors of clients with a queue; others are written to at once
        self._waiting: set[int] = set()
        self._loop = loop
        self._identify = identify
        self._routes = routes
        self._egress = egress
        self._broadcast = broadcast
        self._listings = {b"clients": self._list_clients, **listings}
        self._limited = log.Limited()
        self._packet = bytearray(frames.MAX_PACKET + 1)
        self._view = memoryview(self._packet)
        self._requests: dict[bytes, Callable[[Client, bytes], None]] = {
            frames.CRED_WHOAMI: self._cred_whoami,
            frames.WHOAMI: lambda client, _: self._answer(client, frames.WHOAMI, client.identity),
            frames.SYNC: lambda client, payload: self._answer(client, frames.SYNC, payload),
            frames.META_ON: lambda client, _: self._routes.set_meta(client.fd, True),
            frames.META_OFF: lambda client, _: self._routes.set_meta(client.fd, False),
            frames.STATS: self._stats,
        }
        self._listening = listener.fileno()
        self._spare = os.dup(self._listening)
        self._acceptor = Acceptor(loop, listener, "clients", self._welcome)

    # -- clients come and go

    def _welcome(self, sock: socket.socket) -> None:
        pid, uid, _gid = peer_credentials(sock)
        program = self._program_of(pid)
        if len(self.clients) >= self.limits.max_clients:
            self.counters.refused_clients += 1
            self._limited.warn(
                "max_clients",
                f"refused {program.decode('ascii')} (pid {pid}, uid {uid}): {len(self.clients)} clients are "
                "connected. Remedy: find out who opens so many ('bccn clients'), or raise bus.max_clients",
            )
            with contextlib.suppress(OSError):
                sock.send(frames.error("too_many_clients", b""))
            sock.close()
            return
        client = Client(sock, self._identify(program, pid), program, pid, uid)
        self.clients[client.fd] = client
        self._routes.join(client.fd, client.identity)
        self._egress.open(client.identity)
        self._loop.watch(client.fd, client.watched, lambda events: self._on_event(client, events))

    def _program_of(self, pid: int) -> bytes:
        """The name of a process as a legal token; ``unknown`` for one that is gone or not visible from here."""
        # The spare one makes room for the file, so that being short of descriptors gives nobody a wrong name. It is
        # a copy of one that we have, which the kernel can always give back.
        os.close(self._spare)
        try:
            with open(f"/proc/{pid}/comm", "rb") as comm:
                return token(comm.read(64).rstrip(b"\n"), 64)
        except OSError:
            return b"unknown"
        finally:
            self._spare = os.dup(self._listening)

    def _end(self, client: Client) -> None:
        """A client has gone or must go; its descriptor lives until the end of the round."""
        if not client.open:
            return
        client.open = False
        self._forget_queue(client)
        self._loop.unwatch(client.fd)
        self._waiting.discard(client.fd)
        del self.clients[client.fd]
        self._routes.leave(client.fd)
        self._egress.close(client.identity, time.monotonic())
        self._loop.soon(client.sock.close)

    def _on_event(self, client: Client, events: int) -> None:
        try:
            if events & WRITABLE:
                self._flush(client)
            if events & (READABLE | HALF_CLOSED | GONE):
                self._read(client)
            if events & GONE and client.open and not events & READABLE:
                self._end(client)
        except Exception:  # noqa: BLE001 - a bug of ours, which costs this client and nobody else
            log.logger.exception("%s was disconnected by a bug in this daemon; please report it", client)
            self._end(client)

    # -- from a client

    def _read(self, client: Client) -> bool:
        """Take up to a turn's packets; True when there may be more.

        An empty packet looks like the end, and is it only if the peer has shut down.
        """
        sock = client.sock
        for _ in range(TURN):
            try:
                size = sock.recv_into(self._packet)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                # The peer ended without reading all it got. Said once; what it sent before is still there.
                continue
            except OSError:
                self._end(client)
                return False
            if not size and _shut_down(sock):
                self._at_end(client)
                return False
            if size > frames.MAX_PACKET:
                self._refuse(client, "frame_too_long", bytes(self._view[:64]))
            else:
                self._take(client, bytes(self._view[:size]))
            if not client.open:
                return False
        return True

    def _at_end(self, client: Client) -> None:
        """Nothing more will come. One that has only shut down its side still gets what it subscribed to."""
        if (client.subscriptions or client.queue) and not _hung_up(client.sock):
            client.watched &= ~(READABLE | HALF_CLOSED)
            self._loop.change(client.fd, client.watched)
        else:
            self._end(client)

    def _take(self, client: Client, packet: bytes) -> None:
        try:
            verb, key, payload = frames.read(packet)
        except BadFrame as bad:
            self._refuse(client, bad.reason, packet[:64])
            return
        if verb == frames.MSG:
            self._publish(client, key, payload, packet)
        elif verb == frames.SUB:
            self._subscribe(client, key)
        elif verb == frames.UNSUB:
            self._unsubscribe(client, key)
        else:
            request = self._requests.get(key)
            if request is None:
                self._refuse(client, "unknown_control", key)
            else:
                request(client, payload)

    def _subscribe(self, client: Client, pattern: bytes) -> None:
        if len(pattern) > self.limits.max_pattern:
            self._refuse(client, "pattern_too_long", pattern[:64])
        elif client.subscriptions >= self.limits.max_subscriptions:
            self._refuse(client, "too_many_subscriptions", pattern)
        elif pattern.startswith((b"!/tap/", b"!/cred/")):
            self._refuse(client, "not_permitted", pattern)
        else:
            self._routes.subscribe(client.fd, pattern)
            client.subscriptions += 1

    def _unsubscribe(self, client: Client, pattern: bytes) -> None:
        if self._routes.unsubscribe(client.fd, pattern):
            client.subscriptions -= 1
        else:
            self._refuse(client, "not_subscribed", pattern[: self.limits.max_pattern])

    def _publish(self, client: Client, key: bytes, payload: bytes, packet: bytes) -> None:
        self.counters.published += 1
        client.published += 1
        if key.startswith(_RESERVED):
            refused = "reserved_key"
        elif key.startswith(b"!/"):
            refused = ""
            self._send_all(((self._routes.local(key), packet),))
        else:
            refused = self.publish(client.identity, key, payload, packet)
        if refused:
            self._refuse(client, refused, key)

    def publish(self, identity: bytes, key: bytes, payload: bytes, packet: bytes) -> str:
        """Deliver a message to the clients of this host, and broadcast it if the protocol can carry it.

        ``packet`` is the message as a frame. Returns why it was not broadcast, empty when it was.
        """
        clock_ns = time.time_ns()
        seq, datagram, refused = 0, b"", ""
        try:
            seq, datagram = self._egress.emit(identity, key, payload, clock_ns // 1000)
        except BadMessage as bad:
            refused = bad.reason
        self._deliver_locally(identity, key, payload, packet, seq, clock_ns)
        if not refused and self._broadcast(key, datagram):
            refused = "send_failed"
        return refused

    def announce(self, key: bytes, payload: bytes) -> None:
        """Tell the clients that have subscribed to a key of the bus itself."""
        self._send_all(((self._routes.local(key), frames.message(key, payload)),))

    def _deliver_locally(
        self, identity: bytes, key: bytes, payload: bytes, packet: bytes, seq: int, clock_ns: int
    ) -> None:
        try:
            route = self._routes.find(key)
        except BadDatagram:  # no legal channel, but perhaps a key that someone here waits for
            self._send_all(((self._routes.local(key), packet),))
            return
        self._send_all(((route.plain, packet),))
        if route.meta:
            meta = frames.meta(identity, seq, clock_ns, "local")
            self._send_all(((route.meta, route.frame_head + meta + payload),))

    # -- requests

    def _answer(self, client: Client, key: bytes, payload: bytes) -> None:
        self._tell(client, frames.control(key, payload))

    def _refuse(self, client: Client, reason: str, key: bytes) -> None:
        """Tell a client what was wrong with a frame of its own."""
        self.counters.errors[reason] = self.counters.errors.get(reason, 0) + 1
        self._tell(client, frames.error(reason, key[:MAX_REPEATED]))

    def _cred_whoami(self, client: Client, _payload: bytes) -> None:
        pid, uid, gid = peer_credentials(client.sock)
        self._answer(client, frames.CRED_WHOAMI, b"!/cred/%d/%d/%d" % (gid, uid, pid))

    def _stats(self, client: Client, topic: bytes) -> None:
        """A listing, page by page: the first by its name, the following ones with ``more``."""
        if topic != b"more":
            listing = self._listings.get(topic or b"daemon")
            if listing is None:
                self._refuse(client, "unknown_listing", topic[:64])
                return
            client.listing = iter(listing())
        rows: list[str] = []
        size = 0
        for row in client.listing:
            rows.append(json.dumps(row, separators=(",", ":")))
            size += len(rows[-1])
            if len(rows) == PAGE or size > PAGE_SIZE:
                more = "true"
                break
        else:
            more = "false"
        page = f'{{"items":[{",".join(rows)}],"more":{more}}}'
        self._answer(client, frames.STATS, page.encode("ascii"))

    def _list_clients(self) -> Iterator[dict[str, Any]]:
        for client in list(self.clients.values()):
            if client.open:
                yield {
                    "identity": client.identity.decode("ascii"),
                    "program": client.program.decode("ascii"),
                    "pid": client.pid,
                    "uid": client.uid,
                    "since": round(client.since, 3),
                    "subscriptions": client.subscriptions,
                    "patterns": [
                        text.decode("utf-8", "backslashreplace")[:128]
                        for text in islice(self._routes.patterns(client.fd), 8)
                    ],
                    "published": client.published,
                    "queued": client.queue_messages,
                    "queued_bytes": client.queue_bytes,
                    "lost": client.loss,
                }

    # -- to clients

    def deliver(self, deliveries: Iterable[Delivery[int]]) -> None:
        """Send each frame to each of its receivers, in order."""
        self._send_all(deliveries)

    def _send_all(self, deliveries: Iterable[Delivery[int]]) -> None:
        # os.write is the cheapest way into the kernel that Python has; a SEQPACKET socket takes it for send(2).
        waiting = self._waiting
        sent = 0
        for receivers, frame in deliveries:
            for fd in receivers:
                if waiting and fd in waiting:
                    self._enqueue(self.clients[fd], frame)
                    continue
                try:
                    write(fd, frame)
                    sent += 1
                except OSError as error:
                    self._not_sent(fd, frame, error)
        self.counters.deliveries += sent

    def _not_sent(self, fd: int, frame: bytes, error: OSError) -> None:
        client = self.clients[fd]
        if error.errno in (errno.EAGAIN, errno.ENOBUFS):
            self._enqueue(client, frame)
        elif error.errno == errno.EMSGSIZE:
            self._lose(client, "too_big")
        else:
            # Gone, or half gone. The loop will notice too, and first take what it had still sent.
            self.counters.dropped["client_gone"] += 1

    def _tell(self, client: Client, frame: bytes) -> None:
        """Send a control message behind what is already queued. It is no message: one that does not fit is dropped
        without a gap."""
        if not client.open:
            return
        if not client.queue:
            try:
                write(client.fd, frame)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                    return
        limits = self.limits
        if len(client.queue) < 2 * limits.queue_messages and client.queue_bytes + len(frame) <= limits.queue_bytes:
            self._append(client, frame)

    def _enqueue(self, client: Client, frame: bytes) -> None:
        if not client.open:
            self.counters.dropped["client_gone"] += 1
        elif client.queue_messages >= self.limits.queue_messages:
            self._lose(client, "queue_messages")
        elif client.queue_bytes + len(frame) > self.limits.queue_bytes:
            self._lose(client, "queue_bytes")
        else:
            client.queue_messages += 1
            self._append(client, frame)

    def _append(self, client: Client, frame: bytes | int) -> None:
        if not client.queue:
            self._waiting.add(client.fd)
            client.watched |= WRITABLE
            self._loop.change(client.fd, client.watched)
        client.queue.append(frame)
        if isinstance(frame, bytes):
            client.queue_bytes += len(frame)

    def _lose(self, client: Client, reason: str) -> None:
        """Drop a message and note the gap where it would have stood."""
        self.counters.dropped[reason] += 1
        client.loss += 1
        last = client.queue[-1] if client.queue else b""
        if isinstance(last, int):
            client.queue[-1] = last + 1
        else:
            self._append(client, 1)
        some = islice(self._routes.patterns(client.fd), 3)
        patterns = ", ".join(repr(text.decode("ascii", "replace")) for text in some)
        self._limited.warn(
            f"slow/{client.identity.decode('ascii')}",
            f"{client} does not read fast enough: messages for it are dropped ({reason}); subscribed to {patterns}. "
            "Remedy: make it read faster, narrow its patterns, or raise bus.queue",
        )

    def _flush(self, client: Client) -> None:
        """Send what is queued, as far as the client's socket takes it."""
        queue = client.queue
        while queue:
            entry = queue[0]
            try:
                write(client.fd, frames.gap(entry) if isinstance(entry, int) else entry)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                    return
                if error.errno != errno.EMSGSIZE:  # gone; the loop will say so too
                    self._forget_queue(client)
                    break
                if self._take_off(client):
                    self.counters.dropped["too_big"] += 1
                    client.loss += 1
                    queue.appendleft(1)
                continue
            self.counters.deliveries += self._take_off(client)
        self._waiting.discard(client.fd)
        client.watched &= ~WRITABLE
        self._loop.change(client.fd, client.watched)

    def _take_off(self, client: Client) -> bool:
        """Take the first entry off a queue; whether it was a message."""
        entry = client.queue.popleft()
        if isinstance(entry, int):
            return False
        client.queue_bytes -= len(entry)
        message = entry.startswith(b"MSG")
        client.queue_messages -= message
        return message

    def _forget_queue(self, client: Client) -> None:
        """Nobody will read what is queued any more."""
        self.counters.dropped["client_gone"] += client.queue_messages
        client.queue.clear()
        client.queue_bytes = client.queue_messages = 0

    # -- totals, and the end

    @property
    def queue_bytes(self) -> int:
        return sum(client.queue_bytes for client in self.clients.values())

    def stop_accepting(self) -> None:
        self._acceptor.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def drain(self, deadline: float) -> None:
        """Take what clients have already sent, then flush their queues until ``deadline`` (monotonic seconds)."""
        for client in list(self.clients.values()):
            while self._read(client) and time.monotonic() < deadline:
                pass
        while time.monotonic() < deadline:
            waiting = [client for client in self.clients.values() if client.queue]
            if not waiting:
                break
            for client in waiting:
                self._flush(client)
            time.sleep(0.005)

    def close(self) -> None:
        self.stop_accepting()
        for client in list(self.clients.values()):
            self._end(client)
            client.sock.close()


def _shut_down(sock: socket.socket) -> bool:
    """Whether the peer will send no more and all that it sent has been read."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    unread = int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, b"\0" * 4), sys.byteorder)
    return not unread and bool(poll.poll(0))


def _hung_up(sock: socket.socket) -> bool:
    """Whether the peer can read no more either."""
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))
