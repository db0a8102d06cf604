"""Bytes that reuse memory: equal to new ones, and unchanged while there is a reference."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.native.buffers.reused_bytes import ReusedBytes
from tests.core.material import examples


@given(messages=st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=500), st.integers(0, 9), st.booleans())))
@examples(400)
def test_results_are_equal_to_new_bytes_and_unchanged_while_in_use(
    messages: list[tuple[bytes, bytes, int, bool]],
) -> None:
    reused = ReusedBytes()
    kept: list[tuple[bytes, bytes]] = []
    for head, raw, start, keeps in messages:
        if start > len(raw):
            continue
        joined, wanted = reused.join(head, raw, start), head + raw[start:]
        assert (type(joined), joined, hash(joined)) == (bytes, wanted, hash(wanted))
        if keeps:
            kept.append((joined, wanted))
        del joined
    assert [joined for joined, _ in kept] == [wanted for _, wanted in kept]


def test_large_bytes_are_joined_whole_and_a_start_outside_is_refused() -> None:
    reused = ReusedBytes()
    for size in (0, 478, 479, 480, 400_000):
        raw = bytes(size)
        assert reused.join(b"", raw, 0) == raw
        assert reused.join(raw, raw, size) == raw
        for start in (-sys.maxsize - 1, -1, size + 1, sys.maxsize):
            with pytest.raises(IndexError):
                reused.join(b"x", raw, start)
