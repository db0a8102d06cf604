"""A dictionary that a successor finds again, wherever the process was killed."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking.persistent_dict import PersistentDict
from bccnd.native.memory import slot_layout
from bccnd.native.memory.private_memory import private_memory
from bccnd.native.memory.slots import SlotMemory
from tests.core.material import examples
from tests.core.tracker_hosts import copied

CAP = 4


class Value(NamedTuple):
    when: float
    seq: int


#: what is done, the key and the time
Step = tuple[str, int, float]
STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "replace", "remove"]), st.integers(0, 6), st.floats(0, 9)))


class Pair:
    """The dictionary, and plain ones that say what it and the memory should have."""

    def __init__(self, memory: SlotMemory) -> None:
        self.memory = memory
        self.evicted = self.expected_evicted = 0
        self.table = PersistentDict(memory, slot_layout.DEATH, "=dQ", Value, CAP, self._count)
        self.entries: dict[bytes, Value] = {}
        #: in the order in which a successor has them
        self.stored: dict[bytes, Value] = {}

    def _count(self) -> None:
        self.evicted += 1

    def apply(self, step: Step) -> None:
        kind, number, when = step
        key, value = b"key %d" % number, Value(when, number)
        if kind == "remove":
            assert self.table.remove(key) == self.entries.pop(key, None)
            self.stored.pop(key, None)
            return
        if kind == "replace" and key in self.entries:
            self.table.replace(key, value)
        else:
            self.entries.pop(key, None)
            if len(self.entries) == CAP:
                oldest = next(iter(self.entries))
                del self.entries[oldest], self.stored[oldest]
                self.expected_evicted += 1
            self.table.put(key, value)
        self.entries[key] = value
        self.stored.pop(key, None)
        self.stored[key] = value


def loaded(memory: SlotMemory, serial: int = 0) -> list[tuple[bytes, Value]]:
    """What a successor finds in the memory, if the process is killed now."""
    heir = copied(memory)
    assert heir.restore(serial) == 0
    table = PersistentDict(heir, slot_layout.DEATH, "=dQ", Value, CAP)
    table.load()
    assert all(type(value) is Value for value in table.values())
    return list(table.items())


@given(STEPS)
@examples(200)
def test_it_is_a_dictionary_with_a_cap_that_a_successor_finds_again(steps: list[Step]) -> None:
    pair = Pair(private_memory(20))
    pair.memory.record()
    for step in steps:
        pair.apply(step)
        assert list(pair.table.items()) == list(pair.entries.items())
        assert pair.evicted == pair.expected_evicted
        assert loaded(pair.memory) == list(pair.stored.items())


@given(STEPS, STEPS)
@examples(200)
def test_what_an_unfinished_input_has_changed_is_taken_back(steps: list[Step], unfinished: list[Step]) -> None:
    pair = Pair(private_memory(20))
    pair.memory.record()
    for step in steps:
        pair.apply(step)
    before = list(pair.stored.items())
    pair.memory.begin(7)
    for step in unfinished:
        pair.apply(step)
        assert loaded(pair.memory, 7) == before
    pair.memory.commit()
    assert loaded(pair.memory, 7) == list(pair.stored.items())


@given(STEPS, STEPS)
@examples(200)
def test_a_successor_goes_on_with_it(steps: list[Step], more: list[Step]) -> None:
    pair = Pair(private_memory(20))
    for step in steps:
        pair.apply(step)
    heir = Pair(copied(pair.memory))
    assert heir.memory.restore(0) == 0
    heir.table.load()
    heir.entries, heir.stored = dict(pair.stored), dict(pair.stored)
    for step in more:
        heir.apply(step)
        assert list(heir.table.items()) == list(heir.entries.items())
        assert loaded(heir.memory) == list(heir.stored.items())


def test_what_the_memory_has_no_room_for_is_known_to_this_process() -> None:
    memory = private_memory(3)  # the ends of the list take one
    table = PersistentDict(memory, slot_layout.DEATH, "=dQ", Value, CAP)
    for number in range(4):
        table.put(b"%d" % number, Value(1.0, number))
    assert (list(table), [key for key, _ in loaded(memory)], memory.refused) == (
        [b"0", b"1", b"2", b"3"],
        [b"0", b"1"],
        2,
    )
    table.put(b"4", Value(2.0, 4))  # removes the oldest, which leaves a slot
    assert (list(table), [key for key, _ in loaded(memory)]) == ([b"1", b"2", b"3", b"4"], [b"1", b"4"])
    assert table.remove(b"2") == Value(1.0, 2)
    assert table.remove(b"2") is None
