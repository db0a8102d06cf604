"""A mesh without hosts: the daemon's own core for each of them, and a calendar of what arrives where and when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
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


Edge = tuple[int, int]


@dataclass(frozen=True)
class Topology:
    """``homes[b]`` is the segment that bridge ``b`` stands on; ``links`` are pairs of bridges."""

    segments: int
    homes: tuple[int, ...]
    links: tuple[Edge, ...]


def planes(segments: int, edges: Iterable[Edge], bridges: int) -> Topology:
    """The graph once for each bridge of a segment; bridge ``i`` of segment ``s`` has the number ``s * bridges + i``."""
    homes = tuple(segment for segment in range(segments) for _ in range(bridges))
    return Topology(
        segments, homes, tuple((a * bridges + i, b * bridges + i) for a, b in edges for i in range(bridges))
    )


_RULES: Final = dedup_rules(linked=True)


@dataclass(frozen=True)
class World:
    """How long things take (seconds) and how much is lost. ``*_jitter`` is the mean of what comes on top, by chance,
    exponentially; on a link it never changes the order. With ``one_order`` all receivers of a segment hear it in
    one order, as they do behind a switch; without, only what one sender says comes in order."""

    segment_delay: float = 100e-6
    segment_jitter: float = 0.0
    segment_loss: float = 0.0
    one_order: bool = True
    link_delay: float = 5e-3
    link_jitter: float = 1e-3
    #: messages a second that a link carries
    link_rate: float = 100_000.0
    rules: TrackerLimits = _RULES


class Way:
    """One direction of a link: its messages keep their order."""

    __slots__ = ("_free", "_last", "back", "stalls", "to")

    def __init__(self, to: Host, back: int) -> None:
        self.to = to
        #: the number under which the other end knows it
        self.back = back
        #: from when to when nothing comes through; what waits comes behind it
        self.stalls: list[tuple[float, float]] = []
        self._free = self._last = 0.0

    def arrival(self, now: float, world: World, jitter: float) -> float:
        """When something sent now arrives."""
        self._free = max(now, self._free) + 1.0 / world.link_rate
        when = max(self._free + world.link_delay + jitter, self._last)
        for start, end in self.stalls:
            if start <= when < end:
                when = end
        self._last = when
        return when


class Host:
    """A daemon, and its gateway where it is a bridge."""

    def __init__(self, number: int, segment: int, bridge: bool, rules: TrackerLimits) -> None:
        self.number = number
        self.segment = segment
        self.ways: list[Way] = []
        self.stops: list[tuple[float, float]] = []
        self.identity = b"h%d/p/1" % number
        self.peer = f"h{number}:5400"
        self.sources = TrackerTable(rules)
        self.routes: Routes[int] = Routes(DIALECTS["path"])
        self.routes.join(CLIENT, b"h%d/c/1" % number)
        self.routes.subscribe(CLIENT, b"")
        if bridge:
            self.routes.join(GATEWAY, b"h%d/g/1" % number)
            self.routes.subscribe(GATEWAY, frames.LINK)
        self.ingress = Ingress(_OPEN, self.sources, AnonymousDedup(self.sources.limits), self.routes)
        self.heard = SegmentCounters("segment")
        self.brought = SegmentCounters("nng")
        self.builder = DatagramBuilder(_OPEN, self.sources)
        self.builder.open(self.identity)

    def start(self, when: float) -> float:
        """When it comes to something that is there from ``when`` on."""
        for begin, end in self.stops:
            if begin <= when < end:
                when = end
        return when


@dataclass
class Outcome:
    """What came of some messages."""

    #: messages published and datagrams sent, by segment
    published: list[int]
    datagrams: list[int]
    #: how often each client got each message: (host, payload) -> times
    got: Counter[tuple[int, bytes]] = field(default_factory=Counter)
    #: messages over links
    links: int = 0
    #: verdicts, of what came by segments and by links
    by_segment: Counter[str] = field(default_factory=Counter)
    by_link: Counter[str] = field(default_factory=Counter)
    #: seqs in the order in which each host accepted them: (host, src)
    order: dict[tuple[int, bytes], list[int]] = field(default_factory=dict)

    @property
    def twice(self) -> list[tuple[int, bytes]]:
        return [one for one, times in self.got.items() if times > 1]


class Mesh:
    """A topology at work."""

    def __init__(self, topology: Topology, world: World | None = None, seed: int = 1) -> None:
        self.world = world or World()
        self.now = 0.0
        self._dice = random.Random(seed)
        self._serials = count()
        self._calendar: list[tuple[float, int, Callable[[], None]]] = []
        rules = self.world.rules
        self.bridges = [Host(number, home, True, rules) for number, home in enumerate(topology.homes)]
        first = len(self.bridges)
        self.plain = [Host(first + segment, segment, False, rules) for segment in range(topology.segments)]
        self.hosts = [*self.bridges, *self.plain]
        self._by_segment: list[list[Host]] = [[] for _ in range(topology.segments)]
        for host in self.hosts:
            self._by_segment[host.segment].append(host)
        for one, other in topology.links:
            self._join(self.bridges[one], self.bridges[other])
        #: when the last thing was heard: by receiver where a segment has one order, else by sender and receiver
        self._last: dict[int | tuple[int, int], float] = {}
        self.outcome = Outcome([0] * topology.segments, [0] * topology.segments)

    def _join(self, one: Host, other: Host) -> None:
        here, there = len(one.ways) + 1, len(other.ways) + 1
        one.ways.append(Way(other, there))
        other.ways.append(Way(one, here))

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
        datagram = host.builder.build(host.identity, frames.message(CHANNEL, payload), clock_us)
        # The daemon gives it to its own programs at once.
        self._note(host, frames.message(CHANNEL, payload), datagram)
        if host.routes.links.all:
            self._pass_on(host, 0, datagram)
        self._broadcast(host, datagram)

    def _take(self, host: Host, way: int, datagram: bytes, peer: str) -> None:
        now = host.start(self.now)
        stamp = BEGIN + int(self.now * 1e9)
        deliveries = Deliveries()
        if way:
            late = now - self.now > self.world.rules.horizon
            arrival = arrival_from_link(host.brought, way, peer, now, stamp, late=late)
            accepted = host.ingress.feed_link(deliveries, arrival, datagram, copies=1)
            if accepted and not late:
                self._broadcast(host, datagram)
        else:
            host.ingress.feed(deliveries, Arrival(host.heard, [peer], now, stamp), [datagram])
        for _, frame in deliveries:
            if frame.startswith(_FORWARDED):
                origin, raw = frames.read_forwarded(frame[len(_FORWARDED) :])
                self._pass_on(host, origin, raw)
            else:
                self._note(host, frame, datagram)

    def _note(self, host: Host, frame: bytes, datagram: bytes) -> None:
        self.outcome.got[host.number, frame[len(b"MSG %b\0" % CHANNEL) :]] += 1
        src, seq, _ = datagram[datagram.index(b"]") + 1 :].split(b":", 2)
        self.outcome.order.setdefault((host.number, src), []).append(int(seq))

    def _pass_on(self, host: Host, origin: int, datagram: bytes) -> None:
        world, dice = self.world, self._dice
        now = host.start(self.now)
        for number, way in enumerate(host.ways, start=1):
            if number == origin:
                continue
            self.outcome.links += 1
            jitter = dice.expovariate(1.0 / world.link_jitter) if world.link_jitter else 0.0
            when = way.arrival(now, world, jitter)
            self._at(when, partial(self._take, way.to, way.back, datagram, host.peer))

    def _broadcast(self, host: Host, datagram: bytes) -> None:
        world, dice = self.world, self._dice
        now = host.start(self.now)
        self.outcome.datagrams[host.segment] += 1
        for other in self._by_segment[host.segment]:
            if world.segment_loss and other is not host and dice.random() < world.segment_loss:
                continue
            delay = world.segment_delay
            if world.segment_jitter:
                delay += dice.expovariate(1.0 / world.segment_jitter)
            line = other.number if world.one_order else (host.number, other.number)
            when = self._last[line] = max(now + delay, self._last.get(line, 0.0))
            self._at(when, partial(self._take, other, 0, datagram, host.peer))
