"""The annals: a host that replays them, up to wherever they end, judges as the one that wrote them."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1, tracker_log
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import DedupRules, TrackerTable
from bccnd.core.egress import LINGER, Egress
from bccnd.core.ingress import Ingress
from bccnd.core.integrity import IntegrityChecker
from bccnd.core.liveness import ALIVE, HEARTBEAT, SILENT, STATE_NAMES, UNWATCHED, Liveness, LivenessRules
from bccnd.core.lru import Source
from bccnd.core.patterns import DIALECTS
from bccnd.core.routes import Routes
from bccnd.core.tracker_log import TrackerLog
from bccnd.core.tracker_replay import ReplayResult, replay
from bccnd.core.tracker_snapshot import start_log
from bccnd.core.verdicts import NAMES
from tests.core.material import examples
from tests.core.world import datagram

PEERS: Final = ("10.0.0.9:5400", "10.0.0.8:1")
#: the first of them are programs of other hosts; of the others some are at times our own
SRCS: Final = (b"a/p/1", b"b/p/2", b"c", b"own/p/1", b"own/p/2")
OURS: Final = SRCS[3:]
RULES: Final = DedupRules(sanity=16, horizon=1.0)
#: silent after 1.5 s, dead after 3.5
WATCH: Final = LivenessRules(interval=1.0, dead_after=3)
#: the wall clock in microseconds at the monotonic clock's zero
EPOCH_US: Final = 1_700_000_000_000_000
RECORD: Final = 1
HEADER: Final = tracker_log.MAGIC + struct.pack("=I", tracker_log.VERSION)


class Killed(BaseException):
    """Ends the process that writes."""


class Room:
    """The files that one process writes, record by record; the last of so many writes raises Killed."""

    def __init__(self, left: int = -1) -> None:
        self.left = left
        self.files: list[list[bytes]] = []

    def new(self) -> Callable[[bytes], int]:
        file: list[bytes] = []
        self.files.append(file)

        def write(record: bytes) -> int:
            file.append(bytes(record))
            self.left -= 1
            if not self.left:
                raise Killed
            return len(record)

        return write

    @property
    def data(self) -> list[bytes]:
        return [b"".join(file) for file in self.files]

    @property
    def records(self) -> list[bytes]:
        return [record for file in self.files for record in file]

    @property
    def latest(self) -> float:
        """When the last record was written."""
        times = [struct.unpack_from("=d", record, 13)[0] for record in self.records if record != HEADER]
        return float(times[-1]) if times else 0.0


class Host:
    """Trackers with everything that changes them."""

    def __init__(
        self, dedup: DedupRules = RULES, watch: LivenessRules = WATCH, now: float = 1000.0, room: Room | None = None
    ) -> None:
        self.now = now
        self.room = room or Room()
        self.sources = TrackerTable(dedup)
        self.anonymous = AnonymousDedup(dedup.horizon)
        self.liveness = Liveness(self.sources, watch, now)
        self.egress = Egress(IntegrityChecker(), self.sources)
        self.routes: Routes[int] = Routes(DIALECTS["path"])
        self.routes.join(1, OURS[0])
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
        #: identities of ours that are in use, all that was sent under them, and the last seqs
        self.open: set[bytes] = set()
        self.sent: list[bytes] = []
        self.given: dict[bytes, int] = {}

    @staticmethod
    def on_bug(raw: bytes) -> None:
        raise AssertionError(raw)

    @property
    def clock_us(self) -> int:
        return EPOCH_US + int(self.now * 1e6)

    def begin(self) -> TrackerLog:
        """Start to write annals."""
        self.tracker_log = start_log(self.sources, self.anonymous, self.liveness, self.room.new(), self.now)
        self.ingress.tracker_log = self.tracker_log
        return self.tracker_log

    def leave(self) -> None:
        """Stop to write annals."""
        self.tracker_log = self.ingress.tracker_log = None
        self.sources.tracker_log = self.anonymous.tracker_log = self.liveness.tracker_log = None

    def feed(self, *raws: bytes, peer: str = PEERS[0]) -> list[str]:
        """The verdicts on datagrams that arrive together."""
        before = list(self.counters.verdicts)
        if self.tracker_log is not None:
            self.tracker_log.serial += 1
        self.ingress.feed(self.counters, list(raws), [peer] * len(raws), self.now, 0)
        after = self.counters.verdicts
        return [NAMES[n] for n in range(len(NAMES)) for _ in range(after[n] - before[n])]

    def hear(self, src: bytes = SRCS[0], *seqs: int, chan: bytes = b"c/1") -> list[str]:
        """The verdicts on datagrams that arrive one after the other."""
        return [verdict for seq in seqs for verdict in self.feed(datagram(src, seq, chan))]

    def beat(self, src: bytes = SRCS[0], *seqs: int) -> list[str]:
        return self.hear(src, *seqs, chan=HEARTBEAT + src)

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

    def turn(self) -> None:
        """Start another file, and write it up to the end of its snapshot."""
        assert self.tracker_log is not None
        self.tracker_log.rotate(self.room.new())
        self.finish()

    def claim(self, src: bytes = OURS[0]) -> None:
        if src not in self.open:
            self.open.add(src)
            self.egress.open(src)

    def release(self, src: bytes = OURS[0]) -> None:
        if src in self.open:
            self.open.discard(src)
            self.egress.close(src, self.now)

    def speak(self, src: bytes = OURS[0]) -> bytes:
        """Send; the seq is above all that were given before."""
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


def take_over(host: Host, files: Iterable[bytes], **given: Any) -> ReplayResult:
    return replay(
        files, host.sources, host.anonymous, host.liveness, **{"now": host.now, "clock_us": host.clock_us, **given}
    )


def restored(files: Iterable[bytes], like: Host, rules: DedupRules | None = None, watch: LivenessRules = WATCH) -> Host:
    """A host that has replayed annals, at the time of another one."""
    host = Host(rules or RULES, watch, like.now)
    host.sent, host.given = like.sent, like.given
    account = take_over(host, files)
    assert account.problems == ()
    assert account.sources == len(host.sources)
    return host


def tracker(source: Source) -> tuple[Any, ...]:
    """All that is known of a source but what is missing, which depends on the time of the last sweep."""
    return (
        *(source.first, source.last, source.absent, source.epoch, source.heard, source.rank),
        *(source.beat, source.gap, source.interval, source.state),
    )


def knowledge(host: Host) -> dict[str, Any]:
    """What a host knows, in a form that can be compared."""
    everybody = host.sources.latest(10**6)
    now, anonymous = host.now, host.anonymous
    owns = {src: host.sources.local_identity(src) for src in host.sources.local_srcs()}
    return {
        "trackers": {source.src: tracker(source) for source in everybody},
        "line": [source.rank for source in everybody],
        "silent": sum(source.state == SILENT for source in everybody),
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
    assert knowledge(host) == knowledge(original)
    for source in host.sources.latest(10**6):
        assert source.missing & ~source.absent == 0
    assert host.sources.missing == sum(source.missing.bit_count() for source in host.sources.latest(10**6))


def assert_all_is_missed(host: Host, original: Host) -> None:
    """What was missing still is; it has a longer time to come."""
    for source in original.sources.latest(10**6):
        assert source.missing & ~host.source(source.src).missing == 0


# -- what happens


class Arrival(NamedTuple):
    """A datagram: its source, how far from the last one or a copy of which one before it, whether it is a heartbeat."""

    who: int
    distance: int
    copy: int
    beat: bool


class Act(NamedTuple):
    """What happens after so many quarters of a second. ``raws`` are the arrivals as datagrams; see `with_datagrams`."""

    quarters: int
    kind: str
    who: int
    arrivals: tuple[Arrival, ...]
    raws: tuple[bytes, ...]


DISTANCES = st.one_of(
    st.just(1), st.just(1), st.integers(-4, 4), st.integers(-20, 20), st.sampled_from([-(10**6), 10**6])
)
WHO, COPY = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5]), st.sampled_from([0, 0, 0, 1, 2])
ARRIVALS = st.builds(Arrival, WHO, DISTANCES, COPY, st.booleans())


def acts(crowded: bool) -> st.SearchStrategy[Act]:
    """With ``crowded`` there is not room for all sources, nor much time, and each moment has its own datagram: which of
    those heard at the same moment is evicted first is not specified."""
    quarters = st.sampled_from([1, 1, 2, 5, 9] if crowded else [0, 0, 0, 1, 2, 9])
    together = st.lists(ARRIVALS, min_size=1, max_size=1 if crowded else 5).map(tuple)
    none: st.SearchStrategy[tuple[()]] = st.just(())
    feed = st.builds(Act, quarters, st.just("feed"), st.just(0), together, none)
    kinds = st.sampled_from(["sweep", "sweep", "claim", "release", "speak", "echo", "turn"])
    other = st.builds(Act, quarters, kinds, st.integers(0, 1), none, none)
    return st.one_of(feed, feed, other)


def with_datagrams(history: Sequence[Act]) -> list[Act]:
    """The same with datagrams, the seqs of which follow one another."""
    before: dict[int, list[int]] = {}
    made = []
    for act in history:
        raws = []
        for who, distance, copy, beat in act.arrivals:
            past = before.setdefault(who, [])
            last = past[-1] if past else 1000
            seq = past[-copy] if 0 < copy <= len(past) else min(max(last + distance, 0), bccn1.MAX_SEQ)
            past.append(seq)
            src = SRCS[who] if who < len(SRCS) else b"?"
            # Leading zeros are as good as any other way to write a number.
            digits = b"0" * (250 if copy == 2 and not seq % 7 else 0) + b"%d" % seq
            raws.append(datagram(src, digits, HEARTBEAT + src if beat else b"c/1" if seq % 5 else b"!nobody"))
        made.append(act._replace(raws=tuple(raws)))
    return made


def do(host: Host, act: Act) -> None:
    if act.kind == "feed":
        host.now += act.quarters / 4
        host.feed(*act.raws, peer=PEERS[len(act.raws) % 2])
        return
    host.until(host.now + act.quarters / 4)
    host.sweep()
    src = OURS[act.who]
    if act.kind == "claim":
        host.claim(src)
    elif act.kind == "release":
        host.release(src)
    elif act.kind == "speak" and src in host.open:
        host.speak(src)
    elif act.kind == "echo" and host.sent:
        host.feed(host.sent[-1])
    elif act.kind == "turn" and host.tracker_log is not None and host.tracker_log.complete:
        host.tracker_log.rotate(host.room.new())


def live(life: Life, writes: int = -1) -> tuple[Host, int]:
    """A host that lived through a history, or up to so many writes; and how much of the history was done then."""
    host = Host(life.dedup, life.watch, room=Room(writes))
    done = 0
    try:
        host.begin()
        for act in life.history:
            done += 1
            do(host, act)
    except Killed:
        done = max(done, 1)
    host.leave()
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
    # Long ones as well: most lists that are drawn are short.
    history = draw(st.lists(acts(crowded), min_size=draw(st.sampled_from([0, 10, 30])), max_size=60))
    return Life(rules, watch, with_datagrams(history))


@pytest.fixture(params=[1, 4, tracker_log.STEP])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are written a few things at a time, so that much happens between the first and the last of them."""
    monkeypatch.setattr(tracker_log, "STEP", request.param)


def is_complete(data: bytes) -> bool:
    return take_over(Host(now=1e9), [data]).complete


@pytest.mark.usefixtures("steps")
@given(lives(), st.data())
@examples(300)
def test_successor_judges_as_the_killed_daemon(life: Life, data: st.DataObject) -> None:
    rules, watch, history = life
    whole, _ = live(life)
    writes = data.draw(st.integers(1, len(whole.room.records)), label="killed in write")
    original, done = live(life, writes)
    assert len(original.room.records) == writes
    files = original.room.data
    after = whole.room.records[writes : writes + 1]
    if after and after[0] != HEADER:
        files[-1] += after[0][: data.draw(st.integers(0, len(after[0]) - 1), label="torn off at")]
    files = files[-1:] if is_complete(files[-1]) else files[-2:]

    heir = Host(rules, watch, original.now)
    early = {src for src in original.open if src == OURS[0]}
    for src in early:
        heir.claim(src)
    # No time passes between the one and the other.
    assert take_over(heir, files, now=original.room.latest or original.now).problems == ()
    heir.begin()
    for src in original.open - early:
        heir.claim(src)
    heir.sent = original.sent[-1:]
    assert (heir.changes(), heir.sources.lost, heir.sources.restarts, heir.sources.jumps) == ("", 0, 0, 0)
    assert (heir.sources.evicted, heir.sources.expired, heir.anonymous.evicted, heir.liveness.deaths) == (0, 0, 0, 0)
    for host in (heir, original):
        host.sources.sweep(host.now)
    assert_alike(heir, original)
    assert_all_is_missed(heir, original)

    # They go on side by side, and the heir has annals of its own. Heartbeats are not checked: the heir has been
    # listening from now on only.
    for act in history[done:]:
        for host in (heir, original):
            host.now += act.quarters / 4
            host.sources.sweep(host.now)
        assert heir.tracker_log is not None
        heir.tracker_log.step(heir.now)
        peer = PEERS[len(act.raws) % 2]
        for raw in act.raws:
            assert heir.feed(raw, peer=peer) == original.feed(raw, peer=peer)
        for src in SRCS:
            assert heir.sources.epoch(src) == original.sources.epoch(src)
    assert_alike(heir, original)
    assert_all_is_missed(heir, original)
    # What was sent is known to be ours, also by the heir.
    conflicts = heir.sources.conflicts
    for raw in heir.sent:
        if bccn1.read(raw).src in heir.open:
            assert heir.feed(raw) == ["looped"]
    assert heir.sources.conflicts == conflicts

    second = Host(rules, watch, heir.now)
    latest = max(original.room.latest, heir.room.latest)
    assert take_over(second, files + heir.room.data, now=latest or heir.now).problems == ()
    for src in heir.open:
        second.claim(src)
    for host in (second, heir):
        host.sources.sweep(host.now)
    assert_alike(second, heir)


@given(lives())
@examples(100)
def test_unfinished_input_is_skipped_and_processed_again(life: Life) -> None:
    rules, watch, history = life
    host = Host(rules, watch)
    host.begin()
    for act in history:
        do(host, act)
    before = restored(host.room.data[-2:], host, rules, watch)
    raws = [datagram(src, seq) for src in SRCS[:3] for seq in (5, 6, 9, 7, 6)]
    verdicts = host.feed(*raws)
    assert host.tracker_log is not None
    heir = Host(rules, watch, host.now)
    take_over(heir, host.room.data[-2:], skip_serial=host.tracker_log.serial)
    assert knowledge(heir) == knowledge(before)
    assert heir.feed(*raws) == verdicts


# -- what is written


def noted(host: Host, *raws: bytes) -> bytes:
    """What is written of datagrams that come together, without the head of the record."""
    host.finish()
    before = len(host.room.files[-1])
    host.feed(*raws)
    written = host.room.files[-1][before:]
    assert len(written) <= 1
    return b"".join(written)[21:]


@pytest.fixture
def host() -> Host:
    one = Host()
    one.begin()
    return one


def test_batch_is_one_record_of_src_and_seq_in_order(host: Host) -> None:
    raws = [datagram(b"a", 7), datagram(b"a", 7), datagram(b"b", b"007"), datagram(b"a", 8), datagram(b"a", 9)]
    # The target makes no difference.
    raws += [datagram(b"d", 1, b"!nobody"), datagram(b"d", 2, b"!own/p/1")]
    assert noted(host, *raws) == b"\x03a:7\x05b:007\x03a:8\x03a:9\x03d:1\x03d:2"
    head = host.room.files[-1][-1][:21]
    assert struct.unpack("=IBQd", head) == (17 + 26, 1, 1, 1000.0)


def test_datagrams_that_change_no_tracker_are_not_logged(host: Host) -> None:
    host.claim(OURS[1])
    host.hear(SRCS[0], 5)
    refused = [datagram(SRCS[0], 5), datagram(OURS[1], 1), datagram(b"bad*", 1), b"noise", datagram(SRCS[0], b"x")]
    assert noted(host, *refused) == b""
    assert noted(host) == b""


@pytest.mark.parametrize("late", [False, True])
def test_late_datagram_is_logged_and_by_a_link_no_restart(late: bool) -> None:
    """Over links a message may be late by more than the horizon."""
    rules = replace(RULES, deliver_late=late)
    host = Host(rules)
    host.begin()
    assert noted(host, datagram(b"a", 1), datagram(b"a", 3), datagram(b"a", 2)) == b"\x03a:1\x03a:3\x03a:2"
    host.hear(SRCS[0], 5, 6, 8)
    host.now += 3 * rules.horizon
    host.ingress.feed_link(host.counters, 1, datagram(SRCS[0], 7), PEERS[0], host.now, 0)
    heir = Host(rules, now=host.now)
    assert take_over(heir, host.room.data).problems == ()
    found, wanted = heir.source(), host.source()
    assert (found.last, found.epoch) == (wanted.last, wanted.epoch) == (8, 1)
    # By the segment it still is one.
    host.now = heir.now = heir.now + 3 * rules.horizon
    assert heir.hear(SRCS[0], 1) == host.hear(SRCS[0], 1) == ["restart"]


@pytest.mark.parametrize("zeros", [0, 100, 107, 108, 109, 500])
def test_seq_may_have_more_zeros_than_an_entry_holds(host: Host, zeros: int) -> None:
    src = b"s" * 128
    host.feed(datagram(src, b"0" * zeros + b"123"))
    assert restored(host.room.data, host).source(src).last == 123


def test_every_seq_is_restored(host: Host) -> None:
    seqs = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
    for seq in seqs:
        host.hear(b"a/%d" % seq, seq)
        host.hear(b"b/%d" % seq, max(seq - 1, 0), seq)
    heir = restored(host.room.data, host)
    assert all(heir.source(b"%b/%d" % (src, seq)).last == seq for src in (b"a", b"b") for seq in seqs)


def test_src_similar_to_the_anonymous_one_is_tracked(host: Host) -> None:
    for src in (b"?x", b"x", b"??", b"?"):
        host.hear(src, 5)
    heir = restored(host.room.data, host)
    assert len(heir.sources) == 3
    assert heir.hear(b"??", 5) == ["duplicate"]
    assert heir.hear(b"?", 5) == ["duplicate"]
    heir.now += 1.25
    assert heir.hear(b"?", 5) == ["accepted"]
    # A snapshot leaves out what was heard longer ago than the horizon.
    host.now += 1.25
    host.turn()
    assert restored(host.room.data[1:], host).anonymous.digests() == []


def test_datagram_with_an_internal_error_is_logged(host: Host) -> None:
    def broken(_src: bytes, _now: float) -> None:
        raise RuntimeError("a bug")

    bugs: list[bytes] = []
    host.ingress = Ingress(
        IntegrityChecker(),
        host.sources,
        host.anonymous,
        host.routes,
        tracker_log=host.tracker_log,
        on_heartbeat=broken,
        on_bug=bugs.append,
    )
    assert host.beat(SRCS[0], 5) == ["internal_error"]
    assert len(bugs) == 1
    assert restored(host.room.data, host).hear(SRCS[0], 5) == ["duplicate"]


# -- files and snapshots


def crowd(host: Host, count: int) -> None:
    for number in range(count):
        host.sources.judge_new(b"h/%d" % number, number, host.now)


def test_snapshot_is_written_in_steps_then_the_file_is_complete() -> None:
    host = Host(replace(RULES, max_sources=1000))
    crowd(host, 500)
    writer = host.begin()
    steps = 1
    while not writer.complete:
        assert writer.step(host.now) is not writer.complete
        steps += 1
        (file,) = host.room.data
        assert is_complete(file) is writer.complete
    assert steps > 500 // tracker_log.STEP
    heir = restored(host.room.data, host)
    assert len(heir.sources) == 500
    assert writer.size == len(host.room.data[0])
    # There is no more to be done.
    assert writer.step(host.now) is False
    assert writer.size == len(host.room.data[0])


def test_step_writes_no_more_than_its_share() -> None:
    host = Host(DedupRules(sanity=65_536, max_sources=1000))
    for number in range(300):
        src = b"h/%d" % number
        host.sources.judge_new(src, 1, host.now)
        host.sources.judge(src, 60_000, host.now)
    writer = host.begin()
    while writer.step(host.now):
        pass
    largest = max(map(len, host.room.files[0]))
    assert tracker_log.STEP_BYTES / 2 < largest < tracker_log.STEP_BYTES + (1 << 15)
    assert len(host.room.files[0]) > 300 / tracker_log.STEP
    heir = restored(host.room.data, host, DedupRules(sanity=65_536))
    assert heir.source(b"h/7").missing == host.source(b"h/7").missing != 0
    assert heir.sources.missing == 300 * 59_998


def test_new_file_is_due_after_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_log, "SMALLEST", 1)
    host = Host()
    crowd(host, 20)
    writer = host.begin()
    due = [writer.due]
    host.finish()
    snapshot = sum(map(len, host.room.files[0][1:]))
    seq = 0
    while writer.size <= tracker_log.GROWTH * snapshot:
        due.append(writer.due)
        seq += 1
        host.hear(b"a", seq)
    assert not any(due)
    assert len(due) > 10
    assert writer.due
    writer.rotate(host.room.new())
    assert writer.size == len(host.room.data[1])
    again = [writer.due]
    while not writer.complete:
        # Both are needed until then, and right together at any moment.
        assert restored(host.room.data, host).hear(b"a", seq) == ["duplicate"]
        writer.step(host.now)
        again.append(writer.due)
    assert not any(again)
    assert restored(host.room.data[1:], host).hear(b"a", seq) == ["duplicate"]


def test_small_file_is_not_replaced(host: Host) -> None:
    assert host.tracker_log is not None
    host.finish()
    while host.tracker_log.size < tracker_log.SMALLEST - 5000:
        host.feed(*(datagram(b"h/%d" % number, host.tracker_log.size) for number in range(64)))
        assert not host.tracker_log.due
    host.feed(*(datagram(b"h" * 100 + b"/%d" % number, 1) for number in range(64)))
    assert host.tracker_log.due


class Full:
    """A file that takes no more than so many bytes."""

    def __init__(self, room: int, raises: bool) -> None:
        self.data = b""
        self._room = room
        self._raises = raises

    def write(self, record: bytes) -> int:
        fits = record[: self._room - len(self.data)]
        if len(fits) < len(record) and self._raises:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data += fits
        return len(fits)


@pytest.mark.parametrize("raises", [False, True])
def test_full_file_stops_no_datagram_and_stays_readable(raises: bool) -> None:
    host, full = Host(), Full(200, raises)
    writer = start_log(host.sources, host.anonymous, host.liveness, full.write, host.now)
    host.tracker_log = host.ingress.tracker_log = writer
    host.finish()
    for seq in range(1, 50):
        assert host.hear(SRCS[0], seq) == ["accepted"]
        host.sweep()
    assert ("No space" if raises else "there was room for") in writer.failed
    assert writer.size == len(full.data)
    heir = restored([full.data], host)
    assert 1 <= heir.source().last < 49
    # Another file helps.
    writer.rotate(host.room.new())
    host.finish()
    assert restored(host.room.data, host).source().last == 49


def test_snapshot_without_room_is_not_complete() -> None:
    host, full = Host(), Full(100, False)
    crowd(host, 20)
    writer = start_log(host.sources, host.anonymous, host.liveness, full.write, host.now)
    while writer.step(host.now):
        pass
    assert writer.failed
    assert not writer.complete
    assert not writer.due


# -- what is not understood


def test_file_with_part_of_a_header_is_empty() -> None:
    for length in range(len(HEADER) + 1):
        assert take_over(Host(), [HEADER[:length]]) == ReplayResult(0, 0, 0, False, ())


def test_file_of_another_version_or_kind_is_ignored(host: Host) -> None:
    host.hear(SRCS[0], 1)
    (data,) = host.room.data
    other_version = data.replace(tracker_log.MAGIC + b"\1", tracker_log.MAGIC + b"\2", 1)
    for strange in (other_version, b"x" + data, b"\0", b"\0" * 100):
        heir = Host()
        account = take_over(heir, [strange])
        assert (account.sources, account.records, len(account.problems)) == (0, 0, 1)
        assert "version 1" in account.problems[0]
        # The next one is read nevertheless.
        assert take_over(heir, [strange, data]).sources == 1


def record(*notes: bytes, kind: int = RECORD, serial: int = 0, when: float = 1000.0) -> bytes:
    inside = b"".join(notes)
    return struct.pack("=IBQd", 17 + len(inside), kind, serial, when) + inside


def note(kind: int, what: bytes) -> bytes:
    return struct.pack("=BH", kind, len(what)) + what


def short(what: bytes) -> bytes:
    return bytes([len(what)]) + what


def test_unknown_records_and_entries_are_skipped_by_size() -> None:
    data = HEADER + record(short(b"a:1"), note(255, b"\x02a:9"), note(255, b""), short(b"a:2"))
    data += record(b"unknown", kind=9) + record(b"", kind=0) + struct.pack("=IB", 1, 77) + record(short(b"a:3"))
    heir = Host()
    account = take_over(heir, [data])
    assert heir.source(b"a").last == 3
    assert (account.sources, account.records, account.datagrams) == (1, 2, 3)
    numbers = [re.findall(r"\d+", doubt) for doubt in account.problems]
    # file, how many, and their kind
    assert sorted(numbers) == [["1", "1", "0"], ["1", "1", "77"], ["1", "1", "9"], ["1", "2", "255"]]


TIMES: Final = struct.pack("=ddd", 999.0, 999.0, 1.0)


def whole(**changed: Any) -> bytes:
    """The note of a whole tracker."""
    fields = {
        "first": 1, "last": 9, "heard": 999.0, "rank": 1000.0, "beat": 0.0, "gap": 0.0, "interval": 0.0, "epoch": 1,
        "state": 0, "src": b"a", "absent": b"\2", "missing": b"\2", "named": 1, "bits": 1, **changed,
    }  # fmt: skip
    numbers = [fields[name] for name in ("first", "last", "heard", "rank", "beat", "gap", "interval")]
    rest = [fields[name] for name in ("epoch", "state", "named", "bits")]
    return note(
        246, struct.pack("=QQdddddiBBH", *numbers, *rest) + fields["src"] + fields["absent"] + fields["missing"]
    )


NAN: Final = float("nan")
INF: Final = float("inf")
DAMAGE: Final = [
    *(struct.pack("=I", size) + bytes(100) for size in (1 << 31, 0)),
    struct.pack("=IB", 5, RECORD) + bytes(4),
    *(record(when=when) for when in (NAN, INF, -1.0, 1002.0)),
    # notes without a size, cut, and going beyond the record
    *(record(raw) for raw in (b"\0", b"\x05a:1", b"\xf1", struct.pack("=BH", 241, 2) + b"a")),
    # datagrams
    *(record(short(raw)) for raw in (b"abc", b"abc:", b":1", b"?:1", b"b*:1", b"\xe4:1", b"abc:-1", b"abc:x")),
    record(short(b"abc:%d" % 2**64)),
    # states, deaths, digests, identities
    *(record(note(242, raw)) for raw in (b"", b"\x03abc")),
    *(record(note(243, raw)) for raw in (b"abc", TIMES, TIMES + b"\xff", struct.pack("=ddd", INF, 0, 0) + b"abc")),
    *(record(note(244, raw)) for raw in (struct.pack("=d", NAN) + bytes(16), b"1")),
    *(
        record(note(245, raw))
        for raw in (b"abc", struct.pack("=dQQ", INF, 0, 0), struct.pack("=dQQ", NAN, 0, 0) + b"abc")
    ),
    # trackers
    record(note(246, bytes(10))),
    record(whole(src=b"", named=0)),
    *(record(whole(src=src)) for src in (b"?", b"\xff")),
    *(record(whole(bits=9)), record(whole(first=10)), record(whole(epoch=0)), record(whole(state=3))),
    *(record(whole(heard=1002.0)), record(whole(heard=NAN)), record(whole(rank=NAN)), record(whole(rank=INF))),
    *(record(whole(beat=INF)), record(whole(gap=NAN)), record(whole(interval=INF))),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_reading_ends_at_damage(damage: bytes) -> None:
    good, later = record(short(b"before:1")), record(short(b"behind:1"))
    heir = Host()
    account = take_over(heir, [HEADER + good + damage + later, HEADER + record(short(b"next:1"))])
    assert {source.src for source in heir.sources.latest(9)} == {b"before", b"next"}
    (doubt,) = account.problems
    assert f" byte {len(HEADER + good)} " in doubt


def test_records_of_the_table_are_valid_without_the_damage() -> None:
    heir = Host()
    assert take_over(heir, [HEADER + record(whole(), whole(src=b"b"), note(243, TIMES + b"abc"))]).problems == ()
    assert (len(heir.sources), list(heir.liveness.dead)) == (2, [b"abc"])


@given(lives(), st.data())
@examples(150)
def test_damaged_files_never_raise(life: Life, data: st.DataObject) -> None:
    rules, watch, history = life
    original, _ = live(life)
    files = []
    for one in original.room.data[-2:]:
        spoiled = bytearray(one)
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(0, len(spoiled) - 1))
            spoiled[at] = data.draw(st.one_of(st.sampled_from([0, 1, 240, 246, 255]), st.integers(0, 255)))
        files.append(bytes(spoiled[: data.draw(st.sampled_from([len(spoiled), data.draw(st.integers(0, 400))]))]))
    heir = Host(rules, watch, original.now)
    take_over(heir, files)
    # The host that read them goes on.
    heir.sources.sweep(heir.now)
    for source in heir.sources.latest(100):
        assert source.src.decode("ascii")
        assert source.missing & ~source.absent == 0
    for act in history:
        do(heir, act)
    heir.until(heir.now + 20)


@given(st.binary(max_size=200))
@examples(300)
def test_noise_never_raises(noise: bytes) -> None:
    for data in (
        noise,
        HEADER + noise,
        HEADER + record(noise),
        HEADER + record(*(note(k, noise) for k in range(240, 256))),
    ):
        take_over(Host(), [data])


# -- rules that have changed, and caps


def test_newest_trackers_remain_above_the_cap(host: Host) -> None:
    for number in range(40):
        host.now += 1
        host.hear(b"h/%d" % (number % 20), number)
    host.turn()
    for files in (host.room.data, host.room.data[1:]):
        heir = Host(replace(RULES, max_sources=5), now=host.now)
        assert take_over(heir, files).sources == 20
        heir.sources.sweep(heir.now)
        assert [source.src for source in heir.sources.latest(9)] == [b"h/%d" % n for n in range(19, 14, -1)]
        assert heir.sources.evicted == 15


def test_rules_of_the_new_daemon_apply(host: Host) -> None:
    host.hear(SRCS[0], 1, 2, 30, 31)
    assert host.sources.jumps == 1
    wide = restored(host.room.data, host, DedupRules(sanity=64))
    assert (wide.source().epoch, wide.source().first, wide.sources.missing) == (1, 1, 27)
    host.hear(SRCS[1], 1, 16)
    host.turn()
    narrow = restored(host.room.data[1:], host, DedupRules(sanity=4))
    assert narrow.source(SRCS[1]).absent == narrow.source(SRCS[1]).missing == 0b1110
    assert narrow.sources.missing == 3


def test_heartbeats_above_the_cap_are_not_watched(host: Host) -> None:
    for number in range(10):
        host.beat(b"h/%d" % number, 1)
    heir = restored(host.room.data, host, watch=replace(WATCH, max_watched=4))
    states = [source.state for source in heir.sources.latest(10)]
    assert (states.count(ALIVE), states.count(UNWATCHED), heir.liveness.unwatched) == (4, 6, 6)


# -- scenarios: a host, its heir, and what the heir knows

ALIVE_NOW: Final = "^1 +1 ^2 says:alive"
WORD: Final = re.compile(r"(?P<beat>\^?)(?P<src>[a-z\d]+/)?(?P<seq>\d+)(?::(?P<verdict>\w+))?")
SRC_OF: Final = {None: SRCS[0], "b/": SRCS[1], "own/": OURS[0], "own1/": OURS[1]}

#: ``b/4:stale``: a datagram of this source, by default of SRCS[0], and its verdict, by default accepted; ``^4``: a
#: heartbeat; ``+2``: seconds pass, with sweeps; ``away:2``: without; ``restart``: the heir takes over; ``says:``:
#: changes of states; ``claim``, ``release``, ``speak``, ``sweep`` and ``turn``: see Host; ``echo``: what was sent comes
#: in; ``sources.lost=2``: an attribute of the host
SCENARIOS: Final = {
    "what is missing has the horizon's time from now on and is lost once": (
        "1 3 away:0.75 b/1 b/4 away:5 restart sources.missing=3 sources.lost=0 +0.75 sources.missing=3 sources.lost=0"
        # A newer message shows that the source has not begun anew, so the late one is just late.
        " b/5 b/2:stale +0.25 sources.missing=0 sources.lost=2"
    ),
    "what was lost before is not lost again": (
        "1 3 +3 sources.lost=1 b/1 restart sources.missing=0 sources.lost=0 +3 sources.lost=0 2:restart"
    ),
    "what was lost before is not lost again, in a new file": (
        "1 3 turn +3 sources.lost=1 b/1 restart sources.missing=0 sources.lost=0 +3 sources.lost=0 2:restart"
    ),
    "silence during the restart is noticed in due time": (
        f"{ALIVE_NOW} away:60 restart +1.75 says:silent liveness.silent=1"
        " +2 says:dead liveness.silent=0 liveness.deaths=1"
    ),
    "a source that was silent still is, and no change is reported": (
        f"{ALIVE_NOW} +2 says:silent restart liveness.silent=1 +3.25 says: +0.5 says:dead"
    ),
    "a silent source that is heard is alive": f"{ALIVE_NOW} +2 restart +0.5 3 +1.5 says:alive liveness.silent=0",
    "back from silence without a heartbeat": f"{ALIVE_NOW} +2 3 +1 says:silent,alive restart source.state={ALIVE}",
    "what was sent is ours, and no conflict": (
        "claim claim:1 speak speak speak:1 speak:1 release:1 away:2 restart claim echo:looped sources.conflicts=0"
    ),
    "seqs go on above those that were given": "claim speak speak speak restart claim away:0.25 speak",
    "seqs go on above them where the clock was set back": (
        "claim speak turn " + "speak " * 1000 + "restart claim away:-999 speak"
    ),
    "an identity that is not claimed again ends when its time is over": (
        f"claim claim:1 away:1 sweep release:1 +4 1 restart +{LINGER - 4.25} own1/1:looped +0.25 own1/1"
        " +3.75 own/1:looped +0.25 own/1"
    ),
    # The broadcast is still in the socket's buffer.
    "the time of an identity does not run out while the host hangs": (
        "claim speak release 1 away:60 restart sweep echo:looped"
    ),
    "a name that was ours and then another's is another's": (
        f"claim release +{LINGER + 1} own/5 restart own/5:duplicate own/6"
    ),
}


def play(host: Host, words: str) -> Host:
    """Play a scenario; what is returned is the host or its heir."""
    for number, word in enumerate(words.split()):
        try:
            host = play_word(host, word)
        except AssertionError as wrong:
            raise AssertionError(f"word {number}, {word}") from wrong
    return host


def play_word(host: Host, word: str) -> Host:
    verb, _, argument = word.partition(":")
    if seen := WORD.fullmatch(word):
        hear = host.beat if seen["beat"] else host.hear
        assert hear(SRC_OF[seen["src"]], int(seen["seq"])) == [seen["verdict"] or "accepted"]
    elif "=" in word:
        name, _, value = word.partition("=")
        part, attribute = name.split(".")
        assert getattr(host.source() if part == "source" else getattr(host, part), attribute) == float(value)
    elif word.startswith("+"):
        host.until(host.now + float(word))
    elif verb == "away":
        host.now += float(argument)
    elif verb == "says":
        assert host.changes() == argument.replace(",", " ")
    elif verb == "restart":
        return restored(host.room.data[-1:], host)
    elif verb == "echo":
        assert set(host.feed(*host.sent)) == {argument}
    elif verb in ("turn", "sweep"):
        getattr(host, verb)()
    else:
        getattr(host, verb)(OURS[int(argument or 0)])
    return host


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(host: Host, name: str) -> None:
    play(host, SCENARIOS[name])


@pytest.mark.parametrize("kept", [False, True])
def test_dead_sources_stay_dead_until_their_next_heartbeat(kept: bool) -> None:
    watch = replace(WATCH, keep_dead=kept)
    host = Host(watch=watch)
    host.begin()
    play(host, "^1 ^b/1 +1 ^2 ^b/2 +4 liveness.deaths=2")
    host.changes()
    heir = restored(host.room.data, host, watch=watch)
    assert list(heir.liveness.dead.items()) == list(host.liveness.dead.items())
    assert len(heir.sources) == (2 if kept else 0)
    play(heir, "liveness.deaths=0 +20 says: ^b/3 says:alive")
    assert list(heir.liveness.dead) == [SRCS[0]]


def test_returned_local_identity_is_not_dead(host: Host) -> None:
    play(host, "^own/1 +1 ^own/2 +4")
    assert list(host.liveness.dead) == [OURS[0]]
    host.beat(OURS[0], 3)
    heir = Host(now=host.now)
    heir.claim(OURS[0])
    take_over(heir, host.room.data)
    assert (len(heir.sources), len(heir.liveness.dead)) == (0, 0)


def test_each_source_is_in_the_timer_wheel_once(host: Host) -> None:
    for _ in range(4):
        play(host, "^1 +1 ^2 +4")
        assert host.sources.get(SRCS[0]) is None
    play(host, "^1 ^b/1 +1 ^2 ^b/2")
    heir = restored(host.room.data, host)
    for _ in range(3):
        standing = [one.src for entries in heir.liveness._wheel.values() for one in entries]
        assert sorted(standing) == sorted(SRCS[:2])
        for seq in (3, 4):
            heir.beat(SRCS[0], 3 + seq)
            heir.beat(SRCS[1], 3 + seq)
            heir.until(heir.now + 1)


# -- our own identities


def test_identity_may_be_in_use_before_the_replay(host: Host) -> None:
    host.claim()
    raw = host.speak()
    host.now += 1
    heir = Host(now=host.now)
    heir.claim()
    ahead = [heir.speak() for _ in range(5)]
    take_over(heir, host.room.data)
    heir.until(heir.now + 2 * LINGER)
    assert heir.feed(raw, *ahead, heir.speak()) == ["looped"] * 7
    assert heir.sources.conflicts == 0


def test_seqs_ahead_of_the_clock_are_local(host: Host) -> None:
    host.claim()
    host.speak()
    host.turn()
    raws = [host.speak() for _ in range(1000)]
    heir = Host(now=host.now)
    take_over(heir, host.room.data[-1:], clock_us=EPOCH_US)
    assert set(heir.feed(*raws)) == {"looped"}
    assert heir.sources.conflicts == 0


@pytest.mark.parametrize(("turned", "released"), [(False, True), (True, True), (True, False)])
def test_another_sender_with_a_local_identity_is_a_conflict(host: Host, turned: bool, released: bool) -> None:
    host.claim()
    own = bccn1.read(host.speak()).seq
    if turned:
        host.turn()
    if released:
        host.release()
    heir = restored(host.room.data[-1:], host)
    foreign = [own - 1, own + 10**12]
    assert heir.hear(OURS[0], own, *foreign) == ["looped"] * 3
    assert heir.sources.conflicts == 2


def test_claim_is_logged_at_once_even_if_its_input_is_skipped(host: Host) -> None:
    assert host.tracker_log is not None
    host.hear(OURS[0], 5)
    host.tracker_log.serial = 77
    host.claim()
    heir = Host(now=host.now)
    take_over(heir, host.room.data, skip_serial=77)
    assert heir.hear(OURS[0], 6) == ["looped"]
    assert len(heir.sources) == 0
