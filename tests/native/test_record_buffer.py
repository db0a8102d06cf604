"""The record buffer: records have the entries that were added, in the documented layout."""

from __future__ import annotations

import struct
import sys
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.twins import each, examples

#: places of a caller that has miscounted
BEYOND: Final = (-sys.maxsize - 1, -sys.maxsize, -1, sys.maxsize)
PLACE: Final = st.one_of(st.integers(-3, 300), st.sampled_from(BEYOND))


def head(size: int, kind: int, serial: int, now: float) -> bytes:
    return struct.pack("=IBQd", 17 + size, kind, serial, now)


@each("record_buffer")
@given(raw=st.one_of(st.binary(max_size=40), st.binary(min_size=230, max_size=300)), start=PLACE, end=PLACE)
@examples(300)
def test_slice_is_added_with_its_size_or_not_at_all(record_buffer: Any, raw: bytes, start: int, end: int) -> None:
    one = record_buffer.RecordBuffer()
    good = 0 <= start < end <= len(raw) and end - start <= 239
    assert one.add(raw, start, end) is good
    added = bytes([end - start]) + raw[start:end] if good else b""
    assert one.used == len(added)
    assert one.take(1, 2, 3.5) == head(len(added), 1, 2, 3.5) + added


@each("record_buffer")
def test_entry_has_a_size_or_a_kind_and_a_size(record_buffer: Any) -> None:
    assert record_buffer.LONGEST == 239
    for size in (0, 1, 238, 239, 240, 255, 256):
        assert record_buffer.RecordBuffer().add(b"x" * size, 0, size) is (1 <= size <= record_buffer.LONGEST)
    one = record_buffer.RecordBuffer()
    for kind in (240, 241, 255):
        for size in (0, 1, 255, 256, 20_000, 65_535):
            one.put(kind, b"y" * size)
            assert one.take(9, 0, 0.0) == head(3 + size, 9, 0, 0.0) + struct.pack("=BH", kind, size) + b"y" * size
    for kind, size in ((0, 1), (239, 1), (256, 1), (-1, 1), (250, 65_536)):
        with pytest.raises(ValueError):
            one.put(kind, b"z" * size)
        assert one.used == 0


@each("record_buffer")
@given(
    batches=st.lists(
        st.lists(st.one_of(st.tuples(st.just(0), st.binary(min_size=1, max_size=239)),
            st.tuples(st.integers(240, 255), st.binary(max_size=400)),
            st.tuples(st.integers(240, 255), st.just(b"w" * 30_000))), max_size=12),
        max_size=4,
    ),
    serial=st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1)),
    now=st.floats(allow_nan=False),
)  # fmt: skip
@examples(200)
def test_entries_are_taken_in_order_and_once(
    record_buffer: Any, batches: list[list[tuple[int, bytes]]], serial: int, now: float
) -> None:
    one = record_buffer.RecordBuffer()
    taken = []
    for batch in batches:
        expected = b""
        for kind, what in batch:
            if kind:
                one.put(kind, what)
                expected += struct.pack("=BH", kind, len(what)) + what
            else:
                assert one.add(b"<" + what + b">", 1, 1 + len(what))
                expected += bytes([len(what)]) + what
            assert one.used == len(expected)
        taken.append((one.take(7, serial, now), head(len(expected), 7, serial, now) + expected))
        assert one.used == 0
    assert all(found == expected for found, expected in taken)
