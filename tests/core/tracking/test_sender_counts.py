"""Counters by sending host: bounded, evicted by when they were heard, and exact while they are there."""

from __future__ import annotations

import sys

import pytest

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.sender_counts import SenderTable
from tests.core import scenario
from tests.core.tracker_hosts import receive
from tests.rules import dedup_rules

HISTORIES = {
    "all sources of a host count together": (
        "a/x/1.1..3 a/x/1.3:duplicate a/y/2.1..3 a/y/2.3:duplicate b/x/1.1..3 b/x/1.3:duplicate a=6/0/0/2 b=3/0/0/1"
    ),
    "a gap is lost after the horizon, and a seq that was dropped is late": (
        "a/x/1.1 a/x/1.5 a/x/1.3:stale @3 sweep a=2/2/1/0 lost=2 late=1"
    ),
    "one that is delivered late is not": (
        "limits:late=deliver a/x/1.1 a/x/1.5 a/x/1.3:reordered @3 sweep a=3/2/0/0 lost=2 late=0"
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    scenario.play(TrackerTable(dedup_rules()), HISTORIES[name])


def test_the_host_heard_least_recently_is_evicted() -> None:
    sources = TrackerTable(dedup_rules(), SenderTable(lambda: 2))
    for src, seq, now in ((b"a/x/1", 1, 0.0), (b"b/x/1", 1, 0.0), (b"a/x/1", 2, 10.0), (b"c/x/1", 1, 11.0)):
        receive(sources, src, seq, now)
    first = {one.host: one.since_ms for one in sources.senders}
    assert (set(first), sources.senders.evicted) == ({b"a", b"c"}, 1)
    for number in range(3):  # the tracker is still there, and finds new counters within a second
        receive(sources, b"b/x/1", 2 + number, 20.0 + 2 * number)
    (anew,) = [one for one in sources.senders if one.host == b"b"]
    assert (anew.received, anew.lost, anew.late) == (3, 0, 0)
    assert anew.since_ms > first[b"a"]


def test_one_host_is_evicted_where_all_were_heard_again() -> None:
    sources = TrackerTable(dedup_rules(), SenderTable(lambda: 2))
    for number, src in enumerate((b"a/x/1", b"b/x/1", b"a/x/1", b"b/x/1", b"c/x/1")):
        receive(sources, src, number, 5.0 * number)
    assert {one.host for one in sources.senders} == {b"b", b"c"}


def test_hosts_beyond_a_lowered_cap_are_evicted() -> None:
    cap = 10
    senders = SenderTable(lambda: cap)
    for number in range(1000):
        senders.of(b"host%d/x/1" % number, float(number))
    assert (len(senders), senders.evicted) == (10, 990)
    cap = 2
    senders.of(b"new/x/1", 1000.0)
    assert ([one.host for one in senders], senders.evicted) == ([b"host999", b"new"], 999)


def test_sources_that_have_gone_hold_no_counters() -> None:
    sources = TrackerTable(dedup_rules())
    for src in (b"a/x/1", b"b/x/1"):
        receive(sources, src, 1, 0.0)
    counters = next(iter(sources.senders))
    before = sys.getrefcount(counters)
    sources.drop(b"a/x/1")
    assert sys.getrefcount(counters) < before
