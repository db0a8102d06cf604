"""Queues messages for which a client's socket has no room, drops them with a gap, or blocks their publishers.

Invariant: every byte that waits is charged to the client and to its user, and every message that is dropped is counted
and announced to the client as a gap in its place. Source: sbus, "Flood control".
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from bccnd import log
from bccnd.bus.clients.client import BusRules, Client
from bccnd.bus.clients.registry import ClientRegistry
from bccnd.core.matching.routes import Routes
from bccnd.core.sending.send_queue import ENTRY
from bccnd.core.wire import frames
from bccnd.native.system import sockio
from bccnd.net.loop import WRITABLE, Loop

if TYPE_CHECKING:
    from bccnd.config.schema import BusSettings

#: seconds since a client has last read something, within which it is expected to go on reading
HARD_PRESSED: Final = 0.1
#: the kernel has no room for a packet now
NO_ROOM: Final = (errno.EAGAIN, errno.ENOBUFS)


def batch_packet(messages: list[bytes]) -> bytes:
    """Join messages for a client in batch mode; one that goes alone stays as it is."""
    return messages[0] if len(messages) == 1 else frames.batch(messages)


def enlarge_send_buffer(client: Client) -> bool:
    """Make the kernel take the largest packets for a client, which it does not by default; True the first time."""
    before = client.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    if before > 2 * frames.MAX_PACKET:
        return False
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, frames.MAX_PACKET)
    return client.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before


class ClientQueues:
    """The queues of the clients in ``registry``."""

    def __init__(self, loop: Loop, routes: Routes[int], rules: BusRules, registry: ClientRegistry) -> None:
        self.counters = registry.counters
        self.by_fd = registry.by_fd
        self.sender = sockio.Sender()
        #: descriptors of clients with a queue; others are written to at once
        self.waiting: set[int] = set()
        #: descriptors of clients that have asked that their publishers be blocked
        self.blockers: set[int] = set()
        #: descriptors of clients in batch mode
        self.batched: set[int] = set()
        self._loop = loop
        self._routes = routes
        self._rules = rules
        self._registry = registry
        #: called with a client that has room again or has changed its modes: its publishers can be unblocked
        self.on_room: Callable[[Client], None] = _ignore

    @property
    def limits(self) -> BusSettings:
        return self._rules.bus

    @property
    def queue_bytes(self) -> int:
        """Return the bytes in all queues."""
        return sum(client.queue.bytes for client in self.by_fd.values())

    def restore(self, client: Client) -> None:
        """Charge a queue that the previous daemon has filled."""
        client.account.queue_bytes += client.queue.memory
        if client.queue:
            self._wait(client)

    # -- in

    def enqueue_all(self, client: Client, messages: list[bytes]) -> None:
        for message in messages:
            if client.open:
                self.enqueue(client, message)
            else:
                self.counters.dropped.add("client_gone")

    def enqueue(self, client: Client, frame: bytes) -> None:
        """Queue or drop a message that cannot be sent now, or end its client, by the client's modes."""
        if client.soft == b"discard":
            self.drop(client, "not_queued")
        elif client.soft == b"error":
            self._end_slow(client)
        elif not (reason := self._no_room(client, len(frame))):
            self._put(client, frame)
        elif client.hard == b"error":
            self._end_slow(client)
        else:
            self.drop(client, reason)

    def enqueue_control(self, client: Client, frame: bytes) -> None:
        """Queue a control message; one that does not fit is dropped without a gap, and counted."""
        limits = self.limits
        if len(client.queue) < 2 * limits.queue.messages and not self._too_many_bytes(client, len(frame)):
            self._put(client, frame)
        else:
            self.count_control_dropped()

    def count_control_dropped(self) -> None:
        """Count a control message that did not fit."""
        self.counters.control_dropped += 1

    def _no_room(self, client: Client, size: int) -> str:
        """Return why a message of so many bytes does not fit into a queue; empty if it does."""
        # Traffic between segments comes in bursts: a gateway has room for as many messages as fit.
        if client.queue.messages >= self.limits.queue.messages and client.fd not in self._routes.links_here.all:
            return "queue_messages"
        return self._too_many_bytes(client, size)

    def _too_many_bytes(self, client: Client, size: int) -> str:
        if client.queue.bytes + size > self.limits.queue.bytes:
            return "queue_bytes"
        of_user = client.account.queue_bytes + size + ENTRY
        return "user_queue_bytes" if of_user > self.limits.user.queue_bytes else ""

    def _put(self, client: Client, frame: bytes) -> None:
        client.queue.put(frame)
        client.account.queue_bytes += len(frame) + ENTRY
        self._wait(client)

    def _wait(self, client: Client) -> None:
        if client.fd not in self.waiting:
            self.waiting.add(client.fd)
            client.progress = time.monotonic()
            client.watched |= WRITABLE
            self._loop.change(client.fd, client.watched)

    def _end_slow(self, client: Client) -> None:
        self.counters.dropped.add("client_ended")
        why = "it does not read fast enough, and asked to be disconnected in that case (blocking/.../error)"
        self._registry.end(client, "slow", why)

    def drop(self, client: Client, reason: str) -> None:
        """Drop a message and add a gap in its place."""
        self.counters.dropped.add(reason)
        client.lost += 1
        client.queue.add_gap()
        self._wait(client)
        about = client.base, reason
        if not log.repeats.suppress("client_slow", about):
            self._log_drop(client, reason, about)

    def _log_drop(self, client: Client, reason: str, about: tuple[bytes, str]) -> None:
        some = islice(self._routes.patterns(client.fd), 3)
        patterns = ", ".join(repr(text.decode("ascii", "replace")) for text in some)
        if reason == "too_big":
            what = f"a message for {client} was dropped: it is larger than the kernel takes"
            remedy = "raise net.core.wmem_max"
        else:
            what = f"{client} does not read fast enough: messages for it are dropped ({reason})"
            remedy = "make it read faster, narrow its patterns, or raise bus.queue"
        text = f"{what}; subscribed to {patterns}"
        fields = log.peer_fields(client.peer, client.identity)
        log.event(
            "client_slow", text, about=about, remedy=remedy, reason=reason, drop=reason, patterns=patterns, **fields
        )

    # -- out

    def flush(self, client: Client) -> None:
        """Send the queued messages of a client until its socket is full."""
        queue = client.queue
        before = len(queue)
        batched = client.fd in self.batched
        while queue:
            entry = queue.head()
            run = queue.next_batch() if batched else []
            alone = frames.gap(entry) if isinstance(entry, int) else entry
            packet = batch_packet(run) if run else alone
            failed = self.sender.send_one(client.fd, packet)
            if failed in NO_ROOM:
                break
            if failed == errno.EMSGSIZE:
                if not enlarge_send_buffer(client):
                    if len(run) > 1:
                        batched = False
                    else:
                        self._drop_head(client)
                continue
            if failed:  # the client has gone; the loop will report it too
                self.clear(client)
                break
            for _ in range(max(1, len(run))):
                self.counters.deliveries += self._take(client)
        if not queue:
            self.waiting.discard(client.fd)
            client.patient = True
            client.watched &= ~WRITABLE
            self._loop.change(client.fd, client.watched)
        if len(queue) < before:
            client.progress = time.monotonic()
        if client.fd in self.blockers and not self._blocks(client):
            self.on_room(client)

    def _drop_head(self, client: Client) -> None:
        """Drop the next packet: it is more than the client's socket ever takes."""
        if client.queue.has_message_next:
            self._take(client)
            self.counters.dropped.add("too_big")
            client.lost += 1
            client.queue.add_gap_here()
        else:
            self._take(client)
            self.count_control_dropped()

    def _take(self, client: Client) -> bool:
        """Remove the next entry of the queue; return whether it was a message."""
        queue = client.queue
        messages, memory = queue.messages, queue.memory
        queue.take()
        client.account.queue_bytes -= memory - queue.memory
        return queue.messages < messages

    def clear(self, client: Client) -> None:
        """Drop the queue of a client that has gone."""
        self.counters.dropped.add("client_gone", client.queue.messages)
        client.account.queue_bytes -= client.queue.memory
        client.queue.clear()
        self.waiting.discard(client.fd)

    # -- blocking publishers

    def set_mode(self, client: Client, *, soft: bytes | None = None, hard: bytes | None = None) -> None:
        """Set the modes for messages that cannot be sent now (``soft``), and for those that the queue has no room for
        (``hard``)."""
        client.soft, client.hard = soft or client.soft, hard or client.hard
        if b"block" in (client.soft, client.hard):
            self.blockers.add(client.fd)
        else:
            self.blockers.discard(client.fd)
        self.on_room(client)

    def blocking_client(self, receivers: Iterable[int], size: int, publisher: Client) -> Client | None:
        """Return a receiver that blocks this publisher before it sends a message of so many bytes.

        A client can block publishers of its own user, one of root's every publisher; none blocks itself.
        """
        for fd in self.blockers.intersection(self.waiting).intersection(receivers):
            client = self.by_fd[fd]
            if (
                client.patient
                and client is not publisher
                and client.peer.uid in (0, publisher.peer.uid)
                and (client.soft == b"block" or (_blocks_when_full(client) and self._no_room(client, size)))
            ):
                return client
        return None

    def _blocks(self, client: Client) -> bool:
        """Whether a client still blocks its publishers.

        It unblocks them when it has read all of its queue or, where only a full queue blocks them, half of it.
        """
        if client.soft == b"block":
            return bool(client.queue)
        return self._half_full(client) and client.patient

    def _half_full(self, client: Client) -> bool:
        limits, queue = self.limits, client.queue
        return queue.messages * 2 > limits.queue.messages or queue.bytes * 2 > limits.queue.bytes

    def keeping_up(self) -> frozenset[int]:
        """Return the clients whose queue is empty."""
        return frozenset(self.by_fd).difference(self.waiting)

    def hard_pressed(self, among: frozenset[int], now: float) -> bool:
        """Whether one of these clients has a queue more than half full and has just read something."""
        for fd in self.waiting.intersection(among):
            client = self.by_fd[fd]
            if self._half_full(client) and now - client.progress < HARD_PRESSED:
                return True
        return False


def _ignore(_client: Client) -> None:
    """Do nothing: no publisher is blocked."""


def _blocks_when_full(client: Client) -> bool:
    return (client.soft, client.hard) == (b"queue", b"block")
