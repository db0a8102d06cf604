"""Restarts are remembered as long as links may bring copies from before them, and no longer."""

from __future__ import annotations

from bccnd.core.observing.counters import NamedCounts
from bccnd.core.tracking.recent_restarts import MAX_RESTARTS, RecentRestarts


def test_a_restart_is_forgotten_when_no_copy_from_before_it_can_come_any_more() -> None:
    restarts = RecentRestarts(NamedCounts(), 30.0)
    restarts.remember(b"a", 0.0, 7)
    restarts.remember(b"b", 1.0, 8)
    restarts.remember(b"a", 2.0, 9)
    assert not restarts.sweep(31.0)
    assert [restarts.predates(b"a", seq, 32.0) for seq in (9, 10)] == [True, False]
    assert restarts.sweep(31.5)
    assert not restarts.sweep(31.5)
    assert list(restarts.by_src) == [b"a"]
    assert restarts.sweep(32.5)
    assert not restarts.predates(b"a", 1, 32.5)
    assert not restarts.by_src


def test_beyond_the_cap_the_oldest_goes() -> None:
    counted = NamedCounts()
    restarts = RecentRestarts(counted, 30.0)
    for number in range(MAX_RESTARTS + 1):
        restarts.remember(b"%d" % number, 0.0, 5)
    assert counted["restarts_evicted"] == 1
    assert [restarts.predates(b"%d" % number, 5, 1.0) for number in (0, 1, MAX_RESTARTS)] == [False, True, True]
