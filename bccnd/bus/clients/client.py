"""A client of the local bus: its connection, its modes, its rights and its counters."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from bccnd.bus.clients.access_rules import Access, Rights
from bccnd.core.matching.patterns import Dialect
from bccnd.core.sending.send_queue import SendQueue
from bccnd.core.sending.user_quota import UserAccount
from bccnd.handover.descriptor_store import ClientRecord
from bccnd.net.loop import HALF_CLOSED, READABLE, Handler, Timer
from bccnd.net.peer import Peer

if TYPE_CHECKING:  # bccn-sbusd has a bus without a configuration
    from bccnd.config.schema import BusSettings

#: the modes of a client for a message that its socket (soft) or its queue (hard) has no room for
SOFT_MODES: Final = (b"queue", b"discard", b"block", b"error")
HARD_MODES: Final = (b"discard", b"block", b"error")


class BusRules(Protocol):
    """The rules in force on the bus. A reload replaces both: parts read them when they need them, and keep neither."""

    @property
    def bus(self) -> BusSettings: ...
    @property
    def access(self) -> Access: ...


class Client:
    """One connection, with its ``number`` among all that there ever were.

    ``identity`` begins with ``base``, which the kernel vouches for.
    """

    __slots__ = (
        "account",
        "base",
        "blocked_packet",
        "dialect",
        "echo",
        "events",
        "fd",
        "hard",
        "identity",
        "listing",
        "local",
        "lost",
        "number",
        "open",
        "patience_timer",
        "patient",
        "peer",
        "progress",
        "published",
        "publishes",
        "queue",
        "record",
        "retry",
        "rights",
        "since",
        "sock",
        "soft",
        "subscriptions",
        "turn",
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
        self.grant(rights)
        self.since = time.time()
        self.queue = SendQueue()
        self.soft, self.hard = b"queue", b"discard"
        self.echo = True
        #: whether its messages stay on this host
        self.local = False
        #: whether it may still block clients that publish to it, and when it last read something (monotonic)
        self.patient = True
        self.progress = 0.0
        #: when its last turn began
        self.turn = 0.0
        #: when that is checked next, while it blocks a publisher
        self.patience_timer: Timer | None = None
        #: while it is blocked as a publisher: tries its packet again; and the packet
        self.retry: Callable[[], None] | None = None
        self.blocked_packet: bytes | None = None
        #: its record for the next daemon, if it is stored
        self.record: ClientRecord | None = None
        self.subscriptions = 0
        self.published = 0
        self.lost = 0
        self.open = True
        #: events of its socket that the loop waits for, and their handler
        self.watched = READABLE | HALF_CLOSED
        self.events: Handler | None = None
        #: the rest of the listing that it has requested; None if that was dropped
        self.listing: Iterator[dict[str, Any] | None] | None = iter(())

    def grant(self, rights: Rights) -> None:
        """Put other rights in force. ``publishes`` is read for each message."""
        self.rights = rights
        self.publishes = rights.publish

    def note(self, frame: bytes) -> None:
        """Record a frame that has changed its subscriptions, modes or identity."""
        if self.record is not None:
            self.record.append(frame)

    def __str__(self) -> str:
        return str(self.peer)
