"""Liveness: random histories against a naive model that checks every source, and what the model does not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking import liveness
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import (
    ALIVE,
    ASLEEP,
    MAX_STRETCH,
    SILENT,
    STATE_NAMES,
    TICK,
    UNWATCHED,
    HeartbeatRules,
)
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_limits import TrackerLimits
from tests.core import scenario
from tests.core.material import examples
from tests.core.tracker_hosts import WATCH, Host
from tests.rules import dedup_rules

TWICE_DEAD = ["alive", *["silent", "dead", "alive"] * 2]
#: what is expected of silence, and what happens; by default sources are silent after 6 s, and dead after 14
HISTORIES: dict[str, tuple[dict[str, Any], str]] = {
    "a heartbeat that waited in a link changes no gap": ({}, "beat >8 beat message beat-7 beat >16 beat interval=8"),
    "an expired source is not watched": ({"expire": 5.0}, "beat >30 =alive tracked=0 expired=1 deaths=0"),
    "nor is a local one": ({}, "beat >6.25 claim >30 =alive,silent silent=0 deaths=0"),
    "those that have lost their trackers count until they are checked": (
        {"max_sources": 1},
        "beat b.beat =alive b.= unwatched=1 >6 b.beat unwatched=2 >6.5 b.beat b.=alive unwatched=2 >21 b.=silent,dead",
    ),
    "death removes the tracker and its missing seqs": (
        {"horizon": 60.0},
        "beat 4 missing=2 >14.25 =alive,silent,dead tracked=0 missing=0 lost=2 expired=1",
    ),
    "a sender without a tracker is not watched": ({}, "beat-0 = unwatched=0"),
    "dead_after changes at once": ({}, "beat b.beat >7 dead_after:1 >8.5 =alive,silent,dead b.=alive,silent,dead"),
    # A whole fleet may get a longer interval by one reload; that must not kill it once.
    "a new interval holds for new sources, a longer one for all": (
        {},
        "beat >4 beat interval:20 >24 beat b.beat =alive b.=alive >54 = b.= >54.25 =silent b.=silent",
    ),
    "the next daemon goes on with silent and living sources": (
        {},
        "beat b.beat >5 b.message >7 restart silent=1 =alive,silent b.=alive >30 =dead b.=silent,dead deaths=2",
    ),
    "the next daemon knows the dead, and learns an interval longer than their lives": (
        {},
        "beat >20 restart beat >40 restart beat interval=20 =alive,silent,dead,alive,silent,dead,alive deaths=0",
    ),
    "a silent source stays silent after a restart until it is heard": (
        {},
        "beat >8 beat >16 beat >29 interval=8 =alive,silent,alive,silent,alive,silent restart >31 = message >36 =alive",
    ),
    "and is taken for alive after a sleep behind a restart": (
        {},
        "beat >8 beat >16 beat >29 =alive,silent,alive,silent,alive,silent restart @89 look =alive",
    ),
    "an interval is the mean of two gaps that agree within a quarter": (
        {},
        "beat >8 beat >18.75 beat interval=4 >29.5 beat interval=10.75 >38.5 beat beat interval=9.875",
    ),
    "it stays within a multiple of the expected one": (
        {},
        f"beat >3 beat >6 beat interval=4 >306 beat >606 beat interval={4 * MAX_STRETCH} ={','.join(TWICE_DEAD)}",
    ),
    "a shorter expected interval is learned": ({"interval": 10.0}, "beat interval:2 >2 beat >4 beat interval=2"),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    rules, history = HISTORIES[name]
    dedup = dedup_rules(**{key: value for key, value in rules.items() if key != "interval"})
    scenario.play(TrackerTable(dedup), history, WATCH._replace(interval=rules.get("interval", 4.0)))


def test_only_the_latest_deaths_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "MAX_DEAD", 3)
    host = Host(TrackerTable(dedup_rules()))
    srcs = [b"host/p/%d" % number for number in range(6)]
    for number, src in enumerate(srcs):
        host.until(float(number))
        host.hear(src, beat=True)
    host.until(30.0)
    assert {src: death.heard for src, death in host.liveness.dead.items()} == {srcs[n]: float(n) for n in (3, 4, 5)}
    assert (host.liveness.counted["deaths"], host.liveness.counted["dead_evicted"]) == (6, 3)
    assert [src for src, name in host.changes() if name == "dead"] == srcs


def test_heartbeat_between_two_steps_of_a_sweep_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "STEP", 2)
    host = Host(TrackerTable(dedup_rules()), WATCH._replace(dead_after=1))
    srcs = [b"host/p/%d" % number for number in range(5)]
    host.hear(*srcs, beat=True)
    host.until(6.0)
    host.now = 6.25
    assert host.liveness.sweep(host.now)
    host.hear(*srcs[:3], beat=True)
    host.sweep()
    assert {src for src, name in host.changes() if name == "dead"} == set(srcs[3:])


# -- for all histories


class Act(NamedTuple):
    """An event ``quarters`` of a second after the one before; ``looked``: with sweeps meanwhile."""

    quarters: int
    looked: bool
    kind: str  # "beat", "message" or nothing
    who: int


# Most pauses are near the interval, so that gaps agree, patience ends and sources are not dead all the time.
PAUSES = st.sampled_from([0, 0, 1, 2, 3, 4, 4, 4, 5, 6, 8, 8, 12, 14, 20, 60])
KINDS = st.sampled_from(["beat", "beat", "beat", "message", ""])
ACT = st.builds(Act, PAUSES, st.sampled_from([True] * 9 + [False]), KINDS, st.integers(0, 3))
# And some that keep a rhythm.
RHYTHM = st.builds(
    lambda pause, who, times: [Act(pause, True, "beat", who)] * times,
    st.sampled_from([2, 4, 5, 8, 9, 60]),
    st.integers(0, 3),
    st.integers(2, 6),
)
ACTS = st.lists(st.one_of(ACT.map(lambda one: [one]), RHYTHM), max_size=25).map(
    lambda many: list(chain.from_iterable(many))
)


@dataclass
class Watched:
    """A watched source of the model, which takes its interval from what was learned; HISTORIES has how that is done."""

    source: Source
    begun: float
    heard: float
    #: the first sign of life after a silence
    back: float
    state: str = "alive"

    @property
    def interval(self) -> float:
        return self.source.interval


@dataclass
class Naive:
    """The rules, applied to every source at every moment; it has no wheel."""

    rules: HeartbeatRules
    keep_dead: bool
    #: sources that have lost their trackers
    gone: int = 0
    watched: dict[bytes, Watched] = field(default_factory=dict)
    looked: float = 0.0
    awake_since: float = 0.0

    def look(self, now: float) -> None:
        if now - self.looked > min(ASLEEP, max(2 * TICK, self.rules.interval / 2)):
            self.awake_since = now
        self.looked = now

    def quiet(self, one: Watched, now: float) -> float:
        return now - max(one.heard, self.awake_since)

    def receive_message(self, src: bytes, now: float) -> None:
        one = self.watched.get(src)
        if one is not None:
            if self.quiet(one, now) >= 1.5 * one.interval:
                one.back = now
            one.heard = now

    def may_be(self, one: Watched, now: float) -> set[str]:
        """The states in which a source may be found after all that was due was looked at."""
        quiet = self.quiet(one, now)
        silent, dead = 1.5 * one.interval, (self.rules.dead_after + 0.5) * one.interval
        if quiet < silent:
            # What another message than a heartbeat has ended may be noticed half an interval later.
            returning = now - max(one.back, self.awake_since) <= one.interval / 2 + TICK
            return {"alive", "silent"} if one.state == "silent" and returning else {"alive"}
        found = {"alive": quiet <= silent + TICK, "silent": self.rules.dead_after > 1 and quiet < dead + TICK}
        return {state for state, possible in {**found, "dead": quiet >= dead}.items() if possible}


RULESETS = st.builds(HeartbeatRules, interval=st.sampled_from([1.0, 1.0, 2.0, 0.25, 8.0]), dead_after=st.integers(1, 4))
TRACKING = st.builds(dedup_rules, monotonic=st.booleans(), max_sources=st.sampled_from([100, 100, 1, 2, 3]))


@given(RULESETS, TRACKING, ACTS)
@examples(600)
def test_liveness_agrees_with_the_model(rules: HeartbeatRules, dedup: TrackerLimits, history: list[Act]) -> None:
    host = Host(TrackerTable(dedup), rules)
    model = Naive(rules, dedup.monotonic)
    deaths = 0
    for act in history:
        then = host.now + act.quarters * TICK
        while host.now < then:
            host.now = min(then, host.now + TICK) if act.looked else then
            model.look(host.now)
            host.sweep()
            deaths += follow(host, model)
            must_hold(host, model)
        src = b"host/%d" % act.who
        before = host.liveness.counted["unwatched"]
        if act.kind:
            host.hear(src, beat=act.kind == "beat")
            # A new tracker of the same name is another one.
            for name in [name for name, one in model.watched.items() if not one.source.tracked]:
                del model.watched[name]
                model.gone += 1
            model.receive_message(src, host.now)
        if act.kind == "beat":
            source = host.source(src)
            if src in model.watched:
                assert source.state == ALIVE
            elif host.liveness.counted["unwatched"] > before:
                # Those that have lost their trackers count until they are checked.
                assert len(model.watched) + model.gone >= dedup.max_sources
                assert host.changes() == []
            else:
                model.watched[src] = Watched(source, host.now, host.now, host.now)
                assert (host.liveness.changes, source.state) == ([(src, ALIVE)], ALIVE)
        deaths += follow(host, model)
        must_hold(host, model)
    assert host.liveness.counted["deaths"] == deaths
    # In the end all that were watched are dead, and leave nothing behind.
    host.until(host.now + (rules.dead_after + 0.5) * MAX_STRETCH * rules.interval + 10.0)
    assert (host.liveness.silent, watched(host)) == (0, {})
    assert set(model.watched) <= set(host.liveness.dead)


def follow(host: Host, model: Naive) -> int:
    """Apply the changes to the model, each of which must be one that can follow on the last; the number of deaths."""
    deaths = 0
    for src, state in host.changes():
        one, now = model.watched[src], host.now
        if state == "alive":
            assert one.state == "silent" or one.begun == now
        else:
            assert model.quiet(one, now) >= 1.5 * one.interval
            assert (one.state, state) in {("alive", "silent"), ("alive", "dead"), ("silent", "dead")}
        one.state = state
        if state == "dead":
            assert model.quiet(one, now) >= (model.rules.dead_after + 0.5) * one.interval
            assert host.liveness.dead[src].heard == one.heard
            left = host.sources.get(src)
            assert (left.state if left is not None else None) == (UNWATCHED if model.keep_dead else None)
            deaths += 1
            del model.watched[src]
    return deaths


def watched(host: Host) -> dict[bytes, Source]:
    return {source.src: source for source in host.sources.all() if source.state != UNWATCHED}


def must_hold(host: Host, model: Naive) -> None:
    assert {src: one.source for src, one in model.watched.items()} == watched(host)
    assert host.liveness.silent == sum(source.state == SILENT for source in watched(host).values())
    for src, one in model.watched.items():
        assert STATE_NAMES[one.source.state] == one.state
        assert one.state in model.may_be(one, host.now), (src, host.now, one)
    assert not set(host.liveness.dead) & set(model.watched)
    assert len(host.liveness.dead) <= host.liveness.counted["deaths"]
