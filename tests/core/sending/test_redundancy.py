"""Redundant sending: how many copies, when, in which order, and what happens when time or room is short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.sending import redundancy
from bccnd.core.sending.redundancy import Repeater, RepeatRule, RepeatRules
from tests.core import naive
from tests.core.material import examples
from tests.rules import dedup_rules

INF = float("inf")


def repeater(*rules: RepeatRule, dialect: str = "path", horizon: float = INF) -> Repeater:
    return Repeater(RepeatRules(rules, DIALECTS[dialect]), dedup_rules(horizon=horizon))


def rule(channels: bytes = b"a/>", copies: int = 2, spacing: float = 0.5) -> RepeatRule:
    return RepeatRule(channels, copies, spacing)


def parse(text: str) -> list[RepeatRule]:
    fields = [one.split("*") for one in text.split(",") if one]
    return [rule(chan.encode(), int(copies), float(spacing)) for chan, copies, spacing in fields]


#: rules ``<channel>*<copies>*<spacing>``, and what happens: ``a<x``: datagram x is sent on channel a; ``@2``: the time;
#: ``=x,y``: these copies are due; ``rest=x``: at the end; ``rules:``: others from now on;
#: ``restart``: the next daemon continues; 4 copies may wait
HISTORIES = {
    # In an order that is not that of their bytes.
    "copies are sent in the order in which they are due": (
        "fast*2*0.25,slow*2*1",
        "slow<9 fast<8 slow<7 fast<6 @0.25 =8,6 @0.75 fast<5 restart @1 =9,7,5 next=None",
    ),
    "without spacing they are due at once": ("a*4*0", "a<x next=0.0 =x,x,x next=None"),
    "after a pause they are as far apart as usual": ("a*3*0.5", "a<x next=0.5 @1.25 =x next=1.75 @1.75 =x next=None"),
    "copies that find no room are counted": ("a*3*1", "a<1 a<2 a<3 a<4 a<5 dropped=2 @1 =1,2,3,4 next=2.0 dropped=2"),
    # Receivers would take it for a new beginning of its sender, and deliver it once more.
    "a copy behind the horizon is counted instead": (
        "a*4*0.5",
        "a<late @1.75 =late @2 a<x @2.5 =x next=3.0 dropped=2 @4 =x dropped=2",
    ),
    "where no time is left all copies are sent in order": (
        "a*3*1,b*2*0.25",
        "a<x @0.5 b<y rest=y,x,x rest= next=None dropped=0",
    ),
    "copies are sent by the rule under which they began": (
        "a*3*0.5",
        "a<old rules:a*2*0.25 a<new rules: @0.25 =new @0.5 =old @1 =old next=None",
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redundancy, "MAX_WAITING", 4)
    rules, history = HISTORIES[name]
    one, now = repeater(*parse(rules), horizon=2.0), 0.0
    for word in history.split():
        verb, _, value = word.partition("=")
        chan, sent, datagram = word.partition("<")
        if sent:
            assert one.add(chan.encode(), datagram.encode(), now)
        elif word[0] == "@":
            now = float(word[1:])
        elif word == "restart":
            before, one = one, repeater(*parse(rules), horizon=2.0)
            one.resume(before.waiting())
        elif word.startswith("rules:"):
            one.rules = RepeatRules(parse(word[6:]), DIALECTS["path"])
        elif verb in ("", "rest"):
            assert (word, b",".join(one.rest() if verb else one.due(now)).decode()) == (word, value)
        else:
            assert (word, str(one.next_due if verb == "next" else one.dropped)) == (word, value)


def test_a_rule_fits_channels_of_all_forms_by_their_pattern() -> None:
    for channels, fitting, others in (
        (b"", [b"a/b", b"!", b"!relay01/cardsys/7"], []),
        (b"!*", [b"!", b"!relay01"], [b"!relay01/cardsys"]),
        (b"!relay01/>", [b"!relay01/cardsys/7"], [b"!relay01", b"!relay02/cardsys/7", b"relay01/cardsys/7"]),
        (b"!relay01/", [b"!relay01/cardsys/*"], []),
        (b"!", [b"!"], [b"!relay01"]),
    ):
        assert [chan for chan in fitting + others if repeater(rule(channels)).add(chan, b"x", 0.0)] == fitting


@pytest.mark.parametrize("dialect", naive.DIALECT_NAMES)
@given(data=st.data())
@examples(60)
def test_the_first_rule_that_fits_decides(dialect: str, data: st.DataObject) -> None:
    texts = data.draw(st.lists(naive.patterns(dialect), max_size=4))
    chan = data.draw(naive.keys(dialect))
    one = repeater(*(rule(text, copies=2 + number) for number, text in enumerate(texts)), dialect=dialect)
    fitting = [number for number, text in enumerate(texts) if naive.matches(dialect, text, chan)]
    assert one.add(chan, b"x", 0.0) is bool(fitting)
    assert len(one.due(INF)) == (1 + fitting[0] if fitting else 0)
