"""The trackers: short histories as a table, and long random ones against a slow model with plain sets.

Times are multiples of a quarter of a second, which binary fractions hold exactly: what happens just at the horizon is
then a matter of rules and not of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1, dedup
from bccnd.core.dedup import MAX_LOSERS, UNHEARD, UNKNOWN_SENDER, DedupRules, Nameless, Sources
from bccnd.core.verdicts import ACCEPTED, DUPLICATE, LOOPED, NAMES, REORDERED, REPLAYED, RESTART, STALE
from tests.core.material import examples

SRC = b"host/program/1"


def receive(sources: Sources, src: bytes, seq: int, now: float) -> int:
    """What `ingress` does with a datagram that is in order."""
    verdict = sources.judge(src, seq, now)
    return sources.begin(src, seq, now) if verdict == UNHEARD else verdict


# -- a table of short histories. A step is a seq at a time, and the verdict on it; "sweep" lets time pass.

RULES = DedupRules(sanity=16, horizon=2.0)
LATE = replace(RULES, deliver_late=True)
MONOTONIC = replace(RULES, monotonic=True)


class Counts(NamedTuple):
    missing: int = 0
    lost: int = 0
    restarts: int = 0
    jumps: int = 0


Step = tuple[float, int | str, str]
HISTORIES: dict[str, tuple[DedupRules, list[Step], Counts]] = {
    "the next one": (RULES, [(0, 1, "accepted"), (0, 2, "accepted"), (0, 3, "accepted")], Counts()),
    "a copy of the last one": (RULES, [(0, 5, "accepted"), (0, 5, "duplicate")], Counts()),
    "a copy of an older one": (
        RULES,
        [(0, 5, "accepted"), (0, 6, "accepted"), (0, 7, "accepted"), (0, 5, "duplicate"), (0, 6, "duplicate")],
        Counts(),
    ),
    "a copy just at the horizon": (RULES, [(0, 5, "accepted"), (2, 5, "duplicate")], Counts()),
    "a copy beyond the horizon is a restart": (
        RULES,
        [(0, 5, "accepted"), (2.25, 5, "restart"), (2.25, 5, "duplicate"), (2.25, 6, "accepted")],
        Counts(restarts=1),
    ),
    "a restart is heard, and so is the horizon's new beginning": (
        RULES,
        [(0, 5, "accepted"), (3, 5, "restart"), (5, 5, "duplicate"), (5.25, 5, "restart")],
        Counts(restarts=2),
    ),
    "a duplicate does not put the horizon off": (
        RULES,
        [(0, 5, "accepted"), (1.5, 5, "duplicate"), (2.25, 5, "restart")],
        Counts(restarts=1),
    ),
    "a gap is missing": (RULES, [(0, 1, "accepted"), (0, 5, "accepted")], Counts(missing=3)),
    "a gap is still missing before the horizon": (
        RULES,
        [(0, 1, "accepted"), (0, 5, "accepted"), (1.75, "sweep", "")],
        Counts(missing=3),
    ),
    "a gap is lost at the horizon": (
        RULES,
        [(0, 1, "accepted"), (0, 5, "accepted"), (2, "sweep", "")],
        Counts(lost=3),
    ),
    "every gap has its own horizon": (
        RULES,
        [(0, 1, "accepted"), (0, 3, "accepted"), (1, 6, "accepted"), (2, "sweep", "")],
        Counts(missing=2, lost=1),
    ),
    "what is late is dropped, and was never lost": (
        RULES,
        [(0, 1, "accepted"), (0, 3, "accepted"), (1, 2, "stale"), (5, "sweep", "")],
        Counts(),
    ),
    "what is late is delivered, once": (
        LATE,
        [(0, 1, "accepted"), (0, 3, "accepted"), (1, 2, "reordered"), (1, 2, "duplicate")],
        Counts(),
    ),
    "what was dropped as late is known from then on": (
        RULES,
        [(0, 1, "accepted"), (0, 3, "accepted"), (0, 2, "stale"), (0, 2, "duplicate")],
        Counts(),
    ),
    "a late one clears only itself": (
        RULES,
        [(0, 1, "accepted"), (0, 6, "accepted"), (1, 3, "stale"), (2, "sweep", "")],
        Counts(lost=3),
    ),
    "what comes after it was lost is late, and stays lost": (
        LATE,
        [(0, 1, "accepted"), (0, 3, "accepted"), (1.5, 4, "accepted"), (2, "sweep", ""), (3, 2, "reordered")],
        Counts(lost=1),
    ),
    "what came before the first one is late, not missing": (
        LATE,
        [(0, 5, "accepted"), (0, 3, "reordered"), (0, 3, "duplicate"), (0, 4, "reordered"), (0, 4, "duplicate")],
        Counts(),
    ),
    "what came before the first one, beside a gap": (
        RULES,
        [
            (0, 5, "accepted"),
            (0, 7, "accepted"),
            (0, 2, "stale"),
            (0, 4, "stale"),
            (0, 5, "duplicate"),
            (0, 6, "stale"),
        ],
        Counts(),
    ),
    "a delivered late one puts the horizon off": (
        LATE,
        [(0, 1, "accepted"), (0, 3, "accepted"), (2, 2, "reordered"), (4, 3, "duplicate")],
        Counts(),
    ),
    "a dropped late one does not": (
        RULES,
        [(0, 1, "accepted"), (0, 3, "accepted"), (2, 2, "stale"), (4, 3, "restart")],
        Counts(restarts=1),
    ),
    "one step less than sanity is a gap": (RULES, [(0, 1, "accepted"), (0, 16, "accepted")], Counts(missing=14)),
    "a step of sanity is a new epoch, and no loss": (
        RULES,
        [(0, 1, "accepted"), (0, 17, "accepted"), (0, 17, "duplicate"), (0, 16, "stale")],
        Counts(jumps=1),
    ),
    "a jump gives up what was missing": (
        RULES,
        [(0, 1, "accepted"), (0, 4, "accepted"), (0, 1000, "accepted")],
        Counts(lost=2, jumps=1),
    ),
    "one step less back than sanity is late": (RULES, [(0, 100, "accepted"), (0, 85, "stale")], Counts()),
    "a drop of sanity is a restart": (
        RULES,
        [(0, 100, "accepted"), (0, 84, "restart"), (0, 85, "accepted"), (0, 84, "duplicate")],
        Counts(restarts=1),
    ),
    "a restart gives up what was missing": (
        RULES,
        [(0, 100, "accepted"), (0, 104, "accepted"), (0, 1, "restart"), (5, "sweep", "")],
        Counts(lost=3, restarts=1),
    ),
    "seqs of an old epoch are not known in the new one": (
        RULES,
        [(0, 100, "accepted"), (3, 98, "restart"), (3, 99, "accepted"), (3, 100, "accepted")],
        Counts(restarts=1),
    ),
    "gaps of an old epoch are not known in the new one": (
        LATE,
        # 99 was missing before the jump; 999, as far behind the new seq, is late once like any other.
        [
            (0, 98, "accepted"),
            (0, 100, "accepted"),
            (0, 1000, "accepted"),
            (0, 999, "reordered"),
            (0, 999, "duplicate"),
        ],
        Counts(lost=1, jumps=1),
    ),
    "monotonic: a drop is replayed": (
        MONOTONIC,
        [(0, 100, "accepted"), (0, 84, "replayed"), (0, 1, "replayed"), (0, 101, "accepted")],
        Counts(),
    ),
    "monotonic: a copy beyond the horizon is replayed": (
        MONOTONIC,
        [(0, 100, "accepted"), (2.25, 100, "replayed"), (90, 99, "replayed"), (90, 101, "accepted")],
        Counts(),
    ),
    "monotonic: near ones are what they always are": (
        MONOTONIC,
        [(0, 100, "accepted"), (0, 102, "accepted"), (0, 100, "duplicate"), (0, 101, "stale")],
        Counts(),
    ),
    "monotonic: a jump is still a jump": (MONOTONIC, [(0, 1, "accepted"), (0, 90, "accepted")], Counts(jumps=1)),
    "what leaves the window is lost before its time": (
        RULES,
        # 2 is the last but one of the window when 17 comes, and out of it when 18 does.
        [(0, 1, "accepted"), (0, 3, "accepted"), (0, 17, "accepted"), (0, 18, "accepted")],
        Counts(missing=13, lost=1),
    ),
    "what is at the edge of the window is not lost yet": (
        RULES,
        [(0, 1, "accepted"), (0, 3, "accepted"), (0, 17, "accepted"), (0, 2, "stale")],
        Counts(missing=13),
    ),
    "a late one heals its gap, and the next one goes on": (
        RULES,
        [(0, 1, "accepted"), (0, 3, "accepted"), (0, 2, "stale"), (0, 4, "accepted"), (0, 4, "duplicate")],
        Counts(),
    ),
    "the largest seq": (
        RULES,
        [(0, 2**64 - 2, "accepted"), (0, 2**64 - 1, "accepted"), (0, 0, "restart"), (0, 1, "accepted")],
        Counts(restarts=1),
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_gets_its_verdicts_and_counts(name: str) -> None:
    rules, steps, counts = HISTORIES[name]
    sources = Sources(rules)
    verdicts = []
    for now, what, _ in steps:
        if isinstance(what, str):
            sources.sweep(now)
            verdicts.append("")
        else:
            verdicts.append(NAMES[receive(sources, SRC, what, now)])
    assert verdicts == [expected for _, _, expected in steps]
    assert Counts(sources.missing, sources.lost, sources.restarts, sources.jumps) == counts
    assert sum(sources.losers.values()) == sources.lost


# -- the model: sets of what was seen, a table of what is missing, and the rules one after the other


@dataclass
class Tracker:
    """One epoch of one source."""

    last: int
    heard: float
    epoch: int = 1
    seen: set[int] = field(default_factory=set)
    missing: dict[int, float] = field(default_factory=dict)  # seq -> when it is lost


class Model:
    def __init__(self, rules: DedupRules) -> None:
        self.rules = rules
        self.trackers: dict[bytes, Tracker] = {}
        self.lost = 0
        self.restarts = 0
        self.jumps = 0

    @property
    def missing(self) -> int:
        return sum(len(tracker.missing) for tracker in self.trackers.values())

    def receive(self, src: bytes, seq: int, now: float) -> int:
        tracker = self.trackers.get(src)
        if tracker is None:
            self.trackers[src] = Tracker(seq, now, seen={seq})
            return ACCEPTED
        if seq > tracker.last:
            if seq - tracker.last >= self.rules.sanity:
                self.jumps += 1
                self.new_epoch(tracker, seq)
            else:
                for between in range(tracker.last + 1, seq):
                    tracker.missing[between] = now + self.rules.horizon
                tracker.last = seq
                tracker.seen.add(seq)
                self.lose(tracker, lambda old, _: seq - old >= self.rules.sanity)
            tracker.heard = now
            return ACCEPTED
        if tracker.last - seq >= self.rules.sanity or now - tracker.heard > self.rules.horizon:
            if self.rules.monotonic:
                return REPLAYED
            self.restarts += 1
            self.new_epoch(tracker, seq)
            tracker.heard = now
            return RESTART
        if seq in tracker.seen:
            return DUPLICATE
        tracker.seen.add(seq)
        tracker.missing.pop(seq, None)
        if self.rules.deliver_late:
            tracker.heard = now
            return REORDERED
        return STALE

    def new_epoch(self, tracker: Tracker, seq: int) -> None:
        self.lose(tracker, lambda _, __: True)
        tracker.epoch += 1
        tracker.last = seq
        tracker.seen = {seq}

    def lose(self, tracker: Tracker, which: Callable[[int, float], bool]) -> None:
        gone = [seq for seq, deadline in tracker.missing.items() if which(seq, deadline)]
        for seq in gone:
            del tracker.missing[seq]
        self.lost += len(gone)

    def sweep(self, now: float) -> None:
        for tracker in self.trackers.values():
            self.lose(tracker, lambda _, deadline: deadline <= now)


class Act(NamedTuple):
    """One thing that happens: time passes, then a datagram arrives from a source, at a distance from its last seq or
    as a copy of one of its last few; with no source there is a sweep instead."""

    src: int | None
    distance: int
    copy: int
    quarters: int


def acts(sanity: int) -> st.SearchStrategy[Act]:
    edge = st.sampled_from([sanity, -sanity]).flatmap(lambda at: st.integers(at - 2, at + 2))
    far = st.sampled_from([-(10**6), 10**6])
    distances = st.one_of(st.just(1), st.just(1), st.integers(-4, 4), st.integers(-sanity, sanity), edge, far)
    quarters = st.one_of(st.just(0), st.just(0), st.integers(0, 12))
    srcs = st.sampled_from([None, 0, 0, 1, 1, 2, 2])
    return st.builds(Act, srcs, distances, st.sampled_from([0, 0, 0, 1, 2, 3]), quarters)


@st.composite
def histories(draw: st.DrawFn, sanities: st.SearchStrategy[int], length: int) -> tuple[DedupRules, list[Act]]:
    sanity = draw(sanities)
    rules = DedupRules(
        sanity=sanity, horizon=draw(st.sampled_from([0.25, 1.0, 2.0])), deliver_late=draw(st.booleans()),
        monotonic=draw(st.booleans()),
    )  # fmt: skip
    return rules, draw(st.lists(acts(sanity), max_size=length))


def agree(rules: DedupRules, history: list[Act]) -> None:
    """Play a history to the trackers and to the model, and compare after every step."""
    sources, model = Sources(rules), Model(rules)
    sent: dict[bytes, list[int]] = {}
    now = 1000.0
    for act in history:
        now += act.quarters / 4
        if act.src is None:
            sources.sweep(now)
            model.sweep(now)
        else:
            src = b"host/%d" % act.src
            known = model.trackers.get(src)
            seq = 1000 if known is None else min(max(known.last + act.distance, 0), bccn1.MAX_SEQ)
            before = sent.setdefault(src, [])
            if 0 < act.copy <= len(before):
                seq = before[-act.copy]
            before.append(seq)
            # To foresee remembers nothing: if it did, what comes next would differ.
            foreseen = sources.foresee(src, seq, now)
            assert sources.epoch(src) == (known.epoch if known else 0)
            verdict = receive(sources, src, seq, now)
            assert NAMES[foreseen] == NAMES[verdict] == NAMES[model.receive(src, seq, now)]
        assert Counts(sources.missing, sources.lost, sources.restarts, sources.jumps) == Counts(
            model.missing, model.lost, model.restarts, model.jumps
        )
    assert {source.src: (source.epoch, source.last, source.heard) for source in sources.latest(10)} == {
        src: (tracker.epoch, tracker.last, tracker.heard) for src, tracker in model.trackers.items()
    }


@given(histories(st.integers(16, 32), 60))
@examples(700)
def test_trackers_agree_with_the_model_in_a_small_window(history: tuple[DedupRules, list[Act]]) -> None:
    agree(*history)


@given(histories(st.just(1024), 40))
@examples(150)
def test_trackers_agree_with_the_model_in_the_usual_window(history: tuple[DedupRules, list[Act]]) -> None:
    agree(*history)


@given(st.permutations(range(100, 124)), st.lists(st.integers(100, 123), max_size=10))
@examples(200)
def test_each_seq_of_a_shuffled_window_is_delivered_once_where_late_ones_are(
    order: list[int], copies: list[int]
) -> None:
    sources = Sources(DedupRules(sanity=32, deliver_late=True))
    delivered = [seq for seq in order + copies if receive(sources, SRC, seq, 0.0) in (ACCEPTED, REORDERED)]
    assert delivered == order
    assert (sources.missing, sources.lost, sources.restarts) == (0, 0, 0)


# -- caps and ages. Steps are a second or more apart, so that the order of eviction is exact.


class Touch(NamedTuple):
    src: int
    seconds: float
    back: bool  # the source begins at 1 again


def touches() -> st.SearchStrategy[list[Touch]]:
    return st.lists(st.builds(Touch, st.integers(0, 7), st.integers(1, 4), st.booleans()), max_size=40)


def fast_touches() -> st.SearchStrategy[list[Touch]]:
    """Some of them within a second, when nobody can have restarted."""
    seconds = st.sampled_from([0.25, 0.25, 0.5, 0.75, 1.0, 2.0])
    return st.lists(st.builds(Touch, st.integers(0, 4), seconds, st.just(False)), max_size=40)


def play(sources: Sources, history: list[Touch], after: Callable[[bytes, float], None]) -> float:
    """Let sources speak, one a time; a source that goes back is taken for restarted."""
    seqs: dict[int, int] = {}
    now = 0.0
    for touch in history:
        now += touch.seconds
        seqs[touch.src] = 1 if touch.back else seqs.get(touch.src, 0) + 1
        src = b"host/%d" % touch.src
        receive(sources, src, seqs[touch.src], now)
        after(src, now)
    return now


@given(touches(), st.integers(1, 5))
@examples(300)
def test_the_cap_puts_out_who_was_not_heard_for_the_longest_time(history: list[Touch], cap: int) -> None:
    # A horizon below a second: whoever goes back after one is a restart and was heard.
    sources = Sources(DedupRules(sanity=16, horizon=0.5, max_sources=cap))
    heard: dict[bytes, float] = {}
    evicted = 0

    def expect(src: bytes, now: float) -> None:
        nonlocal evicted
        if src not in heard and len(heard) == cap:
            del heard[min(heard, key=lambda name: heard[name])]
            evicted += 1
        heard[src] = now
        assert {source.src for source in sources.latest(100)} == set(heard)
        assert [source.src for source in sources.latest(2)] == sorted(heard, key=lambda name: -heard[name])[:2]
        assert len(sources) == len(heard) <= cap
        assert sources.evicted == evicted

    play(sources, history, expect)


@given(touches(), st.integers(2, 12))
@examples(300)
def test_a_sweep_forgets_who_was_silent_for_too_long_and_no_one_else(history: list[Touch], expire: int) -> None:
    sources = Sources(DedupRules(sanity=16, horizon=0.5, expire=float(expire)))
    heard: dict[bytes, float] = {}
    expired = 0

    def expect(src: bytes, now: float) -> None:
        nonlocal expired
        heard[src] = now
        sources.sweep(now)
        for name in [name for name, when in heard.items() if when + expire <= now]:
            del heard[name]
            expired += 1
        assert {name for name in (b"host/%d" % n for n in range(8)) if name in sources} == set(heard)
        assert sources.expired == expired

    play(sources, history, expect)


@given(st.one_of(touches(), fast_touches()), st.integers(0, 24), st.integers(0, 20))
@examples(300)
def test_alive_counts_who_was_heard_lately(history: list[Touch], half_seconds: int, later: int) -> None:
    sources = Sources(DedupRules(sanity=16, horizon=0.5))
    heard: dict[bytes, float] = {}
    span = half_seconds / 2

    def expect(src: bytes, now: float) -> None:
        heard[src] = now
        for then in (now, now + later / 4):
            assert sources.alive(then, span) == sum(1 for when in heard.values() if when + span >= then)

    play(sources, history, expect)


def test_alive_does_not_mind_that_the_order_may_be_off() -> None:
    # b stands behind a, although a was heard after it.
    sources = Sources(DedupRules())
    for src, seq, now in ((b"a", 1, 0.0), (b"b", 1, 0.5), (b"a", 2, 0.75)):
        receive(sources, src, seq, now)
    assert sources.alive(1.25, 0.5) == 1


def test_the_rules_are_those_of_the_contract_unless_told_otherwise() -> None:
    # As etc/bccnd.yaml tells people.
    assert DedupRules() == DedupRules(
        sanity=1024,
        horizon=2.0,
        deliver_late=False,
        monotonic=False,
        expire=24 * 3600.0,
        max_sources=100_000,
    )


def test_who_restarts_with_every_message_is_as_young_as_its_last_one() -> None:
    # A script that sends one message and ends, again and again: always seq 1, always a restart.
    sources = Sources(DedupRules(max_sources=2, expire=100.0))
    receive(sources, b"script", 1, 0.0)
    receive(sources, b"silent", 1, 5.0)
    for now in (50.0, 90.0, 120.0):
        assert receive(sources, b"script", 1, now) == RESTART
    assert [source.src for source in sources.latest(2)] == [b"script", b"silent"]
    assert sources.alive(125.0, 10.0) == 1
    sources.sweep(125.0)
    assert b"silent" not in sources
    assert b"script" in sources


def test_within_a_second_the_order_of_eviction_may_be_off_and_no_more() -> None:
    sources = Sources(DedupRules(max_sources=2))
    receive(sources, b"a", 1, 0.0)
    receive(sources, b"b", 1, 0.5)
    receive(sources, b"a", 2, dedup.RANK_SECONDS)
    receive(sources, b"c", 1, dedup.RANK_SECONDS)
    assert b"a" in sources
    assert b"b" not in sources


def test_eviction_and_expiry_give_up_what_is_missing() -> None:
    sources = Sources(DedupRules(max_sources=1, expire=10.0, horizon=50.0))
    receive(sources, b"a", 1, 0.0)
    receive(sources, b"a", 4, 0.0)
    receive(sources, b"b", 1, 1.0)
    assert (sources.missing, sources.lost, sources.evicted) == (0, 2, 1)
    receive(sources, b"b", 6, 1.0)
    sources.sweep(11.0)
    assert (sources.missing, sources.lost, sources.expired, len(sources)) == (0, 6, 1, 0)
    # The gaps of the departed come due, and are not counted again.
    sources.sweep(100.0)
    assert (sources.missing, sources.lost) == (0, 6)


def test_a_source_that_was_forgotten_begins_anew() -> None:
    sources = Sources(DedupRules(expire=10.0))
    receive(sources, SRC, 500, 0.0)
    sources.sweep(10.0)
    assert sources.judge(SRC, 500, 10.0) == UNHEARD
    assert receive(sources, SRC, 1, 10.0) == ACCEPTED
    assert sources.restarts == 0


def test_a_sweep_never_looks_at_more_than_its_share() -> None:
    sources = Sources(DedupRules(expire=10.0))
    count = 2 * dedup.SWEEP_STEP + 10
    for number in range(count):
        receive(sources, b"host/%d" % number, 1, 0.0)
    left = []
    for _ in range(3):
        sources.sweep(10.0)
        left.append(len(sources))
    assert left == [count - dedup.SWEEP_STEP, 10, 0]
    assert sources.expired == count


def test_open_gaps_are_capped_and_the_oldest_is_lost_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "MAX_GAPS", 2)
    sources = Sources(DedupRules())
    for seq in (1, 3, 6, 10):
        receive(sources, SRC, seq, 0.0)
    assert (sources.missing, sources.lost) == (5, 1)
    assert receive(sources, SRC, 2, 0.0) == STALE
    assert (sources.missing, sources.lost) == (5, 1)


# -- rules that change while it runs


def test_new_rules_hold_at_once_and_the_trackers_stay() -> None:
    sources = Sources(DedupRules())
    for seq in (1, 2, 4, 5):
        receive(sources, SRC, seq, 0.0)
    sources.configure(DedupRules(deliver_late=True))
    assert receive(sources, SRC, 2, 0.0) == DUPLICATE
    assert receive(sources, SRC, 3, 0.0) == REORDERED
    sources.configure(DedupRules(monotonic=True))
    assert receive(sources, SRC, 5, 3.0) == REPLAYED
    sources.configure(DedupRules(horizon=5.0))
    assert receive(sources, SRC, 5, 3.0) == DUPLICATE
    sources.configure(DedupRules(sanity=16))
    assert receive(sources, SRC, 21, 3.0) == ACCEPTED
    assert sources.jumps == 1


def test_a_lower_cap_evicts_with_the_next_sweeps_the_oldest_first() -> None:
    sources = Sources(DedupRules())
    for number in range(5):
        receive(sources, b"host/%d" % number, 1, float(number))
    sources.configure(DedupRules(max_sources=2))
    assert sources.sweep(5.0) is False
    assert [source.src for source in sources.latest(5)] == [b"host/4", b"host/3"]
    assert sources.evicted == 3


@given(st.lists(st.integers(1, 20), max_size=20), st.integers(16, 40), st.integers(16, 40))
@examples(200)
def test_a_change_of_window_loses_no_count(steps: list[int], before: int, after: int) -> None:
    sources = Sources(DedupRules(sanity=before))
    seq, skipped = 100, 0
    receive(sources, SRC, seq, 0.0)
    for number, step in enumerate(steps):
        if number == len(steps) // 2:
            sources.configure(DedupRules(sanity=after))
        seq += step
        jumps = sources.jumps
        receive(sources, SRC, seq, 0.0)
        skipped += step - 1 if sources.jumps == jumps else 0
        assert sources.missing + sources.lost == skipped
    sources.sweep(100.0)
    receive(sources, SRC, seq + 1000, 100.0)
    assert (sources.missing, sources.lost) == (0, skipped)


# -- our own identities


def test_what_comes_in_under_an_identity_of_ours_is_looped() -> None:
    sources = Sources(DedupRules())
    sources.claim(SRC)
    for seq in (1, 1, 2, 99999, 0):
        assert receive(sources, SRC, seq, 0.0) == LOOPED
    assert receive(sources, b"other", 1, 0.0) == ACCEPTED
    assert SRC not in sources


def test_a_released_identity_is_ours_until_its_time_is_over() -> None:
    sources = Sources(DedupRules())
    sources.claim(SRC)
    sources.release(SRC, 10.0)
    sources.sweep(9.75)
    assert receive(sources, SRC, 1, 9.75) == LOOPED
    sources.sweep(10.0)
    assert receive(sources, SRC, 1, 10.0) == ACCEPTED


def test_an_identity_claimed_again_is_ours_beyond_the_time_of_its_release() -> None:
    sources = Sources(DedupRules())
    sources.claim(SRC)
    sources.release(SRC, 10.0)
    sources.claim(SRC)
    sources.sweep(20.0)
    assert receive(sources, SRC, 1, 20.0) == LOOPED
    sources.release(SRC, 30.0)
    sources.sweep(29.0)
    assert receive(sources, SRC, 1, 29.0) == LOOPED
    sources.sweep(30.0)
    assert receive(sources, SRC, 1, 30.0) == ACCEPTED


def test_claiming_what_was_tracked_ends_its_tracker_and_gives_up_what_it_missed() -> None:
    sources = Sources(DedupRules())
    receive(sources, SRC, 1, 0.0)
    receive(sources, SRC, 4, 0.0)
    sources.claim(SRC)
    assert (len(sources), sources.missing, sources.lost) == (0, 0, 2)
    sources.sweep(100.0)
    assert (sources.missing, sources.lost) == (0, 2)
    assert receive(sources, SRC, 5, 0.0) == LOOPED


def test_releasing_what_was_never_claimed_claims_nothing() -> None:
    sources = Sources(DedupRules())
    sources.release(SRC, 10.0)
    assert receive(sources, SRC, 1, 0.0) == ACCEPTED


def test_released_identities_are_capped_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "MAX_RELEASED", 2)
    sources = Sources(DedupRules())
    for number in range(3):
        sources.claim(b"own/%d" % number)
        sources.release(b"own/%d" % number, 10.0 + number)
    verdicts = [receive(sources, b"own/%d" % number, 1, 0.0) for number in range(3)]
    assert verdicts == [ACCEPTED, LOOPED, LOOPED]
    assert sources.own_evicted == 1


# -- somebody else under a name of ours


def ours(sources: Sources, first: int, beyond: int, src: bytes = SRC) -> None:
    """An identity of ours under which the seqs from ``first`` up to ``beyond`` were given."""
    own = sources.claim(src)
    own.first, own.next = first, beyond


@pytest.mark.parametrize(
    ("seq", "somebody_else"),
    [(99, True), (100, False), (101, False), (104, False), (105, True), (0, True), (1, True), (bccn1.MAX_SEQ, True)],
)
def test_a_seq_that_we_have_not_given_is_of_somebody_else(seq: int, somebody_else: bool) -> None:
    sources = Sources(DedupRules())
    ours(sources, 100, 105)
    assert receive(sources, SRC, seq, 0.0) == LOOPED
    assert sources.conflict(SRC, seq) is somebody_else
    assert sources.conflicts == somebody_else


@pytest.mark.parametrize("seq", [0, 1, bccn1.MAX_SEQ])
def test_who_has_said_nothing_yet_has_given_no_seq(seq: int) -> None:
    sources = Sources(DedupRules())
    sources.claim(SRC)
    assert sources.conflict(SRC, seq)


@given(st.integers(0, 30), st.integers(0, 30), st.lists(st.integers(0, 30), max_size=10))
@examples(100)
def test_every_conflict_is_counted_and_the_first_one_told(first: int, count: int, seqs: list[int]) -> None:
    sources = Sources(DedupRules())
    ours(sources, first, first + count)
    foreign = [seq not in range(first, first + count) for seq in seqs]
    told = [sources.conflict(SRC, seq) for seq in seqs]
    assert sources.conflicts == sum(foreign)
    assert told == [foreign[n] and not any(foreign[:n]) for n in range(len(seqs))]


def test_each_identity_is_told_for_itself() -> None:
    sources = Sources(DedupRules())
    for number in range(3):
        ours(sources, 1, 10, b"own/%d" % number)
    assert [sources.conflict(b"own/%d" % (number % 3), 99) for number in range(6)] == [True] * 3 + [False] * 3
    assert sources.conflicts == 6


def test_what_was_told_is_told_again_only_when_the_identity_has_been_somebody_elses_meanwhile() -> None:
    sources = Sources(DedupRules())
    ours(sources, 1, 10)
    assert sources.conflict(SRC, 99)
    sources.release(SRC, 10.0)
    sources.sweep(9.0)
    assert not sources.conflict(SRC, 99)
    sources.claim(SRC)
    assert not sources.conflict(SRC, 99)
    sources.release(SRC, 20.0)
    sources.sweep(20.0)
    sources.claim(SRC)
    assert sources.conflict(SRC, 99)
    assert sources.conflicts == 4


def test_what_we_have_given_is_known_until_the_identity_is_ours_no_more() -> None:
    sources = Sources(DedupRules())
    ours(sources, 100, 105)
    sources.release(SRC, 10.0)
    assert not sources.conflict(SRC, 104)
    own = sources.claim(SRC)
    assert (own.first, own.next) == (100, 105)
    sources.release(SRC, 20.0)
    sources.sweep(20.0)
    own = sources.claim(SRC)
    assert (own.first, own.next, own.reported) == (0, 0, False)


# -- a tracker that is given up


def test_who_is_forgotten_might_never_have_been_heard() -> None:
    sources = Sources(DedupRules())
    for src in (b"a", SRC, b"b"):
        receive(sources, src, 1, 0.0)
    receive(sources, SRC, 5, 0.0)
    source = sources.get(SRC)
    assert source is not None
    sources.forget(source)
    assert sources.get(SRC) is None
    assert SRC not in sources
    assert [one.src for one in sources.latest(5)] == [b"b", b"a"]
    assert (len(sources), sources.alive(0.0, 5.0)) == (2, 2)
    assert (sources.missing, sources.lost, sources.expired, sources.evicted) == (0, 3, 1, 0)
    assert sources.judge(SRC, 5, 0.0) == UNHEARD
    assert receive(sources, SRC, 3, 0.0) == ACCEPTED
    assert sources.restarts == 0


def test_the_gaps_of_who_was_forgotten_are_not_those_of_his_successor() -> None:
    sources = Sources(DedupRules())
    receive(sources, SRC, 1, 0.0)
    receive(sources, SRC, 5, 0.0)
    source = sources.get(SRC)
    assert source is not None
    sources.forget(source)
    receive(sources, SRC, 1, 1.0)
    receive(sources, SRC, 4, 1.0)
    sources.sweep(2.5)  # when the gap of the former one comes due
    assert (sources.missing, sources.lost) == (2, 3)
    sources.sweep(3.0)
    assert (sources.missing, sources.lost) == (0, 5)


# -- who does not know its own name


def test_what_is_foreseen_of_names_of_ours_and_of_nobody_is_what_is_judged() -> None:
    sources = Sources(RULES)
    own = sources.claim(SRC)
    own.first, own.next = 5, 8
    for src, seq in ((SRC, 6), (SRC, 99), (b"?", 1), (b"other", 1), (b"other", 1)):
        for _ in range(2):  # the second look finds what the first found
            foreseen = sources.foresee(src, seq, 0.0)
            assert (foreseen, sources.conflicts, own.reported) == (sources.foresee(src, seq, 0.0), 0, False)
        assert foreseen == receive(sources, src, seq, 0.0)
    sources.release(SRC, 1.0)
    sources.sweep(2.0)
    assert sources.foresee(SRC, 6, 2.0) == ACCEPTED
    assert SRC not in sources
    assert sources.epoch(SRC) == 0


def test_epochs_are_counted_from_one_and_end_with_the_tracker() -> None:
    sources = Sources(RULES)
    assert sources.epoch(SRC) == 0
    for seq, now, epoch in ((100, 0.0, 1), (101, 0.0, 1), (1, 0.0, 2), (1000, 0.0, 3), (1000, 9.0, 4)):
        receive(sources, SRC, seq, now)
        assert sources.epoch(SRC) == epoch
    source = sources.get(SRC)
    assert source is not None
    sources.forget(source)
    assert sources.epoch(SRC) == 0


def test_the_unknown_sender_has_no_tracker() -> None:
    sources = Sources(DedupRules())
    for seq in (1, 1, 5):
        assert receive(sources, b"?", seq, 0.0) == UNKNOWN_SENDER
    assert (len(sources), sources.missing) == (0, 0)
    assert receive(sources, b"??", 1, 0.0) == ACCEPTED


class Said(NamedTuple):
    peer: str
    body: bytes
    quarters: int


def says() -> st.SearchStrategy[list[Said]]:
    peers = st.sampled_from(["10.0.0.1:5400", "10.0.0.2:5400", "10.0.0.1:5401"])
    texts = st.sampled_from([b"?:1:c|x", b"?:2:c|x", b"?:1:d|x", b"?:1:c|y", b"?:1:c|"])
    return st.lists(st.builds(Said, peers, texts, st.sampled_from([0, 0, 1, 3, 4, 7, 8, 9, 20])), max_size=40)


@given(says(), st.sampled_from([0.25, 1.0, 2.0]))
@examples(400)
def test_only_the_same_from_the_same_within_the_horizon_is_a_duplicate(history: list[Said], horizon: float) -> None:
    nameless = Nameless(horizon)
    accepted: dict[tuple[str, bytes], float] = {}
    now = 1000.0
    for peer, body, quarters in history:
        now += quarters / 4
        before = accepted.get((peer, body))
        expected = DUPLICATE if before is not None and now - before <= horizon else ACCEPTED
        if expected == ACCEPTED:
            accepted[peer, body] = now
        assert NAMES[nameless.foresee(peer, body, now)] == NAMES[expected]
        assert NAMES[nameless.judge(peer, body, now)] == NAMES[expected]
    assert nameless.evicted == 0


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), max_size=60), st.integers(1, 4))
@examples(200)
def test_what_is_foreseen_of_the_nameless_is_what_is_judged_also_in_a_flood(
    history: list[tuple[int, int]], cap: int
) -> None:
    nameless, now = Nameless(2.0, cap=cap), 1000.0
    for number, quarters in history:
        now += quarters / 4
        body = b"?:1:c|%d" % number
        assert NAMES[nameless.foresee("10.0.0.1:1", body, now)] == NAMES[nameless.judge("10.0.0.1:1", body, now)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=80), st.integers(1, 6))
@examples(200)
def test_a_flood_of_nameless_ones_is_capped_and_only_forgets(history: list[tuple[int, int]], cap: int) -> None:
    nameless = Nameless(2.0, cap=cap)
    accepted: dict[int, float] = {}
    now = 1000.0
    for number, quarters in history:
        now += quarters / 4
        verdict = nameless.judge("10.0.0.1:1", b"?:1:c|%d" % number, now)
        assert len(nameless._young) <= cap
        assert len(nameless._old) <= cap
        if verdict == DUPLICATE:
            # Never a message that was not there: to forget means to deliver twice.
            assert now - accepted[number] <= 2.0
        elif number in accepted and now - accepted[number] <= 2.0:
            assert nameless.evicted > 0
        if verdict == ACCEPTED:
            accepted[number] = now


def test_the_last_ones_up_to_the_cap_are_never_forgotten() -> None:
    nameless = Nameless(2.0, cap=4)
    for number in range(100):
        assert nameless.judge("10.0.0.1:1", b"%d" % number, 0.0) == ACCEPTED
        for recent in range(max(0, number - 3), number + 1):
            assert nameless.judge("10.0.0.1:1", b"%d" % recent, 0.0) == DUPLICATE
    # 100 were let in, and two generations of 4 are the most that is held.
    assert 92 <= nameless.evicted < 100


def test_peers_are_told_apart_whatever_is_in_their_names() -> None:
    nameless = Nameless(2.0)
    for peer in ["", "a", "a:1", "b", "\u00e9", "[fe80::1%eth0]:5400"]:
        assert nameless.judge(peer, b"?:1:c|x", 0.0) == ACCEPTED
        assert nameless.judge(peer, b"?:1:c|x", 0.0) == DUPLICATE


def test_it_is_known_who_lost_most_however_many_lose_something() -> None:
    sources = Sources(DedupRules(horizon=2.0))
    crowd = [b"crowd/%d" % number for number in range(3 * MAX_LOSERS)]
    for seq in (1, 30):
        receive(sources, b"worst", seq, 0.0)
    for src in crowd:
        receive(sources, src, 1, 0.0)
        receive(sources, src, 3, 0.0)
    while sources.sweep(10.0):
        pass
    assert sources.lost == 28 + len(crowd)
    assert sources.losers[b"worst"] == 28
    assert MAX_LOSERS <= len(sources.losers) <= 2 * MAX_LOSERS
