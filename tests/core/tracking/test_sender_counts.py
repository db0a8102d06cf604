"""Counters by sending host: bounded, evicted by when they were heard, and exact while they are there."""

from __future__ import annotations

import sys

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.sender_counts import SenderTable
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, REORDERED, STALE
from tests.rules import dedup_rules


def table(*, deliver_late: bool = False, max_hosts: int = 1000) -> TrackerTable:
    return TrackerTable(dedup_rules(deliver_late=deliver_late), SenderTable(lambda: max_hosts))


def judge(sources: TrackerTable, src: bytes, seq: int, now: float) -> int:
    verdict = sources.judge(src, seq, now)
    if verdict == DUPLICATE:
        sources.count_duplicate(src)
    return verdict


def counts(sources: TrackerTable, host: bytes) -> tuple[int, int, int, int]:
    (one,) = [one for one in sources.senders if one.host == host]
    return one.received, one.lost, one.late, one.duplicate


def test_all_sources_of_a_host_count_together() -> None:
    sources = table()
    for src in (b"a/x/1", b"a/y/2", b"b/x/1"):
        for seq in (1, 2, 3, 3):
            judge(sources, src, seq, 0.0)
    assert counts(sources, b"a") == (6, 0, 0, 2)
    assert counts(sources, b"b") == (3, 0, 0, 1)


def test_a_gap_is_lost_after_the_horizon_and_what_comes_between_is_late_only_if_dropped() -> None:
    sources = table()
    assert [judge(sources, b"a/x/1", seq, 0.0) for seq in (1, 5, 3)] == [ACCEPTED, ACCEPTED, STALE]
    sources.sweep(3.0)
    assert counts(sources, b"a") == (2, 2, 1, 0)
    delivering = table(deliver_late=True)
    assert [judge(delivering, b"a/x/1", seq, 0.0) for seq in (1, 5, 3)] == [ACCEPTED, ACCEPTED, REORDERED]
    delivering.sweep(3.0)
    assert counts(delivering, b"a") == (3, 2, 0, 0)


def test_the_host_heard_least_recently_is_evicted_and_begins_anew() -> None:
    sources = table(max_hosts=2)
    judge(sources, b"a/x/1", 1, 0.0)
    judge(sources, b"b/x/1", 1, 0.0)
    judge(sources, b"a/x/1", 2, 10.0)
    judge(sources, b"c/x/1", 1, 11.0)
    assert {one.host for one in sources.senders} == {b"a", b"c"}
    assert sources.senders.evicted == 1
    first = {one.host: one.since_ms for one in sources.senders}
    for number in range(3):  # the tracker is still there, and finds new counters within a second
        judge(sources, b"b/x/1", 2 + number, 20.0 + 2 * number)
    assert counts(sources, b"b") == (3, 0, 0, 0)
    (anew,) = [one for one in sources.senders if one.host == b"b"]
    assert anew.since_ms > first[b"a"]


def test_hosts_beyond_a_lowered_cap_are_evicted() -> None:
    cap = 3
    senders = SenderTable(lambda: cap)
    for number in range(3):
        senders.of(b"host%d/x/1" % number, float(number))
    cap = 2
    senders.of(b"host3/x/1", 3.0)
    assert ([one.host for one in senders], senders.evicted) == ([b"host2", b"host3"], 2)


def test_one_host_is_evicted_where_all_were_heard_since_they_were_placed() -> None:
    sources = table(max_hosts=2)
    for now in (0.0, 10.0):
        for src in (b"a/x/1", b"b/x/1"):
            judge(sources, src, int(now) + 1, now)
    judge(sources, b"c/x/1", 1, 11.0)
    assert {one.host for one in sources.senders} == {b"b", b"c"}


def test_the_counters_of_a_host_are_not_held_by_sources_that_have_gone() -> None:
    sources = table()
    judge(sources, b"a/x/1", 1, 0.0)
    judge(sources, b"b/x/1", 1, 0.0)
    one = next(iter(sources.senders))
    before = sys.getrefcount(one)
    sources.drop(b"a/x/1")
    assert sys.getrefcount(one) < before


def test_a_flood_of_names_takes_no_more_room() -> None:
    senders = SenderTable(lambda: 10)
    for number in range(1000):
        senders.of(b"host%d/x/1" % number, float(number))
    assert len(senders) == 10
    assert senders.evicted == 990
