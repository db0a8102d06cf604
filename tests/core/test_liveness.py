"""Who is alive: short histories as a table, and long random ones against a naive model that looks at everybody.

Times are multiples of a quarter of a second, the width of a tick, so that "just at" and "just beyond" are a matter of
rules and not of rounding. A source is looked at in the tick behind the moment that is meant, never before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import liveness
from bccnd.core.dedup import UNHEARD, DedupRules, Sources
from bccnd.core.liveness import (
    ALIVE,
    ASLEEP,
    DEAD,
    MAX_STRETCH,
    SILENT,
    STATE_NAMES,
    STEP,
    TICK,
    UNWATCHED,
    Liveness,
    LivenessRules,
)
from bccnd.core.roster import Source
from bccnd.core.verdicts import ACCEPTED, REPLAYED
from tests.core.material import examples

SRC = b"relay01/cardsys/7"
OTHER = b"relay02/cardsys/7"
#: silent after 6 s, dead after 14
RULES = LivenessRules(interval=4.0, dead_after=3)


class World:
    """Trackers and who watches them, with the clock in the test's hand."""

    def __init__(self, rules: LivenessRules = RULES, dedup: DedupRules | None = None, now: float = 0.0) -> None:
        self.sources = Sources(dedup or DedupRules())
        self.liveness = Liveness(self.sources, rules, now)
        self.now = now
        self._seqs: dict[bytes, int] = {}

    def hear(self, src: bytes = SRC) -> None:
        """Any message of a source but a heartbeat, accepted."""
        seq = self._seqs[src] = self._seqs.get(src, 0) + 1
        verdict = self.sources.judge(src, seq, self.now)
        if verdict == UNHEARD:
            verdict = self.sources.begin(src, seq, self.now)
        assert verdict == ACCEPTED

    def beat(self, *srcs: bytes) -> None:
        """A heartbeat of each source, SRC if none is named."""
        for src in srcs or (SRC,):
            self.hear(src)
            self.liveness.beat(src, self.now)

    def sweep(self) -> None:
        """Look at all that is due now."""
        while self.liveness.sweep(self.now):
            pass

    def until(self, then: float) -> None:
        """Let time pass with a look at every tick, as the daemon does."""
        while self.now < then:
            self.now += TICK
            self.sweep()
        assert self.now == then

    def sleep_until(self, then: float) -> None:
        """Let time pass in which nobody looks."""
        self.now = then
        self.sweep()

    def changes(self) -> list[tuple[bytes, str]]:
        """What has changed since this was asked for, oldest first."""
        taken, self.liveness.changes = self.liveness.changes, []
        return [(src, STATE_NAMES[state]) for src, state in taken]

    def states(self, src: bytes = SRC) -> str:
        """The changes of one source since this was asked for."""
        return " ".join(name for who, name in self.changes() if who == src)

    def source(self, src: bytes = SRC) -> Source:
        found = self.sources.get(src)
        assert found is not None
        return found

    def standing(self) -> list[Source]:
        """Who stands in the wheel."""
        return [source for entries in self.liveness._wheel.values() for source in entries]

    def beat_every(self, gap: float, times: int, *, kept: float = 0.0) -> None:
        """Heartbeats ``gap`` apart, the first one now; with ``kept``, other messages in between so often."""
        self.beat()
        for _ in range(times - 1):
            then = self.now + gap
            while kept and self.now + kept < then:
                self.until(self.now + kept)
                self.hear()
            self.until(then)
            self.beat()


# -- a table of short histories. A step is a moment, what the source does then, and what has changed up to then.

Step = tuple[float, str, str]
ONE_MISSED = replace(RULES, dead_after=1)
HISTORIES: dict[str, tuple[LivenessRules, list[Step]]] = {
    "the first heartbeat": (RULES, [(0, "beat", "alive")]),
    "without a heartbeat nobody is watched": (RULES, [(0, "message", ""), (4, "message", ""), (100, "", "")]),
    "heartbeats in time": (RULES, [(0, "beat", "alive"), (4, "beat", ""), (8, "beat", ""), (12, "beat", "")]),
    "a heartbeat late by less than half an interval": (
        RULES,
        [(0, "beat", "alive"), (5.75, "beat", ""), (11.5, "beat", ""), (12, "", "")],
    ),
    "silent after an interval and a half, and not before": (
        RULES,
        [(0, "beat", "alive"), (6, "", ""), (6.25, "", "silent"), (13, "", "")],
    ),
    "a heartbeat ends the silence at once": (
        RULES,
        [(0, "beat", "alive"), (6.25, "", "silent"), (8, "beat", "alive"), (14, "", ""), (14.25, "", "silent")],
    ),
    "dead after three and a half, and not before": (
        RULES,
        [(0, "beat", "alive"), (14, "", "silent"), (14.25, "", "dead"), (100, "", "")],
    ),
    "the dead come back with their next heartbeat": (
        RULES,
        [(0, "beat", "alive"), (15, "", "silent dead"), (16, "beat", "alive"), (22, "", ""), (22.25, "", "silent")],
    ),
    "the dead do not come back with another message": (
        RULES,
        [(0, "beat", "alive"), (15, "", "silent dead"), (16, "message", ""), (100, "", ""), (100, "beat", "alive")],
    ),
    "who dies twice is told twice": (
        RULES,
        [(0, "beat", "alive"), (15, "", "silent dead"), (16, "beat", "alive"), (31, "", "silent dead")],
    ),
    "where one missed heartbeat is death there is no silence": (
        ONE_MISSED,
        [(0, "beat", "alive"), (6, "", ""), (6.25, "", "dead"), (8, "beat", "alive"), (14.25, "", "dead")],
    ),
    "another message is a sign of life": (
        RULES,
        [(0, "beat", "alive"), (5.75, "message", ""), (11.75, "", ""), (12, "", "silent"), (19.75, "", "")],
    ),
    "other messages alone keep a source alive": (
        RULES,
        [(0, "beat", "alive"), *[(5.0 * n, "message", "") for n in range(1, 20)], (101, "", "")],
    ),
    "another message ends the silence within half an interval": (
        RULES,
        [(0, "beat", "alive"), (6.25, "", "silent"), (6.5, "message", ""), (8.5, "", "alive"), (12.5, "", "")],
    ),
    "another message puts death off": (
        RULES,
        [(0, "beat", "alive"), (13.75, "message", "silent"), (14.25, "", "alive"), (27.75, "", "silent")],
    ),
    "and after it death takes its time again": (
        RULES,
        [(0, "beat", "alive"), (13.75, "message", "silent"), (27.75, "", "alive silent"), (28, "", "dead")],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_short_history_is_told_as_it_was(name: str) -> None:
    rules, steps = HISTORIES[name]
    world = World(rules)
    told = []
    for then, act, _ in steps:
        world.until(then)
        if act == "beat":
            world.beat()
        elif act == "message":
            world.hear()
        told.append(world.states())
    assert told == [changes for *_, changes in steps]


@pytest.mark.parametrize("dead_after", [1, 2, 3, 10])
@pytest.mark.parametrize("interval", [0.25, 1.0, 5.0, 60.0])
def test_death_comes_after_so_many_intervals_and_a_half_and_no_more_than_a_tick_later(
    dead_after: int, interval: float
) -> None:
    world = World(LivenessRules(interval=interval, dead_after=dead_after))
    world.beat()
    death = (dead_after + 0.5) * interval
    world.until(-(-death // TICK) * TICK - TICK)
    assert "dead" not in world.states()
    world.until(death // TICK * TICK + TICK)
    assert world.states().endswith("dead")
    assert (world.liveness.deaths, world.liveness.silent) == (1, 0)


def test_heartbeats_of_others_are_no_sign_of_life() -> None:
    world = World()
    world.beat(SRC, OTHER)
    for second in range(4, 16, 4):
        world.until(second)
        world.beat(OTHER)
    world.until(15)
    assert world.changes() == [(SRC, "alive"), (OTHER, "alive"), (SRC, "silent"), (SRC, "dead")]


def test_a_heartbeat_of_nobody_who_is_tracked_is_nothing() -> None:
    # The unknown sender has no tracker, nor has who was evicted a moment ago.
    world = World()
    world.liveness.beat(b"?", 0.0)
    assert (world.changes(), world.liveness._entries) == ([], 0)


def test_how_many_are_silent_and_how_many_have_died_is_interval_at_any_time() -> None:
    world = World()
    seen = []
    for then, srcs in ((0.0, (SRC, OTHER)), (6.25, (OTHER,)), (8.0, ()), (14.25, ()), (15.0, (SRC,)), (30.0, ())):
        world.until(then)
        world.beat(*srcs) if srcs else None
        seen.append((world.liveness.silent, world.liveness.deaths))
    assert seen == [(0, 0), (1, 0), (1, 0), (1, 1), (1, 1), (0, 3)]


# -- an interval of one's own


def test_two_gaps_that_agree_are_the_interval_of_a_source() -> None:
    world = World()
    world.beat_every(8.0, 2)
    assert world.source().interval == 4.0
    world.until(16)
    world.beat()
    assert world.source().interval == 8.0
    # Before it was interval he had been silent, each time; from now on he has twelve seconds.
    assert world.states() == "alive silent alive silent alive"
    world.until(28)
    assert world.states() == ""
    world.until(28.25)
    assert world.states() == "silent"
    world.until(44)
    assert world.states() == ""
    world.until(44.25)
    assert world.states() == "dead"


@pytest.mark.parametrize(
    ("gaps", "interval"),
    [
        ((8, 8), 8.0),
        ((8, 10), 9.0),  # a quarter of the later one apart is still the same
        ((8, 6.5), 7.25),
        ((8, 6), 4.0),
        ((6, 8.25), 4.0),
        ((5, 13, 5, 13, 5, 13), 4.0),
        ((4, 8), 4.0),  # one heartbeat lost
        ((4, 8, 4, 8, 4), 4.0),
        ((4, 12), 4.0),  # two
        ((8, 8, 16), 8.0),  # one of his own lost
        ((8, 8, 16, 8, 8), 8.0),
        ((8, 8, 8.5, 7.5), 8.0),  # he has his day
        ((8, 8, 4, 4), 4.0),  # and may change his mind
        ((8, 8, 12, 12), 12.0),
        ((1, 1, 1), 4.0),  # more often than expected gives nobody less time
        ((0, 0, 0), 4.0),
        ((0.25, 0.25), 4.0),
    ],
)
def test_only_gaps_that_agree_change_an_interval_and_never_below_the_expected_one(
    gaps: tuple[float, ...], interval: float
) -> None:
    world = World(replace(RULES, dead_after=10))
    world.beat()
    for gap in gaps:
        world.until(world.now + gap)
        world.beat()
    assert world.source().interval == interval


def test_who_beats_more_often_than_expected_is_given_the_time_that_everyone_has() -> None:
    world = World()
    world.beat_every(0.5, 10)
    assert world.states() == "alive"
    world.until(world.now + 6)
    assert world.states() == ""
    world.until(world.now + TICK)
    assert world.states() == "silent"


@pytest.mark.parametrize(("gap", "interval"), [(47.0, 47.0), (48.0, 48.0), (49.0, 48.0), (400.0, 48.0)])
def test_nobody_is_taken_at_his_word_beyond_the_longest_stretch(gap: float, interval: float) -> None:
    # Other messages keep him from dying before he has sent his second heartbeat.
    world = World()
    world.beat_every(gap, 3, kept=4.0)
    assert world.source().interval == interval
    assert interval <= RULES.interval * MAX_STRETCH


def test_who_seems_to_die_of_each_of_his_heartbeats_is_learned_from_two_of_them() -> None:
    world = World()
    world.beat_every(40.0, 2)
    assert world.states() == "alive silent dead alive"
    assert world.source().interval == 4.0
    world.until(80)
    world.beat()
    assert world.states() == "silent dead alive"
    assert world.source().interval == 40.0
    world.until(120)
    assert world.states() == ""


def test_heartbeats_that_waited_for_us_and_come_all_at_once_say_nothing_about_an_interval() -> None:
    world = World()
    world.beat_every(8.0, 4)
    for _ in range(3):
        world.beat()
    assert world.source().interval == 8.0


def test_other_messages_between_heartbeats_do_not_shorten_an_interval() -> None:
    world = World()
    world.beat_every(8.0, 4, kept=1.0)
    assert world.source().interval == 8.0
    assert world.states() == "alive"


def test_an_interval_is_learned_for_each_source_alone() -> None:
    world = World()
    for number in range(9):
        world.until(4.0 * number)
        world.beat(*((SRC, OTHER) if number % 2 == 0 else (SRC,)))
    assert (world.source(SRC).interval, world.source(OTHER).interval) == (4.0, 8.0)


def test_who_begins_to_beat_more_often_is_missed_as_soon_as_his_new_interval_says() -> None:
    told = []
    for later in range(10):  # so that it does not matter when he was looked at last
        world = World(replace(RULES, interval=1.0))
        world.beat_every(10.0, 4, kept=1.0)
        assert world.source().interval == 10.0
        world.until(world.now + 1.0 + later)
        world.beat_every(1.0, 3)
        assert world.source().interval == 1.0
        world.changes()
        world.until(world.now + 3.75)
        told.append(world.states())
    assert told == ["silent dead"] * 10


# -- our own sleep


def test_while_we_sleep_nobody_dies_and_from_then_on_all_have_their_time_again() -> None:
    world = World()
    srcs = [b"host/p/%d" % number for number in range(20)]
    world.beat(*srcs)
    world.changes()
    world.sleep_until(1000.0)
    assert world.changes() == []
    world.until(1006.0)
    assert world.changes() == []
    world.until(1006.25)
    assert {name for _, name in world.changes()} == {"silent"}
    world.until(1014.0)
    assert world.changes() == []
    world.until(1014.25)
    assert sorted(world.changes()) == sorted((src, "dead") for src in srcs)


@pytest.mark.parametrize("dead_after", [1, 3])
def test_a_sleep_in_the_middle_of_somebodys_silence_begins_it_anew(dead_after: int) -> None:
    world = World(replace(RULES, dead_after=dead_after))
    world.beat()
    world.until(5.75)
    world.sleep_until(5.75 + ASLEEP + TICK)
    world.changes()
    world.until(world.now + 6.0)
    assert world.states() == ""
    world.until(world.now + TICK)
    assert world.states() == ("silent" if dead_after > 1 else "dead")


def test_who_was_silent_when_we_fell_asleep_is_alive_again_until_he_proves_the_contrary() -> None:
    world = World()
    world.beat()
    world.until(13.0)
    assert world.states() == "alive silent"
    world.sleep_until(100.0)
    assert world.states() == "alive"
    world.until(114.25)
    assert world.states() == "silent dead"


def test_who_is_heard_when_we_wake_up_has_never_been_away() -> None:
    world = World()
    world.beat()
    world.now = 500.0
    world.beat()  # what had waited in the socket is read before anybody looks
    world.sweep()
    world.until(504.0)
    world.beat()
    assert world.states() == "alive"


def test_the_time_before_the_first_look_is_a_sleep_like_any_other() -> None:
    world = World()
    world.beat()
    world.sleep_until(50.0)
    assert world.states() == "alive"


@pytest.mark.parametrize("pause", [ASLEEP, ASLEEP - TICK])
def test_a_short_pause_is_no_sleep(pause: float) -> None:
    world = World()
    world.beat()
    while world.now < 14.0:
        world.sleep_until(world.now + pause)
    world.until(max(world.now, 14.25))
    assert world.states() == "alive silent dead"


def test_a_clock_that_does_not_move_is_no_sleep_and_looks_at_nobody_twice() -> None:
    world = World()
    world.beat()
    world.until(6.25)
    for _ in range(10):
        world.sweep()
    assert world.states() == "alive silent"
    assert world.liveness._entries == 1


def test_any_clock_will_do_to_begin_with() -> None:
    world = World(now=123_456.75)
    world.beat()
    world.until(world.now + 6.0)
    assert world.states() == "alive"
    world.until(world.now + 8.25)
    assert world.states() == "silent dead"


@pytest.mark.parametrize("pause", [1.0, ASLEEP])
def test_a_pause_of_ours_that_is_longer_than_everybodys_patience_kills_nobody(pause: float) -> None:
    # What they sent meanwhile waits in the socket; whether it is read before the look is a matter of luck.
    world = World(LivenessRules(interval=0.25, dead_after=3))
    world.beat_every(0.25, 8)
    world.sleep_until(world.now + pause)
    assert "dead" not in world.states()


# -- trackers that go in the meantime


def test_who_was_evicted_is_neither_silent_nor_dead_and_leaves_nothing_behind() -> None:
    world = World(dedup=DedupRules(max_sources=1))
    world.beat(SRC)
    world.hear(OTHER)
    assert SRC not in world.sources
    world.until(100.0)
    assert world.changes() == [(SRC, "alive")]
    assert (world.liveness.silent, world.liveness.deaths, world.standing()) == (0, 0, [])
    assert world.liveness._entries == 0


def test_who_was_evicted_while_silent_is_silent_no_longer() -> None:
    world = World(dedup=DedupRules(max_sources=1))
    world.beat(SRC)
    world.until(6.25)
    assert world.liveness.silent == 1
    world.hear(OTHER)
    world.until(14.25)
    assert (world.liveness.silent, world.liveness.deaths, world.standing()) == (0, 0, [])


def test_who_comes_back_after_an_eviction_is_watched_anew_and_once() -> None:
    world = World(dedup=DedupRules(max_sources=1))
    world.beat(SRC)
    world.until(1.0)
    world.hear(OTHER)
    world.beat(SRC)
    assert world.states() == "alive alive"
    world.until(7.0)  # the old entry has been looked at, and was not his any more
    assert world.states() == ""
    assert len(world.standing()) == 1
    world.until(7.25)
    assert world.states() == "silent"
    world.until(15.25)
    assert world.states() == "dead"
    assert world.liveness.deaths == 1


def test_who_expired_is_not_declared_dead() -> None:
    world = World(dedup=DedupRules(expire=5.0))
    world.beat()
    world.until(5.0)
    world.sources.sweep(5.0)
    assert SRC not in world.sources
    world.until(30.0)
    assert world.states() == "alive"
    assert (world.liveness.deaths, world.sources.expired, world.standing()) == (0, 1, [])


def test_who_turns_out_to_be_a_program_of_this_host_is_watched_no_longer() -> None:
    world = World()
    world.beat()
    world.until(6.25)
    world.sources.claim(SRC)
    world.until(30.0)
    assert world.states() == "alive silent"
    assert (world.liveness.silent, world.standing()) == (0, [])


# -- what becomes of the dead


def test_the_dead_give_up_their_trackers_and_what_they_missed() -> None:
    world = World()
    world.beat()
    assert world.sources.judge(SRC, 4, 0.0) == ACCEPTED
    assert world.sources.missing == 2
    world.until(14.25)
    assert (len(world.sources), world.sources.missing, world.sources.lost) == (0, 0, 2)
    assert world.sources.expired == 1
    world.sources.sweep(100.0)
    assert world.sources.lost == 2


def test_the_dead_can_keep_their_trackers_so_that_nothing_of_theirs_can_be_replayed() -> None:
    world = World(replace(RULES, keep_dead=True), DedupRules(monotonic=True))
    world.beat()
    world.until(14.25)
    assert world.states() == "alive silent dead"
    assert (world.sources.expired, world.liveness.deaths, world.liveness.silent) == (0, 1, 0)
    assert world.sources.judge(SRC, 1, world.now) == REPLAYED
    assert world.source().state == UNWATCHED
    world.until(50.0)
    world.beat()
    assert world.states() == "alive"
    world.until(64.25)
    assert world.states() == "silent dead"
    assert list(world.liveness.dead) == [SRC]


def test_the_dead_are_remembered_with_the_time_at_which_they_were_last_heard() -> None:
    world = World()
    world.beat(SRC, OTHER)
    world.until(2.0)
    world.hear(OTHER)
    world.until(20.0)
    assert [(src, death.heard) for src, death in world.liveness.dead.items()] == [(SRC, 0.0), (OTHER, 2.0)]
    world.beat(SRC)
    assert [(src, death.heard) for src, death in world.liveness.dead.items()] == [(OTHER, 2.0)]


@pytest.mark.parametrize("keep_dead", [False, True])
def test_of_the_dead_only_the_latest_are_remembered(keep_dead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "MAX_DEAD", 3)
    world = World(replace(RULES, keep_dead=keep_dead))
    srcs = [b"host/p/%d" % number for number in range(6)]
    for number, src in enumerate(srcs):
        world.until(float(number))
        world.beat(src)
    world.until(30.0)
    assert list(world.liveness.dead) == srcs[-3:]
    assert world.liveness.deaths == 6
    assert world.liveness.dead_evicted == 3
    assert [src for src, name in world.changes() if name == "dead"] == srcs


# -- caps


def test_beyond_the_cap_nobody_is_watched_and_that_is_counted() -> None:
    world = World(replace(RULES, max_watched=2))
    world.beat(b"a", b"b", b"c", b"c")
    assert (world.changes(), world.liveness.unwatched) == ([(b"a", "alive"), (b"b", "alive")], 2)
    assert world.source(b"c").state == UNWATCHED
    # Those who are watched stay so, and do not count against themselves.
    for _ in range(5):
        world.beat(b"a", b"b")
    assert world.liveness.unwatched == 2
    world.until(14.25)
    assert sorted(world.changes()) == [(b"a", "dead"), (b"a", "silent"), (b"b", "dead"), (b"b", "silent")]
    assert b"c" in world.sources
    world.beat(b"c")
    assert world.changes() == [(b"c", "alive")]


def test_where_nobody_may_be_watched_nobody_is() -> None:
    world = World(replace(RULES, max_watched=0))
    world.beat()
    world.until(100.0)
    assert (world.changes(), world.liveness.unwatched) == ([], 1)


@pytest.mark.parametrize(
    ("due", "more"),
    [(STEP - 1, [False]), (STEP, [False]), (STEP + 1, [True, False]), (2 * STEP + 10, [True] * 2 + [False])],
)
def test_no_look_is_at_more_than_a_step_and_the_next_one_goes_on_where_it_ended(due: int, more: list[bool]) -> None:
    world = World(ONE_MISSED)
    srcs = [b"host/p/%d" % number for number in range(due)]
    world.beat(*srcs)
    world.until(6.0)
    world.now = 6.25
    told, died = [], []
    world.changes()
    for _ in more:
        told.append(world.liveness.sweep(world.now))
        died.append(len(world.changes()))
    assert told == more
    assert died == [STEP] * (len(more) - 1) + [due - STEP * (len(more) - 1)]
    assert len(world.liveness.dead) == due <= liveness.MAX_DEAD


def test_who_beats_between_two_steps_of_one_look_does_not_die_of_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "STEP", 2)
    world = World(ONE_MISSED)
    srcs = [b"host/p/%d" % number for number in range(5)]
    world.beat(*srcs)
    world.until(6.0)
    world.now = 6.25
    assert world.liveness.sweep(world.now)
    left = [source.src for source in world.standing()]
    assert len(left) == 3
    world.beat(*left)
    world.sweep()
    assert [src for src, name in world.changes() if name == "dead"] == [
        src for src in reversed(srcs) if src not in left
    ]


def test_the_wheel_keeps_no_empty_places() -> None:
    world = World()
    for number in range(50):
        world.until(float(number))
        world.beat(b"host/p/%d" % number)
    world.until(200.0)
    assert (world.liveness._wheel, world.liveness._entries) == ({}, 0)


# -- rules that change while it runs


def test_how_many_heartbeats_may_be_missed_changes_at_once() -> None:
    world = World()
    world.beat(SRC, OTHER)
    world.until(7.0)
    world.liveness.configure(ONE_MISSED)
    world.until(8.5)  # the next look at them
    assert [change for change in world.changes() if change[1] == "dead"] == [(SRC, "dead"), (OTHER, "dead")]


def test_a_new_interval_is_that_of_everybody_who_comes_from_then_on() -> None:
    world = World()
    world.liveness.configure(replace(RULES, interval=10.0))
    world.beat()
    world.until(15.0)
    assert world.states() == "alive"
    world.until(15.25)
    assert world.states() == "silent"


def test_a_shorter_interval_is_learned_from_who_keeps_it() -> None:
    world = World(LivenessRules(interval=10.0))
    world.beat()
    world.liveness.configure(replace(RULES, interval=2.0))
    for _ in range(2):
        world.until(world.now + 2.0)
        world.beat()
    assert world.source().interval == 2.0


def test_a_longer_interval_holds_for_who_is_watched_already_when_he_is_looked_at_next() -> None:
    # A whole fleet is told to beat every 20 s, by a reload: that must not kill it once.
    world = World()
    world.beat()
    world.until(4.0)
    world.beat()
    world.liveness.configure(replace(RULES, interval=20.0))
    world.until(24.0)
    world.beat()
    assert world.states() == "alive"


def test_changes_are_the_callers_to_take_away() -> None:
    world = World()
    world.beat()
    assert world.liveness.changes == [(SRC, ALIVE)]
    world.until(6.25)
    assert world.liveness.changes == [(SRC, ALIVE), (SRC, SILENT)]
    assert world.changes() == [(SRC, "alive"), (SRC, "silent")]
    assert world.changes() == []


# -- for all histories


class Act(NamedTuple):
    """What happens ``quarters`` of a second after the act before it, and whether anybody looked meanwhile."""

    quarters: int
    looked: bool
    kind: str  # "beat", "message" or nothing
    who: int


def acts() -> st.SearchStrategy[list[Act]]:
    # Most pauses are near the interval, so that gaps agree, patience ends and nobody is simply dead all the time.
    pauses = st.sampled_from([0, 0, 1, 2, 3, 4, 4, 4, 5, 6, 8, 8, 12, 14, 20, 60])
    kinds = st.sampled_from(["beat", "beat", "beat", "message", ""])
    act = st.builds(Act, pauses, st.sampled_from([True] * 9 + [False]), kinds, st.integers(0, 3))
    # And some that keep a rhythm.
    rhythm = st.builds(
        lambda pause, who, times: [Act(pause, True, "beat", who)] * times,
        st.sampled_from([2, 4, 5, 8, 9]),
        st.integers(0, 3),
        st.integers(2, 6),
    )
    return st.lists(st.one_of(act.map(lambda one: [one]), rhythm), max_size=25).map(
        lambda many: list(chain.from_iterable(many))
    )


@dataclass
class Watched:
    """All that was ever heard of one source while it was watched."""

    source: Source
    begun: float
    beat: float
    heard: float
    #: the first sign of life after a silence
    back: float
    gaps: list[float]
    intervals: list[float]
    state: str = "alive"


@dataclass
class Naive:
    """The rules, applied to everybody at every moment; it knows no wheel."""

    rules: LivenessRules
    watched: dict[bytes, Watched] = field(default_factory=dict)
    #: the last heartbeat of the dead, and the gap before it
    former: dict[bytes, tuple[float, float]] = field(default_factory=dict)
    looked: float = 0.0
    awake_since: float = 0.0

    def look(self, now: float) -> None:
        if now - self.looked > min(ASLEEP, max(2 * TICK, self.rules.interval / 2)):
            self.awake_since = now
        self.looked = now

    def watch(self, source: Source, now: float) -> None:
        beat, gap = self.former.pop(source.src, (now, 0.0))
        self.watched[source.src] = Watched(source, now, beat, now, now, [gap], [self.rules.interval])
        self.beat(source.src, now)

    def beat(self, src: bytes, now: float) -> None:
        one = self.watched[src]
        if now > one.beat:
            one.gaps.append(now - one.beat)
            one.beat = now
            one.intervals.append(self.learned(one))

    def learned(self, one: Watched) -> float:
        if len(one.gaps) < 2:
            return one.intervals[-1]
        before, last = one.gaps[-2:]
        interval = one.intervals[-1]
        if abs(last - before) <= last / 4:
            expected = self.rules.interval
            interval = min(max((last + before) / 2, expected), expected * MAX_STRETCH)
        return interval

    def hear(self, src: bytes, now: float) -> None:
        one = self.watched.get(src)
        if one is not None:
            if now - max(one.heard, self.awake_since) >= 1.5 * one.intervals[-1]:
                one.back = now
            one.heard = now

    def may_be(self, one: Watched, now: float) -> set[str]:
        """The states in which a source may be found after everybody due was looked at."""
        quiet = now - max(one.heard, self.awake_since)
        interval = one.intervals[-1]
        silent, dead = 1.5 * interval, (self.rules.dead_after + 0.5) * interval
        if quiet < silent:
            # What another message than a heartbeat has ended may be noticed half an interval later.
            returning = now - max(one.back, self.awake_since) <= interval / 2 + TICK
            return {"alive", "silent"} if one.state == "silent" and returning else {"alive"}
        states = set()
        if quiet <= max(silent, 1.5 * interval) + TICK:
            states.add("alive")
        if self.rules.dead_after > 1 and quiet < max(dead, 1.5 * interval) + TICK:
            states.add("silent")
        if quiet >= dead:
            states.add("dead")
        return states


def agree(rules: LivenessRules, dedup: DedupRules, history: list[Act]) -> None:
    world = World(rules, dedup)
    model = Naive(rules)
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
            world.hear(src)
            evicted(world, model)
            model.hear(src, world.now)
        if act.kind == "beat":
            full = len(world.standing()) >= rules.max_watched
            before = world.liveness.unwatched
            world.liveness.beat(src, world.now)
            source = world.source(src)
            if src in model.watched:
                model.beat(src, world.now)
                assert source.interval == model.watched[src].intervals[-1]
            elif full:
                assert world.liveness.unwatched == before + 1
                assert world.changes() == []
            else:
                model.watch(source, world.now)
                assert world.liveness.changes == [(src, ALIVE)]
            if src in model.watched:
                # A heartbeat ends every doubt at once.
                assert source.state == ALIVE
        deaths += follow(world, model)
        must_hold(world, model)
    assert world.liveness.deaths == deaths


def evicted(world: World, model: Naive) -> None:
    """Drop from the model whose tracker has gone; his successor under the same name is another one."""
    for src, one in list(model.watched.items()):
        if world.sources.get(src) is not one.source:
            del model.watched[src]


def follow(world: World, model: Naive) -> int:
    """Take the changes over into the model, each of which must be one that can follow on the last; who died."""
    deaths = 0
    for src, state in world.changes():
        one = model.watched[src]
        now = world.now
        quiet = now - max(one.heard, model.awake_since)
        if state == "alive":
            assert one.state == "silent" or one.begun == now
        else:
            assert quiet >= 1.5 * one.intervals[-1]
            assert (one.state, state) in {("alive", "silent"), ("alive", "dead"), ("silent", "dead")}
        one.state = state
        if state == "dead":
            assert quiet >= (model.rules.dead_after + 0.5) * one.intervals[-1]
            assert world.liveness.dead[src].heard == one.heard
            assert (src in world.sources) == model.rules.keep_dead
            deaths += 1
            del model.watched[src]
            model.former[src] = one.beat, one.gaps[-1]
    return deaths


def must_hold(world: World, model: Naive) -> None:
    standing = world.standing()
    assert len(standing) == world.liveness._entries <= model.rules.max_watched
    # Everybody who is watched has one place in the wheel; whoever else stands there has lost his tracker.
    assert len({id(source) for source in standing}) == len(standing)
    live = {source.src: source for source in standing if world.sources.get(source.src) is source}
    assert {src: one.source for src, one in model.watched.items()} == live
    assert world.liveness.silent == sum(source.state == SILENT for source in standing)
    for src, one in model.watched.items():
        assert STATE_NAMES[one.source.state] == one.state
        assert one.state in model.may_be(one, world.now), (src, world.now, one)
    for src in world.liveness.dead:
        assert src not in model.watched
    assert len(world.liveness.dead) <= world.liveness.deaths


RULESETS = st.builds(
    LivenessRules,
    interval=st.sampled_from([1.0, 1.0, 2.0]),
    dead_after=st.integers(1, 4),
    keep_dead=st.booleans(),
    max_watched=st.sampled_from([100, 100, 2]),
)


@given(RULESETS, acts())
@examples(400)
def test_whoever_is_heard_is_alive_and_whoever_is_not_dies_in_time(rules: LivenessRules, history: list[Act]) -> None:
    agree(rules, DedupRules(), history)


@given(RULESETS, acts(), st.integers(1, 3))
@examples(200)
def test_the_same_holds_while_trackers_are_evicted(rules: LivenessRules, history: list[Act], cap: int) -> None:
    agree(rules, DedupRules(max_sources=cap), history)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), max_size=40), st.integers(1, 3))
@examples(150)
def test_in_the_end_all_are_dead_and_nothing_is_left_of_them(signs: list[tuple[int, int]], dead_after: int) -> None:
    world = World(LivenessRules(interval=1.0, dead_after=dead_after))
    for who, quarters in signs:
        world.until(world.now + quarters * TICK)
        world.beat(b"host/%d" % who)
    world.until(world.now + (dead_after + 0.5) * MAX_STRETCH + 10.0)
    assert (len(world.sources), world.liveness.silent, world.standing(), world.liveness._wheel) == (0, 0, [], {})
    assert set(world.liveness.dead) == {b"host/%d" % who for who, _ in signs}
    last: dict[bytes, str] = dict(world.changes())
    assert set(last.values()) <= {STATE_NAMES[DEAD]}
