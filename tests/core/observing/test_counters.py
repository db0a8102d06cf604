"""Counters: which numbers they hold."""

from __future__ import annotations

from math import inf

import pytest

from bccnd.core.observing.counters import (
    MAX_COUNT,
    GroupCounters,
    NamedCounts,
    SegmentCounters,
    read_count,
)


@pytest.mark.parametrize("value", [1.5, inf, "7", None, MAX_COUNT + 1, -MAX_COUNT - 1])
def test_read_count_accepts_64_bit_integers_only(value: object) -> None:
    assert [read_count(one) for one in (0, 7, MAX_COUNT, -3, -MAX_COUNT)] == [0, 7, MAX_COUNT, 0, 0]
    with pytest.raises(ValueError, match="64 bits"):
        read_count(value)


def test_counts_by_name_have_known_and_new_names() -> None:
    counts = NamedCounts(("known",))
    counts.add("new", 2)
    counts.add("new")
    assert (counts.all(), counts["new"], counts["never"]) == ({"known": 0, "new": 3}, 3, 0)


def test_a_segment_begins_at_zero() -> None:
    counters = SegmentCounters("eth0")
    assert (counters.sent, counters.reopened, sum(counters.verdicts), counters.errors.all()) == (0, 0, 0, {})


def test_groups_that_stay_keep_their_counts_over_a_reload() -> None:
    before = GroupCounters(["gone", "stays"])
    before.count(0, 10)
    before.count(1, 20)
    after = GroupCounters(["stays", "new"])
    after.adopt(before)
    after.count(0, 1)
    assert after.all() == [("stays", 2, 21), ("new", 0, 0)]
