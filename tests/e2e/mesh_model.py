"""A mesh without hosts: the daemon's own core for each of them, and a calendar of what arrives where and when."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final

from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import Arrival, arrival_from_link
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import NAMES
from tests.rules import dedup_rules

#: receivers on each host: its client, and its gateway where it is a bridge
CLIENT: Final = 1
GATEWAY: Final = 2
#: the wall clock when the model's begins, in nanoseconds
BEGIN: Final = 1_700_000_000_000_000_000
#: the channel of all messages
CHANNEL: Final = b"mesh/x"

#: begins frames for links
_FORWARDED: Final = b"MSG %b\0" % frames.LINK
_OPEN: Final = IntegrityChecker()
_RULES: Final = dedup_rules(linked=True)

Edge = tuple[int, int]


@dataclass(frozen=True)
class World:
    """How long segments and links take (seconds; jitter is the mean of what comes on top), and how much is lost.

    With ``one_order`` all receivers of a segment hear it in one order, as they do behind a switch; without, only what
    one sender says comes in order. A link never changes the order.
    """

    segment_delay: float = 100e-6
    segment_jitter: float = 0.0
    segment_loss: float = 0.0
    one_order: bool = True
    link_delay: float = 5e-3
    link_jitter: float = 1e-3
    rules: TrackerLimits = _RULES


class Line:
    """What keeps the order of what it carries, and may stand still."""

    def __init__(self) -> None:
        #: from when to when nothing comes through; what waits comes behind it
        self.stalls: list[tuple[float, float]] = []
        self._last = 0.0

    def arrival(self, when: float) -> float:
        """When something arrives that would be there at that time."""
        self._last = behind(self.stalls, max(when, self._last))
        return self._last


def behind(stops: list[tuple[float, float]], when: float) -> float:
    """The time, or the end of the stop in which it falls."""
    for begin, end in stops:
        if begin <= when < end:
            when = end
    return when


class Host:
    """A daemon, and its gateway where it is a bridge."""

    def __init__(self, number: int, segment: int, bridge: bool, rules: TrackerLimits) -> None:
        self.number = number
        self.segment = segment
        #: its links: the other end, the number under which that knows it, and the way there
        self.links: list[tuple[Host, int, Line]] = []
        self.stops: list[tuple[float, float]] = []
        self.identity = b"h%d/p/1" % number
        self.peer = f"h{number}:5400"
        self.sources = TrackerTable(rules)
        self.routes: Routes[int] = Routes(DIALECTS["path"])
        for receiver, pattern in ((CLIENT, b""), (GATEWAY, frames.LINK))[: 1 + bridge]:
            self.routes.join(receiver, b"h%d/%d/1" % (number, receiver))
            self.routes.subscribe(receiver, pattern)
        self.ingress = Ingress(_OPEN, self.sources, AnonymousDedup(self.sources.limits), self.routes)
        self.heard = SegmentCounters("segment")
        self.brought = SegmentCounters("nng")
        self.builder = DatagramBuilder(_OPEN, self.sources)
        self.builder.open(self.identity)

    def link(self, other: Host) -> None:
        self.links.append((other, len(other.links) + 1, Line()))
        other.links.append((self, len(self.links), Line()))


@dataclass
class Outcome:
    """What came of some messages."""

    #: messages published and datagrams sent, by segment
    published: Counter[int] = field(default_factory=Counter)
    datagrams: Counter[int] = field(default_factory=Counter)
    #: how often each client got each message: (host, payload) -> times
    got: Counter[tuple[int, bytes]] = field(default_factory=Counter)
    #: messages over links
    links: int = 0
    #: verdicts, of what came by segments and by links
    by_segment: Counter[str] = field(default_factory=Counter)
    by_link: Counter[str] = field(default_factory=Counter)
    #: seqs in the order in which each host accepted them: (host, src)
    order: defaultdict[tuple[int, bytes], list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def twice(self) -> list[tuple[int, bytes]]:
        return [one for one, times in self.got.items() if times > 1]


class Mesh:
    """``bridges`` of them on each segment, and a plain host; ``edges`` are pairs of segments that are linked: the first
    bridges of both, the second ones, and so on."""

    def __init__(
        self, segments: int, edges: list[Edge], bridges: int, world: World | None = None, seed: int = 1
    ) -> None:
        self.world = world or World()
        self.now = 0.0
        self._dice = random.Random(seed)
        self._serials = count()
        self._calendar: list[tuple[float, int, Callable[[], None]]] = []
        homes = [segment for segment in range(segments) for _ in range(bridges)]
        self.bridges = [Host(number, home, True, self.world.rules) for number, home in enumerate(homes)]
        first = len(self.bridges)
        self.plain = [Host(first + segment, segment, False, self.world.rules) for segment in range(segments)]
        self.hosts = [*self.bridges, *self.plain]
        for one, other in edges:
            for plane in range(bridges):
                self.bridges[one * bridges + plane].link(self.bridges[other * bridges + plane])
        #: to a receiver where a segment has one order, else from a sender to a receiver
        self._lines: defaultdict[int | tuple[int, int], Line] = defaultdict(Line)
        self.outcome = Outcome()

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heappush(self._calendar, (when, next(self._serials), action))

    def say(self, host: Host, payload: bytes, when: float) -> None:
        """A program of a host publishes something then."""
        self.outcome.published[host.segment] += 1
        self._at(when, partial(self._publish, host, payload))

    def run(self) -> Outcome:
        """Until nothing is under way any more."""
        while self._calendar:
            self.now, _, action = heappop(self._calendar)
            action()
        found = self.outcome
        for host in self.hosts:
            for counted, counters in ((found.by_segment, host.heard), (found.by_link, host.brought)):
                counted.update({NAMES[number]: count for number, count in enumerate(counters.verdicts) if count})
        return found

    def _publish(self, host: Host, payload: bytes) -> None:
        clock_us = (BEGIN + int(self.now * 1e9)) // 1000
        frame = frames.message(CHANNEL, payload)
        datagram = host.builder.build(host.identity, frame, clock_us)
        # The daemon gives it to its own programs at once.
        self._note(host, frame, datagram)
        self._pass_on(host, 0, datagram)
        self._broadcast(host, datagram)

    def _take(self, host: Host, link: int, datagram: bytes, peer: str) -> None:
        now = behind(host.stops, self.now)
        stamp = BEGIN + int(self.now * 1e9)
        deliveries = Deliveries()
        if link:
            late = now - self.now > self.world.rules.horizon
            arrival = arrival_from_link(host.brought, link, peer, now, stamp, late=late)
            if host.ingress.feed_link(deliveries, arrival, datagram, copies=1) and not late:
                self._broadcast(host, datagram)
        else:
            host.ingress.feed(deliveries, Arrival(host.heard, [peer], now, stamp), [datagram])
        for _, frame in deliveries:
            if frame.startswith(_FORWARDED):
                self._pass_on(host, *frames.read_forwarded(frame[len(_FORWARDED) :]))
            else:
                self._note(host, frame, datagram)

    def _note(self, host: Host, frame: bytes, datagram: bytes) -> None:
        self.outcome.got[host.number, frame[len(b"MSG %b\0" % CHANNEL) :]] += 1
        src, seq, _ = datagram[datagram.index(b"]") + 1 :].split(b":", 2)
        self.outcome.order[host.number, src].append(int(seq))

    def _later(self, mean: float) -> float:
        return self._dice.expovariate(1.0 / mean) if mean else 0.0

    def _pass_on(self, host: Host, origin: int, datagram: bytes) -> None:
        for number, (other, back, line) in enumerate(host.links, start=1):
            if number != origin:
                self.outcome.links += 1
                delay = self.world.link_delay + self._later(self.world.link_jitter)
                when = line.arrival(behind(host.stops, self.now) + delay)
                self._at(when, partial(self._take, other, back, datagram, host.peer))

    def _broadcast(self, host: Host, datagram: bytes) -> None:
        self.outcome.datagrams[host.segment] += 1
        for other in self.hosts:
            if other.segment != host.segment or (other is not host and self._dice.random() < self.world.segment_loss):
                continue
            delay = self.world.segment_delay + self._later(self.world.segment_jitter)
            line = self._lines[other.number if self.world.one_order else (host.number, other.number)]
            when = line.arrival(behind(host.stops, self.now) + delay)
            self._at(when, partial(self._take, other, 0, datagram, host.peer))
