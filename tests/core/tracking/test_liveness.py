"""Liveness: random histories against a naive model that checks every source, and what the model does not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking import liveness
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import ALIVE, ASLEEP, SILENT, STATE_NAMES, TICK, UNWATCHED, HeartbeatRules, Liveness
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire.verdicts import ACCEPTED
from tests.core.material import examples
from tests.core.scenario import receive
from tests.rules import dedup_rules

STEP = liveness.STEP
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

    def standing(self) -> list[Source]:
        """The sources in the wheel."""
        return [source for entries in self.liveness._wheel.values() for source in entries]

    def beat_after(self, gap: float) -> None:
        """A heartbeat now and one after the gap."""
        self.beat()
        self.until(self.now + gap)
        self.beat()


ONE_MISSED = RULES._replace(dead_after=1)


def test_heartbeat_that_waited_in_a_link_changes_no_gap() -> None:
    world = World()
    world.beat_after(8.0)
    world.receive_message()
    world.liveness.on_heartbeat(SRC, world.now - 7.0)
    world.beat_after(8.0)
    assert world.source().interval == 8.0


@pytest.mark.parametrize(
    ("interval", "pause", "sleeps"),
    [(4.0, ASLEEP, False), (4.0, ASLEEP + TICK, True), (0.25, 2 * TICK, False), (0.25, 3 * TICK, True)],
)
def test_silence_does_not_count_during_a_longer_pause_without_sweeps(
    interval: float, pause: float, sleeps: bool
) -> None:
    # What sources sent meanwhile waits in the socket; it may be read after the sweep.
    world = World(HeartbeatRules(interval=interval, dead_after=3))
    world.beat()
    world.until(max(0.0, 1.5 * interval - 1.5))
    world.now += pause
    world.sweep()
    assert world.changes() == [(SRC, "alive"), *[(SRC, "silent")] * (not sleeps)]


def test_a_message_of_any_kind_makes_a_silent_source_alive_half_an_interval_later() -> None:
    world = World()
    world.beat()
    world.until(7.0)
    world.receive_message()
    world.until(9.0)
    assert world.changes() == [(SRC, "alive"), (SRC, "silent"), (SRC, "alive")]


def test_expired_and_local_sources_are_not_watched() -> None:
    world = World(dedup=dedup_rules(expire=5.0))
    world.beat()
    world.until(5.0)
    world.sources.sweep(5.0)
    world.until(30.0)
    assert world.changes() == [(SRC, "alive")]
    assert (world.sources.counted["expired"], world.liveness.counted["deaths"], world.standing()) == (1, 0, [])
    world.beat()
    world.until(36.25)
    world.sources.claim(SRC)
    world.until(60.0)
    assert world.changes() == [(SRC, "alive"), (SRC, "silent")]
    assert (world.liveness.silent, world.standing()) == (0, [])


def test_death_removes_the_tracker_and_its_missing_seqs() -> None:
    world = World()
    world.beat()
    assert world.sources.judge(SRC, 4, 0.0) == ACCEPTED
    assert world.sources.missing == 2
    world.until(14.25)
    assert (len(world.sources), world.sources.missing, world.sources.counted["lost"]) == (0, 0, 2)
    assert world.sources.counted["expired"] == 1


@pytest.mark.parametrize("keep_dead", [False, True])
def test_only_the_latest_deaths_are_remembered(keep_dead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "MAX_DEAD", 3)
    world = World(dedup=dedup_rules(monotonic=keep_dead))
    srcs = [b"host/p/%d" % number for number in range(6)]
    for number, src in enumerate(srcs):
        world.until(float(number))
        world.beat(src)
    world.until(30.0)
    assert [(src, death.heard) for src, death in world.liveness.dead.items()] == [
        (srcs[number], float(number)) for number in (3, 4, 5)
    ]
    assert (world.liveness.counted["deaths"], world.liveness.counted["dead_evicted"]) == (6, 3)
    assert [src for src, name in world.changes() if name == "dead"] == srcs


def test_unknown_sender_is_not_watched() -> None:
    world = World()
    world.liveness.on_heartbeat(b"?", 0.0)
    assert (world.changes(), world.liveness.counted["unwatched"]) == ([], 0)


@pytest.mark.parametrize(
    ("due", "more"),
    [(STEP - 1, [False]), (STEP, [False]), (STEP + 1, [True, False]), (2 * STEP + 10, [True] * 2 + [False])],
)
def test_sweep_checks_at_most_a_step_and_the_next_continues(due: int, more: list[bool]) -> None:
    world = World(ONE_MISSED)
    world.beat(*(b"host/p/%d" % number for number in range(due)))
    world.until(6.0)
    world.changes()
    swept = [(world.liveness.sweep(6.25), len(world.changes())) for _ in more]
    assert swept == [*((True, STEP) for _ in more[1:]), (False, due - STEP * (len(more) - 1))]
    assert len(world.liveness.dead) == due <= liveness.MAX_DEAD


def test_heartbeat_between_two_steps_of_a_sweep_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "STEP", 2)
    world = World(ONE_MISSED)
    srcs = [b"host/p/%d" % number for number in range(5)]
    world.beat(*srcs)
    world.until(6.0)
    world.now = 6.25
    assert world.liveness.sweep(world.now)
    left = [source.src for source in world.standing()]
    assert left == srcs[:3]
    world.beat(*left)
    world.sweep()
    assert [src for src, name in world.changes() if name == "dead"] == [srcs[4], srcs[3]]


# -- rules that change while it runs


def test_dead_after_changes_at_once() -> None:
    world = World()
    world.beat(SRC, OTHER)
    world.until(7.0)
    world.liveness.rules = ONE_MISSED
    world.until(8.5)  # the next look at them
    assert [change for change in world.changes() if change[1] == "dead"] == [(SRC, "dead"), (OTHER, "dead")]


def test_new_interval_applies_to_new_sources_and_a_longer_one_to_all() -> None:
    # A whole fleet may get a longer interval by one reload; that must not kill it once.
    world = World()
    world.beat_after(4.0)
    world.liveness.rules = RULES._replace(interval=20.0)
    world.until(24.0)
    world.beat(SRC, OTHER)
    assert world.changes() == [(SRC, "alive"), (OTHER, "alive")]
    world.until(54.0)
    assert world.changes() == []
    world.until(54.25)
    assert {src for src, _ in world.changes()} == {SRC, OTHER}


def test_shorter_expected_interval_is_learned() -> None:
    world = World(HeartbeatRules(interval=10.0))
    world.beat()
    world.liveness.rules = RULES._replace(interval=2.0)
    world.until(2.0)
    world.beat_after(2.0)
    assert world.source().interval == 2.0


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
    """A watched source of the model."""

    source: Source
    begun: float
    beat: float
    gap: float
    interval: float
    heard: float
    #: the first sign of life after a silence
    back: float
    state: str = "alive"


@dataclass
class Naive:
    """The rules, applied to every source at every moment; it has no wheel."""

    rules: HeartbeatRules
    keep_dead: bool
    max_watched: int
    watched: dict[bytes, Watched] = field(default_factory=dict)
    #: the last heartbeat of the dead, and the gap before it
    former: dict[bytes, tuple[float, float]] = field(default_factory=dict)
    looked: float = 0.0
    awake_since: float = 0.0

    def look(self, now: float) -> None:
        if now - self.looked > min(ASLEEP, max(2 * TICK, self.rules.interval / 2)):
            self.awake_since = now
        self.looked = now

    def quiet(self, one: Watched, now: float) -> float:
        return now - max(one.heard, self.awake_since)

    def watch(self, source: Source, now: float) -> None:
        beat, gap = self.former.pop(source.src, (now, 0.0))
        self.watched[source.src] = Watched(source, now, beat, gap, self.rules.interval, now, now)
        self.beat(source.src, now)

    def beat(self, src: bytes, now: float) -> None:
        one, expected = self.watched[src], self.rules.interval
        gap = now - one.beat
        if gap > 0:
            if abs(gap - one.gap) <= gap / 4:
                one.interval = min(max((gap + one.gap) / 2, expected), expected * liveness.MAX_STRETCH)
            one.gap, one.beat = gap, now

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
    model = Naive(rules, dedup.monotonic, dedup.max_sources)
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
            model.receive_message(src, world.now)
        if act.kind == "beat":
            full = len(world.standing()) >= dedup.max_sources
            before = world.liveness.counted["unwatched"]
            world.liveness.on_heartbeat(src, world.now)
            source = world.source(src)
            if src in model.watched:
                model.beat(src, world.now)
                assert (source.interval, source.state) == (model.watched[src].interval, ALIVE)
            elif full:
                assert world.liveness.counted["unwatched"] == before + 1
                assert world.changes() == []
            else:
                model.watch(source, world.now)
                assert (world.liveness.changes, source.state) == ([(src, ALIVE)], ALIVE)
        deaths += follow(world, model)
        must_hold(world, model)
    assert world.liveness.counted["deaths"] == deaths
    # In the end all that were watched are dead, and leave nothing behind.
    world.until(world.now + (rules.dead_after + 0.5) * liveness.MAX_STRETCH * rules.interval + 10.0)
    assert (world.liveness.silent, world.standing(), world.liveness._wheel) == (0, [], {})
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
            model.former[src] = one.beat, one.gap
    return deaths


def must_hold(world: World, model: Naive) -> None:
    standing = world.standing()
    assert len(standing) == world.liveness._entries <= model.max_watched
    # Every watched source has one place in the wheel; others there have lost their trackers.
    assert len({id(source) for source in standing}) == len(standing)
    live = {source.src: source for source in standing if source.tracked}
    assert {src: one.source for src, one in model.watched.items()} == live
    assert world.liveness.silent == sum(source.tracked and source.state == SILENT for source in standing)
    for src, one in model.watched.items():
        assert STATE_NAMES[one.source.state] == one.state
        assert one.state in model.may_be(one, world.now), (src, world.now, one)
    assert not set(world.liveness.dead) & set(model.watched)
    assert len(world.liveness.dead) <= world.liveness.counted["deaths"]
