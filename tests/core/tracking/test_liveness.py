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
    Liveness,
)
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire.verdicts import ACCEPTED
from tests.core.material import examples
from tests.core.scenario import receive, successor
from tests.rules import dedup_rules

SRC = b"relay01/cardsys/7"
OTHER = b"relay02/cardsys/7"
#: silent after 6 s, dead after 14
RULES = HeartbeatRules(interval=4.0, dead_after=3)


class World:
    """Trackers, their liveness, and a clock that the test sets."""

    def __init__(
        self,
        rules: HeartbeatRules = RULES,
        dedup: TrackerLimits | None = None,
        now: float = 0.0,
    ) -> None:
        self.sources = TrackerTable(dedup or dedup_rules())
        self.liveness = Liveness(self.sources, rules, now)
        self.now = now
        self._seqs: dict[bytes, int] = {}

    def receive_message(self, src: bytes = SRC) -> None:
        """Receive a message other than a heartbeat."""
        seq = self._seqs[src] = self._seqs.get(src, 0) + 1
        assert receive(self.sources, src, seq, self.now) == ACCEPTED

    def beat(self, *srcs: bytes) -> None:
        """Receive a heartbeat of each source, by default of SRC."""
        for src in srcs or (SRC,):
            self.receive_message(src)
            self.liveness.on_heartbeat(src, self.now)

    def sweep(self) -> None:
        """Check all that is due now."""
        while self.liveness.sweep(self.now):
            pass

    def until(self, then: float) -> None:
        """Let time pass with a sweep at every tick, as the daemon does."""
        while self.now < then:
            self.now += TICK
            self.sweep()
        assert self.now == then

    def changes(self) -> list[tuple[bytes, str]]:
        """Return the changes since the last call, oldest first."""
        taken, self.liveness.changes = self.liveness.changes, []
        return [(src, STATE_NAMES[state]) for src, state in taken]

    def source(self, src: bytes = SRC) -> Source:
        found = self.sources.get(src)
        assert found is not None
        return found

    def watched(self) -> dict[bytes, Source]:
        return {source.src: source for source in self.sources.all() if source.state != UNWATCHED}

    def counter(self, name: str) -> object:
        """The value of a counter, or what is known of SRC or of the trackers."""
        if name == "interval":
            return self.source().interval
        if name in ("deaths", "unwatched"):
            return self.liveness.counted[name]
        known = {
            "missing": self.sources.missing,
            "tracked": len(self.sources),
            "silent": self.liveness.silent,
        }
        return known[name] if name in known else self.sources.counted[name]

    def play(self, history: str) -> None:
        """Play the words of a history; see HISTORIES."""
        changes: list[tuple[bytes, str]] = []
        for word in history.split():
            src, verb = (OTHER, word[2:]) if word.startswith("b.") else (SRC, word)
            name, _, value = verb.partition("=")
            if verb[0] in "@!":
                self.now = self.now if verb[0] == "@" else float(verb[1:])
                self.until(float(verb[1:]))
                self.sweep()
            elif verb == "beat":
                self.beat(src)
            elif verb == "message":
                self.receive_message(src)
            elif verb.startswith("beat-"):
                self.liveness.on_heartbeat(src, self.now - float(verb[5:]))
            elif verb == "expire":
                self.sources.sweep(self.now)
            elif verb == "claim":
                self.sources.claim(src)
            elif verb == "restart":
                changes += self.changes()
                self.sources, self.liveness = successor(self.sources, self.liveness, self.now)
            elif verb[0] == "#":
                assert self.sources.judge(src, int(verb[1:]), self.now) == ACCEPTED
            elif ":" in verb:
                rule, _, setting = verb.partition(":")
                old = self.liveness.rules
                interval = old._replace(interval=float(setting))
                self.liveness.rules = interval if rule == "interval" else old._replace(dead_after=int(setting))
            elif name:
                assert (word, self.counter(name)) == (word, float(value))
            else:
                changes += self.changes()
                assert (word, ",".join(state for whose, state in changes if whose == src)) == (word, value)
                changes = [change for change in changes if change[0] != src]


TWICE_DEAD = ["alive", *["silent", "dead", "alive"] * 2]
#: ``beat`` and ``message`` arrive from SRC, with ``b.`` from OTHER, ``#4`` a message with this seq; ``beat-7`` is a
#: heartbeat of 7 s before. ``@8``: until then there is a sweep each tick, ``!8``: only then. ``=alive,silent`` are all
#: changes of the source since the last such word. ``deaths=1`` is a counter, ``dead_after:1`` a new rule.
HISTORIES: dict[str, tuple[dict[str, Any], str]] = {
    "a heartbeat that waited in a link changes no gap": ({}, "beat @8 beat message beat-7 beat @16 beat interval=8"),
    "expired and local sources are not watched": (
        {"expire": 5.0},
        "beat @5 expire @30 =alive expired=1 deaths=0 beat @36.25 claim @60 =alive,silent silent=0",
    ),
    "those that have lost their trackers count until they are checked": (
        {"max_sources": 1},
        "beat b.beat =alive b.= unwatched=1 @6 b.beat unwatched=2 @6.5 b.beat b.=alive unwatched=2 @21 b.=silent,dead",
    ),
    "death removes the tracker and its missing seqs": (
        {},
        "beat #4 missing=2 @14.25 =alive,silent,dead tracked=0 missing=0 lost=2 expired=1",
    ),
    "a sender without a tracker is not watched": ({}, "beat-0 = unwatched=0"),
    "dead_after changes at once": ({}, "beat b.beat @7 dead_after:1 @8.5 =alive,silent,dead b.=alive,silent,dead"),
    # A whole fleet may get a longer interval by one reload; that must not kill it once.
    "a new interval holds for new sources, a longer one for all": (
        {},
        "beat @4 beat interval:20 @24 beat b.beat =alive b.=alive @54 = b.= @54.25 =silent b.=silent",
    ),
    "the next daemon goes on with silent and living sources": (
        {},
        "beat b.beat @5 b.message @7 restart silent=1 =alive,silent b.=alive @30 =dead b.=silent,dead deaths=2",
    ),
    "the next daemon knows the dead, and learns an interval longer than their lives": (
        {},
        "beat @20 restart beat @40 restart beat interval=20 =alive,silent,dead,alive,silent,dead,alive deaths=0",
    ),
    "a silent source stays silent after a restart until it is heard": (
        {},
        "beat @8 beat @16 beat @29 interval=8 =alive,silent,alive,silent,alive,silent restart @31 = message @36 =alive",
    ),
    "and is taken for alive after a sleep behind a restart": (
        {},
        "beat @8 beat @16 beat @29 =alive,silent,alive,silent,alive,silent restart !89 =alive",
    ),
    "an interval is the mean of two gaps that agree within a quarter": (
        {},
        "beat @8 beat @18.75 beat interval=4 @29.5 beat interval=10.75 @38.5 beat beat interval=9.875",
    ),
    "it stays within a multiple of the expected one": (
        {},
        f"beat @3 beat @6 beat interval=4 @306 beat @606 beat interval={4 * MAX_STRETCH} ={','.join(TWICE_DEAD)}",
    ),
    "a shorter expected interval is learned": ({"interval": 10.0}, "beat interval:2 @2 beat @4 beat interval=2"),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    rules, history = HISTORIES[name]
    dedup = dedup_rules(**{key: value for key, value in rules.items() if key != "interval"})
    World(HeartbeatRules(interval=rules.get("interval", 4.0), dead_after=3), dedup).play(history)


ONE_MISSED = RULES._replace(dead_after=1)


def test_only_the_latest_deaths_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "MAX_DEAD", 3)
    world = World()
    srcs = [b"host/p/%d" % number for number in range(6)]
    for number, src in enumerate(srcs):
        world.until(float(number))
        world.beat(src)
    world.until(30.0)
    assert {src: death.heard for src, death in world.liveness.dead.items()} == {srcs[n]: float(n) for n in (3, 4, 5)}
    assert (world.liveness.counted["deaths"], world.liveness.counted["dead_evicted"]) == (6, 3)
    assert [src for src, name in world.changes() if name == "dead"] == srcs


def test_heartbeat_between_two_steps_of_a_sweep_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "STEP", 2)
    world = World(ONE_MISSED)
    srcs = [b"host/p/%d" % number for number in range(5)]
    world.beat(*srcs)
    world.until(6.0)
    world.now = 6.25
    assert world.liveness.sweep(world.now)
    world.beat(*srcs[:3])
    world.sweep()
    assert {src for src, name in world.changes() if name == "dead"} == set(srcs[3:])


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
    world = World(rules, dedup)
    model = Naive(rules, dedup.monotonic)
    deaths = 0
    for act in history:
        then = world.now + act.quarters * TICK
        while world.now < then:
            world.now = min(then, world.now + TICK) if act.looked else then
            model.look(world.now)
            world.sweep()
            deaths += follow(world, model)
            must_hold(world, model)
        src = b"host/%d" % act.who
        if act.kind:
            world.receive_message(src)
            # A new tracker of the same name is another one.
            for name in [name for name, one in model.watched.items() if not one.source.tracked]:
                del model.watched[name]
                model.gone += 1
            model.receive_message(src, world.now)
        if act.kind == "beat":
            before = world.liveness.counted["unwatched"]
            world.liveness.on_heartbeat(src, world.now)
            source = world.source(src)
            if src in model.watched:
                assert source.state == ALIVE
            elif world.liveness.counted["unwatched"] > before:
                # Those that have lost their trackers count until they are checked.
                assert len(model.watched) + model.gone >= dedup.max_sources
                assert world.changes() == []
            else:
                model.watched[src] = Watched(source, world.now, world.now, world.now)
                assert (world.liveness.changes, source.state) == ([(src, ALIVE)], ALIVE)
        deaths += follow(world, model)
        must_hold(world, model)
    assert world.liveness.counted["deaths"] == deaths
    # In the end all that were watched are dead, and leave nothing behind.
    world.until(world.now + (rules.dead_after + 0.5) * MAX_STRETCH * rules.interval + 10.0)
    assert (world.liveness.silent, world.watched()) == (0, {})
    assert set(model.watched) <= set(world.liveness.dead)


def follow(world: World, model: Naive) -> int:
    """Apply the changes to the model, each of which must be one that can follow on the last; the number of deaths."""
    deaths = 0
    for src, state in world.changes():
        one, now = model.watched[src], world.now
        if state == "alive":
            assert one.state == "silent" or one.begun == now
        else:
            assert model.quiet(one, now) >= 1.5 * one.interval
            assert (one.state, state) in {("alive", "silent"), ("alive", "dead"), ("silent", "dead")}
        one.state = state
        if state == "dead":
            assert model.quiet(one, now) >= (model.rules.dead_after + 0.5) * one.interval
            assert world.liveness.dead[src].heard == one.heard
            left = world.sources.get(src)
            assert (left.state if left is not None else None) == (UNWATCHED if model.keep_dead else None)
            deaths += 1
            del model.watched[src]
    return deaths


def must_hold(world: World, model: Naive) -> None:
    assert {src: one.source for src, one in model.watched.items()} == world.watched()
    assert world.liveness.silent == sum(source.state == SILENT for source in world.watched().values())
    for src, one in model.watched.items():
        assert STATE_NAMES[one.source.state] == one.state
        assert one.state in model.may_be(one, world.now), (src, world.now, one)
    assert not set(world.liveness.dead) & set(model.watched)
    assert len(world.liveness.dead) <= world.liveness.counted["deaths"]
