"""Counters: which numbers they hold."""

from __future__ import annotations

from math import inf

import pytest

from bccnd.core.observing.counters import (
    MAX_COUNT,
    BusCounters,
    GroupCounters,
    NamedCounts,
    SegmentCounters,
    read_count,
)
from bccnd.core.wire.verdicts import ACCEPTED, STALE


@pytest.mark.parametrize("value", [1.5, inf, "7", None, MAX_COUNT + 1, -MAX_COUNT - 1])
def test_read_count_accepts_64_bit_integers_only(value: object) -> None:
    assert [read_count(one) for one in (0, 7, MAX_COUNT, -3, -MAX_COUNT)] == [0, 7, MAX_COUNT, 0, 0]
    with pytest.raises(ValueError, match="64 bits"):
        read_count(value)


def test_counts_by_name_have_those_that_are_known_and_those_that_occur() -> None:
    counts = NamedCounts(("known",))
    counts.add("new", 2)
    counts.add("new")
    assert (counts.all(), counts["new"], counts["never"]) == ({"known": 0, "new": 3}, 3, 0)


def test_a_segment_counts_what_it_sent_and_what_came() -> None:
    segment = SegmentCounters("yard")
    segment.judged(ACCEPTED, 3)
    segment.judged(STALE)
    segment.errors.add("ENOBUFS")
    assert (segment.received, segment.verdicts[ACCEPTED], segment.verdicts[STALE]) == (4, 3, 1)
    assert (segment.sent, segment.reopened, segment.errors.all()) == (0, 0, {"ENOBUFS": 1})


def test_groups_that_stay_keep_their_counts_over_a_reload() -> None:
    before = GroupCounters(["gone", "stays"])
    before.count(0, 10)
    before.count(1, 20)
    after = GroupCounters(["stays", "new"])
    after.adopt(before)
    after.count(0, 1)
    assert after.all() == [("stays", 2, 21), ("new", 0, 0)]


def test_the_bus_counts_each_kind_of_refusal() -> None:
    bus = BusCounters()
    kinds = (bus.refused, bus.ended, bus.held, bus.dropped, bus.errors)
    for number, counts in enumerate(kinds, 1):
        counts.add("reason", number)
    assert (bus.deliveries, bus.published, bus.control_dropped) == (0, 0, 0)
    assert [counts["reason"] for counts in kinds] == [1, 2, 3, 4, 5]
    assert set(bus.errors.all()) == {"reason"}
    assert all(len(counts.all()) > 1 for counts in kinds[:4])
