"""Slots in memory: changes that are taken back at any moment, damage, and the same bytes by both builds."""

from __future__ import annotations

from mmap import mmap
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.native.memory import slot_layout as layout
from tests.native.twins import BEYOND, builds, each, examples

ROOM: Final = 40
KEYS: Final = [b"host/%d" % number for number in range(12)]
#: what is done: its kind, whose key, and two numbers
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "free", "head", "body", "window", "add", "other"]),
        st.integers(0, len(KEYS) - 1),
        st.integers(0, 2**64 - 1),
        st.sampled_from([0, 1, 1 << 15, (1 << 700) | 5, 1 << 4000]),
    ),
    max_size=30,
)


def make(slots: ModuleType, memory: mmap | None = None, **given: Any) -> Any:
    return slots.SlotMemory(memory or mmap(-1, layout.size_for(ROOM)), **given)


def contents(memory: Any) -> tuple[Any, ...]:
    """What the memory says: sources with their windows, other records, counters."""
    found = {}
    for number in memory.numbers(layout.SOURCE):
        one = memory.source(number)
        found[one.src] = (one.last, one.heard, one.epoch, one.first, one.beat, one.absent, one.missing)
    others = {memory.key(number): memory.body(number) for number in memory.numbers(layout.IDENTITY)}
    return found, others, [memory.value(memory.counter(f"count/{number}")) for number in range(4)]


def do(memory: Any, step: tuple[str, int, int, int]) -> None:
    kind, who, number, bits = step
    key = KEYS[who]
    slot = memory.find(key, 0, len(key))
    if kind == "take" and slot < 0:
        slot = memory.take(layout.SOURCE, key)
        if slot >= 0:
            memory.source(slot).epoch = 1
            memory.index(slot)
    elif kind == "free" and slot >= 0:
        memory.unindex(slot)
        memory.free(slot)
    elif kind == "head" and slot >= 0:
        memory.source(slot).last = number
        memory.source(slot).heard = number / 3
    elif kind == "body" and slot >= 0:
        memory.source(slot).first = number
        memory.source(slot).beat = number / 7
    elif kind == "window" and slot >= 0:
        memory.set_window(slot, bits, bits & number)
    elif kind == "add":
        memory.add(memory.counter(f"count/{who % 4}"), number % 1000)
    elif kind == "other":
        records = memory.numbers(layout.IDENTITY)
        if records and number % 2:
            memory.free(records[0])
        elif len(records) < 5:
            made = memory.take(layout.IDENTITY, key)
            if made >= 0:
                memory.set_body(made, b"%d" % number)


def image(memory: Any) -> bytes:
    """The bytes that another process would find. The list of sources is made anew by each process."""
    return bytes(memory.memory[:])


def reread(slots: ModuleType, raw: bytes) -> Any:
    memory = mmap(-1, len(raw))
    memory[:] = raw
    return make(slots, memory)


@each("slots")
@given(STEPS, STEPS, st.booleans())
@examples(200)
def test_an_unfinished_change_is_taken_back(slots: ModuleType, before: list[Any], change: list[Any], own: bool) -> None:
    memory = make(slots)
    for step in before:
        do(memory, step)
    wanted = contents(memory)
    memory.record()
    if own:
        assert memory.start()
        assert not memory.start()
    else:
        memory.begin(7)
    for step in change:
        do(memory, step)
    after = contents(memory)

    left = image(memory)
    heir = reread(slots, left)
    assert heir.restore(0 if own else 7) == 0
    assert contents(heir) == wanted
    # What it has given back is free, and nothing else.
    for key in KEYS:
        assert (heir.find(key, 0, len(key)) >= 0) == (key in wanted[0])
    for step in change:
        do(heir, step)

    if not own:
        other = reread(slots, left)
        assert other.restore(8) == 0  # the input was finished: another one is in progress
        assert contents(other) == after
    memory.commit()
    done = reread(slots, image(memory))
    assert done.restore(7) == 0
    assert contents(done) == after


@given(STEPS, STEPS)
@examples(100)
def test_both_builds_write_the_same_bytes(before: list[Any], change: list[Any]) -> None:
    found = []
    for slots in builds("slots"):
        memory = make(slots)
        for step in before:
            do(memory, step)
        memory.record()
        memory.begin(7)
        for step in change:
            do(memory, step)
        found.append((image(memory), contents(memory)))
    assert all(one[1] == found[0][1] for one in found)
    names = {one[0][: layout.UNDO] for one in found}
    assert len(names) == 1
    for first, second in zip(builds("slots"), builds("slots")[::-1], strict=True):
        wanted, heir = (reread(one, found[0][0]) for one in (first, second))
        assert wanted.restore(7) == heir.restore(7)
        assert contents(wanted) == contents(heir)


@each("slots")
@given(st.lists(st.binary(min_size=1, max_size=128), max_size=200, unique=True), st.data())
@examples(100)
def test_sources_are_found_by_their_name(slots: ModuleType, names: list[bytes], data: st.DataObject) -> None:
    memory = slots.SlotMemory(mmap(-1, layout.size_for(300)))
    at = {}
    for name in names:
        at[name] = memory.take(layout.SOURCE, name)
        memory.index(at[name])
    gone = data.draw(st.sets(st.sampled_from(names))) if names else set()
    for name in gone:
        memory.unindex(at[name])
        memory.free(at[name])
    for name in names:
        raw = b"xy" + name + b":"
        assert memory.find(raw, 2, 2 + len(name)) == (-1 if name in gone else at[name])
        assert memory.find(name, 0, len(name)) == (-1 if name in gone else at[name])


@each("slots")
def test_a_view_is_valid_as_long_as_its_slot_is_used_for_the_same(slots: ModuleType) -> None:
    memory = make(slots)
    number = memory.take(layout.SOURCE, b"a")
    view = memory.source(number)
    assert view.valid
    memory.free(number)
    assert not view.valid
    assert memory.take(layout.SOURCE, b"a") == number
    assert not view.valid
    assert memory.source(number).valid


@each("slots")
def test_without_memory_nothing_is_taken_and_that_is_counted(slots: ModuleType) -> None:
    asked = []

    def reserve(start: int, size: int) -> bool:
        asked.append((start, size))
        return len(asked) < 2

    memory = slots.SlotMemory(mmap(-1, layout.size_for(10_000)), reserve)
    taken = 0
    while memory.take(layout.SOURCE, b"%d" % taken) >= 0:
        taken += 1
    assert taken == layout.STEP // layout.SLOT
    assert memory.refused == 1
    assert asked == [(layout.SLOTS + layout.SLOT, layout.STEP), (layout.SLOTS + layout.SLOT + layout.STEP, layout.STEP)]
    number = memory.numbers(layout.SOURCE)[0]
    assert not memory.set_window(number, 5, 1)
    assert (memory.source(number).absent, memory.source(number).missing) == (0, 0)
    memory.free(memory.numbers(layout.SOURCE)[-1])
    assert memory.set_window(number, 5, 1)
    assert (memory.source(number).absent, memory.source(number).missing) == (5, 1)


@each("slots")
def test_what_the_undo_area_cannot_hold_is_dropped(slots: ModuleType) -> None:
    count = layout.UNDO_SIZE // layout.SLOT + 10
    memory = slots.SlotMemory(mmap(-1, layout.size_for(count + 1)))
    numbers = [memory.take(layout.SOURCE, b"%d" % number) for number in range(count)]
    memory.record()
    memory.begin(7)
    for number in numbers:
        memory.source(number).first = 5
    heir = reread(slots, image(memory))
    dropped = heir.restore(7)
    assert 0 < dropped < count
    left = heir.numbers(layout.SOURCE)
    assert len(left) == count - dropped
    assert all(heir.source(number).first == 0 for number in left)


@each("slots")
def test_counters_go_on_and_those_that_nobody_wants_are_forgotten(slots: ModuleType) -> None:
    memory = make(slots)
    memory.add(memory.counter("a/x"), 3)
    memory.add(memory.counter("b/y"), 4)
    heir = reread(slots, image(memory))
    assert heir.labels("b/") == ["b/y"]
    assert heir.value(heir.counter("a/x")) == 3
    heir.free_counters()
    assert heir.labels("b/") == []
    assert heir.value(heir.counter("c/z")) == 0
    assert heir.value(heir.counter("a/x")) == 3
    heir.clear_counters()
    assert heir.value(heir.counter("a/x")) == 0


@each("slots")
def test_counters_beyond_the_room_are_counted_together(slots: ModuleType) -> None:
    memory = make(slots)
    cells = [memory.counter(f"n/{number}") for number in range(layout.MAX_CELLS + 5)]
    assert cells[-5:] == [0] * 5
    assert memory.counter("x" * 200) == 0
    for wrong in BEYOND:
        with pytest.raises((IndexError, OverflowError)):
            memory.add(wrong)


@each("slots")
def test_places_outside_are_refused(slots: ModuleType) -> None:
    memory = make(slots)
    for wrong in BEYOND:
        for call in (memory.source, memory.body, memory.key):
            with pytest.raises((IndexError, OverflowError)):
                call(wrong)
        with pytest.raises((IndexError, OverflowError)):
            memory.find(b"abc", wrong, 2)
    for key in (b"", b"x" * 129):
        with pytest.raises(ValueError, match="128"):
            memory.take(layout.SOURCE, key)


@each("slots")
@given(st.data())
@examples(200)
def test_damage_costs_no_more_than_what_is_damaged(slots: ModuleType, data: st.DataObject) -> None:
    memory = make(slots)
    for key in KEYS:
        number = memory.take(layout.SOURCE, key)
        memory.index(number)
        memory.set_window(number, 1 << 2500, 1 << 9)
    memory.record()
    memory.begin(7)
    memory.source(memory.find(KEYS[0], 0, 6)).last = 9
    raw = bytearray(image(memory))
    used = layout.SLOTS + layout.SLOT * ROOM
    for _ in range(data.draw(st.integers(1, 5))):
        area = data.draw(st.sampled_from([(8, 56), (layout.UNDO, layout.UNDO + 400), (layout.SLOTS, used)]))
        at = data.draw(st.integers(*area))
        noise = data.draw(st.binary(min_size=1, max_size=9))
        raw[at : at + len(noise)] = noise[: len(raw) - at]
    heir = reread(slots, bytes(raw))
    heir.restore(7)
    heir.numbers(layout.SOURCE)
    for number in heir.numbers(layout.SOURCE):
        one = heir.source(number)
        assert one.absent >= 0
        heir.set_window(number, 3, 1)
    for key in KEYS:
        heir.find(key, 0, len(key))
