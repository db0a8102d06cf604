"""Hosts whose trackers are logged, and random histories of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from bccnd.core import bccn1, tracker_log
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import DedupRules, TrackerTable
from bccnd.core.egress import Egress
from bccnd.core.ingress import Ingress
from bccnd.core.integrity import IntegrityChecker
from bccnd.core.liveness import HEARTBEAT, SILENT, STATE_NAMES, Liveness, LivenessRules
from bccnd.core.lru import Source
from bccnd.core.patterns import DIALECTS
from bccnd.core.routes import Routes
from bccnd.core.tracker_log import TrackerLog
from bccnd.core.tracker_replay import ReplayResult, replay
from bccnd.core.tracker_snapshot import start_log
from bccnd.core.verdicts import NAMES
from tests.core.world import datagram

PEERS: Final = ("10.0.0.9:5400", "10.0.0.8:1")
#: the first three are programs of other hosts; the others are at times local
SRCS: Final = (b"a/p/1", b"b/p/2", b"c", b"own/p/1", b"own/p/2")
LOCAL: Final = SRCS[3:]
RULES: Final = DedupRules(sanity=16, horizon=1.0)
#: silent after 1.5 s, dead after 3.5
WATCH: Final = LivenessRules(interval=1.0, dead_after=3)
#: the wall clock in microseconds at the monotonic clock's zero
EPOCH_US: Final = 1_700_000_000_000_000
HEADER: Final = tracker_log.MAGIC + struct.pack("=I", tracker_log.VERSION)


class Killed(BaseException):
    """Ends the writing process."""


class LogFiles:
    """The files that a process writes, record by record; the ``left``-th write raises Killed."""

    def __init__(self, left: int = -1) -> None:
        self.left = left
        self.written: list[list[bytes]] = []

    def create(self) -> Callable[[bytes], int]:
        file: list[bytes] = []
        self.written.append(file)

        def write(record: bytes) -> int:
            file.append(bytes(record))
            self.left -= 1
            if not self.left:
                raise Killed
            return len(record)

        return write

    @property
    def data(self) -> list[bytes]:
        return [b"".join(file) for file in self.written]

    @property
    def records(self) -> list[bytes]:
        return [record for file in self.written for record in file]

    @property
    def latest(self) -> float:
        """When the last record was written."""
        times = [struct.unpack_from("=d", record, 13)[0] for record in self.records if record != HEADER]
        return float(times[-1]) if times else 0.0


class Host:
    """The trackers of a host, with all that changes them."""

    def __init__(
        self,
        dedup: DedupRules = RULES,
        watch: LivenessRules = WATCH,
        now: float = 1000.0,
        files: LogFiles | None = None,
    ) -> None:
        self.now = now
        self.files = files or LogFiles()
        self.sources = TrackerTable(dedup)
        self.anonymous = AnonymousDedup(dedup.horizon)
        self.liveness = Liveness(self.sources, watch, now)
        self.egress = Egress(IntegrityChecker(), self.sources)
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
        self.tracker_log: TrackerLog | None = None
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

    def start_logging(self) -> TrackerLog:
        """Start a tracker log."""
        self.tracker_log = start_log(self.sources, self.anonymous, self.liveness, self.files.create(), self.now)
        self.ingress.tracker_log = self.tracker_log
        return self.tracker_log

    def stop_logging(self) -> None:
        """Stop logging."""
        self.tracker_log = self.ingress.tracker_log = None
        self.sources.tracker_log = self.anonymous.tracker_log = self.liveness.tracker_log = None

    def feed(self, *raws: bytes, peer: str = PEERS[0]) -> list[str]:
        """Receive datagrams in one batch; return their verdicts."""
        before = list(self.counters.verdicts)
        if self.tracker_log is not None:
            self.tracker_log.serial += 1
        self.ingress.feed(self.counters, list(raws), [peer] * len(raws), self.now, 0)
        after = self.counters.verdicts
        return [NAMES[n] for n in range(len(NAMES)) for _ in range(after[n] - before[n])]

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
        if self.tracker_log is not None:
            self.tracker_log.step(self.now)

    def until(self, then: float) -> None:
        while self.now < then:
            self.now += 0.25
            self.sweep()

    def finish(self) -> None:
        """Write the snapshot to its end."""
        assert self.tracker_log is not None
        while self.tracker_log.step(self.now):
            pass
        assert self.tracker_log.complete

    def rotate(self) -> None:
        """Start another file with a complete snapshot."""
        assert self.tracker_log is not None
        self.tracker_log.rotate(self.files.create())
        self.finish()

    def claim(self, src: bytes = LOCAL[0]) -> None:
        if src not in self.open:
            self.open.add(src)
            self.egress.open(src)

    def release(self, src: bytes = LOCAL[0]) -> None:
        if src in self.open:
            self.open.discard(src)
            self.egress.close(src, self.now)

    def send(self, src: bytes = LOCAL[0]) -> bytes:
        """Send a message; its seq must be above all before."""
        seq, raw = self.egress.emit(src, b"c/1", b"x", self.clock_us)
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


def replay_into(host: Host, files: Iterable[bytes], **given: Any) -> ReplayResult:
    return replay(
        files, host.sources, host.anonymous, host.liveness, **{"now": host.now, "clock_us": host.clock_us, **given}
    )


def restored(files: Iterable[bytes], like: Host, rules: DedupRules | None = None, watch: LivenessRules = WATCH) -> Host:
    """Return a host that has replayed files, at the time of another one."""
    host = Host(rules or RULES, watch, like.now)
    host.sent, host.given = like.sent, like.given
    account = replay_into(host, files)
    assert account.problems == ()
    assert account.sources == len(host.sources)
    return host


def tracker(source: Source) -> tuple[Any, ...]:
    """Return the state of a tracker without ``missing``, which depends on the time of the last sweep."""
    return (
        *(source.first, source.last, source.absent, source.epoch, source.heard, source.rank),
        *(source.beat, source.gap, source.interval, source.state),
    )


def state_of(host: Host) -> dict[str, Any]:
    """Return the state of a host in a comparable form."""
    sources = host.sources.latest(10**6)
    now, anonymous = host.now, host.anonymous
    owns = {src: host.sources.local_identity(src) for src in host.sources.local_srcs()}
    return {
        "trackers": {source.src: tracker(source) for source in sources},
        "line": [source.rank for source in sources],
        "silent": sum(source.state == SILENT for source in sources),
        "dead": dict(host.liveness.dead),
        "nameless": {
            key: when
            for key in anonymous.digests()
            if (when := anonymous.when(key)) is not None and now - when <= anonymous.horizon
        },
        "own": {src: own.until for src, own in owns.items() if own is not None},
        "released": {
            src: (own.first, own.next) for src, own in owns.items() if own is not None and src not in host.open
        },
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
    kinds = st.sampled_from(["sweep", "sweep", "claim", "release", "send", "echo", "rotate"])
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
    elif act.kind == "rotate" and host.tracker_log is not None and host.tracker_log.complete:
        host.tracker_log.rotate(host.files.create())


def run_life(life: Life, writes: int = -1) -> tuple[Host, int]:
    """Play a history, or up to a number of writes; return the host and the number of events done."""
    host = Host(life.dedup, life.watch, files=LogFiles(writes))
    done = 0
    try:
        host.start_logging()
        for act in life.history:
            done += 1
            do(host, act)
    except Killed:
        done = max(done, 1)
    host.stop_logging()
    return host, done


class Life(NamedTuple):
    dedup: DedupRules
    watch: LivenessRules
    history: list[Act]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    crowded = draw(st.booleans())
    rules = DedupRules(
        sanity=draw(st.sampled_from([16, 40])), horizon=draw(st.sampled_from([0.5, 2.0])),
        deliver_late=draw(st.booleans()), monotonic=draw(st.booleans()),
        expire=draw(st.sampled_from([3.0, 1000.0])) if crowded else 1000.0, max_sources=2 if crowded else 600,
    )  # fmt: skip
    watch = LivenessRules(interval=1.0, dead_after=draw(st.sampled_from([1, 3])), keep_dead=draw(st.booleans()))
    # Most drawn lists are short.
    history = draw(st.lists(acts(crowded), min_size=draw(st.sampled_from([0, 10, 30])), max_size=60))
    return Life(rules, watch, with_datagrams(history))


def is_complete(data: bytes) -> bool:
    return replay_into(Host(now=1e9), [data]).complete
