"""The datagrams that `Ingress` is given, and the record of its judgement on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bccnd.core.matching.routes import NO_ROUTE
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.tracking.source import Source
from bccnd.core.wire.frames import forwarded
from bccnd.core.wire.verdicts import ACCEPTED
from bccnd.native.buffers.header import Header
from bccnd.native.buffers.sent_datagrams import SentDatagrams

#: head of the frame in which datagrams from segments go to links
FORWARDED: Final = forwarded(0, b"")


class Arrival:
    """Where a batch of datagrams came from, and when; reused for the next batch.

    ``peers[i]`` is the sender of datagram i as ``address:port``, read only where needed. ``now`` is monotonic, in
    seconds, ``received_ns`` the wall clock. ``sent`` has the datagrams of this host that were sent on the segment and
    have not come back. ``link_head`` is the head of the frame in which accepted datagrams go to links, empty if they do
    not.
    """

    __slots__ = ("counters", "from_link", "link_head", "now", "peers", "received_ns", "sent")

    def __init__(
        self,
        counters: SegmentCounters,
        peers: Sequence[str],
        now: float = 0.0,
        received_ns: int = 0,
        *,
        sent: SentDatagrams | None = None,
        link_head: bytes = FORWARDED,
        from_link: bool = False,
    ) -> None:
        self.counters = counters
        self.peers = peers
        self.now = now
        self.received_ns = received_ns
        self.sent = sent
        self.link_head = link_head
        self.from_link = from_link


def arrival_from_link(
    counters: SegmentCounters, origin: int, peer: str, now: float, received_ns: int, *, late: bool = False
) -> Arrival:
    """Return the arrival of a datagram that the link peer ``origin`` has sent; a ``late`` one goes to no link."""
    link_head = b"" if late else forwarded(origin, b"")
    return Arrival(counters, (peer,), now, received_ns, link_head=link_head, from_link=True)


class Judgement:
    """The verdict on one datagram, its parsed header, its source if that was tracked before, and its route; reused for
    the next datagram. Of a datagram that was refused, or looped, only the verdict is valid."""

    __slots__ = ("header", "route", "source", "verdict")

    def __init__(self) -> None:
        self.verdict = ACCEPTED
        self.header = Header()
        self.source: Source | None = None
        self.route = NO_ROUTE
