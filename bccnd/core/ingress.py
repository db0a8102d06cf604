"""The way in: datagrams -> verdicts and deliveries.

Law: every datagram fed gets exactly one verdict and nothing it holds raises past `feed`. The order is size,
envelope, check, body, dedup, match: nothing is read from a body whose check was not accepted, and a directed
message is verified before anybody asks whom it is for (BCCN, "Security note").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bccnd.core import frames
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.arrival_times import spans
from bccnd.core.bccn1 import MAX_RECEIVE, UNKNOWN_SRC, read_body
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import UNHEARD, UNKNOWN_SENDER, TrackerTable
from bccnd.core.frames import passed
from bccnd.core.integrity import IntegrityChecker
from bccnd.core.routes import Routes
from bccnd.core.tracker_log import TrackerLog
from bccnd.core.verdicts import (
    ACCEPTED,
    DUPLICATE,
    INTERNAL_ERROR,
    LAST_ACCEPTED,
    LOOPED,
    NAMES,
    NOT_ADDRESSED,
    NUMBERS,
    STALE,
)
from bccnd.errors import BadDatagram
from bccnd.native import scan

#: receivers, and the one frame that each of them gets
Delivery = tuple[tuple[int, ...], bytes]

#: the frame in which datagrams from segments go to the links, up to the datagram
PASSED: Final = passed(0, b"")
#: what we have broadcast for links and has not come back to us yet: a burst, and some more for where nothing comes back
MAX_RELAYED: Final = 8192
#: who sends what links bring, for messages whose sender has no name
_BY_LINK: Final = "link"

_COLON: Final = ord(":")
_BAR: Final = ord("|")


class Ingress:
    """Feeds datagrams of all segments through one door, one set of trackers and one set of routes."""

    def __init__(
        self,
        checker: IntegrityChecker,
        sources: TrackerTable,
        anonymous: AnonymousDedup,
        routes: Routes[int],
        *,
        ceiling: int = MAX_RECEIVE,
        tracker_log: TrackerLog | None = None,
        on_heartbeat: Callable[[bytes, float], None] = lambda _src, _now: None,
        on_conflict: Callable[[bytes, str], None] = lambda _src, _peer: None,
        on_bug: Callable[[bytes], None] = lambda _raw: None,
    ) -> None:
        """``on_heartbeat`` gets the src of an accepted heartbeat and the time, ``on_conflict`` an identity of ours
        under which somebody else speaks and the address of who does, once for each; ``on_bug`` a datagram. ``tracker_log``
        is where it is written down which datagrams have changed a tracker."""
        self.checker = checker
        #: nanoseconds up to which a datagram may have been on its way to go on to other segments
        self.max_age_ns = 2_000_000_000
        self.tracker_log = tracker_log
        self.ceiling = ceiling
        #: accepted, and too old to go on to other segments
        self.not_passed = 0
        self.group_messages: list[int] = []
        self.group_bytes: list[int] = []
        self._sources = sources
        self._anonymous = anonymous
        self._routes = routes
        self._on_heartbeat = on_heartbeat
        self._on_conflict = on_conflict
        self._on_bug = on_bug
        #: the frame in which what is accepted now goes to the links, up to the datagram; empty when it does not
        self._passed = PASSED
        #: datagrams that we broadcast for links, and how often they are still to come back
        self._relayed: dict[bytes, int] = {}

    def set_groups(self, patterns: Sequence[bytes]) -> None:
        """Count accepted messages and payload bytes by these channel groups, from zero."""
        self.group_messages = [0] * len(patterns)
        self.group_bytes = [0] * len(patterns)
        self._routes.set_groups(patterns)

    def feed(
        self, counters: SegmentCounters, datagrams: list[bytes], peers: Sequence[str], now: float, received_ns: int
    ) -> list[Delivery]:
        """Judge a batch from one segment.

        ``peers[i]`` is the sender of ``datagrams[i]`` as ``address:port``, asked for only where it matters; ``now`` is
        monotonic, in seconds, ``received_ns`` the wall clock. Counts in ``counters``; returns what to send to whom,
        in order.
        """
        deliveries: list[Delivery] = []
        verdicts = counters.verdicts
        checker, sources, routes = self.checker, self._sources, self._routes
        known, taps = routes.known, routes.taps
        tracker_log = self.tracker_log
        links: tuple[int, ...] = ()
        if self._passed:
            links = routes.links if sources.from_link else routes.links_here
        accepted = 0
        counters.received += len(datagrams)
        for number, raw in enumerate(datagrams):
            try:
                if len(raw) > self.ceiling:
                    raise BadDatagram("oversize")
                at = checker.verify(raw)
                # A quick look, trusted only if it finds a channel and a source that were found in order before.
                first = scan.find(raw, _COLON, at)
                second = scan.find(raw, _COLON, first + 1)
                bar = scan.find(raw, _BAR, second + 1)
                found = scan.parse_uint(raw, first + 1, second)
                verdict = UNHEARD
                if found >= 0 and bar >= 0:
                    remembered = known.get_slice(raw, second + 1, bar)
                    source = sources.get_slice(raw, at, first)
                    if remembered is not None and source is not None:
                        route, src, seq, behind = remembered, source.src, found, bar + 1
                        verdict = sources.follow(source, seq, now)
                if verdict == UNHEARD:
                    src, seq, chan, payload = read_body(raw[at:])
                    route = routes.find(chan)
                    known = routes.known
                    verdict = self._judge_anew(src, seq, now, peers, number, raw, at)
                    behind = len(raw) - len(payload)
                if (
                    tracker_log is not None
                    and (verdict <= LAST_ACCEPTED or verdict == STALE)  # what is stale was marked as seen
                    and (first - at > 1 or src != UNKNOWN_SRC)  # a src of one byte may be that of the nameless
                    and not tracker_log.notes.add(raw, at, second)
                ):
                    tracker_log.datagram(src, seq)
                if verdict <= LAST_ACCEPTED:
                    route.carried += 1
                    if route.plain:
                        deliveries.append((route.plain, scan.concat(route.frame_head, raw, behind)))
                    if route.special:
                        if route.cut:
                            routes.report_cut(route)
                        if route.meta:
                            meta = frames.meta(src, seq, received_ns, peers[number])
                            deliveries.append((route.meta, route.frame_head + meta + raw[behind:]))
                        if route.nobody:
                            verdict = NOT_ADDRESSED
                        else:
                            self._count_groups(route.groups, len(raw) - behind)
                            if route.heartbeat and route.heartbeat == src:
                                self._on_heartbeat(src, now)
                    if links:
                        deliveries.append((links, self._passed + raw))
                elif verdict == DUPLICATE and self._relayed and self._came_back(raw):
                    verdict = LOOPED
            except BadDatagram as bad:
                verdict = NUMBERS[bad.reason]
            except Exception:  # a bug of ours, which costs this datagram and nothing else
                verdict = INTERNAL_ERROR
                self._on_bug(raw)
            if verdict == ACCEPTED:
                accepted += 1
            else:
                verdicts[verdict] += 1
            if taps and taps[verdict]:
                epoch = sources.epoch(src) if verdict <= NOT_ADDRESSED else 0
                tapped = frames.tapped(NAMES[verdict], counters.name, epoch, received_ns, peers[number], raw)
                deliveries.append((taps[verdict], tapped))
        verdicts[ACCEPTED] += accepted
        if tracker_log is not None:
            tracker_log.flush(now)
        return deliveries

    def feed_late(
        self,
        counters: SegmentCounters,
        datagrams: list[bytes],
        peers: Sequence[str],
        now: float,
        stamps: Sequence[int],
        wall_ns: int = 0,
    ) -> list[Delivery]:
        """Judge a batch that has waited for us, each of it as of when it came: the first at ``now``, the others as much
        later as ``stamps`` say (nanoseconds of the wall clock, 0 where it is not known; the first one is). ``wall_ns``
        is what that clock says now: what came longer ago than ``max_age_ns`` goes over no link."""
        deliveries: list[Delivery] = []
        for start, end, after in spans(stamps):
            stamp = stamps[start] or stamps[0]
            self._passed = PASSED if wall_ns - stamp <= self.max_age_ns else b""
            before = self._count_passed(counters.verdicts)
            deliveries += self.feed(counters, datagrams[start:end], peers[start:end], now + after, stamp)
            if not self._passed and self._routes.links_here:
                self.not_passed += self._count_passed(counters.verdicts) - before
        self._passed = PASSED
        return deliveries

    def feed_link(
        self,
        counters: SegmentCounters,
        way: int,
        datagram: bytes,
        peer: str,
        now: float,
        received_ns: int,
        *,
        late: bool = False,
        copies: int = 0,
    ) -> tuple[list[Delivery], bool]:
        """Judge a datagram that a link has brought by its ``way``, with more caution than one from a segment.

        Returns what to send to whom, and whether it was accepted and so is to be broadcast on our segments, whence so
        many ``copies`` will come back to us. One that comes ``late`` stays on this host.
        """
        sources, verdicts = self._sources, counters.verdicts
        before = self._count_passed(verdicts)
        sources.from_link, self._passed = True, b"" if late else passed(way, b"")
        try:
            deliveries = self.feed(counters, [datagram], (peer,), now, received_ns)
        finally:
            sources.from_link, self._passed = False, PASSED
        accepted = self._count_passed(verdicts) > before
        if accepted and copies and not late:
            if len(self._relayed) >= MAX_RELAYED:
                del self._relayed[next(iter(self._relayed))]
            self._relayed[datagram] = copies
        return deliveries, accepted

    @staticmethod
    def _count_passed(verdicts: list[int]) -> int:
        """How many datagrams went further than to this host."""
        return sum(verdicts[: LAST_ACCEPTED + 1]) + verdicts[NOT_ADDRESSED]

    def _came_back(self, raw: bytes) -> bool:
        """Whether this is what we have broadcast for a link; copies of that by other links are none of it."""
        left = 0 if self._sources.from_link else self._relayed.get(raw, 0)
        if left > 1:
            self._relayed[raw] = left - 1
        elif left:
            del self._relayed[raw]
        return left > 0

    def _count_groups(self, groups: tuple[int, ...], size: int) -> None:
        for group in groups:
            self.group_messages[group] += 1
            self.group_bytes[group] += size

    def _judge_anew(
        self, src: bytes, seq: int, now: float, peers: Sequence[str], number: int, raw: bytes, at: int
    ) -> int:
        """The verdict on a datagram that was read by the letter, whose body begins there."""
        verdict = self._sources.judge(src, seq, now)
        if verdict == UNHEARD:
            verdict = self._sources.begin(src, seq, now)
            if verdict == UNKNOWN_SENDER:
                verdict = self._judge_nameless(peers, number, raw, at, now)
            elif verdict == LOOPED and self._sources.conflict(src, seq):
                self._on_conflict(src, peers[number])
        return verdict

    def _judge_nameless(self, peers: Sequence[str], number: int, raw: bytes, at: int, now: float) -> int:
        """The verdict on a datagram whose sender has no name. By links its copies come from anywhere."""
        if self._sources.from_link:
            return self._anonymous.judge(_BY_LINK, raw[at:], now)
        if self._relayed and self._came_back(raw):
            return LOOPED
        verdict = self._anonymous.judge(peers[number], raw[at:], now)
        if verdict == ACCEPTED and self._routes.links_here:
            self._anonymous.judge(_BY_LINK, raw[at:], now)
        return verdict
