"""The layout of the in-flight state: what was written is read again, and any memory can be read."""

from __future__ import annotations

import mmap
import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bccnd.native.memory import inflight_layout as layout
from tests.native.inflight_memory import new_memory
from tests.native.twins import examples


def test_parts_do_not_overlap() -> None:
    parts = [
        *((0, layout.AT_CLIENTS + 8), (layout.SINGLE_HEADER, layout.HEADER), (layout.SINGLE_VECTOR, layout.VECTOR)),
        (layout.SLOTS, layout.SLOT * layout.MAX_SLOTS),
        *((layout.PACKETS, layout.HEADER * layout.MAX_PACKETS), (layout.VECTORS, layout.VECTOR * layout.MAX_PACKETS)),
        *((layout.CASTS, layout.CAST * layout.MAX_SEGMENTS), (layout.INBOX, layout.HEADER + layout.VECTOR)),
        *((layout.INBOX_DATA, layout.INBOX_SIZE), (layout.SEGMENT, layout.SEGMENT_SIZE * layout.MAX_SEGMENTS)),
    ]
    for (start, size), (following, _) in pairwise(parts):
        assert start + size <= following
    assert sum(parts[-1]) == layout.SIZE
    assert layout.CAST_NAME + layout.NAME <= layout.CAST_DROPS < layout.CAST
    # The kernel wants these at addresses of eight bytes.
    aligned = (layout.SLOTS, layout.PACKETS, layout.VECTORS, layout.CASTS, layout.CAST, layout.INBOX)
    assert not any(at % 8 for at in (*aligned, layout.SEGMENT, layout.SEGMENT_SIZE))


def test_memory_is_valid_by_magic_and_size() -> None:
    with new_memory() as (memory, reader):
        assert layout.is_valid(reader)
        memory[: len(layout.MAGIC)] = b"bccnled2"
        assert not layout.is_valid(reader)
        memory[: len(layout.MAGIC)] = bytes(8)
        assert not layout.is_valid(reader)
        layout.initialize(memory)
        assert layout.is_valid(reader)
    with mmap.mmap(-1, 4096) as small:
        layout.initialize(small)
        assert not layout.is_valid(small)


def test_slots_do_not_overlap_and_are_empty_at_first() -> None:
    highest = 2**64 - 1
    slots = {n: layout.ClientSlot(n + 1, highest - n, n, highest) for n in (0, 1, 2, layout.MAX_SLOTS - 1)}
    with new_memory() as (memory, reader):
        assert (layout.read_unfinished(reader), layout.read_sending(reader)) == (None, None)
        assert {layout.read_slot(reader, number) for number in slots} == {layout.ClientSlot(0, 0, 0, 0)}
        for number, slot in slots.items():
            layout.write_slot(memory, number, slot)
        assert {number: layout.read_slot(reader, number) for number in slots} == slots
        assert layout.read_slot(reader, 3) == layout.ClientSlot(0, 0, 0, 0)
        assert not any(reader[layout.PACKETS : layout.PACKETS + 4096])


def test_tries_are_counted_for_one_input_at_a_time() -> None:
    with new_memory() as (memory, reader):
        assert layout.tries(memory, 7) == 0
        for expected in (1, 2, 3):
            layout.count_try(memory, 7)
            assert layout.tries(reader, 7) == expected
        layout.count_try(reader, 8)
        assert (layout.tries(memory, 8), layout.tries(memory, 7)) == (1, 0)


def test_long_label_is_cut() -> None:
    with new_memory() as (memory, reader):
        layout.describe_segment(memory, 1, b"x" * 1000, 1500, 16)
        start = layout.SEGMENT + layout.SEGMENT_SIZE
        assert reader[start : start + layout.LABEL] == struct.pack("=HH", 16, 1501) + b"x" * (layout.LABEL - 4)
        assert not any(reader[start + layout.LABEL : start + layout.LABEL + 4096])
        layout.describe_segment(memory, 1, b"short", 65_507, 28)
        assert reader[start : start + layout.LABEL] == struct.pack("=HH", 28, 65_508) + b"short".ljust(252, b"\0")


def test_input_of_an_unknown_kind_is_none() -> None:
    with new_memory() as (memory, reader):
        layout.write_number(memory, layout.AT_OPEN, 1)
        for kind in (0, 4, 2**64 - 1):
            layout.write_number(memory, layout.AT_KIND, kind)
            assert layout.read_unfinished(reader) is None
        layout.write_number(memory, layout.AT_KIND, layout.RETRY)
        layout.write_number(memory, layout.AT_NUMBER, 5)
        assert layout.read_unfinished(reader) == layout.InflightInput(layout.RETRY, 5, 0, 0.0, 0)
        layout.write_number(memory, layout.AT_KIND, layout.DATAGRAMS)
        for number in (layout.MAX_SEGMENTS, 2**63, 2**64 - 1):
            layout.write_number(memory, layout.AT_NUMBER, number)
            assert layout.read_unfinished(reader) is None


def test_packet_of_an_invalid_size_is_none() -> None:
    with new_memory() as (memory, reader):
        layout.write_number(memory, layout.AT_KIND, layout.PACKET)
        layout.write_number(memory, layout.AT_OPEN, 1)
        for size in (layout.NOTHING, layout.INBOX_SIZE + 1, layout.NOTHING - 1):
            struct.pack_into("=I", memory, layout.INBOX + layout.DONE, size)
            assert layout.read_unfinished(reader) is None
        struct.pack_into("=I", memory, layout.INBOX + layout.DONE, layout.INBOX_SIZE)
        found = layout.read_unfinished(reader)
        assert found is not None
        assert len(found.packet) == layout.INBOX_SIZE


WORDS = st.one_of(st.integers(0, 70), st.integers(0, 2**64 - 1), st.sampled_from([1024, 1025, 2**32 - 1, 2**63]))


@examples(200)
@given(st.lists(WORDS, min_size=14, max_size=14), st.binary(max_size=64), st.integers(0, layout.MAX_SEGMENTS - 1))
def test_any_memory_can_be_read(words: list[int], noise: bytes, segment: int) -> None:
    with new_memory() as (memory, reader):
        struct.pack_into("=14Q", memory, layout.AT_SERIAL, *words)
        start = layout.SEGMENT + layout.SEGMENT_SIZE * segment
        for at in (layout.PACKETS, layout.INBOX, start, start + layout.SEGMENT_HEADERS, start + layout.SEGMENT_CONTROL):
            memory[at : at + len(noise)] = noise
        found, sending = layout.read_unfinished(reader), layout.read_sending(reader)
        if found is not None:
            assert words[1]
            assert found.serial == words[0]
            assert len(found.datagrams) <= layout.BATCH
            assert len(found.packet) <= layout.INBOX_SIZE
        if sending is not None:
            assert words[6]
            assert 0 <= sending.taken <= sending.got
