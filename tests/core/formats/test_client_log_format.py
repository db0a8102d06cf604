"""Records of a client: what was written is read again, up to a truncated end; its replay gives the same queue."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats import client_log_format as records
from bccnd.core.formats.client_log_format import Record
from bccnd.core.sending.send_queue import ORDERS, QUEUE, Entry, SendQueue
from tests.core.material import examples

HEAD: Final = records.pack_head(program="one", started=12, slot=3)
#: records of each kind as bytes, and as they are read again
EACH: Final = [
    *(
        (records.pack_record(kind, body, number, serial), Record(kind, serial, number, body))
        for kind, body, number, serial in (
            (records.SUBSCRIBED, b"a/>", 2, 7),
            (records.SUBSCRIBED, b"", 2**64 - 1, 2**64 - 1),
            (records.UNSUBSCRIBED, b"a/>", 1, 8),
            (records.REQUESTED, b"CMSG echo/off\0", 0, 0),
            (records.QUEUED, b"MSG a\0" + bytes(range(256)), 3, 9),
            (records.QUEUED, b"x" * 409_740, 3, 9),
            (records.HEAD_DROPPED, b"", 1, 11),
            (records.SENT, b"", 60, 12),
            (records.BLOCKED, b"MSG k\0v", 0, 13),
            (records.RESUMED, b"", 0, 14),
        )
    ),
    (records.pack_dropped(5, 4, 10), Record(records.DROPPED, 10, 5, struct.pack("<Q", 4))),
    (records.pack_counts(published=3, lost=4), Record(records.COUNTS, 0, 0, b'{"published": 3, "lost": 4}')),
]


def test_every_record_is_read_as_it_was_written() -> None:
    data = HEAD + b"".join(written for written, _ in EACH)
    assert records.read_image(data) == records.ClientImage(
        {"version": 1, "program": "one", "started": 12, "slot": 3}, [one for _, one in EACH], len(data), []
    )
    assert records.read_counts(EACH[-1][1]) == {"published": 3, "lost": 4}


def test_format_of_a_record_is_fixed() -> None:
    # The next daemon may be another version.
    assert records.pack_record(records.QUEUED, b"MSG a\0b", 2, 258) == bytes.fromhex(
        "05 07000000 0201000000000000 0200000000000000 4d534720610062"
    )
    assert HEAD[:21] == struct.pack("<BIQQ", 1, len(HEAD) - 21, 0, 0)
    kinds = [records.HEAD, records.SUBSCRIBED, records.UNSUBSCRIBED, records.REQUESTED, records.QUEUED, records.DROPPED]
    kinds += [records.HEAD_DROPPED, records.SENT, records.BLOCKED, records.RESUMED, records.COUNTS]
    assert kinds == list(range(1, 12))


def test_truncated_log_yields_all_complete_records() -> None:
    short = [(written, one) for written, one in EACH if len(written) < 1000]
    data = HEAD + b"".join(written for written, _ in short)
    ends = [len(HEAD)]
    for written, _ in short:
        ends.append(ends[-1] + len(written))
    for size in range(len(data) + 1):
        found = records.read_image(data[:size])
        whole = sum(end <= size for end in ends)
        assert found.size == (ends[whole - 1] if whole else 0)
        assert found.records == [one for _, one in short[: max(0, whole - 1)]]
        assert bool(found.head) == bool(whole)
        assert found.unknown == []


def test_a_second_head_ends_the_log_before_it() -> None:
    whole = HEAD + EACH[0][0]
    for image in (HEAD, HEAD + EACH[1][0], HEAD[:-1], records.pack_record(records.HEAD, b"nonsense")):
        found = records.read_image(whole + image)
        assert (found.records, found.size, found.unknown) == ([EACH[0][1]], len(whole), [])


def test_unknown_kinds_are_skipped_and_reported() -> None:
    unknown = [records.pack_record(12, b"later"), records.pack_record(0), records.pack_record(255, b"x", 1, 2)]
    data = HEAD + unknown[0] + EACH[0][0] + unknown[1] + unknown[2]
    found = records.read_image(data + EACH[1][0])
    assert found.records == [EACH[0][1], EACH[1][1]]
    assert found.size == len(data + EACH[1][0])
    assert [one.rpartition(" ")[2] for one in found.unknown] == ["12", "0", "255"]


def test_log_of_another_version_is_read_alike_and_reported() -> None:
    data = records.pack_record(records.HEAD, b'{"version": 2, "program": "x"}') + EACH[0][0]
    found = records.read_image(data)
    assert (found.head, found.records, found.size) == ({"version": 2, "program": "x"}, [EACH[0][1]], len(data))
    [strange] = found.unknown
    assert strange.endswith("2")


def test_without_a_head_nothing_is_read() -> None:
    heads = [
        (records.pack_record(records.HEAD, b'{"version": "1"}'), "1"),
        *(
            (records.pack_record(records.HEAD, body), "unknown")
            for body in (b'{"program": "x"}', b"{", b"[1]", b"\xff\xfe", b"")
        ),
        (EACH[0][0], "unknown"),
        (records.pack_record(77, b"x"), "unknown"),
    ]
    for data, named in heads:
        found = records.read_image(data + EACH[0][0])
        assert (found.head, found.records, found.size) == ({}, [], 0)
        [strange] = found.unknown
        assert strange.endswith(named)


@examples(300)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_can_be_read(noise: bytes, headed: bool) -> None:
    found = records.read_image((HEAD if headed else b"") + noise)
    assert (len(HEAD) if headed else 0) <= found.size <= len(HEAD) + len(noise)
    assert all(one.delivered >= 0 for one in found.records)


def test_record_of_an_impossible_size_ends_the_log() -> None:
    data = HEAD + struct.pack("<BIQQ", records.QUEUED, (1 << 20) + 1, 0, 0) + bytes((1 << 20) + 1)
    assert records.read_image(data + records.pack_record(records.QUEUED, b"MSG a\0")) == records.read_image(HEAD)


def test_malformed_counts_are_empty() -> None:
    for body in (b"", b"[]", b"{", b"1", b"\xff"):
        assert records.read_counts(Record(records.COUNTS, 0, 0, body)) == {}


def test_delivered_counts_queued_and_dropped_messages() -> None:
    nine = struct.pack("<Q", 9)
    for kind, body, got in (
        (records.QUEUED, b"x", 6),
        (records.DROPPED, nine, 9),
        (records.DROPPED, b"short", 0),
        (records.SENT, nine, 0),
    ):
        assert Record(kind, 1, 6, body).delivered == got


Step = tuple[str, int]
FRAMES: Final = [
    *(b"MSG a\0", b"MSG b\0b", b"CMSG c\0c", b"MSG d\0" + b"d" * 40, b"CMSG e\0" + b"e" * 60, b"MSG f\0" + b"f" * 40)
]


def do(queue: SendQueue, step: Step, write: Callable[[bytes], None]) -> None:
    """Apply an operation of the bus to a queue, and write its record."""
    what, number = step
    if what == "put":
        write(records.pack_record(records.QUEUED, FRAMES[number % len(FRAMES)]))
        queue.put(FRAMES[number % len(FRAMES)])
    elif what == "drop":
        write(records.pack_dropped(number))
        queue.add_gap(number)
    elif what in ("take", "batch"):
        number = min(number, len(queue)) if what == "take" else len(queue.next_batch()) or min(1, len(queue))
        write(records.pack_record(records.SENT, number=number))
        for _ in range(number):
            queue.take()
    elif what == "drop head":
        if queue and queue.has_message_next:
            write(records.pack_record(records.HEAD_DROPPED, number=1))
            queue.take()
            queue.add_gap_here()
    else:
        name = list(ORDERS)[number % len(ORDERS)]
        write(records.pack_record(records.REQUESTED, name))
        queue.set_order(ORDERS[name])


def apply_record(data: bytes) -> SendQueue:
    queue = SendQueue()
    found = records.read_image(HEAD + data)
    assert found.size == len(HEAD + data)
    for one in found.records:
        if one.kind == records.REQUESTED:
            queue.set_order(ORDERS[one.body])
        else:
            queue.apply_record(one.kind, one.number, one.body)
    return queue


def image(queue: SendQueue) -> bytes:
    order = next(name for name, order in ORDERS.items() if order == queue.order)
    asked = b"" if queue.order == QUEUE else records.pack_record(records.REQUESTED, order)
    return asked + b"".join(map(records.pack_queue_entry, queue))


def shown(queue: SendQueue) -> tuple[int, int, int, int, list[Entry]]:
    return queue.order, queue.bytes, queue.messages, len(queue), list(queue)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "drop", "take", "batch", "drop head", "order"]), st.integers(1, 6)),
    max_size=40,
)


@examples(600)
@given(st.sampled_from(sorted(ORDERS.values())), STEPS, st.integers(0, 40), STEPS)
def test_a_replayed_queue_is_the_same(order: int, before: list[Step], at: int, after: list[Step]) -> None:
    lived, written = SendQueue(), bytearray()
    do(lived, ("order", order), written.extend)
    for number, step in enumerate(before):
        do(lived, step, written.extend)
        if number == at:
            written = bytearray(image(lived))
    again, drawn = apply_record(bytes(written)), apply_record(image(lived))
    assert shown(again) == shown(drawn) == shown(lived)
    for step in after:
        for queue in (lived, again, drawn):
            do(queue, step, lambda _: None)
        assert shown(again) == shown(drawn) == shown(lived)
    for _ in range(len(lived)):
        assert again.take() == drawn.take() == lived.take()
    assert (lived.bytes, lived.messages) == (again.bytes, again.messages) == (0, 0)


def test_replay_refuses_impossible_records_and_ignores_others() -> None:
    for kind in (records.SENT, records.HEAD_DROPPED):
        with pytest.raises(IndexError):
            SendQueue().apply_record(kind, 1, b"")
    queue = SendQueue()
    queue.put(b"MSG a\0")
    others = (records.HEAD, records.SUBSCRIBED, records.UNSUBSCRIBED, records.BLOCKED, records.RESUMED, records.COUNTS)
    for kind in others:
        queue.apply_record(kind, 5, b"x")
    assert list(queue) == [b"MSG a\0"]
