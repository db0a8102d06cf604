"""Judges received datagrams: size, envelope, sum, body, dedup, route; returns what to deliver.

Invariant: every datagram gets exactly one verdict, and none raises past `feed`. A body is read, and a directed message
matched, only after the sum was accepted (BCCN, "Security note").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bccnd.core import frames
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.arrival_times import spans
from bccnd.core.bccn1 import MAX_RECEIVE, read_body
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import UNHEARD, UNKNOWN_SENDER, TrackerTable
from bccnd.core.deliveries import Deliveries
from bccnd.core.frames import forwarded
from bccnd.core.integrity import IntegrityChecker
from bccnd.core.receivers import NOBODY
from bccnd.core.routes import Routes
from bccnd.core.verdicts import (
    ACCEPTED,
    DUPLICATE,
    INTERNAL_ERROR,
    LAST_ACCEPTED,
    LOOPED,
    NAMES,
    NOT_ADDRESSED,
    NUMBERS,
)
from bccnd.errors import BadDatagram
from bccnd.native import scan
from bccnd.native.spare_bytes import SpareBytes

#: head of the frame in which datagrams from segments go to links
FORWARDED: Final = forwarded(0, b"")
#: datagrams broadcast for links that have not come back yet: a burst
MAX_RELAYED: Final = 8192
#: stands for the address of anonymous senders of datagrams from links
_LINK_PEER: Final = "link"

_COLON: Final = ord(":")
_BAR: Final = ord("|")


class Ingress:
    """Judges the datagrams of all segments by one checker, one tracker table and one set of routes."""

    def __init__(
        self,
        checker: IntegrityChecker,
        sources: TrackerTable,
        anonymous: AnonymousDedup,
        routes: Routes[int],
        *,
        ceiling: int = MAX_RECEIVE,
        on_heartbeat: Callable[[bytes, float], None] = lambda _src, _now: None,
        on_report: Callable[[bytes, int, bytes, bytes, float], None] = lambda _src, _seq, _chan, _payload, _now: None,
        on_conflict: Callable[[bytes, str], None] = lambda _src, _peer: None,
        on_bug: Callable[[bytes], None] = lambda _raw: None,
    ) -> None:
        """``on_heartbeat`` gets the src of an accepted heartbeat and the time; ``on_report`` src, seq, channel and
        payload of an accepted report, and the time; ``on_conflict`` a local identity that another sender uses, and its
        address, once each; ``on_bug`` the datagram that raised."""
        self.checker = checker
        #: nanoseconds after reception at which a datagram is too old for links
        self.max_age_ns = 2_000_000_000
        self.ceiling = ceiling
        #: accepted datagrams that were too old for links
        self.too_old_for_links = 0
        self.group_messages: list[int] = []
        self.group_bytes: list[int] = []
        self._sources = sources
        self._anonymous = anonymous
        self._routes = routes
        self._on_heartbeat = on_heartbeat
        self._on_report = on_report
        self._on_conflict = on_conflict
        self._on_bug = on_bug
        self._frames = SpareBytes()
        #: datagrams broadcast for links, and the number of copies that are still to come back
        self._relayed: dict[bytes, int] = {}

    def set_groups(self, patterns: Sequence[bytes]) -> None:
        """Count accepted messages and payload bytes by channel group, from zero."""
        self.group_messages = [0] * len(patterns)
        self.group_bytes = [0] * len(patterns)
        self._routes.set_groups(patterns)

    def feed(
        self,
        counters: SegmentCounters,
        datagrams: list[bytes],
        peers: Sequence[str],
        now: float,
        received_ns: int,
    ) -> Deliveries:
        """Judge a batch from a segment and return the deliveries in order; see `feed_into`."""
        deliveries = Deliveries()
        self.feed_into(deliveries, counters, datagrams, peers, now, received_ns)
        return deliveries

    def feed_into(
        self,
        deliveries: Deliveries,
        counters: SegmentCounters,
        datagrams: list[bytes],
        peers: Sequence[str],
        now: float,
        received_ns: int,
        link_head: bytes = FORWARDED,
        from_link: bool = False,
    ) -> None:
        """Judge a batch of datagrams and add the deliveries in order.

        ``peers[i]`` is the sender of ``datagrams[i]`` as ``address:port``, read only where needed; ``now`` is
        monotonic, in seconds, ``received_ns`` the wall clock. ``link_head`` is the head of the frame in which accepted
        datagrams go to links, empty if they do not.
        """
        checker, sources, routes = self.checker, self._sources, self._routes
        known, taps = routes.known, routes.taps
        links = NOBODY
        if link_head:
            links = routes.links if from_link else routes.links_here
        accepted = 0
        for number, raw in enumerate(datagrams):
            try:
                if len(raw) > self.ceiling:
                    raise BadDatagram("oversize")
                at = checker.verify(raw)
                # Short cut if the source is known, by its tracker or as a local identity whose broadcast has returned:
                # then it was checked before, and so was a known channel.
                first = scan.find(raw, _COLON, at)
                second = scan.find(raw, _COLON, first + 1)
                bar = scan.find(raw, _BAR, second + 1)
                found = scan.parse_uint(raw, first + 1, second)
                verdict = UNHEARD
                if found >= 0 and bar >= 0:
                    source = sources.find(raw, at, first)
                    if source >= 0 or sources.is_local(raw[at:first]):
                        remembered = known.get_slice(raw, second + 1, bar)
                        if remembered is None and not 0 <= scan.find(raw, _COLON, second + 1) < bar:
                            remembered = routes.find(raw[second + 1 : bar])
                            known = routes.known
                        if remembered is not None and source >= 0:
                            route, src, seq, behind = remembered, raw[at:first], found, bar + 1
                            verdict = sources.follow(source, seq, now, from_link)
                        elif remembered is not None:
                            route, src, seq, behind = remembered, raw[at:first], found, bar + 1
                            verdict = self._judge_parsed(src, seq, now, peers, number, raw, at, from_link)
                if verdict == UNHEARD:
                    src, seq, chan, payload = read_body(raw[at:])
                    route = routes.find(chan)
                    known = routes.known
                    verdict = self._judge_parsed(src, seq, now, peers, number, raw, at, from_link)
                    behind = len(raw) - len(payload)
                if verdict <= LAST_ACCEPTED:
                    route.carried += 1
                    if route.plain.all:
                        deliveries.put(route.plain, self._frames.join(route.frame_head, raw, behind))
                    if route.special:
                        if route.cut:
                            routes.report_cut(route)
                        if route.meta.all:
                            meta = frames.meta(src, seq, received_ns, peers[number])
                            deliveries.put(route.meta, route.frame_head + meta + raw[behind:])
                        if route.unaddressed:
                            verdict = NOT_ADDRESSED
                        else:
                            self._count_groups(route.groups, len(raw) - behind)
                            if route.heartbeat and route.heartbeat == src:
                                self._on_heartbeat(src, now)
                            if route.report:
                                self._on_report(src, seq, route.frame_head[4:-1], raw[behind:], now)
                    if links.all:
                        deliveries.put(links, link_head + raw)
                elif verdict == DUPLICATE and self._relayed and not from_link and self._came_back(raw):
                    verdict = LOOPED
            except BadDatagram as bad:
                verdict = NUMBERS[bad.reason]
            except Exception:  # a bug costs only this datagram
                verdict = INTERNAL_ERROR
                self._on_bug(raw)
            if verdict == ACCEPTED:
                accepted += 1
            else:
                counters.judged(verdict)
                if verdict == DUPLICATE:
                    sources.count_duplicate(src)
            if taps:
                tap = taps[verdict]
                if tap.all:
                    epoch = sources.epoch(src) if verdict <= NOT_ADDRESSED else 0
                    tapped = frames.tapped(NAMES[verdict], counters.name, epoch, received_ns, peers[number], raw)
                    deliveries.put(tap, tapped)
        if accepted:
            counters.judged(ACCEPTED, accepted)

    def feed_late(
        self,
        deliveries: Deliveries,
        counters: SegmentCounters,
        datagrams: list[bytes],
        peers: Sequence[str],
        now: float,
        stamps: Sequence[int],
        wall_ns: int = 0,
        latest: float = float("inf"),
    ) -> None:
        """Judge a batch that has waited in the socket, and add the deliveries in order.

        Each datagram is judged by when it arrived: the first at ``now``, the others later by ``stamps`` (wall clock,
        nanoseconds; 0 if unknown, except the first), but none later than ``latest``, since that clock may have been
        set. ``wall_ns`` is the current wall clock: datagrams older than ``max_age_ns`` do not go to links.
        """
        for start, end, after in spans(stamps):
            stamp = stamps[start] or stamps[0]
            link_head = FORWARDED if wall_ns - stamp <= self.max_age_ns else b""
            before = self._count_accepted(counters.verdicts)
            some, senders = datagrams[start:end], peers[start:end]
            self.feed_into(deliveries, counters, some, senders, min(now + after, latest), stamp, link_head)
            if not link_head and self._routes.links_here.all:
                self.too_old_for_links += self._count_accepted(counters.verdicts) - before

    def feed_link(
        self,
        counters: SegmentCounters,
        origin: int,
        datagram: bytes,
        peer: str,
        now: float,
        received_ns: int,
        *,
        late: bool = False,
        copies: int = 0,
    ) -> tuple[Deliveries, bool]:
        """Judge a datagram from a link, which may be a late copy; ``origin`` is the link peer that sent it.

        Returns the deliveries, and whether it was accepted and is to be broadcast on the segments, from where so many
        ``copies`` come back. A ``late`` one stays on this host.
        """
        before = self._count_accepted(counters.verdicts)
        link_head = b"" if late else forwarded(origin, b"")
        deliveries = Deliveries()
        self.feed_into(deliveries, counters, [datagram], (peer,), now, received_ns, link_head, True)
        accepted = self._count_accepted(counters.verdicts) > before
        if accepted and copies and not late:
            if len(self._relayed) >= MAX_RELAYED:
                del self._relayed[next(iter(self._relayed))]
            self._relayed[datagram] = copies
        return deliveries, accepted

    @staticmethod
    def _count_accepted(verdicts: list[int]) -> int:
        """Count the datagrams that go to other segments; those for no local client are among them."""
        return sum(verdicts[: LAST_ACCEPTED + 1]) + verdicts[NOT_ADDRESSED]

    def _came_back(self, raw: bytes) -> bool:
        """Whether a datagram from a segment is one that was broadcast here for a link."""
        left = self._relayed.get(raw, 0)
        if left > 1:
            self._relayed[raw] = left - 1
        elif left:
            del self._relayed[raw]
        return left > 0

    def _count_groups(self, groups: tuple[int, ...], size: int) -> None:
        for group in groups:
            self.group_messages[group] += 1
            self.group_bytes[group] += size

    def _judge_parsed(
        self, src: bytes, seq: int, now: float, peers: Sequence[str], number: int, raw: bytes, at: int, from_link: bool
    ) -> int:
        """Return the verdict on a parsed datagram, whose body begins at ``at``."""
        verdict = self._sources.judge(src, seq, now, from_link)
        if verdict == UNHEARD:
            verdict = self._sources.judge_new(src, seq, now)
            if verdict == UNKNOWN_SENDER:
                verdict = self._judge_anonymous(peers[number], raw, at, now, from_link)
            elif verdict == LOOPED and self._sources.check_conflict(src, seq):
                self._on_conflict(src, peers[number])
        return verdict

    def _judge_anonymous(self, peer: str, raw: bytes, at: int, now: float, from_link: bool) -> int:
        """Return the verdict on a datagram of an anonymous sender. Copies over links have any address."""
        if from_link:
            return self._anonymous.judge(_LINK_PEER, raw[at:], now)
        if self._relayed and self._came_back(raw):
            return LOOPED
        verdict = self._anonymous.judge(peer, raw[at:], now)
        if verdict == ACCEPTED and self._routes.links_here.all:
            self._anonymous.judge(_LINK_PEER, raw[at:], now)
        return verdict
