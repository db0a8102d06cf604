"""Hosts whose trackers have successors, and random histories of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from bccnd.core.formats.image_sections import Section, pack_section, unpack_sections
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving import judgement
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import SILENT, STATE_NAMES, HeartbeatRules, Liveness
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_image import identity_section, resume_identities, resume_trackers, tracker_sections
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import bccn1, frames
from bccnd.core.wire.bccn1 import HEARTBEAT
from bccnd.core.wire.verdicts import NAMES
from tests.core.world import datagram
from tests.rules import dedup_rules

PEERS: Final = ("10.0.0.9:5400", "10.0.0.8:1")
#: the first three are programs of other hosts; the others are at times local
SRCS: Final = (b"a/p/1", b"b/p/2", b"c", b"own/p/1", b"own/p/2")
LOCAL: Final = SRCS[3:]
RULES: Final = dedup_rules(sanity=16, horizon=1.0)
#: silent after 1.5 s, dead after 3.5
WATCH: Final = HeartbeatRules(interval=1.0, dead_after=3)
#: the wall clock in microseconds at the monotonic clock's zero
EPOCH_US: Final = 1_700_000_000_000_000


class Host:
    """The trackers of a host, with all that changes them."""

    def __init__(self, dedup: TrackerLimits = RULES, watch: HeartbeatRules = WATCH, now: float = 1000.0) -> None:
        self.now = now
        self.sources = TrackerTable(dedup)
        self.anonymous = AnonymousDedup(self.sources.limits)
        self.liveness = Liveness(self.sources, watch, now)
        self.builder = DatagramBuilder(IntegrityChecker(), self.sources)
        self.routes: Routes[int] = Routes(DIALECTS["path"])
        self.routes.join(1, LOCAL[0])
        self.routes.subscribe(1, b"c/")
        self.counters = SegmentCounters("one")
        self.ingress = Ingress(
            IntegrityChecker(),
            self.sources,
            self.anonymous,
            self.routes,
            on_heartbeat=self.liveness.on_heartbeat,
            on_bug=self.on_bug,
        )
        #: local identities in use, datagrams sent under them, and the last seqs
        self.open: set[bytes] = set()
        self.sent: list[bytes] = []
        self.given: dict[bytes, int] = {}

    @staticmethod
    def on_bug(raw: bytes) -> None:
        raise AssertionError(raw)

    @property
    def clock_us(self) -> int:
        return EPOCH_US + int(self.now * 1e6)

    def feed(self, *raws: bytes, peer: str = PEERS[0]) -> list[str]:
        """Receive datagrams in one batch; return their verdicts."""
        arrival = judgement.Arrival(self.counters, [peer] * len(raws), self.now)
        verdicts = self.ingress.feed(Deliveries(), arrival, list(raws))
        return [NAMES[verdict] for verdict in verdicts]

    def receive(self, src: bytes = SRCS[0], *seqs: int, chan: bytes = b"c/1") -> list[str]:
        """Receive datagrams one by one; return their verdicts."""
        return [verdict for seq in seqs for verdict in self.feed(datagram(src, seq, chan))]

    def heartbeat(self, src: bytes = SRCS[0], *seqs: int) -> list[str]:
        return self.receive(src, *seqs, chan=HEARTBEAT + src)

    def sweep(self) -> None:
        """As the loop does."""
        while self.sources.sweep(self.now):
            pass
        while self.liveness.sweep(self.now):
            pass

    def until(self, then: float) -> None:
        while self.now < then:
            self.now += 0.25
            self.sweep()

    def claim(self, src: bytes = LOCAL[0]) -> None:
        if src not in self.open:
            self.open.add(src)
            self.builder.open(src)

    def release(self, src: bytes = LOCAL[0]) -> None:
        if src in self.open:
            self.open.discard(src)
            self.builder.close(src, self.now)

    def send(self, src: bytes = LOCAL[0]) -> bytes:
        """Send a message; its seq must be above all before."""
        raw = self.builder.build(src, frames.message(b"c/1", b"x"), self.clock_us)
        seq = self.builder.seq
        assert seq > self.given.get(src, -1)
        self.given[src] = seq
        self.sent.append(raw)
        return raw

    def source(self, src: bytes = SRCS[0]) -> Source:
        found = self.sources.get(src)
        assert found is not None
        return found

    def changes(self) -> str:
        taken, self.liveness.changes = self.liveness.changes, []
        return " ".join(STATE_NAMES[state] for _, state in taken)


def image_of(host: Host) -> bytes:
    """Return the image that a host leaves."""
    return b"".join(map(pack_section, tracker_sections(host.sources, host.anonymous, host.liveness)))


def resumed(host: Host, image: bytes, *, ordered: bool = True) -> Host:
    """Let a host without sources continue from an image."""
    left: dict[str, list[Section]] = {}
    for section in unpack_sections(image):
        left.setdefault(section.kind, []).append(section)
    resume_trackers(left, host.sources, host.anonymous, host.liveness, host.now, ordered=ordered)
    return host


def successor_of(
    host: Host,
    rules: TrackerLimits = RULES,
    watch: HeartbeatRules = WATCH,
) -> Host:
    """Return a host that goes on with what another one has left, at the same time."""
    heir = Host(rules, watch, host.now)
    resumed(heir, image_of(host))
    for src in host.open:
        heir.claim(src)
    (identities,) = unpack_sections(pack_section(identity_section(host.sources)))
    resume_identities({"identities": [identities]}, heir.sources, heir.now)
    heir.sent, heir.given = host.sent, host.given
    return heir


def tracker(source: Source) -> tuple[Any, ...]:
    """Return the state of a tracker without ``missing``, which depends on the time of the last sweep."""
    return (
        *(source.first, source.last, source.absent, source.epoch, source.heard, source.rank),
        *(source.beat, source.gap, source.interval, source.state),
    )


def state_of(host: Host) -> dict[str, Any]:
    """Return the state of a host in a comparable form."""
    sources = host.sources.latest(10**6)
    return {
        "trackers": {source.src: tracker(source) for source in sources},
        "line": [source.rank for source in sources],
        "silent": sum(source.state == SILENT for source in sources),
        "dead": dict(host.liveness.dead),
        "nameless": {
            key: when for key, when in host.anonymous.accepted() if host.now - when <= host.sources.limits.horizon
        },
        "used": {src: (own.first, own.next, own.run) for src, own in host.sources.local.items()},
    }


def assert_alike(host: Host, original: Host) -> None:
    assert state_of(host) == state_of(original)
    for source in host.sources.latest(10**6):
        assert source.missing & ~source.absent == 0
    assert host.sources.missing == sum(source.missing.bit_count() for source in host.sources.latest(10**6))


def assert_missing_kept(host: Host, original: Host) -> None:
    """Check that all missing seqs are still missing."""
    for source in original.sources.latest(10**6):
        assert source.missing & ~host.source(source.src).missing == 0


# -- what happens


class Arrival(NamedTuple):
    """A datagram: its source, its distance from the last seq or a copy of an earlier one, whether it is a heartbeat."""

    source: int
    distance: int
    copy: int
    beat: bool


class Act(NamedTuple):
    """An event after some quarters of a second. ``raws`` are the arrivals as datagrams; see `with_datagrams`."""

    quarters: int
    kind: str
    source: int
    arrivals: tuple[Arrival, ...]
    raws: tuple[bytes, ...]


DISTANCES = st.one_of(
    st.just(1), st.just(1), st.integers(-4, 4), st.integers(-20, 20), st.sampled_from([-(10**6), 10**6])
)
SENDERS, COPY = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5]), st.sampled_from([0, 0, 0, 1, 2])
ARRIVALS = st.builds(Arrival, SENDERS, DISTANCES, COPY, st.booleans())


def acts(crowded: bool) -> st.SearchStrategy[Act]:
    """Draw an event. With ``crowded`` sources are evicted and expire, and no two datagrams arrive at the same moment,
    since the order of eviction would be unspecified."""
    quarters = st.sampled_from([1, 1, 2, 5, 9] if crowded else [0, 0, 0, 1, 2, 9])
    together = st.lists(ARRIVALS, min_size=1, max_size=1 if crowded else 5).map(tuple)
    none: st.SearchStrategy[tuple[()]] = st.just(())
    feed = st.builds(Act, quarters, st.just("feed"), st.just(0), together, none)
    kinds = st.sampled_from(["sweep", "sweep", "claim", "release", "send", "echo"])
    other = st.builds(Act, quarters, kinds, st.integers(0, 1), none, none)
    return st.one_of(feed, feed, other)


def with_datagrams(history: Sequence[Act]) -> list[Act]:
    """Return the events with datagrams, whose seqs follow one another."""
    before: dict[int, list[int]] = {}
    made = []
    for act in history:
        raws = []
        for number, distance, copy, beat in act.arrivals:
            past = before.setdefault(number, [])
            last = past[-1] if past else 1000
            seq = past[-copy] if 0 < copy <= len(past) else min(max(last + distance, 0), bccn1.MAX_SEQ)
            past.append(seq)
            src = SRCS[number] if number < len(SRCS) else b"?"
            digits = b"0" * (250 if copy == 2 and not seq % 7 else 0) + b"%d" % seq
            raws.append(datagram(src, digits, HEARTBEAT + src if beat else b"c/1" if seq % 5 else b"!elsewhere"))
        made.append(act._replace(raws=tuple(raws)))
    return made


def do(host: Host, act: Act) -> None:
    if act.kind == "feed":
        host.now += act.quarters / 4
        host.feed(*act.raws, peer=PEERS[len(act.raws) % 2])
        return
    host.until(host.now + act.quarters / 4)
    host.sweep()
    src = LOCAL[act.source]
    if act.kind == "claim":
        host.claim(src)
    elif act.kind == "release":
        host.release(src)
    elif act.kind == "send" and src in host.open:
        host.send(src)
    elif act.kind == "echo" and host.sent:
        host.feed(host.sent[-1])


class Life(NamedTuple):
    dedup: TrackerLimits
    watch: HeartbeatRules
    history: list[Act]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    crowded = draw(st.booleans())
    rules = dedup_rules(
        sanity=draw(st.sampled_from([16, 40])), horizon=draw(st.sampled_from([0.5, 2.0])),
        deliver_late=draw(st.booleans()), monotonic=draw(st.booleans()),
        expire=draw(st.sampled_from([3.0, 1000.0])) if crowded else 1000.0, max_sources=2 if crowded else 600,
    )  # fmt: skip
    watch = HeartbeatRules(interval=1.0, dead_after=draw(st.sampled_from([1, 3])))
    # Most drawn lists are short.
    history = draw(st.lists(acts(crowded), min_size=draw(st.sampled_from([0, 10, 30])), max_size=60))
    return Life(rules, watch, with_datagrams(history))
