"""Repeats: how many copies, when, in which order, and what happens when time or room is short.

Times are binary fractions, so that "when it is due" is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import repeat
from bccnd.core.patterns import DIALECTS
from bccnd.core.repeat import MAX_WAITING, Repeater, RepeatRule
from tests.core import naive
from tests.core.material import examples

PATH = DIALECTS["path"]
INF = float("inf")


def repeater(*rules: RepeatRule, dialect: str = "path", horizon: float = INF) -> Repeater:
    return Repeater(rules, DIALECTS[dialect], horizon)


def rule(channels: bytes = b"a/>", copies: int = 2, spacing: float = 0.5) -> RepeatRule:
    return RepeatRule(channels, copies, spacing)


def next_of(one: Repeater) -> float | None:
    """When it wants to be asked next; a call, because each answer is good for one moment only."""
    return one.next_due


def play(one: Repeater, until: float, step: float = 0.125) -> list[tuple[float, bytes]]:
    """The copies with the times at which they were sent, by one who looks often."""
    sent = []
    for number in range(int(until / step) + 1):
        now = number * step
        sent += [(now, datagram) for datagram in one.due(now)]
    return sent


# -- copies and spacing


@pytest.mark.parametrize("copies", [2, 3, 8])
@pytest.mark.parametrize("spacing", [0.125, 0.5, 2.0])
def test_the_copies_of_a_datagram_follow_each_other_at_their_spacing(copies: int, spacing: float) -> None:
    one = repeater(rule(copies=copies, spacing=spacing))
    assert one.add(b"a/b", b"x", 0.0) is True
    assert play(one, 20.0) == [(spacing * number, b"x") for number in range(1, copies)]
    assert (one.next_due, one.dropped) == (None, 0)


def test_the_first_one_is_not_sent_again_at_once() -> None:
    one = repeater(rule())
    one.add(b"a/b", b"x", 10.0)
    assert next_of(one) == 10.5
    assert one.due(10.0) == []
    assert one.due(10.4375) == []
    assert one.due(10.5) == [b"x"]
    assert next_of(one) is None
    assert one.due(1000.0) == []


def test_a_copy_is_the_very_datagram() -> None:
    datagram = bytes(range(256)) * 5
    one = repeater(rule(copies=3))
    one.add(b"a/b", datagram, 0.0)
    assert one.due(0.5)[0] is datagram
    assert one.due(1.0)[0] is datagram


def test_without_spacing_all_copies_are_due_at_once() -> None:
    one = repeater(rule(copies=8, spacing=0.0))
    one.add(b"a/b", b"x", 1.0)
    one.add(b"a/b", b"y", 1.0)
    assert next_of(one) == 1.0
    assert sorted(one.due(1.0)) == [b"x"] * 7 + [b"y"] * 7
    assert next_of(one) is None


def test_what_is_due_first_is_sent_first_and_of_those_due_together_what_came_first() -> None:
    one = repeater(rule(b"fast", spacing=0.25), rule(b"slow", spacing=1.0))
    # In an order that is not that of their bytes.
    for number, chan in enumerate((b"slow", b"fast", b"slow", b"fast")):
        one.add(chan, b"%d" % (9 - number), 0.0)
    one.add(b"fast", b"5", 0.75)
    assert one.due(0.25) == [b"8", b"6"]
    assert one.due(1.0) == [b"9", b"7", b"5"]


def test_equal_datagrams_are_equal_only_by_chance_and_each_has_its_copies() -> None:
    one = repeater(rule(copies=3))
    one.add(b"a/b", b"x", 0.0)
    one.add(b"a/b", b"x", 0.0)
    assert one.due(0.5) == [b"x", b"x"]
    assert one.due(1.0) == [b"x", b"x"]
    assert next_of(one) is None


def test_the_next_moment_is_that_of_whatever_is_due_first() -> None:
    one = repeater(rule(b"slow", spacing=8.0), rule(b"fast", copies=3, spacing=1.0))
    assert next_of(one) is None
    one.add(b"slow", b"s", 0.0)
    assert next_of(one) == 8.0
    one.add(b"fast", b"f", 2.0)
    assert next_of(one) == 3.0
    one.due(3.0)
    assert next_of(one) == 4.0
    one.due(4.0)
    assert next_of(one) == 8.0


# -- after a pause, and at the end


def test_after_a_long_pause_of_ours_copies_are_spread_and_not_sent_in_one_bunch() -> None:
    one = repeater(rule(copies=4, spacing=0.5))
    one.add(b"a/b", b"x", 0.0)
    assert one.due(100.0) == [b"x"]
    assert next_of(one) == 100.5
    assert one.due(100.25) == []
    assert one.due(100.5) == [b"x"]
    assert one.due(101.0) == [b"x"]
    assert next_of(one) is None


def test_a_copy_that_was_late_makes_the_next_one_late_and_not_nearer() -> None:
    one = repeater(rule(copies=3, spacing=0.5))
    one.add(b"a/b", b"x", 0.0)
    assert one.due(0.75) == [b"x"]
    assert one.due(1.125) == []
    assert one.due(1.25) == [b"x"]


@pytest.mark.parametrize("spacing", [0.0, 0.5, 60.0])
def test_at_the_end_of_time_all_copies_are_due_and_there_is_an_end_to_it(spacing: float) -> None:
    one = repeater(rule(copies=8, spacing=spacing))
    for number in range(5):
        one.add(b"a/b", b"%d" % number, float(number))
    assert sorted(one.due(INF)) == sorted([b"%d" % number for number in range(5)] * 7)
    assert (one.next_due, one.dropped) == (None, 0)


# -- which channels


def test_the_first_rule_that_fits_decides() -> None:
    one = repeater(
        rule(b"a/b", copies=4, spacing=0.25), rule(b"a/>", copies=3, spacing=0.5), rule(b"", copies=2, spacing=1.0)
    )
    for chan in (b"a/b", b"a/c", b"z"):
        one.add(chan, chan, 0.0)
    sent = play(one, 10.0)
    assert [now for now, chan in sent if chan == b"a/b"] == [0.25, 0.5, 0.75]
    assert [now for now, chan in sent if chan == b"a/c"] == [0.5, 1.0]
    assert [now for now, chan in sent if chan == b"z"] == [1.0]


def test_a_later_rule_does_not_decide_however_narrow_it_is() -> None:
    one = repeater(rule(b"a/>", copies=2), rule(b"a/b", copies=8))
    one.add(b"a/b", b"x", 0.0)
    assert one.due(INF) == [b"x"]


def test_two_rules_for_the_same_channels_are_the_first_one() -> None:
    one = repeater(rule(b"a/b", copies=3), rule(b"a/b", copies=8))
    one.add(b"a/b", b"x", 0.0)
    assert one.due(INF) == [b"x", b"x"]


@pytest.mark.parametrize(
    ("channels", "chan", "fits"),
    [
        (b"", b"a/b", True),
        (b"", b"!", True),
        (b"", b"!relay01/cardsys/7", True),
        (b"!", b"!", True),
        (b"!", b"!relay01", False),
        (b"!*", b"!", True),
        (b"!*", b"!relay01", True),
        (b"!*", b"!relay01/cardsys", False),
        (b"!relay01/>", b"!relay01/cardsys/7", True),
        (b"!relay01/", b"!relay01/cardsys/*", True),
        (b"!relay01/>", b"!relay01", False),
        (b"!relay01/>", b"!relay02/cardsys/7", False),
        (b"!relay01/>", b"relay01/cardsys/7", False),
        (b"heartbeat/", b"heartbeat/relay01/bccnd/7", True),
        (b"a/>", b"a", False),
        (b"a/>", b"a/b/c", True),
        (b"a/*", b"a/b/c", False),
        (b"a", b"b", False),
    ],
)
def test_a_rule_fits_channels_of_all_forms_by_their_pattern(channels: bytes, chan: bytes, fits: bool) -> None:
    one = repeater(rule(channels))
    assert one.add(chan, b"x", 0.0) is fits
    assert one.due(INF) == ([b"x"] if fits else [])


@pytest.mark.parametrize("dialect", naive.DIALECT_NAMES)
@given(data=st.data())
@examples(60)
def test_rules_are_patterns_of_the_dialect_and_the_first_that_fits_decides(dialect: str, data: st.DataObject) -> None:
    texts = data.draw(st.lists(naive.patterns(dialect), max_size=4))
    chan = data.draw(naive.keys(dialect))
    one = repeater(*(rule(text, copies=2 + number) for number, text in enumerate(texts)), dialect=dialect)
    fitting = [number for number, text in enumerate(texts) if naive.matches(dialect, text, chan)]
    assert one.add(chan, b"x", 0.0) is bool(fitting)
    assert len(one.due(INF)) == (1 + fitting[0] if fitting else 0)


def test_without_rules_nothing_is_repeated() -> None:
    one = repeater()
    assert one.add(b"a/b", b"x", 0.0) is False
    assert next_of(one) is None
    assert one.due(INF) == []


# -- room


def test_copies_for_which_there_is_no_room_are_dropped_and_counted_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "MAX_WAITING", 3)
    one = repeater(rule(copies=4, spacing=1.0))
    for number in range(5):
        # A rule fits all the same; that there was no room is another matter.
        assert one.add(b"a/b", b"%d" % number, 0.0) is True
    assert one.dropped == 2 * 3
    assert one.due(1.0) == [b"0", b"1", b"2"]
    # What was let in has all its copies: the place of one is that of the next.
    assert one.due(2.0) == [b"0", b"1", b"2"]
    one.add(b"a/b", b"5", 2.0)
    assert one.dropped == 3 * 3
    assert one.due(3.0) == [b"0", b"1", b"2"]
    one.add(b"a/b", b"6", 3.0)
    assert one.due(INF) == [b"6"] * 3
    assert one.dropped == 3 * 3


def test_the_room_is_that_of_the_contract() -> None:
    one = repeater(rule())
    for number in range(MAX_WAITING + 10):
        one.add(b"a/b", b"%d" % number, 0.0)
    assert one.dropped == 10
    assert len(one.due(INF)) == MAX_WAITING


# -- copies that come too late, and those for which there is no time left


def test_a_copy_behind_the_horizon_is_not_sent_but_counted() -> None:
    # Its receivers would take it for a new beginning of its sender, and deliver it once more.
    one = repeater(rule(copies=4, spacing=0.5), horizon=2.0)
    one.add(b"a/b", b"late", 0.0)
    assert one.due(1.75) == [b"late"]
    assert one.due(2.5) == []
    assert (next_of(one), one.dropped) == (None, 2)
    one.add(b"a/b", b"in time", 3.0)
    assert one.due(5.0) == [b"in time"]


def test_where_there_is_no_time_left_all_copies_are_sent_in_order() -> None:
    one = repeater(rule(copies=3, spacing=1.0), rule(b"b", copies=2, spacing=0.25), horizon=2.0)
    one.add(b"a/b", b"x", 0.0)
    one.add(b"b", b"y", 0.5)
    assert one.rest() == [b"y", b"x", b"x"]
    assert (one.rest(), next_of(one), one.dropped) == ([], None, 0)


# -- rules that change while copies wait


def test_copies_that_wait_are_sent_by_the_rule_under_which_they_began() -> None:
    one = repeater(rule(copies=3, spacing=0.5))
    one.add(b"a/b", b"old", 0.0)
    one.configure([rule(copies=2, spacing=0.25)], PATH, INF)
    one.add(b"a/b", b"new", 0.0)
    assert play(one, 5.0) == [(0.25, b"new"), (0.5, b"old"), (1.0, b"old")]


def test_without_rules_what_waits_is_sent_and_nothing_more_comes() -> None:
    one = repeater(rule(copies=3))
    one.add(b"a/b", b"old", 0.0)
    one.configure([], PATH, INF)
    assert one.add(b"a/b", b"new", 0.0) is False
    assert play(one, 5.0) == [(0.5, b"old"), (1.0, b"old")]


def test_rules_that_come_later_are_those_of_what_comes_later() -> None:
    one = repeater()
    one.add(b"a/b", b"old", 0.0)
    one.configure([rule(b"a.b")], DIALECTS["sbus-dot"], INF)
    assert one.add(b"a.b", b"new", 0.0) is True
    assert one.due(INF) == [b"new"]


# -- for all histories


class Act(NamedTuple):
    """So many eighths of a second after the act before: a datagram on a channel, or a look at what is due."""

    eighths: int
    chan: bytes | None


ACTS = st.lists(
    st.builds(Act, st.sampled_from([0, 0, 1, 2, 3, 8, 100]), st.sampled_from([None, None, b"a", b"b", b"c", b"none"])),
    max_size=50,
)


@dataclass
class Sent:
    """One datagram: what is still owed of it, and since when it may be sent."""

    spacing: float
    left: int
    may: float
    times: list[float] = field(default_factory=list)


@given(ACTS, st.integers(1, 6), st.sampled_from([0.0, 0.125, 0.5]))
@examples(300)
def test_no_copy_comes_early_or_too_often_and_none_is_lost_but_those_counted(
    history: list[Act], room: int, spacing: float
) -> None:
    rules = [rule(b"a", 2, spacing), rule(b"b", 4, spacing), rule(b"c", 3, 1.0)]
    copies = {one.channels: one for one in rules}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeat, "MAX_WAITING", room)
        one = repeater(*rules)
        owed: dict[bytes, Sent] = {}
        now, dropped = 0.0, 0
        for number, act in enumerate(history):
            now += act.eighths / 8
            if act.chan is not None:
                datagram, fitting = b"%d" % number, copies.get(act.chan)
                waiting = sum(1 for sent in owed.values() if sent.left)
                assert one.add(act.chan, datagram, now) is (fitting is not None)
                if fitting is not None and waiting < room:
                    owed[datagram] = Sent(fitting.spacing, fitting.copies - 1, now + fitting.spacing)
                elif fitting is not None:
                    dropped += fitting.copies - 1
            else:
                due = {datagram: sent for datagram, sent in owed.items() if sent.left and sent.may <= now}
                taken = one.due(now)
                assert set(taken) == set(due)
                for datagram in taken:
                    sent = owed[datagram]
                    assert sent.may <= now
                    assert sent.left > 0
                    sent.left -= 1
                    sent.may = now + sent.spacing
                    sent.times.append(now)
            waits = [sent.may for sent in owed.values() if sent.left]
            assert next_of(one) == min(waits, default=None)
            assert len(one._waiting) == len(waits) <= room
            assert one.dropped == dropped
        assert len(one.due(INF)) == sum(sent.left for sent in owed.values())
        assert next_of(one) is None
