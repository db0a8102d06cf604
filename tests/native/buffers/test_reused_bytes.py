"""Bytes that reuse memory: equal to new ones, and unchanged while there is a reference."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.twins import BEYOND, each, examples

RAW = st.binary(max_size=600)
PLACE = st.one_of(st.integers(-3, 603), st.sampled_from(BEYOND))


@each("reused_bytes")
@given(head=RAW, raw=RAW, start=PLACE)
@examples(400)
def test_joined_bytes_are_those_of_a_slice_or_an_error(reused_bytes: Any, head: bytes, raw: bytes, start: int) -> None:
    spare = reused_bytes.ReusedBytes()
    for _ in range(2):
        if 0 <= start <= len(raw):
            found, wanted = spare.join(head, raw, start), head + raw[start:]
            assert (type(found), found, hash(found)) == (bytes, wanted, hash(wanted))
        else:
            with pytest.raises(IndexError):
                spare.join(head, raw, start)


@each("reused_bytes")
@given(messages=st.lists(st.tuples(st.binary(max_size=500), st.booleans())))
@examples(400)
def test_bytes_in_use_keep_their_content_and_hash(reused_bytes: Any, messages: list[tuple[bytes, bool]]) -> None:
    spare = reused_bytes.ReusedBytes()
    kept: dict[bytes, int] = {}
    for number, (message, keeps) in enumerate(messages):
        joined = spare.join(b"MSG ", message, 0)
        assert (joined, hash(joined)) == (b"MSG " + message, hash(b"MSG " + message))
        if keeps:
            kept[joined] = number
        del joined
    last = {b"MSG " + message: number for number, (message, keeps) in enumerate(messages) if keeps}
    assert kept == last


@each("reused_bytes")
def test_large_parts_are_joined_whole(reused_bytes: Any) -> None:
    spare = reused_bytes.ReusedBytes()
    for size in (0, 1, 2, 478, 479, 480, 1500, 65_536, 400_000):
        raw = bytes(range(256)) * (size // 256 + 2)
        assert spare.join(raw[:size], raw, 3) == raw[:size] + raw[3:]
        assert spare.join(b"", raw[:size], size) == b""
        assert spare.join(b"", raw[:size], 0) == raw[:size]


@each("reused_bytes")
def test_no_references_are_kept(reused_bytes: Any) -> None:
    spare = reused_bytes.ReusedBytes()
    head, raw = bytes(range(20)), bytes(range(100, 200))
    before = sys.getrefcount(head), sys.getrefcount(raw)
    for _ in range(100):
        spare.join(head, raw, 5)
        with pytest.raises(IndexError):
            spare.join(head, raw, 101)
    assert (sys.getrefcount(head), sys.getrefcount(raw)) == before
    joined = spare.join(head, raw, 5)
    del spare
    assert sys.getrefcount(joined) == 2
