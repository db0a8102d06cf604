"""Judges received datagrams: size, envelope, sum, body, dedup, route; returns what to deliver.

Invariant: every datagram gets exactly one verdict, and none raises past `feed`. A body is read, and a directed message
matched, only after the sum was accepted (BCCN, "Security note").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from bccnd.core.matching.receivers import NO_RECEIVERS
from bccnd.core.matching.routes import NO_ROUTE, Routes
from bccnd.core.observing.counters import GroupCounters, SegmentCounters
from bccnd.core.receiving.arrival_times import spans
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import UNKNOWN_SENDER, TrackerTable
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import MAX_RECEIVE, check_src
from bccnd.core.wire.frames import forwarded
from bccnd.core.wire.verdicts import (
    ACCEPTED,
    DUPLICATE,
    INTERNAL_ERROR,
    LAST_ACCEPTED,
    LAST_OF_SOURCE,
    LOOPED,
    NAMES,
    NOT_ADDRESSED,
    NUMBERS,
    was_accepted,
)
from bccnd.errors import BadDatagram
from bccnd.native.buffers.header import Header
from bccnd.native.buffers.sent_datagrams import SentDatagrams

#: head of the frame in which datagrams from segments go to links
FORWARDED: Final = forwarded(0, b"")
#: datagrams broadcast for links that have not come back yet: a burst
MAX_RELAYED: Final = 8192
#: seconds for which they are waited for: the socket may not be read for a while, or the interface may be gone
RELAY_PATIENCE: Final = 30.0
#: datagrams looked at by one call of `sweep`
_SWEEP_STEP: Final = 128
#: stands for the address of anonymous senders of datagrams from links
_LINK_PEER: Final = "link"


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
        host: bytes = b"",
    ) -> None:
        """``on_heartbeat`` gets the src of an accepted heartbeat and the time; ``on_report`` src, seq, channel and
        payload of an accepted report, and the time; ``on_conflict`` a local identity that another sender uses, and its
        address, once each; ``on_bug`` the datagram that raised. ``host`` is the first token of this host's
        identities."""
        self.checker = checker
        self.ceiling = ceiling
        #: accepted datagrams that were too old for links
        self.too_old_for_links = 0
        self.groups = GroupCounters()
        #: datagrams of this host that were received before this time (wall clock, nanoseconds) are its own: a daemon
        #: that has crashed may have sent them
        self.own_until_ns = 0
        self._own_prefix = host + b"/"
        self.limits = sources.limits
        self._sources = sources
        self._anonymous = anonymous
        self._routes = routes
        self._on_heartbeat = on_heartbeat
        self._on_report = on_report
        self._on_conflict = on_conflict
        self._on_bug = on_bug
        self._header = Header()
        #: the route of the last parsed datagram
        self._route = NO_ROUTE
        #: datagrams broadcast for links, the oldest first: how many copies are still to come back, and since when
        self._relayed: dict[bytes, tuple[int, float]] = {}

    def set_groups(self, patterns: Sequence[bytes], counters: GroupCounters) -> None:
        """Count accepted messages by channel group: the patterns of the groups of ``counters``."""
        self.groups = counters
        self._routes.set_groups(patterns)

    def feed(
        self,
        deliveries: Deliveries,
        counters: SegmentCounters,
        datagrams: list[bytes],
        peers: Sequence[str],
        now: float,
        received_ns: int,
        link_head: bytes = FORWARDED,
        from_link: bool = False,
        sent: SentDatagrams | None = None,
    ) -> list[int]:
        """Judge a batch of datagrams, add the deliveries in order, and return the verdict on each.

        ``peers[i]`` is the sender of ``datagrams[i]`` as ``address:port``, read only where needed; ``now`` is
        monotonic, in seconds, ``received_ns`` the wall clock. ``link_head`` is the head of the frame in which accepted
        datagrams go to links, empty if they do not. ``sent`` is what was sent on the segment and has not come back.
        """
        routes, header = self._routes, self._header
        taps = routes.taps
        links = NO_RECEIVERS
        if link_head:
            links = routes.links if from_link else routes.links_here
        verdicts = [ACCEPTED] * len(datagrams)
        accepted = 0
        for number, raw in enumerate(datagrams):
            try:
                verdict = self._judge(raw, peers, number, now, received_ns, from_link, sent)
                if verdict <= LAST_ACCEPTED:
                    route = self._route
                    route.carried += 1
                    if route.plain.all:
                        deliveries.put(route.plain, route.frame_head + raw[header.bar + 1 :])
                    if route.special:
                        verdict = self._deliver_special(deliveries, verdict, raw, peers, number, now, received_ns)
                    if links.all:
                        deliveries.put(links, link_head + raw)
                elif verdict == DUPLICATE:
                    if self._relayed and not from_link and self._came_back(raw):
                        verdict = LOOPED
                    else:
                        self._sources.count_duplicate(header.src_of(raw))
            except BadDatagram as bad:
                verdict = NUMBERS[bad.reason]
            except Exception:  # a bug costs only this datagram
                verdict = INTERNAL_ERROR
                self._on_bug(raw)
            if verdict == ACCEPTED:
                accepted += 1
            else:
                verdicts[number] = verdict
                counters.judged(verdict)
            if taps:
                tap = taps[verdict]
                if tap.all:
                    epoch = self._sources.epoch(header.src_of(raw)) if verdict <= LAST_OF_SOURCE else 0
                    tapped = frames.tapped(NAMES[verdict], counters.name, epoch, received_ns, peers[number], raw)
                    deliveries.put(tap, tapped)
        if accepted:
            counters.judged(ACCEPTED, accepted)
        self._route = NO_ROUTE  # else its receivers would be kept
        return verdicts

    def _judge(
        self,
        raw: bytes,
        peers: Sequence[str],
        number: int,
        now: float,
        received_ns: int,
        from_link: bool,
        sent: SentDatagrams | None,
    ) -> int:
        """Return the verdict on a datagram, whose header is parsed and whose route is found then, unless it is LOOPED.
        Raises BadDatagram.

        The src of a tracked source or local identity and the channel of a cached route were checked before.
        """
        if len(raw) > self.ceiling:
            raise BadDatagram("oversize")
        header, sources, routes = self._header, self._sources, self._routes
        if sent is not None and sent.take(raw, now):
            # What this host has sent, byte for byte, has its sum and is no conflict.
            self.checker.count_own()
            if self._relayed:
                self._came_back(raw)
            if routes.taps:
                header.parse(raw, raw.find(b"]") + 1)
            return LOOPED
        at = self.checker.verify(raw)
        if not header.parse(raw, at):
            raise BadDatagram("bad_body")
        source = sources.find(raw, at, header.src_end)
        if source is None:
            src = header.src_of(raw)
            if not sources.local.has(src):
                check_src(src)
        if not header.seq_valid:
            raise BadDatagram("bad_seq")
        route = routes.known.get_slice(raw, header.chan, header.bar)
        self._route = routes.find(raw[header.chan : header.bar]) if route is None else route
        if source is not None:
            return sources.judge_next(source, header.seq, now, from_link)
        if received_ns < self.own_until_ns and src.startswith(self._own_prefix):
            return LOOPED
        verdict = sources.judge_new(src, header.seq, now)
        if verdict == UNKNOWN_SENDER:
            return self._judge_anonymous(peers[number], raw, at, now, from_link)
        if verdict == LOOPED and sources.local.check_conflict(src, header.seq):
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

    def _deliver_special(
        self,
        deliveries: Deliveries,
        verdict: int,
        raw: bytes,
        peers: Sequence[str],
        number: int,
        now: float,
        received_ns: int,
    ) -> int:
        """Do what few routes need beside sending to plain receivers; return the verdict, which may be NOT_ADDRESSED."""
        route, header = self._route, self._header
        behind = header.bar + 1
        if route.unaddressed:
            return NOT_ADDRESSED
        src = header.src_of(raw)
        if route.meta.all:
            meta = frames.meta(src, header.seq, received_ns, peers[number])
            deliveries.put(route.meta, route.frame_head + meta + raw[behind:])
        for group in route.groups:
            self.groups.count(group, len(raw) - behind)
        if route.heartbeat and route.heartbeat == src:
            self._on_heartbeat(src, now)
        if route.report:
            self._on_report(src, header.seq, raw[header.chan : header.bar], raw[behind:], now)
        return verdict

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
        sent: SentDatagrams | None = None,
    ) -> None:
        """Judge a batch that has waited in the socket, and add the deliveries in order.

        Each datagram is judged by when it arrived: the first at ``now``, the others later by ``stamps`` (wall clock,
        nanoseconds; 0 if unknown, except the first), but none later than ``latest``, since that clock may have been
        set. ``wall_ns`` is the current wall clock: datagrams older than the horizon do not go to links.
        """
        for start, end, after in spans(stamps):
            stamp = stamps[start]
            link_head = FORWARDED if wall_ns - stamp <= self.limits.horizon * 1e9 else b""
            some, senders = datagrams[start:end], peers[start:end]
            when = min(now + after, latest)
            verdicts = self.feed(deliveries, counters, some, senders, when, stamp, link_head, False, sent)
            if not link_head and self._routes.links_here.all:
                self.too_old_for_links += sum(map(was_accepted, verdicts))

    def feed_link(
        self,
        deliveries: Deliveries,
        counters: SegmentCounters,
        origin: int,
        datagram: bytes,
        peer: str,
        now: float,
        received_ns: int,
        *,
        late: bool = False,
        copies: int = 0,
    ) -> bool:
        """Judge a datagram from a link, which may be a late copy, and add the deliveries; ``origin`` is the link peer
        that sent it.

        Returns whether it was accepted and is to be broadcast on the segments, from where so many ``copies`` come back.
        A ``late`` one stays on this host.
        """
        link_head = b"" if late else forwarded(origin, b"")
        (verdict,) = self.feed(deliveries, counters, [datagram], (peer,), now, received_ns, link_head, True)
        if not was_accepted(verdict):
            return False
        if copies and not late:
            self._relayed.pop(datagram, None)
            if len(self._relayed) >= MAX_RELAYED:
                del self._relayed[next(iter(self._relayed))]
            self._relayed[datagram] = copies, now
        return True

    def relayed(self) -> list[tuple[bytes, int, float]]:
        """Return the datagrams broadcast for links that have not come back: each with its copies and its time."""
        return [(raw, left, since) for raw, (left, since) in self._relayed.items()]

    def resume_relayed(self, rows: Iterable[tuple[bytes, int, float]]) -> None:
        """Continue with what the daemon before has broadcast for links."""
        self._relayed.update((raw, (left, since)) for raw, left, since in rows)

    def _came_back(self, raw: bytes) -> bool:
        """Whether a datagram from a segment is one that was broadcast here for a link."""
        left, since = self._relayed.get(raw, (0, 0.0))
        if left > 1:
            self._relayed[raw] = left - 1, since
        elif left:
            del self._relayed[raw]
        return left > 0

    def sweep(self, now: float) -> bool:
        """Forget datagrams broadcast for links that do not come back; True if more can be done now."""
        for raw, (_, since) in list(islice(self._relayed.items(), _SWEEP_STEP)):
            if now - since <= RELAY_PATIENCE:
                return False
            del self._relayed[raw]
        return bool(self._relayed)
