"""Searching bytes: the results of bytes.find, and nothing outside of the bytes is read."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.native.twins import BEYOND, each, examples

RAW = st.one_of(
    st.binary(max_size=40),
    st.text("01:|9a\0\xff", max_size=40).map(lambda text: text.encode("latin-1")),
)
PLACE = st.one_of(st.integers(-3, 45), st.sampled_from(BEYOND))


@each("scan")
@given(raw=RAW, byte=st.one_of(st.sampled_from(b"01:|9a\0\xff"), st.integers(0, 255)), start=PLACE)
@examples(300)
def test_find_returns_the_first_position_from_the_start(scan: Any, raw: bytes, byte: int, start: int) -> None:
    assert scan.find(raw, byte, start) == (raw.find(byte, start) if start >= 0 else -1)


@each("scan")
def test_no_references_are_kept(scan: Any) -> None:
    raw = bytes(range(100, 200))
    before = sys.getrefcount(raw)
    for _ in range(100):
        scan.find(raw, 120, 0)
    assert sys.getrefcount(raw) == before
