"""Judges received datagrams by size, envelope, sum, body, dedup and route, and collects their deliveries.

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
from bccnd.core.receiving.judgement import FORWARDED, Arrival, Judgement
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import LINK_PATIENCE, TrackerTable
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import BODY_FORM, MAX_RECEIVE, SEQ_FORM, UNKNOWN_SRC, check_src
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

#: datagrams broadcast for links that have not come back yet: a burst
MAX_RELAYED: Final = 8192
#: seconds for which they are waited for: the socket may not be read for a while, or the interface may be gone
RELAY_PATIENCE: Final = 30.0
#: datagrams looked at by one call of `sweep`
_SWEEP_STEP: Final = 128
#: nanoseconds by which a copy of a datagram may come late over links
_LINK_PATIENCE_NS: Final = int(LINK_PATIENCE * 1e9)
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
        self._judgement = Judgement()
        #: datagrams broadcast for links, the oldest first: how many copies are still to come back, and since when
        self._relayed: dict[bytes, tuple[int, float]] = {}

    def set_groups(self, patterns: Sequence[bytes], counters: GroupCounters) -> None:
        """Count accepted messages by channel group: the patterns of the groups of ``counters``."""
        self.groups = counters
        self._routes.set_groups(patterns)

    def feed(self, deliveries: Deliveries, arrival: Arrival, datagrams: list[bytes]) -> list[int]:
        """Judge a batch of datagrams, add the deliveries in order, and return the verdict on each."""
        routes, counters, judgement = self._routes, arrival.counters, self._judgement
        header = judgement.header
        taps = routes.taps
        links = NO_RECEIVERS
        if arrival.link_head:
            links = routes.links if arrival.from_link else routes.links_here
        verdicts = [ACCEPTED] * len(datagrams)
        accepted = 0
        for number, raw in enumerate(datagrams):
            try:
                self._judge(judgement, arrival, raw, number)
                if judgement.verdict <= LAST_ACCEPTED:
                    route = judgement.route
                    route.carried += 1
                    if route.plain.all:
                        deliveries.put(route.plain, route.frame_head + raw[header.bar + 1 :])
                    if route.special:
                        self._deliver_special(deliveries, judgement, arrival, raw, number)
                    if links.all:
                        deliveries.put(links, arrival.link_head + raw)
                elif judgement.verdict == DUPLICATE:
                    if self._relayed and not arrival.from_link and self._came_back(raw):
                        judgement.verdict = LOOPED
                    else:
                        self._sources.count_duplicate(header.src_of(raw))
            except BadDatagram as bad:
                judgement.verdict = NUMBERS[bad.reason]
            except Exception:  # a bug costs only this datagram
                judgement.verdict = INTERNAL_ERROR
                self._on_bug(raw)
            verdict = judgement.verdict
            if verdict == ACCEPTED:
                accepted += 1
            else:
                verdicts[number] = verdict
                counters.judged(verdict)
            if taps:
                tap = taps[verdict]
                if tap.all:
                    epoch = self._sources.epoch(header.src_of(raw)) if verdict <= LAST_OF_SOURCE else 0
                    peer = arrival.peers[number]
                    tapped = frames.tapped(NAMES[verdict], counters.name, epoch, arrival.received_ns, peer, raw)
                    deliveries.put(tap, tapped)
        if accepted:
            counters.judged(ACCEPTED, accepted)
        judgement.source, judgement.route = None, NO_ROUTE  # else they would be kept
        return verdicts

    def wants_own(self) -> bool:
        """Whether datagrams that this host has sent are wanted when they come back: by taps, or because links broadcast
        them. Otherwise they are only counted, by `count_own`."""
        return bool(self._relayed) or len(self._routes.taps) > 0

    def count_own(self, counters: SegmentCounters, count: int) -> None:
        """Count datagrams that this host has sent and that came back."""
        self.checker.count_own(count)
        counters.judged(LOOPED, count)

    def _judge(self, judgement: Judgement, arrival: Arrival, raw: bytes, number: int) -> None:
        """Judge a datagram. Raises BadDatagram."""
        if arrival.sent is not None and arrival.sent.take(raw, arrival.now):
            # A datagram of this host, byte for byte, has its sum and is no conflict.
            self.checker.count_own()
            if self._relayed:
                self._came_back(raw)
            if self._routes.taps:
                judgement.header.parse(raw, raw.find(b"]") + 1)
            judgement.verdict = LOOPED
        else:
            self._read(judgement, raw, True)
            judgement.verdict = self._judge_by_source(judgement, arrival, raw, number)

    def _read(self, judgement: Judgement, raw: bytes, counted: bool) -> None:
        """Verify and parse a datagram, and find its source and its route. Raises BadDatagram.

        The src of a tracked source or local identity and the channel of a cached route were checked before.
        """
        if len(raw) > self.ceiling:
            raise BadDatagram("oversize", f"{len(raw)} bytes, at most {self.ceiling} are accepted")
        header, sources, routes = judgement.header, self._sources, self._routes
        at = self.checker.verify(raw, counted)
        if not header.parse(raw, at):
            raise BadDatagram("bad_body", BODY_FORM)
        source = sources.find(raw, at, header.src_end)
        if source is None:
            src = header.src_of(raw)
            if not sources.local.has(src):
                check_src(src)
        if not header.seq_valid:
            raise BadDatagram("bad_seq", SEQ_FORM)
        route = routes.known.get_slice(raw, header.chan, header.bar)
        judgement.route = routes.find(raw[header.chan : header.bar]) if route is None else route
        judgement.source = source

    def _judge_by_source(self, judgement: Judgement, arrival: Arrival, raw: bytes, number: int) -> int:
        """Return the verdict on a valid datagram."""
        header, source, sources = judgement.header, judgement.source, self._sources
        if source is not None:
            return sources.judge_next(source, header.seq, arrival.now, arrival.from_link)
        src = header.src_of(raw)
        if self.own_until_ns and src.startswith(self._own_prefix):
            # After a crash the identities of programs that have left are unknown.
            patience_ns = _LINK_PATIENCE_NS if arrival.from_link else 0
            if arrival.received_ns < self.own_until_ns + patience_ns:
                return LOOPED
        if src == UNKNOWN_SRC:
            return self._judge_anonymous(arrival, raw[header.src :], raw, number)
        verdict = sources.judge_new(src, header.seq, arrival.now)
        if verdict == LOOPED and sources.local.check_conflict(src, header.seq):
            self._on_conflict(src, arrival.peers[number])
        return verdict

    def predict(self, raw: bytes, peer: str, now: float) -> Judgement:
        """Return the judgement on a datagram from a segment, without counting or remembering it. Raises BadDatagram.

        Its verdict does not take into account whether the route is ``unaddressed``.
        """
        judgement = Judgement()
        self._read(judgement, raw, False)
        header = judgement.header
        src = header.src_of(raw)
        if src == UNKNOWN_SRC:
            judgement.verdict = self._anonymous.predict(peer, raw[header.src :], now)
        else:
            judgement.verdict = self._sources.predict(src, header.seq, now)
        return judgement

    def _judge_anonymous(self, arrival: Arrival, body: bytes, raw: bytes, number: int) -> int:
        """Return the verdict on a datagram of an anonymous sender. Copies over links have any address."""
        if arrival.from_link:
            return self._anonymous.judge(_LINK_PEER, body, arrival.now)
        if self._relayed and self._came_back(raw):
            return LOOPED
        verdict = self._anonymous.judge(arrival.peers[number], body, arrival.now)
        if verdict == ACCEPTED and self._routes.links_here.all:
            self._anonymous.judge(_LINK_PEER, body, arrival.now)
        return verdict

    def _deliver_special(
        self, deliveries: Deliveries, judgement: Judgement, arrival: Arrival, raw: bytes, number: int
    ) -> None:
        """Handle metadata, groups, heartbeats and reports, which few routes have; may judge NOT_ADDRESSED."""
        route, header = judgement.route, judgement.header
        behind = header.bar + 1
        if route.unaddressed:
            judgement.verdict = NOT_ADDRESSED
            return
        src = header.src_of(raw)
        if route.meta.all:
            meta = frames.meta(src, header.seq, arrival.received_ns, arrival.peers[number])
            deliveries.put(route.meta, route.frame_head + meta + raw[behind:])
        for group in route.groups:
            self.groups.count(group, len(raw) - behind)
        if route.heartbeat and route.heartbeat == src:
            self._on_heartbeat(src, arrival.now)
        if route.report:
            self._on_report(src, header.seq, raw[header.chan : header.bar], raw[behind:], arrival.now)

    def feed_late(
        self,
        deliveries: Deliveries,
        arrival: Arrival,
        datagrams: list[bytes],
        stamps: Sequence[int],
        wall_ns: int = 0,
        latest: float = float("inf"),
    ) -> None:
        """Judge a batch that has waited in the socket, and add the deliveries in order.

        Each datagram is judged by when it arrived: the first at ``arrival.now``, the others later by ``stamps`` (wall
        clock, nanoseconds; 0 if unknown, except the first), but none later than ``latest``, since that clock may have
        been set. ``wall_ns`` is the current wall clock: datagrams older than the horizon do not go to links.
        """
        for start, end, after in spans(stamps):
            link_head = FORWARDED if wall_ns - stamps[start] <= self.limits.horizon * 1e9 else b""
            group = Arrival(
                arrival.counters,
                arrival.peers[start:end],
                min(arrival.now + after, latest),
                stamps[start],
                sent=arrival.sent,
                link_head=link_head,
            )
            verdicts = self.feed(deliveries, group, datagrams[start:end])
            if not link_head and self._routes.links_here.all:
                self.too_old_for_links += sum(map(was_accepted, verdicts))

    def feed_link(self, deliveries: Deliveries, arrival: Arrival, datagram: bytes, *, copies: int = 0) -> bool:
        """Judge a datagram from a link, which may be a late copy, and add the deliveries.

        Returns whether it was accepted and is to be broadcast on the segments, from where so many ``copies`` come back.
        One that goes to no link stays on this host.
        """
        (verdict,) = self.feed(deliveries, arrival, [datagram])
        if not was_accepted(verdict):
            return False
        if copies and arrival.link_head:
            self._relayed.pop(datagram, None)
            if len(self._relayed) >= MAX_RELAYED:
                del self._relayed[next(iter(self._relayed))]
            self._relayed[datagram] = copies, arrival.now
        return True

    def relayed(self) -> list[tuple[bytes, int, float]]:
        """Return the datagrams broadcast for links that have not come back: each with its copies and its time."""
        return [(raw, left, since) for raw, (left, since) in self._relayed.items()]

    def resume_relayed(self, rows: Iterable[tuple[bytes, int, float]]) -> None:
        """Continue with the datagrams that the daemon before has broadcast for links."""
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
