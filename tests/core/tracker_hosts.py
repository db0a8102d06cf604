"""Hosts whose trackers have successors, and random histories of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from hypothesis import strategies as st

from bccnd.core.formats.image_sections import Section, pack_section, unpack_sections
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.tracking.liveness import STATE_NAMES, HeartbeatRules, Liveness
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_image import identity_section, resume_identities, resume_trackers, tracker_sections
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import bccn1, frames
from bccnd.core.wire.bccn1 import HEARTBEAT
from tests.core.world import World, datagram
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


class Host(World):
    """The trackers of a host, with all that changes them."""

    def __init__(self, dedup: TrackerLimits = RULES, watch: HeartbeatRules = WATCH, now: float = 1000.0) -> None:
        super().__init__(rules=dedup, receivers={1: (LOCAL[0], b"c/", False)}, local=())
        self.now = now
        self.liveness = Liveness(self.sources, watch, now)
        self.builder = DatagramBuilder(IntegrityChecker(), self.sources)
        #: local identities in use, datagrams sent under them, and the last seqs
        self.open: set[bytes] = set()
        self.sent: list[bytes] = []
        self.given: dict[bytes, int] = {}

    @property
    def clock_us(self) -> int:
        return EPOCH_US + int(self.now * 1e6)

    def arrive(self, *raws: bytes, peer: str = PEERS[0]) -> list[str]:
        """Receive datagrams in one batch; return their verdicts."""
        verdicts, _ = self.take(raws, [peer] * len(raws), self.now)
        while self.beats:
            self.liveness.on_heartbeat(*self.beats.pop(0))
        assert self.bugs == []
        return verdicts

    def receive(self, src: bytes = SRCS[0], *seqs: int, chan: bytes = b"c/1") -> list[str]:
        """Receive datagrams one by one; return their verdicts."""
        return [verdict for seq in seqs for verdict in self.arrive(datagram(src, seq, chan))]

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


# -- what happens


class Act(NamedTuple):
    """An event, so many quarters of a second after the one before, of a local identity or with datagrams."""

    quarters: int
    kind: str
    src: bytes
    raws: list[bytes]

    def do(self, host: Host) -> None:
        if self.kind == "feed":
            host.now += self.quarters / 4
            host.arrive(*self.raws, peer=PEERS[len(self.raws) % 2])
            return
        host.until(host.now + self.quarters / 4)
        if self.kind == "claim":
            host.claim(self.src)
        elif self.kind == "release":
            host.release(self.src)
        elif self.kind == "send" and self.src in host.open:
            host.send(self.src)
        elif self.kind == "echo" and host.sent:
            host.arrive(host.sent[-1])


DISTANCES = st.one_of(
    st.just(1), st.just(1), st.integers(-4, 4), st.integers(-20, 20), st.sampled_from([-(10**6), 10**6])
)
#: a sender, the distance from its last seq or a copy of an earlier datagram, and whether it is a heartbeat
ARRIVALS = st.tuples(
    st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5]), DISTANCES, st.sampled_from([0, 0, 0, 1, 2]), st.booleans()
)
KINDS = st.sampled_from([*["feed"] * 14, "sweep", "sweep", "claim", "release", "send", "echo"])


class Life(NamedTuple):
    dedup: TrackerLimits
    watch: HeartbeatRules
    history: list[Act]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Draw rules and events. Some lives are crowded: sources are evicted and expire, and no two datagrams arrive at the
    same moment, since the order of eviction would be unspecified."""
    crowded = draw(st.booleans())
    rules = dedup_rules(
        sanity=draw(st.sampled_from([16, 40])), horizon=draw(st.sampled_from([0.5, 2.0])),
        deliver_late=draw(st.booleans()), monotonic=draw(st.booleans()),
        expire=draw(st.sampled_from([3.0, 1000.0])) if crowded else 1000.0, max_sources=2 if crowded else 600,
    )  # fmt: skip
    watch = HeartbeatRules(interval=1.0, dead_after=draw(st.sampled_from([1, 3])))
    quarters = st.sampled_from([1, 1, 2, 5, 9] if crowded else [0, 0, 0, 1, 2, 9])
    together = st.lists(ARRIVALS, min_size=1, max_size=1 if crowded else 5)
    events = st.tuples(quarters, KINDS, st.sampled_from(LOCAL), together)
    before: dict[int, list[int]] = {}
    # Most drawn lists are short.
    drawn = draw(st.lists(events, min_size=draw(st.sampled_from([0, 10, 30])), max_size=60))
    history = [Act(pause, kind, src, datagrams(before, arrivals)) for pause, kind, src, arrivals in drawn]
    return Life(rules, watch, history)


def datagrams(before: dict[int, list[int]], arrivals: list[tuple[int, int, int, bool]]) -> list[bytes]:
    """Return arrivals as datagrams, whose seqs follow those ``before``."""
    raws = []
    for number, distance, copy, beat in arrivals:
        past = before.setdefault(number, [1000])
        past.append(past[-copy] if 0 < copy < len(past) else min(max(past[-1] + distance, 0), bccn1.MAX_SEQ))
        src = SRCS[number] if number < len(SRCS) else b"?"
        raws.append(datagram(src, past[-1], HEARTBEAT + src if beat else b"c/1" if past[-1] % 5 else b"!elsewhere"))
    return raws
