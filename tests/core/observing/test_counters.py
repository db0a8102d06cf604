"""Counters: which numbers they hold."""

from __future__ import annotations

from math import inf

import pytest

from bccnd.core.observing.counters import MAX_COUNT, BusCounters, NamedCounts, SegmentCounters, read_count
from bccnd.core.wire.verdicts import ACCEPTED, STALE
from bccnd.native.memory.private_memory import private_memory


@pytest.mark.parametrize("value", [1.5, inf, "7", None, MAX_COUNT + 1, -MAX_COUNT - 1])
def test_read_count_accepts_64_bit_integers_only(value: object) -> None:
    assert [read_count(one) for one in (0, 7, MAX_COUNT, -3, -MAX_COUNT)] == [0, 7, MAX_COUNT, 0, 0]
    with pytest.raises(ValueError, match="64 bits"):
        read_count(value)


def test_counts_by_name_go_on_in_the_same_memory_each_under_its_group() -> None:
    memory = private_memory(1)
    for group, amount in (("one", 1), ("other", 5)):
        counts = NamedCounts(memory, group, ("known",))
        counts.add("known", amount)
        counts.add("new", 2 * amount)
    after = NamedCounts(memory, "one", ("known",))
    after.add("known")
    assert (after.all(), after["new"], after["never"]) == ({"known": 2, "new": 2}, 2, 0)


def test_a_segment_counts_what_it_sent_and_what_came() -> None:
    memory = private_memory(1)
    for _ in range(2):  # the second goes on where the first has ended
        segment = SegmentCounters("yard", memory)
        segment.judged(ACCEPTED, 3)
        segment.judged(STALE)
        segment.count_sent()
        segment.count_sent()
        segment.count_reopened()
        segment.errors.add("ENOBUFS")
    assert (segment.received, segment.verdicts[ACCEPTED], segment.verdicts[STALE]) == (8, 6, 2)
    assert (segment.sent, segment.reopened, segment.errors.all()) == (4, 2, {"ENOBUFS": 2})
    assert SegmentCounters("other", memory).received == SegmentCounters("yard").received == 0


def test_the_bus_counts_deliveries_and_each_kind_of_refusal() -> None:
    bus = BusCounters()
    bus.delivered(3)
    bus.count_published()
    bus.count_untold()
    bus.count_untold()
    kinds = (bus.refused, bus.ended, bus.held, bus.dropped, bus.errors)
    for number, counts in enumerate(kinds, 1):
        counts.add("reason", number)
    assert (bus.deliveries, bus.published, bus.untold) == (3, 1, 2)
    assert [counts["reason"] for counts in kinds] == [1, 2, 3, 4, 5]
    assert set(bus.errors.all()) == {"reason"}
    assert all(len(counts.all()) > 1 for counts in kinds[:4])
