"""The clients of the local bus, and the way to them.

Law: no send blocks. What a client's socket does not take waits in its box; what the box does not take is dropped,
counted, and told to the client in place, or does what the client has asked for instead. Every byte that waits is
charged to the client and to its user. Source: sbus, "Flood control".
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from bccnd import log
from bccnd.bus.access import Rights
from bccnd.core import frames
from bccnd.core.counters import BusCounters
from bccnd.core.fanout_groups import LENGTH, MAX_PORTION, FanoutGroups, portions
from bccnd.core.ingress import Delivery
from bccnd.core.patterns import Dialect
from bccnd.core.quota import UserAccount, UserLimits
from bccnd.core.routes import Routes
from bccnd.core.send_queue import ENTRY, SendQueue
from bccnd.handover.client_log import NOTHING, ClientLog
from bccnd.native import sockio
from bccnd.native.inflight import InflightState, Sender
from bccnd.net.loop import HALF_CLOSED, READABLE, WRITABLE, Loop, Timer
from bccnd.net.peer import Peer

#: what a client may ask to be done with a message that its socket (soft) or its box (hard) does not take
SOFT_MODES: Final = (b"queue", b"discard", b"block", b"error")
HARD_MODES: Final = (b"discard", b"block", b"error")
#: receivers, over all messages of whose receivers it is remembered who is in batch mode: 2 MB
SPLITS: Final = 1 << 18
#: seconds since a client has last read something, within which it is taken to go on reading
HARD_PRESSED: Final = 0.1
#: the kernel has no room for a packet now
_NO_ROOM: Final = (errno.EAGAIN, errno.ENOBUFS)


@dataclass(frozen=True)
class BusLimits:
    """What one client, one user and all of them may take up. ``patience``: seconds for which a client that reads
    nothing may hold up clients that publish to it; ``share``: seconds that one round of the loop spends on what the
    clients of one user have sent."""

    queue_messages: int = 1024
    queue_bytes: int = 4 << 20
    max_clients: int = 1000
    max_subscriptions: int = 4096
    max_pattern: int = 1024
    patience: float = 5.0
    user: UserLimits = field(default_factory=UserLimits)
    share: float = 0.005


class Client:
    """One connection, and its ``number`` among all that there ever were. ``identity`` begins with ``base``, which is
    what the kernel vouches for."""

    __slots__ = (
        "account",
        "base",
        "dialect",
        "echo",
        "fd",
        "hard",
        "held",
        "identity",
        "kept",
        "listing",
        "local",
        "look",
        "loss",
        "number",
        "open",
        "patient",
        "peer",
        "progress",
        "published",
        "queue",
        "rights",
        "since",
        "sock",
        "soft",
        "subscriptions",
        "waits",
        "watched",
    )

    def __init__(
        self,
        sock: socket.socket,
        number: int,
        peer: Peer,
        base: bytes,
        dialect: Dialect,
        account: UserAccount,
        rights: Rights,
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.number = number
        self.peer = peer
        self.base = self.identity = base
        self.dialect = dialect
        self.account = account
        self.rights = rights
        self.since = time.time()
        self.queue = SendQueue()
        self.soft, self.hard = b"queue", b"discard"
        self.echo = True
        #: whether what it publishes stays on this host
        self.local = False
        #: whether it may still hold up clients that publish to it, and when it last took something
        self.patient = True
        self.progress = 0.0
        #: when that is looked at next, while somebody waits
        self.look: Timer | None = None
        #: what is to be tried again once this client, as a publisher, is held up no more, and the packet it is about
        self.held: Callable[[], None] | None = None
        self.waits: bytes | None = None
        #: what of all this outlives us
        self.kept: ClientLog = NOTHING
        self.subscriptions = 0
        self.published = 0
        self.loss = 0
        self.open = True
        self.watched = READABLE | HALF_CLOSED
        self.listing: Iterator[dict[str, Any]] = iter(())

    def __str__(self) -> str:
        return str(self.peer)


def _packet(messages: list[bytes]) -> bytes:
    """A portion for a client in batch mode; a message that is too large for a batch goes as it is."""
    if len(messages) == 1 and len(messages[0]) > MAX_PORTION - LENGTH:
        return messages[0]
    return frames.batch(messages)


class _Split:
    """Of the receivers of a message, those in batch mode and the others."""

    __slots__ = ("batched", "receivers", "single")

    def __init__(self, receivers: tuple[int, ...], batched: set[int]) -> None:
        #: held on to, because it is found by its address
        self.receivers = receivers
        self.batched = tuple([fd for fd in receivers if fd in batched])
        self.single = tuple([fd for fd in receivers if fd not in batched])


class Clients:
    """All clients by descriptor, and what is on its way to them.

    ``end`` ends a client; ``make_room`` is called when one that may hold up others has taken what waited for it.
    """

    def __init__(
        self,
        loop: Loop,
        routes: Routes[int],
        limits: BusLimits,
        end: Callable[[Client, str], None],
        make_room: Callable[[Client], None],
        inflight: InflightState | None = None,
    ) -> None:
        self.limits = limits
        self.counters = BusCounters()
        self.by_fd: dict[int, Client] = {}
        #: descriptors of clients for which something waits; others are written to at once
        self._waiting: set[int] = set()
        #: descriptors of clients that have asked that those who publish to them be held up
        self._blockers: set[int] = set()
        #: descriptors of clients in batch mode, and of what receivers they are among
        self._batched: set[int] = set()
        self._splits: dict[int, _Split] = {}
        self._remembered = 0
        #: what goes out together: to those in batch mode in one packet when the segment was drained, to the others with
        #: one call
        self._batches = FanoutGroups()
        self._runs = FanoutGroups()
        self._sender = sockio.Sender() if inflight is None else Sender(inflight)
        #: where it is noted what of an input is on its way
        self._inflight = inflight
        #: by descriptor, messages of an unfinished input that a client got from the daemon before us
        self._had: dict[int, int] = {}
        #: whether the end of this round will send the batches
        self._due = False
        self._loop = loop
        self._routes = routes
        self._end = end
        self._make_room = make_room

    def add(self, client: Client) -> None:
        self.by_fd[client.fd] = client

    def resume(self, client: Client) -> None:
        """A client whose queue was filled before it came to us."""
        client.account.queue_bytes += client.queue.memory
        if client.queue:
            self._wait(client)

    def remove(self, client: Client) -> None:
        if client.fd in self._batched:
            self.set_batch(client, False)
        self._clear(client)
        del self.by_fd[client.fd]
        self._blockers.discard(client.fd)

    @property
    def queue_bytes(self) -> int:
        return sum(client.queue.bytes for client in self.by_fd.values())

    # -- sending

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Send each frame to each of its receivers, in order."""
        if self._had:
            deliveries = [(self._without_those_who_had(receivers), frame) for receivers, frame in deliveries]
        if len(deliveries) == 1:
            receivers, frame = deliveries[0]
            self.send(receivers, frame)
            return
        for receivers, frame in deliveries:
            single = self._unbatched(receivers, frame) if self._batched else receivers
            if single:
                self._runs.put(single, frame)
        for receivers, messages in self._runs.take():
            if len(messages) == 1:
                self._send_each(receivers, messages[0])
            else:
                self._send_all(receivers, messages)

    def send(self, receivers: tuple[int, ...], frame: bytes) -> None:
        """Send one frame to each of its receivers."""
        if self._had:
            receivers = self._without_those_who_had(receivers)
        self._send_each(self._unbatched(receivers, frame) if self._batched else receivers, frame)

    def _send_each(self, receivers: tuple[int, ...], frame: bytes) -> None:
        sent = 0
        for fd in receivers:
            sent += self._send_one(fd, frame)
        self.counters.deliveries += sent

    def _send_one(self, fd: int, frame: bytes) -> bool:
        """Whether it is on its way; if not, it was done with it what the client has asked for."""
        if self._waiting and fd in self._waiting:
            self._enqueue(self.by_fd[fd], frame)
            return False
        failed = self._sender.one(fd, frame)
        if failed:
            self._not_sent(fd, [frame], failed)
        return not failed

    def _send_all(self, receivers: tuple[int, ...], messages: list[bytes]) -> None:
        """Send messages, each as a packet of its own, to each of their receivers."""
        sent = 0
        count = len(messages)
        self._sender.load(messages)
        for fd in receivers:
            if self._waiting and fd in self._waiting:
                self._enqueue_all(self.by_fd[fd], messages)
                continue
            taken = self._sender.send(fd)
            sent += taken
            for message in messages[taken:] if taken < count else ():
                sent += self._send_one(fd, message)
        self.counters.deliveries += sent

    def _unbatched(self, receivers: tuple[int, ...], frame: bytes) -> tuple[int, ...]:
        """Put a frame by for those of its receivers who are in batch mode; who the others are."""
        split = self._splits.get(id(receivers))
        if split is None:
            split = self._split(receivers)
        if split.batched:
            self._batches.put(split.batched, frame)
            if not self._due:
                self._due = True
                self._loop.soon(self.send_batches)
        return split.single

    def _split(self, receivers: tuple[int, ...]) -> _Split:
        self._remembered += len(receivers) + 1
        if self._remembered > SPLITS:
            self._forget_splits()
        split = self._splits[id(receivers)] = _Split(receivers, self._batched)
        return split

    def _forget_splits(self) -> None:
        self._splits.clear()
        self._remembered = 0

    def send_batches(self) -> None:
        """Send what has gathered for the clients in batch mode."""
        if not self._due:
            return
        self._due = False
        for receivers, messages in self._batches.take():
            for some in portions(messages):
                self._send_batch(receivers, some)

    def _send_batch(self, receivers: tuple[int, ...], messages: list[bytes]) -> None:
        packet = _packet(messages)
        for fd in receivers:
            if fd in self._waiting:
                self._enqueue_all(self.by_fd[fd], messages)
                continue
            failed = self._sender.one(fd, packet, len(messages))
            if failed:
                self._not_sent(fd, messages, failed)
            else:
                self.counters.deliveries += len(messages)

    def settle(self) -> None:
        """All that an input has brought is decided: put it on its way, and note that the input is worked through."""
        if self._inflight is not None:
            self.send_batches()
            self._inflight.finish()

    def replay_input(self, had: dict[int, int], work: Callable[[], None]) -> None:
        """Work an unfinished input through again: clients that ``had`` so many messages of it get the others."""
        self._had = had
        try:
            work()
            self.send_batches()
        finally:
            self._had = {}

    @property
    def halfway(self) -> bool:
        """Whether what is worked through again has reached somebody already."""
        return any(self._had.values())

    def _without_those_who_had(self, receivers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([fd for fd in receivers if not self._has_had(fd)])

    def _has_had(self, fd: int) -> bool:
        """Whether a client got the next message of an unfinished input from the daemon before us."""
        left = self._had.get(fd, 0)
        if left:
            self._had[fd] = left - 1
        return left > 0

    def in_batch(self, client: Client) -> bool:
        """Whether messages for this client go out together."""
        return client.fd in self._batched

    def set_batch(self, client: Client, wanted: bool) -> None:
        """Whether messages for this client go out together."""
        self.send_batches()
        if wanted and client.open:  # what had gathered may have ended it
            self._batched.add(client.fd)
        else:
            self._batched.discard(client.fd)
        self._forget_splits()

    def tell(self, client: Client, frame: bytes) -> None:
        """Send a control message behind what already waits. It is no message: one that does not fit is dropped
        without a gap, and counted."""
        if client.fd in self._batched:
            self.send_batches()
        if not client.open or (self._had and self._has_had(client.fd)):
            return
        if not client.queue:
            failed = self._sender.one(client.fd, frame)
            if failed not in _NO_ROOM:
                if failed == errno.EMSGSIZE:
                    self._leave_untold(client)
                return
        limits = self.limits
        if len(client.queue) < 2 * limits.queue_messages and not self._too_many_bytes(client, len(frame)):
            self._put(client, frame)
        else:
            self._leave_untold(client)

    def _leave_untold(self, client: Client) -> None:
        self.counters.untold += 1
        client.kept.untold()

    def _not_sent(self, fd: int, messages: list[bytes], failed: int) -> None:
        # One that was ended by what went before is no longer here.
        client = self.by_fd.get(fd)
        if client is not None and failed in _NO_ROOM:
            self._enqueue_all(client, messages)
        elif client is not None and failed == errno.EMSGSIZE:
            self._send_large(client, messages)
        else:
            # Gone, or half gone. The loop will notice too, and first take what it had still sent.
            self.counters.dropped["client_gone"] += len(messages)

    def _send_large(self, client: Client, messages: list[bytes]) -> None:
        """Send again what was more than the client's socket takes: one message, or those of a batch."""
        fd = client.fd
        if self._made_larger(client):
            if fd in self._batched:
                self._send_batch((fd,), messages)
            else:
                self.send((fd,), messages[0])
        elif len(messages) > 1:
            for message in messages:
                self._send_batch((fd,), [message])
        else:
            self._lose(client, "too_big")

    @staticmethod
    def _made_larger(client: Client) -> bool:
        """Make the kernel take the largest packets for a client, which it does not by itself; True the first time."""
        before = client.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        if before > 2 * frames.MAX_PACKET:
            return False
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, frames.MAX_PACKET)
        return client.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before

    def _enqueue_all(self, client: Client, messages: list[bytes]) -> None:
        for message in messages:
            if client.open:
                self._enqueue(client, message)
            else:
                self.counters.dropped["client_gone"] += 1

    def _enqueue(self, client: Client, frame: bytes) -> None:
        """Do with a message that cannot be sent now what the client has asked for."""
        if client.soft == b"discard":
            self._lose(client, "not_queued")
        elif client.soft == b"error":
            self._give_up_on(client)
        elif not (reason := self._no_room(client, len(frame))):
            self._put(client, frame)
        elif client.hard == b"error":
            self._give_up_on(client)
        else:
            self._lose(client, reason)

    def _no_room(self, client: Client, size: int) -> str:
        """Why a message of so many bytes does not fit in a box; empty when it does."""
        # What passes between segments is for one and all, and comes in bursts: a gateway has room for as many as fit.
        if client.queue.messages >= self.limits.queue_messages and client.fd not in self._routes.links_here:
            return "queue_messages"
        return self._too_many_bytes(client, size)

    def _too_many_bytes(self, client: Client, size: int) -> str:
        if client.queue.bytes + size > self.limits.queue_bytes:
            return "queue_bytes"
        of_user = client.account.queue_bytes + size + ENTRY
        return "user_queue_bytes" if of_user > self.limits.user.queue_bytes else ""

    def _put(self, client: Client, frame: bytes) -> None:
        client.kept.put(frame)
        client.queue.put(frame)
        client.account.queue_bytes += len(frame) + ENTRY
        self._wait(client)

    def _wait(self, client: Client) -> None:
        if client.fd not in self._waiting:
            self._waiting.add(client.fd)
            client.progress = time.monotonic()
            client.watched |= WRITABLE
            self._loop.change(client.fd, client.watched)

    def _give_up_on(self, client: Client) -> None:
        self.counters.dropped["client_ended"] += 1
        self._end(client, "it does not read fast enough, and has asked to be ended then (blocking/.../error)")

    def _lose(self, client: Client, reason: str) -> None:
        """Drop a message and note the gap where it would have stood."""
        self.counters.dropped[reason] += 1
        client.loss += 1
        client.kept.lost()
        client.queue.add_gap()
        self._wait(client)
        about = client.base, reason
        if not log.repeats.suppress("client_slow", about):
            self._log_loss(client, reason, about)

    def _log_loss(self, client: Client, reason: str, about: tuple[bytes, str]) -> None:
        some = islice(self._routes.patterns(client.fd), 3)
        patterns = ", ".join(repr(text.decode("ascii", "replace")) for text in some)
        if reason == "too_big":
            what = f"a message was dropped that is more than the kernel takes for {client}"
            remedy = "raise net.core.wmem_max"
        else:
            what = f"{client} does not read fast enough: messages for it are dropped ({reason})"
            remedy = "make it read faster, narrow its patterns, or raise bus.queue"
        text = f"{what}; subscribed to {patterns}"
        fields = log.peer_fields(client.peer, client.identity)
        log.event(
            "client_slow", text, about=about, remedy=remedy, reason=reason, drop=reason, patterns=patterns, **fields
        )

    def flush(self, client: Client) -> None:
        """Send what waits, as far as the client's socket takes it."""
        queue = client.queue
        before = len(queue)
        batched = client.fd in self._batched
        while queue:
            entry = queue.head()
            run = queue.next_batch() if batched else []
            alone = frames.gap(entry) if isinstance(entry, int) else entry
            packet = _packet(run) if run else alone
            failed = self._sender.waited(client.fd, packet, max(1, len(run)), client.kept.length)
            if failed in _NO_ROOM:
                break
            if failed == errno.EMSGSIZE:
                if not self._made_larger(client):
                    if len(run) > 1:
                        batched = False
                    else:
                        self._drop_head(client)
                continue
            if failed:  # gone; the loop will say so too
                self._clear(client)
                break
            client.kept.took(max(1, len(run)))
            for _ in range(max(1, len(run))):
                self.counters.deliveries += self._take(client)
        if not queue:
            self._waiting.discard(client.fd)
            client.patient = True
            client.watched &= ~WRITABLE
            self._loop.change(client.fd, client.watched)
        if len(queue) < before:
            client.progress = time.monotonic()
        if client.fd in self._blockers and not self._blocks(client):
            self._make_room(client)

    def _drop_head(self, client: Client) -> None:
        """What is to be sent next is more than the client's socket ever takes."""
        if client.queue.has_message_next:
            client.kept.lost_here()
            self._take(client)
            self.counters.dropped["too_big"] += 1
            client.loss += 1
            client.queue.add_gap_here()
        else:
            client.kept.took(1)
            self._take(client)
            self.counters.untold += 1

    def _take(self, client: Client) -> bool:
        """Take what is to be sent next out of the box; whether it was a message."""
        queue = client.queue
        messages, memory = queue.messages, queue.memory
        queue.take()
        client.account.queue_bytes -= memory - queue.memory
        return queue.messages < messages

    def _clear(self, client: Client) -> None:
        """Nobody will read what waits any more."""
        self.counters.dropped["client_gone"] += client.queue.messages
        client.account.queue_bytes -= client.queue.memory
        client.queue.clear()
        self._waiting.discard(client.fd)

    # -- holding up

    def set_mode(self, client: Client, *, soft: bytes | None = None, hard: bytes | None = None) -> None:
        """What becomes of messages that cannot be sent now (``soft``), and of those for which there is no room."""
        client.soft, client.hard = soft or client.soft, hard or client.hard
        if b"block" in (client.soft, client.hard):
            self._blockers.add(client.fd)
        else:
            self._blockers.discard(client.fd)
        self._make_room(client)

    def blocking_client(self, receivers: Iterable[int], size: int, publisher: Client) -> Client | None:
        """A receiver that wants this publisher to wait before it sends a message of so many bytes.

        A client can hold up publishers of its own user, one of root's everybody; none holds up itself.
        """
        if self._due and not self._blockers.isdisjoint(self._batched.intersection(receivers)):
            # Whether there is room for more is known only once what has gathered is on its way.
            self.send_batches()
        for fd in self._blockers.intersection(self._waiting).intersection(receivers):
            client = self.by_fd[fd]
            if (
                client.patient
                and client is not publisher
                and client.peer.uid in (0, publisher.peer.uid)
                and (client.soft == b"block" or (self._waits_for_room(client) and self._no_room(client, size)))
            ):
                return client
        return None

    @staticmethod
    def _waits_for_room(client: Client) -> bool:
        return (client.soft, client.hard) == (b"queue", b"block")

    def may_block(self) -> bool:
        """Whether `blocking_client` is worth asking."""
        waiting = not self._blockers.isdisjoint(self._waiting)
        return waiting or (self._due and not self._blockers.isdisjoint(self._batched))

    def keeping_up(self) -> frozenset[int]:
        """Clients for which nothing waits."""
        return frozenset(self.by_fd).difference(self._waiting)

    def hard_pressed(self, among: frozenset[int], now: float) -> bool:
        """Whether the queue of one of these clients is more than half full, and it has just read something."""
        limits = self.limits
        for fd in self._waiting.intersection(among):
            client = self.by_fd[fd]
            half = client.queue.messages * 2 > limits.queue_messages or client.queue.bytes * 2 > limits.queue_bytes
            if half and now - client.progress < HARD_PRESSED:
                return True
        return False

    def _blocks(self, client: Client) -> bool:
        """Whether those whom a client has held up had better go on waiting: until it has taken all or, where only a
        full box holds them up, half of it."""
        if client.soft == b"block":
            return bool(client.queue)
        half = (
            client.queue.messages * 2 > self.limits.queue_messages or client.queue.bytes * 2 > self.limits.queue_bytes
        )
        return half and client.patient
