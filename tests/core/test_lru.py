"""The table of sources: found, in LRU order, and cheap in memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.dedup import UNHEARD, DedupRules, TrackerTable
from bccnd.core.liveness import Liveness, LivenessRules
from bccnd.core.lru import LruTable, Source
from tests.core.material import examples

#: operations and sources
STEPS = st.lists(st.tuples(st.sampled_from(["add", "touch", "remove"]), st.integers(0, 9)), max_size=60)


def test_a_forgotten_source_is_freed_without_the_garbage_collector() -> None:
    sources = TrackerTable(DedupRules(max_sources=10, horizon=1.0, expire=60.0))
    gc.collect()
    gc.disable()
    try:
        for number in range(1000):
            src = b"host/%d" % number
            for seq in (1, 2, 5, 4, 2000):
                if sources.judge(src, seq, float(number)) == UNHEARD:
                    sources.judge_new(src, seq, float(number))
            while sources.sweep(float(number)):
                pass
        assert sources.evicted == 990
        while sources.sweep(10_000.0):
            pass
        assert len(sources) == 0
        assert gc.collect() == 0
    finally:
        gc.enable()


@given(STEPS, st.sampled_from([0, 1, 1024, 100_000]))
@examples(300)
def test_a_roster_is_an_ordered_dictionary(steps: list[tuple[str, int]], expected: int) -> None:
    roster = LruTable(expected)
    naive: OrderedDict[bytes, Source] = OrderedDict()
    for step, number in steps:
        src = b"host/%d" % number
        if step == "add" and src not in naive:
            naive[src] = Source(src, 1, 0.0)
            roster.add(naive[src])
        elif step == "touch" and src in naive:
            naive.move_to_end(src)
            roster.touch(naive[src])
        elif step == "remove" and src in naive:
            roster.remove(naive.pop(src))
        assert len(roster) == len(naive)
        assert roster.get(src) is naive.get(src)
        assert list(roster.newest_first()) == list(reversed(naive.values()))
        assert list(roster.oldest_first()) == list(naive.values())
        assert roster.oldest is next(iter(naive.values()), None)


@given(st.lists(st.integers(0, 5), max_size=30))
@examples(200)
def test_put_in_order_sorts_by_rank_and_is_stable(ranks: list[int]) -> None:
    roster = LruTable(0)
    line = []
    for number, rank in enumerate(ranks):
        source = Source(b"host/%d" % number, 1, 0.0)
        source.rank = float(rank)
        roster.add(source)
        line.append(source)
    roster.sort()
    line.sort(key=lambda source: source.rank)
    assert list(roster.oldest_first()) == line
    assert list(roster.newest_first()) == line[::-1]
    for source in line[::2]:
        roster.remove(source)
    assert list(roster.oldest_first()) == line[1::2]


def name(number: int) -> bytes:
    return b"relay%02d.example/cardsys-relay/%d" % (number % 50, number)


@pytest.mark.slow
def test_100_000_senders_with_heartbeats_and_gaps_fit_in_60_mb() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        sources = TrackerTable(DedupRules(max_sources=100_000))
        liveness = Liveness(sources, LivenessRules(max_watched=100_000), 0.0)
        for later in (0, 1):
            for number in range(100_000):
                src, now = name(number), 5.0 * later + number * 5e-5
                seq = 1_700_000_000_000_000 + later + 3 * later * (number % 10 == 0)
                if sources.judge(src, seq, now) == UNHEARD:
                    sources.judge_new(src, seq, now)
                liveness.on_heartbeat(src, now)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert (len(sources), sources.missing) == (100_000, 30_000)
    assert taken < 60e6
