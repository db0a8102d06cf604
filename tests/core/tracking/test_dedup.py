"""The trackers: long random histories against a slow model with plain sets, and what the model does not have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking import dedup, local_identities, losses
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire import bccn1
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, LOOPED, NAMES, REORDERED, REPLAYED, RESTART, STALE
from tests.core import scenario
from tests.core.material import examples
from tests.core.scenario import COUNTERS, counter
from tests.core.tracker_hosts import SRC, Host, receive
from tests.rules import dedup_rules

#: what the model does not have: local identities, removed trackers, epochs, and the largest seqs
HISTORIES: dict[str, str] = {
    "the largest seq": f"{2**64 - 2} {2**64 - 1} 0:restart 1 restarts=1",
    "under a local identity": "claim 1:looped 1:looped 2:looped 99999:looped 0:looped tracked=0",
    "a released identity is local until its time is over": "claim release:10 @9.75 sweep 1:looped @10 sweep 1",
    "an identity that is claimed again": (
        "claim release:10 claim @20 sweep 1:looped release:30 @29 sweep 1:looped @30 sweep 1"
    ),
    "a claim ends the tracker and gives up what was missing": (
        "1 4 claim tracked=0 missing=0 lost=2 @100 sweep 5:looped"
    ),
    "releasing an unclaimed identity claims nothing": "release:10 1",
    "after its expiry a source is new": "500 @199.75 sweep tracked=1 @200 sweep tracked=0 1",
    "the source silent for longest expires first": "b.1 @10 c.1 @150 b.2 @209 sweep tracked=2 @210 sweep latest=b",
    "and is evicted first": "limits:max_sources=2 b.1 @10 c.1 @20 b.2 @30 d.1 latest=d,b evicted=1",
    "gaps of a forgotten tracker are not those of the next one": (
        "1 5 forget @1 1 4 @2.5 sweep missing=2 lost=3 @3 sweep missing=0 lost=5"
    ),
    "a forgotten source is new": (
        "b.1 1 c.1 4 forget lost=2 tracked=2 expired=1 evicted=0 latest=c,b epoch=0 5 latest=1,c,b"
    ),
    "other limits hold at once, and trackers stay": (
        "1 2 4 5 missing=1 limits:late=deliver 2:duplicate 3:reordered missing=0 limits:freshness=monotonic @3"
        " 5:replayed limits:horizon=5 5:duplicate limits:sanity=4 9 jumps=1"
    ),
    "a lower cap evicts with the next sweeps, the oldest first": (
        "b.1 @1 c.1 @2 d.1 @3 e.1 limits:max_sources=2 sweep latest=e,d evicted=2"
    ),
    "used seqs stay while an identity is local": (
        "uses:100:105 foreign:99 release:10 @9 sweep foreign:99 used:104 claim used:100 foreign:105"
        " release:20 @20 sweep claim foreign:104"
    ),
    "epochs are counted from one and end with the tracker": (
        "epoch=0 100 101 epoch=1 1:restart epoch=2 1000 @9 1000:restart epoch=4 forget epoch=0 restarts=2 jumps=1"
    ),
}


@pytest.fixture(autouse=True)
def _no_rate_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hole is a jump: `test_losses` has what the rate of a source explains."""
    monkeypatch.setattr(losses, "MAX_HOLES", 0)


@pytest.mark.parametrize("name", HISTORIES)
def test_histories_get_their_verdicts_and_counts(name: str) -> None:
    scenario.play(TrackerTable(dedup_rules(sanity=16, horizon=2.0, expire=200.0)), HISTORIES[name])


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
    def __init__(self, rules: TrackerLimits) -> None:
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
        if self.rules.late == REORDERED:
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
def histories(draw: st.DrawFn) -> tuple[TrackerLimits, list[Act]]:
    sanity = draw(st.one_of(*[st.integers(16, 32)] * 4, st.just(1024)))
    rules = dedup_rules(
        sanity=sanity, horizon=draw(st.sampled_from([0.25, 1.0, 2.0])), deliver_late=draw(st.booleans()),
        monotonic=draw(st.booleans()),
    )  # fmt: skip
    return rules, draw(st.lists(acts(sanity), max_size=60))


@given(histories())
@examples(850)
def test_trackers_agree_with_the_model_after_every_step(drawn: tuple[TrackerLimits, list[Act]]) -> None:
    rules, history = drawn
    sources, model = TrackerTable(rules), Model(rules)
    host, sent = Host(sources), dict[bytes, list[int]]()
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
            # `predict` changes nothing, else the following verdicts would differ.
            foreseen = sources.predict(src, seq, now)
            assert sources.epoch(src) == (known.epoch if known else 0)
            verdict = receive(sources, src, seq, now)
            assert NAMES[foreseen] == NAMES[verdict] == NAMES[model.receive(src, seq, now)]
        for name in COUNTERS:
            assert (name, counter(host, name)) == (name, getattr(model, name))
        assert sum(sources.losses.by_src.values()) == sources.counted["lost"]
    assert {source.src: (source.epoch, source.last, source.heard) for source in sources.latest(10)} == {
        src: (tracker.epoch, tracker.last, tracker.heard) for src, tracker in model.trackers.items()
    }


def test_eviction_and_expiry_give_up_what_is_missing() -> None:
    # The gaps come due later, and are not counted again.
    words = "b.1 b.4 @1 1 missing=0 lost=2 evicted=1 6 @11 sweep lost=6 expired=1 tracked=0 @100 sweep lost=6"
    scenario.play(TrackerTable(dedup_rules(max_sources=1, expire=10.0, horizon=50.0)), words)


def test_sources_heard_within_some_seconds_are_alive() -> None:
    sources = TrackerTable(dedup_rules())
    for number in range(3):
        receive(sources, b"host/%d" % number, 1, 2.0 * number)
    assert [sources.alive(10.0, seconds) for seconds in (5.0, 6.0, 8.0, 20.0)] == [0, 1, 2, 3]


def test_a_sweep_never_looks_at_more_than_its_share() -> None:
    sources = TrackerTable(dedup_rules(expire=10.0))
    count = 2 * dedup.SWEEP_STEP + 10
    for number in range(count):
        receive(sources, b"host/%d" % number, 1, 0.0)
    for left in (count - dedup.SWEEP_STEP, 10, 0):
        assert sources.sweep(10.0) is (left > 0)
        assert len(sources) == left
    assert sources.counted["expired"] == count


def test_open_gaps_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "MAX_GAPS", 2)
    scenario.play(TrackerTable(dedup_rules()), "1 3 6 10 missing=5 lost=1 2:stale")


@given(st.lists(st.integers(1, 20), max_size=20), st.integers(16, 40), st.integers(16, 40))
@examples(200)
def test_a_change_of_window_loses_no_count(steps: list[int], before: int, after: int) -> None:
    sources = TrackerTable(dedup_rules(sanity=before))
    seq, skipped = 100, 0
    receive(sources, SRC, seq, 0.0)
    for number, step in enumerate(steps):
        if number == len(steps) // 2:
            sources.limits.refresh(sanity=after)
        seq += step
        jumps = sources.counted["jumps"]
        receive(sources, SRC, seq, 0.0)
        skipped += step - 1 if sources.counted["jumps"] == jumps else 0
        assert sources.missing + sources.counted["lost"] == skipped
    sources.sweep(100.0)
    receive(sources, SRC, seq + 1000, 100.0)
    assert (sources.missing, sources.counted["lost"]) == (0, skipped)


# -- local identities


def test_released_identities_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_identities, "MAX_RELEASED", 2)
    sources = TrackerTable(dedup_rules())
    for number in range(3):
        sources.claim(b"own/%d" % number)
        sources.local.release(b"own/%d" % number, 10.0 + number)
    verdicts = [receive(sources, b"own/%d" % number, 1, 0.0) for number in range(3)]
    assert verdicts == [ACCEPTED, LOOPED, LOOPED]
    assert sources.counted["own_evicted"] == 1
