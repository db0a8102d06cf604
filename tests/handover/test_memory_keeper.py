"""The memory of sources outlives the daemon; where it does not, that is counted, told and tried again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.wire.verdicts import ACCEPTED
from bccnd.handover.memory_keeper import LONGEST_PAUSE, SHORTEST_PAUSE, MemoryKeeper
from bccnd.handover.stored_names import MEMORY
from bccnd.handover.stored_state import Handover
from bccnd.native.memory.slots import SlotMemory
from tests.core.scenario import receive
from tests.handover.successors import Store, drop
from tests.rules import dedup_rules

SOURCES = 4000


@contextmanager
def opened(store: Store, slots: int = SOURCES) -> Iterator[tuple[Handover, SlotMemory]]:
    handover = Handover(store, store.passed(), lambda _call: None)
    try:
        yield handover, handover.open_memory(slots, slots)
    finally:
        drop(handover)


def test_a_refused_memory_is_stored_later_and_the_next_daemon_has_it(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.refused = MEMORY
    with opened(store) as (handover, memory):
        keeper = MemoryKeeper(handover, memory)
        keeper.step(0.0)
        keeper.step(SHORTEST_PAUSE / 2)
        assert (keeper.failures, len(caplog.records)) == (1, 1)
        keeper.step(SHORTEST_PAUSE)
        assert keeper.failures == 2
        store.refused = ""
        keeper.step(SHORTEST_PAUSE * 1.5)
        assert MEMORY not in store.kept
        keeper.step(SHORTEST_PAUSE * 3)
        assert len(store.kept[MEMORY]) == 1
        keeper.step(1e6)
        assert keeper.failures == 2
        receive(TrackerTable(dedup_rules(), memory), b"a", 7, 1.0)
    with opened(store) as (_, memory):
        heir = TrackerTable(dedup_rules(), memory)
        heir.load(1.0, 0)
        assert b"a" in heir


def test_it_is_tried_ever_more_seldom() -> None:
    store = Store()
    store.refused = MEMORY
    with opened(store) as (handover, memory):
        keeper = MemoryKeeper(handover, memory)
        tries = []
        for second in range(600):
            before = keeper.failures
            keeper.step(float(second))
            if keeper.failures > before:
                tries.append(second)
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert pauses == sorted(pauses)
        assert pauses[-1] == LONGEST_PAUSE


def test_a_source_without_memory_is_counted_and_the_oldest_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    with opened(Store(), 100) as (handover, memory):
        keeper = MemoryKeeper(handover, memory)
        sources = TrackerTable(dedup_rules(max_sources=SOURCES), memory)
        for number in range(SOURCES):
            assert receive(sources, b"program/%d" % number, 1, 0.0) == ACCEPTED
        assert 0 < len(sources) < SOURCES
        assert b"program/%d" % (SOURCES - 1) in sources
        keeper.step(0.0)
        counted = keeper.failures
        assert counted > 0
        assert caplog.records
        keeper.step(0.0)
        assert keeper.failures == counted


def test_the_memory_in_use_stays_stored_beside_one_that_is_not_understood() -> None:
    store = Store()
    with opened(store) as (_, memory):
        receive(TrackerTable(dedup_rules(), memory), b"a", 7, 1.0)
    foreign = os.memfd_create("foreign")
    os.ftruncate(foreign, 1 << 20)
    store.kept[MEMORY].append(foreign)
    with opened(store) as (handover, _):
        assert len(handover.dropped) == 1
    assert len(store.kept[MEMORY]) == 1
    with opened(store) as (handover, _):
        assert handover.dropped == []
