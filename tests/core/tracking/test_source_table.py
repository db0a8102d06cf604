"""The table of sources: found, in the order in which they were heard, and cheap in memory."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict

from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import HeartbeatRules, Liveness
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.source_table import SourceTable
from tests.core.material import examples
from tests.rules import dedup_rules

#: operations and sources
STEPS = st.lists(st.tuples(st.sampled_from(["add", "touch", "remove"]), st.integers(0, 9)), max_size=60)


@given(STEPS)
@examples(300)
def test_the_table_is_an_ordered_dictionary(steps: list[tuple[str, int]]) -> None:
    table = SourceTable()
    naive: OrderedDict[bytes, Source] = OrderedDict()
    for step, number in steps:
        src = b"host/%d" % number
        if step == "add" and src not in naive:
            naive[src] = Source(src, 1, 0.0)
            table.add(naive[src])
        elif step == "touch" and src in naive:
            naive.move_to_end(src)
            table.touch(naive[src])
        elif step == "remove" and src in naive:
            removed = naive.pop(src)
            table.remove(removed)
            assert not removed.tracked
        assert len(table) == len(naive)
        assert table.by_src.get(src) is naive.get(src)
        assert [source.src for source in table.newest_first()] == list(reversed(naive))
        assert [source.src for source in table.oldest_first()] == list(naive)
        assert table.oldest() is next(iter(naive.values()), None)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4)), max_size=30).map(sorted),
    st.integers(0, 20),
)
@example([(5, 1), (6, 4)], 3)
@examples(200)
def test_sources_that_were_heard_since_a_time_are_counted(heard: list[tuple[int, int]], since: int) -> None:
    table = SourceTable()
    for number, (rank, before) in enumerate(heard):
        source = Source(b"host/%d" % number, 1, float(rank - before))
        source.rank = float(rank)
        table.add(source)
    naive = sum(rank - before >= since for rank, before in heard)
    assert table.count_heard_since(float(since), 4.0) == naive


def test_a_sender_with_heartbeats_and_gaps_takes_600_bytes() -> None:
    count = 20_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        sources = TrackerTable(dedup_rules())
        liveness = Liveness(sources, HeartbeatRules(), 0.0)
        for later in (0, 1):
            for number in range(count):
                src, now = b"relay%02d.example/cardsys-relay/%d" % (number % 50, number), 5.0 * later + number * 2e-4
                seq = 1_700_000_000_000_000 + later + 3 * later * (number % 10 == 0)
                sources.judge(src, seq, now)
                liveness.on_heartbeat(src, now)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert (len(sources), sources.missing) == (count, 3 * count // 10)
    assert taken < 600 * count
