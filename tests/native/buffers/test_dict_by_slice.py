"""The index finds what a dictionary finds; it has a cache in front, so everything is looked up again and again."""

from __future__ import annotations

import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.native.buffers.dict_by_slice import PER_SHARD, Index
from tests.core.material import examples

#: so many lookups bring an entry into the cache, if it ever comes there
OFTEN: Final = 10
#: keys of which many meet in the cache: with the same end, from which its slot is computed, or the same sum of the end
#: as a number and the length; and keys around the longest that is cached
KEYS: Final = [
    *(b"", b"\0", b"a", b"a\0", b"\0a", b"a" * 8 + b"\0", b"12345671", b"x02345671", b"yy/2345671", b"zzz.2345671"),
    *(b"d" + b"c" * 7, b"d" + b"c" * 8, b"\xf8" + b"\xff" * 7, b"host1/program/77", b"host2/program/77"),
    *(bytes([65 + size % 26]) * size for size in (7, 9, 255, 256, 257, 2000)),
    *(head + b"e" * 250 for head in (b"123456", b"654321", b"1234567")),
]


class Value:
    """A value, equal to nothing but itself."""


@given(
    expected=st.sampled_from([0, 5000]),
    steps=st.lists(st.tuples(st.sampled_from(["put", "pop", "ask"]), st.sampled_from(KEYS)), max_size=60),
)
@examples(200)
def test_an_index_agrees_with_a_dictionary_and_keeps_nothing(expected: int, steps: list[tuple[str, bytes]]) -> None:
    index, model = Index(expected), dict[bytes, Value]()
    for step, key in steps:
        copy, raw = bytes(bytearray(key)), b"<" + key + b">"
        if step == "put":
            replaced, model[key] = model.get(key), Value()
            index.put(copy, model[key])
            assert replaced is None or sys.getrefcount(replaced) == 2
        elif step == "pop":
            assert index.pop(copy) is model.pop(key, None)
        for _ in range(OFTEN):
            assert index.get_slice(raw, 1, len(raw) - 1) is index.get(copy) is model.get(key)
        assert len(index) == len(model)
    for key in list(model):
        value = model.pop(key)
        assert index.pop(key) is value
        assert sys.getrefcount(value) == 2


@given(raw=st.binary(max_size=30), start=st.integers(-5, 35), end=st.integers(-5, 35))
@examples(200)
def test_a_slice_is_within_the_bytes_or_an_error(raw: bytes, start: int, end: int) -> None:
    index, value = Index(), Value()
    index.put(raw[max(start, 0) : max(end, 0)], value)
    places = [(0, sys.maxsize), (sys.maxsize, sys.maxsize), (-sys.maxsize - 1, 0)]
    if 0 <= start <= end <= len(raw):
        assert all(index.get_slice(raw, start, end) is value for _ in range(OFTEN))
    else:
        places.append((start, end))
    for first, last in places:
        with pytest.raises(IndexError):
            index.get_slice(raw, first, last)


@pytest.mark.parametrize("expected", [0, PER_SHARD - 1, PER_SHARD, 5000])
def test_the_shards_have_every_lasting_value_once(expected: int) -> None:
    index = Index(expected)
    values = [Value() for _ in range(1000)]
    for number, value in enumerate(values):
        index.put(b"stays %d" % number, value)
    assert index.shards() == 1 + expected // PER_SHARD
    met = []
    for shard in range(index.shards()):
        met += index.values(shard)
        for number in range(40):
            index.pop(b"goes %d" % number) or index.put(b"goes %d" % (shard + number), Value())
    assert sorted(map(id, set(met) & set(values))) == sorted(map(id, values))
    assert len([value for value in met if value in set(values)]) == len(values)
    for shard in (-1, index.shards(), sys.maxsize):
        with pytest.raises(IndexError):
            index.values(shard)
