"""From bytes to what belongs to them: whatever is put in and taken out, what is found is what a dictionary finds.

What has been asked for lately may be found by a short cut; so everything here is asked for again and again.
"""

from __future__ import annotations

import random
import sys
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.leaf.twins import each, examples

#: as often as it takes to have everything in front that ever comes there
OFTEN: Final = 10
#: look alike from behind, by which the short cut goes
ALIKE: Final = [b"host%d/program/77" % number for number in range(6)]
#: the last eight bytes, as a number, and the length make the same sum: they meet although they differ in both
SUMS: Final = [b"12345671", b"x02345671", b"yy/2345671", b"zzz.2345671"]
#: the same once more, and the one is how the other begins
BEGINNINGS: Final = [b"d" + b"c" * 7, b"d" + b"c" * 8, b"", b"\xf8" + b"\xff" * 7]
LENGTHS: Final = [bytes([65 + size % 26]) * size for size in (1, 2, 7, 8, 9, 254, 255, 256, 257, 258, 2000)]
ENDS: Final = [head + b"e" * 250 for head in (b"123456", b"654321", b"1234567", b"7654321")]
KEYS: Final = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"\0a",
    b"a" * 8 + b"\0",
    *ALIKE,
    *SUMS,
    *BEGINNINGS[:2],
    BEGINNINGS[3],
    *LENGTHS,
    *ENDS,
]


class Value:
    """Something that belongs to a key; equal to nothing but itself."""


class Machine(RuleBasedStateMachine):
    """Two indexes, each beside a dictionary. They share what they look with, so they take turns."""

    leaf: Any

    def __init__(self) -> None:
        super().__init__()
        self.both: list[tuple[Any, dict[bytes, Value]]] = []

    @initialize(first=st.sampled_from([0, 1, 511, 512, 5000, 100_000]), second=st.sampled_from([0, 3000]))
    def begin(self, first: int, second: int) -> None:
        self.both = [(self.leaf.Index(first), {}), (self.leaf.Index(second), {})]

    @rule(which=st.integers(0, 1), key=st.sampled_from(KEYS))
    def put(self, which: int, key: bytes) -> None:
        index, model = self.both[which]
        value = model[key] = Value()
        # Another object with the same bytes, as it comes from a socket.
        index.put(bytes(bytearray(key)), value)

    @rule(which=st.integers(0, 1), key=st.sampled_from(KEYS))
    def pop(self, which: int, key: bytes) -> None:
        index, model = self.both[which]
        assert index.pop(bytes(bytearray(key))) is model.pop(key, None)
        assert index.get(key) is None
        assert index.part(key, 0, len(key)) is None

    @rule(which=st.integers(0, 1), key=st.sampled_from(KEYS))
    def replace(self, which: int, key: bytes) -> None:
        self.put(which, key)
        self.ask(which, key, b"", b"", OFTEN)
        self.put(which, key)

    @rule(
        which=st.integers(0, 1),
        key=st.sampled_from(KEYS),
        before=st.binary(max_size=9),
        behind=st.binary(max_size=9),
        times=st.integers(1, OFTEN),
    )
    def ask(self, which: int, key: bytes, before: bytes, behind: bytes, times: int) -> None:
        index, model = self.both[which]
        raw = before + key + behind
        for _ in range(times):
            assert index.part(raw, len(before), len(before) + len(key)) is model.get(key)
            assert index.get(key) is model.get(key)

    @rule(which=st.integers(0, 1), times=st.integers(1, OFTEN))
    def ask_for_all(self, which: int, times: int) -> None:
        index, model = self.both[which]
        raw = b"/".join(KEYS)
        for _ in range(times):
            at = 0
            for key in KEYS:
                assert index.part(raw, at, at + len(key)) is model.get(key)
                at += len(key) + 1

    @invariant()
    def they_hold_as_much(self) -> None:
        for index, model in self.both:
            assert len(index) == len(model)

    def teardown(self) -> None:
        for index, model in self.both:
            for key in KEYS:
                assert index.get(key) is index.part(key, 0, len(key)) is model.get(key)
            for key in list(model):
                value = model.pop(key)
                assert index.pop(key) is value
                # Nobody has it any more but this name, and the call that asks.
                assert sys.getrefcount(value) == 2
            assert len(index) == 0


@each("index")
def test_an_index_agrees_with_a_dictionary(index: Any) -> None:
    machine = type("Here", (Machine,), {"leaf": index})
    run_state_machine_as_test(machine, settings=examples(60))


@each("index")
@pytest.mark.parametrize("expected", [0, 1, 512, 20_000])
def test_with_thousands_of_entries_it_agrees_too(index: Any, expected: int) -> None:
    chance = random.Random(expected)
    one, model = index.Index(expected), dict[bytes, Value]()
    keys = [chance.randbytes(chance.choice((4, 12, 30, 300))) + b"/same end" for _ in range(3000)]
    for _ in range(30_000):
        key = chance.choice(keys) if chance.random() < 0.5 else keys[chance.randrange(40)]
        what = chance.random()
        if what < 0.2:
            value = model[key] = Value()
            one.put(key, value)
        elif what < 0.3:
            assert one.pop(key) is model.pop(key, None)
        else:
            assert one.part(b"<" + key + b">", 1, 1 + len(key)) is model.get(key)
        assert len(one) == len(model)
    assert all(one.get(key) is model.get(key) for key in keys)


@each("index")
@given(raw=st.binary(max_size=30), start=st.integers(-5, 35), end=st.integers(-5, 35))
@examples(200)
def test_a_part_is_within_the_bytes_or_an_error(index: Any, raw: bytes, start: int, end: int) -> None:
    one = index.Index()
    if 0 <= start <= end <= len(raw):
        value = Value()
        one.put(raw[start:end], value)
        assert all(one.part(raw, start, end) is value for _ in range(OFTEN))
    else:
        with pytest.raises(IndexError):
            one.part(raw, start, end)


@each("index")
@pytest.mark.parametrize(
    ("start", "end"),
    [(0, sys.maxsize), (sys.maxsize, sys.maxsize), (-sys.maxsize - 1, 0), (-sys.maxsize - 1, sys.maxsize), (1, 0)],
)
def test_far_beyond_the_bytes_nothing_is_looked_at(index: Any, start: int, end: int) -> None:
    with pytest.raises(IndexError):
        index.Index().part(b"abc", start, end)


# -- one after the other


@each("index")
@pytest.mark.parametrize("expected", [0, 255, 256, 1000, 5000])
def test_shard_by_shard_everybody_is_met_once(index: Any, expected: int) -> None:
    one = index.Index(expected)
    values = {b"key %d" % number: Value() for number in range(1000)}
    for key, value in values.items():
        one.put(key, value)
    assert one.shards() == 1 + expected // 256
    met = [value for shard in range(one.shards()) for value in one.values(shard)]
    assert len(met) == len(set(map(id, met))) == 1000
    assert set(map(id, met)) == set(map(id, values.values()))


@each("index")
def test_who_was_there_all_the_time_is_met_whatever_comes_and_goes(index: Any) -> None:
    chance = random.Random(7)
    one = index.Index(5000)
    stays = {b"stays %d" % number: Value() for number in range(500)}
    for key, value in stays.items():
        one.put(key, value)
    met = []
    for shard in range(one.shards()):
        met += one.values(shard)
        for _ in range(40):
            key = b"comes and goes %d" % chance.randrange(200)
            one.pop(key) or one.put(key, Value())
    kept = [value for value in met if any(value is other for other in stays.values())]
    assert len(kept) == len(set(map(id, kept))) == 500


@each("index")
@pytest.mark.parametrize("shard", [-sys.maxsize - 1, -1, 3, 4, sys.maxsize])
def test_there_are_no_other_shards(index: Any, shard: int) -> None:
    one = index.Index(600)
    assert one.shards() == 3
    with pytest.raises(IndexError):
        one.values(shard)


@each("index")
def test_to_meet_somebody_keeps_nobody(index: Any) -> None:
    one, value = index.Index(), Value()
    one.put(b"key", value)
    before = sys.getrefcount(value)
    met = one.values(0)
    met.clear()
    assert sys.getrefcount(value) == before
    assert one.get(b"key") is value


# -- what has been asked for before


def in_front(one: Any, key: bytes) -> None:
    for _ in range(OFTEN):
        assert one.part(key + b"|", 0, len(key)) is not None


@each("index")
@pytest.mark.parametrize("key", [b"", b"a", b"12345678", b"x" * 255, b"y" * 256, b"z" * 257, b"w" * 2000], ids=len)
def test_after_it_was_taken_out_or_replaced_the_old_one_is_never_found(index: Any, key: bytes) -> None:
    one, first, second = index.Index(), Value(), Value()
    one.put(key, first)
    in_front(one, key)
    one.put(key, second)
    assert all(one.part(key, 0, len(key)) is second for _ in range(OFTEN))
    assert one.get(key) is second
    assert one.pop(key) is second
    assert one.pop(key) is None
    assert all(one.part(key, 0, len(key)) is None for _ in range(OFTEN))
    one.put(key, first)
    assert one.part(key, 0, len(key)) is first
    assert len(one) == 1


@each("index")
@pytest.mark.parametrize("keys", [ALIKE, SUMS, BEGINNINGS, ENDS], ids=["alike", "sums", "beginnings", "ends"])
def test_who_look_alike_from_behind_are_told_apart(index: Any, keys: list[bytes]) -> None:
    one = index.Index()
    values = {key: Value() for key in keys}
    for key, value in values.items():
        one.put(key, value)
    for gone in keys:
        for _ in range(OFTEN):
            for key in keys:
                assert one.part(key, 0, len(key)) is values.get(key)
        for key in values:
            in_front(one, key)
        assert one.pop(gone) is values.pop(gone)
        # Also those of whom nobody has taken anything out are still where they were.
        assert all(one.part(key, 0, len(key)) is values.get(key) for key in keys)


@each("index")
def test_what_was_not_there_is_found_once_it_is(index: Any) -> None:
    one, value = index.Index(), Value()
    assert all(one.part(b"a/b", 0, 3) is None for _ in range(3 * OFTEN))
    one.put(b"a/b", value)
    assert all(one.part(b"a/b", 0, 3) is value for _ in range(3 * OFTEN))


@each("index")
def test_each_index_has_its_own_entries(index: Any) -> None:
    pair = index.Index(), index.Index(5000)
    values = Value(), Value()
    for one, value in zip(pair, values, strict=True):
        one.put(b"key", value)
    for _ in range(OFTEN):
        for one, value in zip(pair, values, strict=True):
            assert one.part(b"key", 0, 3) is value
    pair[0].pop(b"key")
    assert pair[0].part(b"key", 0, 3) is None
    assert pair[1].part(b"key", 0, 3) is values[1]


# -- nothing is kept


def used(one: Any, key: bytes) -> None:
    for _ in range(3 * OFTEN):
        one.get(key)
        one.part(b"-" + key + b"-", 1, 1 + len(key))
        one.part(b"nobody's", 0, 8)


@each("index")
@pytest.mark.parametrize("size", [1, 20, 256, 257])
@pytest.mark.parametrize("how", ["pop", "replace", "del"])
def test_what_was_taken_out_belongs_to_nobody(index: Any, size: int, how: str) -> None:
    key, value, one = b"k" * size, Value(), index.Index()
    before = sys.getrefcount(value)
    one.put(key, value)
    used(one, key)
    assert sys.getrefcount(value) > before
    if how == "pop":
        assert one.pop(key) is value
    elif how == "replace":
        one.put(key, Value())
    else:
        del one
    assert sys.getrefcount(value) == before


@each("index")
def test_keys_and_what_they_were_looked_for_in_are_not_kept_either(index: Any) -> None:
    key, raw, one = b"a key of ours", b"<a key of ours>", index.Index()
    before = sys.getrefcount(key), sys.getrefcount(raw)
    one.put(key, Value())
    for _ in range(3 * OFTEN):
        assert one.part(raw, 1, len(raw) - 1) is not None
        assert one.part(raw, 0, 3) is None
        assert one.get(raw) is None
        assert one.pop(raw) is None
        with pytest.raises(IndexError):
            one.part(raw, 0, 100)
    one.pop(key)
    assert (sys.getrefcount(key), sys.getrefcount(raw)) == before


@each("index")
def test_to_ask_gives_nobody_a_share(index: Any) -> None:
    key, value, one = b"key", Value(), index.Index()
    one.put(key, value)
    used(one, key)
    before = sys.getrefcount(value)
    for _ in range(1000):
        one.get(key)
        one.part(key, 0, 3)
    assert sys.getrefcount(value) == before
    found = one.part(key, 0, 3)
    assert found is value
    assert sys.getrefcount(value) == before + 1


@each("index")
def test_who_came_and_went_in_great_numbers_has_left_nothing(index: Any) -> None:
    one = index.Index()
    values = [Value() for _ in range(5000)]
    for number, value in enumerate(values):
        key = b"source %d of many" % number
        one.put(key, value)
        used(one, key)
        assert one.pop(key) is value
    del value
    # The list has each of them, and these two lines for a moment.
    kept = [one for one in values if sys.getrefcount(one) > 3]
    assert kept == []
