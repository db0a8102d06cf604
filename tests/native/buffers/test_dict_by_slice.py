"""The index finds what a dictionary finds; it has a cache in front, so everything is looked up again and again."""

from __future__ import annotations

import random
import sys
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.native.twins import each, examples

#: so many lookups bring an entry into the cache, if it ever comes there
OFTEN: Final = 10
#: with the same end, from which the cache computes its slot
ALIKE: Final = [b"host%d/program/77" % number for number in range(6)]
#: the last eight bytes, as a number, and the length make the same sum: they meet although they differ in both
SUMS: Final = [b"12345671", b"x02345671", b"yy/2345671", b"zzz.2345671"]
#: the same once more, and the one is how the other begins
BEGINNINGS: Final = [b"d" + b"c" * 7, b"d" + b"c" * 8, b"", b"\xf8" + b"\xff" * 7]
LENGTHS: Final = [bytes([65 + size % 26]) * size for size in (1, 2, 7, 8, 9, 254, 255, 256, 257, 258, 2000)]
ENDS: Final = [head + b"e" * 250 for head in (b"123456", b"654321", b"1234567", b"7654321")]
KEYS: Final = [
    *(b"", b"\0", b"\0\0", b"a", b"a\0", b"\0a", b"a" * 8 + b"\0"),
    *(*ALIKE, *SUMS, *BEGINNINGS[:2], BEGINNINGS[3], *LENGTHS, *ENDS),
]


class Value:
    """A value, equal to nothing but itself."""


class Machine(RuleBasedStateMachine):
    """Two indexes, each beside a dictionary; the compiled ones share some state, so they take turns."""

    leaf: Any

    def __init__(self) -> None:
        super().__init__()
        self.both: list[tuple[Any, dict[bytes, Value]]] = []

    @initialize(first=st.sampled_from([0, 1, 511, 512, 5000, 100_000]), second=st.sampled_from([0, 3000]))
    def begin(self, first: int, second: int) -> None:
        self.both = [(self.leaf.Index(first), {}), (self.leaf.Index(second), {})]

    @rule(which=st.integers(0, 1), key=st.sampled_from(KEYS))
    def put(self, which: int, key: bytes) -> None:
        dict_by_slice, model = self.both[which]
        before, model[key] = model.get(key), Value()
        # Another object with the same bytes, as it comes from a socket.
        dict_by_slice.put(bytes(bytearray(key)), model[key])
        assert before is None or sys.getrefcount(before) == 2

    @rule(which=st.integers(0, 1), key=st.sampled_from(KEYS))
    def pop(self, which: int, key: bytes) -> None:
        dict_by_slice, model = self.both[which]
        assert dict_by_slice.pop(bytes(bytearray(key))) is model.pop(key, None)
        assert dict_by_slice.get(key) is None
        assert dict_by_slice.get_slice(key, 0, len(key)) is None

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
        dict_by_slice, model = self.both[which]
        raw = before + key + behind
        for _ in range(times):
            assert dict_by_slice.get_slice(raw, len(before), len(before) + len(key)) is model.get(key)
            assert dict_by_slice.get(key) is model.get(key)

    @rule(which=st.integers(0, 1), times=st.integers(1, OFTEN))
    def ask_for_all(self, which: int, times: int) -> None:
        dict_by_slice, model = self.both[which]
        raw = b"/".join(KEYS)
        for _ in range(times):
            at = 0
            for key in KEYS:
                assert dict_by_slice.get_slice(raw, at, at + len(key)) is model.get(key)
                at += len(key) + 1

    @invariant()
    def they_hold_as_much(self) -> None:
        for dict_by_slice, model in self.both:
            assert len(dict_by_slice) == len(model)

    def teardown(self) -> None:
        for dict_by_slice, model in self.both:
            for key in KEYS:
                assert dict_by_slice.get(key) is dict_by_slice.get_slice(key, 0, len(key)) is model.get(key)
            for key in list(model):
                value = model.pop(key)
                assert dict_by_slice.pop(key) is value
                # No references are left but this name and the argument of this call.
                assert sys.getrefcount(value) == 2
            assert len(dict_by_slice) == 0


@each("dict_by_slice")
def test_an_index_agrees_with_a_dictionary(dict_by_slice: Any) -> None:
    machine = type("Here", (Machine,), {"leaf": dict_by_slice})
    run_state_machine_as_test(machine, settings=examples(60))


@each("dict_by_slice")
@given(raw=st.binary(max_size=30), start=st.integers(-5, 35), end=st.integers(-5, 35))
@examples(200)
def test_a_part_is_within_the_bytes_or_an_error(dict_by_slice: Any, raw: bytes, start: int, end: int) -> None:
    one = dict_by_slice.Index()
    if 0 <= start <= end <= len(raw):
        value = Value()
        one.put(raw[start:end], value)
        assert all(one.get_slice(raw, start, end) is value for _ in range(OFTEN))
        return
    far = ((0, sys.maxsize), (sys.maxsize, sys.maxsize), (-sys.maxsize - 1, 0), (-sys.maxsize - 1, sys.maxsize))
    for first, last in ((start, end), *far):
        with pytest.raises(IndexError):
            one.get_slice(raw, first, last)


@each("dict_by_slice")
def test_the_shards_together_have_every_value_once_and_keep_no_reference(dict_by_slice: Any) -> None:
    size = dict_by_slice.PER_SHARD
    for expected in (0, size - 1, size, 1000, 5000):
        one = dict_by_slice.Index(expected)
        values = [Value() for _ in range(1000)]
        for number, value in enumerate(values):
            one.put(b"key %d" % number, value)
        assert one.shards() == 1 + expected // size
        for shard in (-sys.maxsize - 1, -1, one.shards(), sys.maxsize):
            with pytest.raises(IndexError):
                one.values(shard)
        first = values[0]
        before = sys.getrefcount(first)
        met = sorted(id(value) for shard in range(one.shards()) for value in one.values(shard))
        assert met == sorted(map(id, values))
        assert sys.getrefcount(first) == before
        del one
        assert sys.getrefcount(first) == 3


@each("dict_by_slice")
def test_a_value_that_stays_is_met_once_while_others_come_and_go(dict_by_slice: Any) -> None:
    chance = random.Random(7)
    one = dict_by_slice.Index(5000)
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


@each("dict_by_slice")
def test_no_reference_is_kept_to_keys_and_to_what_was_searched(dict_by_slice: Any) -> None:
    key, raw, one = b"a key of ours", b"<a key of ours>", dict_by_slice.Index()
    before = sys.getrefcount(key), sys.getrefcount(raw)
    one.put(key, Value())
    for _ in range(3 * OFTEN):
        assert one.get_slice(raw, 1, len(raw) - 1) is not None
        assert one.get_slice(raw, 0, 3) is None
        assert one.get(raw) is None
        assert one.pop(raw) is None
        with pytest.raises(IndexError):
            one.get_slice(raw, 0, 100)
    one.pop(key)
    assert (sys.getrefcount(key), sys.getrefcount(raw)) == before
