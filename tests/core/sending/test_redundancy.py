"""Redundant sending: how many copies, when, in which order, and what happens when time or room is short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.sending import redundancy
from bccnd.core.sending.redundancy import Repeater, RepeatRule, RepeatRules
from tests.core import naive
from tests.core.material import examples
from tests.rules import dedup_rules

PATH = DIALECTS["path"]
INF = float("inf")


def repeater(*rules: RepeatRule, dialect: str = "path", horizon: float = INF) -> Repeater:
    return Repeater(RepeatRules(rules, DIALECTS[dialect]), dedup_rules(horizon=horizon))


def rule(channels: bytes = b"a/>", copies: int = 2, spacing: float = 0.5) -> RepeatRule:
    return RepeatRule(channels, copies, spacing)


def next_of(one: Repeater) -> float | None:
    """When it is due next; a call, because mypy takes an attribute for unchanged."""
    return one.next_due


def play(one: Repeater, until: float, step: float = 0.125) -> list[tuple[float, bytes]]:
    """The copies with the times at which they were sent, by a caller that looks often."""
    times = [number * step for number in range(int(until / step) + 1)]
    return [(now, datagram) for now in times for datagram in one.due(now)]


def test_what_is_due_first_is_sent_first_and_of_those_due_together_what_came_first() -> None:
    one = repeater(rule(b"fast", spacing=0.25), rule(b"slow", spacing=1.0))
    # In an order that is not that of their bytes.
    for number, chan in enumerate((b"slow", b"fast", b"slow", b"fast")):
        one.add(chan, b"%d" % (9 - number), 0.0)
    one.add(b"fast", b"5", 0.75)
    assert one.due(0.25) == [b"8", b"6"]
    assert one.due(1.0) == [b"9", b"7", b"5"]


def test_a_rule_fits_channels_of_all_forms_by_their_pattern() -> None:
    fitting = [
        *((b"", chan) for chan in (b"a/b", b"!", b"!relay01/cardsys/7")),
        *((b"!", b"!"), (b"!*", b"!"), (b"!*", b"!relay01")),
        *((b"!relay01/>", b"!relay01/cardsys/7"), (b"!relay01/", b"!relay01/cardsys/*")),
    ]
    others = [
        *((b"!", b"!relay01"), (b"!*", b"!relay01/cardsys")),
        *((b"!relay01/>", chan) for chan in (b"!relay01", b"!relay02/cardsys/7", b"relay01/cardsys/7")),
    ]
    for channels, chan in (*fitting, *others):
        one = repeater(rule(channels))
        fits = (channels, chan) in fitting
        assert one.add(chan, b"x", 0.0) is fits, (channels, chan)
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


def test_a_copy_behind_the_horizon_is_not_sent_but_counted() -> None:
    # Its receivers would take it for a new beginning of its sender, and deliver it once more.
    one = repeater(rule(copies=4, spacing=0.5), horizon=2.0)
    one.add(b"a/b", b"late", 0.0)
    assert one.due(1.75) == [b"late"]
    one.add(b"a/b", b"in time", 2.0)
    assert one.due(2.5) == [b"in time"]
    assert (next_of(one), one.dropped) == (3.0, 2)
    assert one.due(4.0) == [b"in time"]


def test_where_there_is_no_time_left_all_copies_are_sent_in_order() -> None:
    one = repeater(rule(copies=3, spacing=1.0), rule(b"b", copies=2, spacing=0.25), horizon=2.0)
    one.add(b"a/b", b"x", 0.0)
    one.add(b"b", b"y", 0.5)
    assert one.rest() == [b"y", b"x", b"x"]
    assert (one.rest(), next_of(one), one.dropped) == ([], None, 0)


def test_copies_that_wait_are_sent_by_the_rule_under_which_they_began() -> None:
    one = repeater(rule(copies=3, spacing=0.5))
    one.add(b"a/b", b"old", 0.0)
    one.rules = RepeatRules([rule(copies=2, spacing=0.25)], PATH)
    one.add(b"a/b", b"new", 0.0)
    one.rules = RepeatRules([], PATH)
    assert one.add(b"a/b", b"none", 0.0) is False
    one.rules = RepeatRules([rule(b"a.b")], DIALECTS["sbus-dot"])
    assert one.add(b"a.b", b"dot", 4.0) is True
    assert play(one, 5.0) == [(0.25, b"new"), (0.5, b"old"), (1.0, b"old"), (4.5, b"dot")]


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
    """One datagram: how many copies are left of it, and from when on the next may be sent."""

    spacing: float
    left: int
    may: float


@given(ACTS, st.integers(1, 6), st.sampled_from([0.0, 0.125, 0.5]))
@examples(300)
def test_no_copy_is_early_and_losses_are_counted(history: list[Act], room: int, spacing: float) -> None:
    rules = [rule(b"a", 2, spacing), rule(b"b", 4, spacing), rule(b"c", 3, 1.0)]
    copies = {one.channels: one for one in rules}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redundancy, "MAX_WAITING", room)
        one = repeater(*rules)
        owed: dict[bytes, Sent] = {}
        now, dropped = 0.0, 0
        for number, act in enumerate(history):
            now += act.eighths / 8
            if act.chan is not None:
                datagram, fitting = b"%d" % number, copies.get(act.chan)
                assert one.add(act.chan, datagram, now) is (fitting is not None)
                if fitting is not None and len(owed) < room:
                    owed[datagram] = Sent(fitting.spacing, fitting.copies - 1, now + fitting.spacing)
                elif fitting is not None:
                    dropped += fitting.copies - 1
            else:
                taken = one.due(now)
                assert sorted(taken) == sorted(
                    copy
                    for datagram, sent in owed.items()
                    if sent.may <= now
                    for copy in [datagram] * (sent.left if not sent.spacing else 1)
                )
                for datagram in taken:
                    owed[datagram].left -= 1
                    owed[datagram].may = now + owed[datagram].spacing
                owed = {datagram: sent for datagram, sent in owed.items() if sent.left}
            assert next_of(one) == min((sent.may for sent in owed.values()), default=None)
            assert len(one.waiting()) == len(owed) <= room
            assert one.dropped == dropped
        assert len(one.due(INF)) == sum(sent.left for sent in owed.values())
        assert next_of(one) is None
