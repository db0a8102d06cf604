"""The log of a client: what was written is read again, up to a torn end, and replayed it gives the same queue."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import client_records
from bccnd.core.send_queue import ORDERS, QUEUE, Entry, SendQueue
from tests.core.material import examples

HEAD: Final = client_records.pack_head(program="somebody", started=12, slot=3)
#: records of each kind as bytes, and as they are read again
EACH: Final = [
    (
        client_records.pack_record(client_records.SUBSCRIBED, b"a/>", 2, 7),
        client_records.Record(client_records.SUBSCRIBED, 7, 2, b"a/>"),
    ),
    (
        client_records.pack_record(client_records.SUBSCRIBED, b"", 2**64 - 1, 2**64 - 1),
        client_records.Record(client_records.SUBSCRIBED, 2**64 - 1, 2**64 - 1, b""),
    ),
    (
        client_records.pack_record(client_records.UNSUBSCRIBED, b"a/>", 1, 8),
        client_records.Record(client_records.UNSUBSCRIBED, 8, 1, b"a/>"),
    ),
    (
        client_records.pack_record(client_records.REQUESTED, b"CMSG echo/off\0"),
        client_records.Record(client_records.REQUESTED, 0, 0, b"CMSG echo/off\0"),
    ),
    (
        client_records.pack_record(client_records.QUEUED, b"MSG a\0" + bytes(range(256)), 3, 9),
        client_records.Record(client_records.QUEUED, 9, 3, b"MSG a\0" + bytes(range(256))),
    ),
    (
        client_records.pack_record(client_records.QUEUED, b"x" * 409_740, 3, 9),
        client_records.Record(client_records.QUEUED, 9, 3, b"x" * 409_740),
    ),
    (client_records.pack_dropped(5, 4, 10), client_records.Record(client_records.DROPPED, 10, 5, struct.pack("<Q", 4))),
    (
        client_records.pack_record(client_records.HEAD_DROPPED, number=1, serial=11),
        client_records.Record(client_records.HEAD_DROPPED, 11, 1, b""),
    ),
    (
        client_records.pack_record(client_records.SENT, number=60, serial=12),
        client_records.Record(client_records.SENT, 12, 60, b""),
    ),
    (
        client_records.pack_record(client_records.BLOCKED, b"MSG k\0v", serial=13),
        client_records.Record(client_records.BLOCKED, 13, 0, b"MSG k\0v"),
    ),
    (
        client_records.pack_record(client_records.RESUMED, serial=14),
        client_records.Record(client_records.RESUMED, 14, 0, b""),
    ),
    (
        client_records.pack_counts(published=3, lost=4),
        client_records.Record(client_records.COUNTS, 0, 0, b'{"published": 3, "lost": 4}'),
    ),
]


def test_every_record_is_read_as_it_was_written() -> None:
    data = HEAD + b"".join(written for written, _ in EACH)
    assert client_records.read_image(data) == client_records.ClientImage(
        {"version": 1, "program": "somebody", "started": 12, "slot": 3}, [one for _, one in EACH], len(data), []
    )
    assert client_records.read_counts(EACH[-1][1]) == {"published": 3, "lost": 4}


def test_how_a_record_is_written_stays_as_it_is() -> None:
    # The next daemon may be another version.
    assert client_records.pack_record(client_records.QUEUED, b"MSG a\0b", 2, 258) == bytes.fromhex(
        "05 07000000 0201000000000000 0200000000000000 4d534720610062"
    )
    assert HEAD[:21] == struct.pack("<BIQQ", 1, len(HEAD) - 21, 0, 0)
    kinds = [
        client_records.HEAD,
        client_records.SUBSCRIBED,
        client_records.UNSUBSCRIBED,
        client_records.REQUESTED,
        client_records.QUEUED,
        client_records.DROPPED,
    ]
    kinds += [
        client_records.HEAD_DROPPED,
        client_records.SENT,
        client_records.BLOCKED,
        client_records.RESUMED,
        client_records.COUNTS,
    ]
    assert kinds == list(range(1, 12))


def test_truncated_log_yields_all_complete_records() -> None:
    short = [(written, one) for written, one in EACH if len(written) < 1000]
    data = HEAD + b"".join(written for written, _ in short)
    ends = [len(HEAD)]
    for written, _ in short:
        ends.append(ends[-1] + len(written))
    for size in range(len(data) + 1):
        found = client_records.read_image(data[:size])
        whole = sum(end <= size for end in ends)
        assert found.size == (ends[whole - 1] if whole else 0)
        assert found.records == [one for _, one in short[: max(0, whole - 1)]]
        assert bool(found.head) == bool(whole)
        assert found.unknown == []


def test_a_second_head_ends_the_log_before_it() -> None:
    whole = HEAD + EACH[0][0]
    for image in (HEAD, HEAD + EACH[1][0], HEAD[:-1], client_records.pack_record(client_records.HEAD, b"nonsense")):
        found = client_records.read_image(whole + image)
        assert (found.records, found.size, found.unknown) == ([EACH[0][1]], len(whole), [])


def test_unknown_kinds_are_skipped_and_reported() -> None:
    data = (
        HEAD
        + client_records.pack_record(12, b"from the future")
        + EACH[0][0]
        + client_records.pack_record(0)
        + client_records.pack_record(255, b"x", 1, 2)
    )
    found = client_records.read_image(data + EACH[1][0])
    assert found.records == [EACH[0][1], EACH[1][1]]
    assert found.size == len(data + EACH[1][0])
    assert [one.rpartition(" ")[2] for one in found.unknown] == ["12", "0", "255"]


def test_without_a_head_of_this_version_nothing_is_read() -> None:
    heads = [
        (client_records.pack_record(client_records.HEAD, b'{"version": 2, "program": "x"}'), "2"),
        (client_records.pack_record(client_records.HEAD, b'{"version": "1"}'), "1"),
        *(
            (client_records.pack_record(client_records.HEAD, body), "unknown")
            for body in (b'{"program": "x"}', b"{", b"[1]", b"\xff\xfe", b"")
        ),
        (EACH[0][0], "unknown"),
        (client_records.pack_record(77, b"x"), "unknown"),
    ]
    for data, named in heads:
        found = client_records.read_image(data + EACH[0][0])
        assert (found.head, found.records, found.size) == ({}, [], 0)
        [strange] = found.unknown
        assert strange.endswith(named)


@examples(300)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_can_be_read(noise: bytes, headed: bool) -> None:
    found = client_records.read_image((HEAD if headed else b"") + noise)
    assert (len(HEAD) if headed else 0) <= found.size <= len(HEAD) + len(noise)
    assert all(one.delivered >= 0 for one in found.records)


def test_a_record_that_claims_to_be_larger_than_any_is_none() -> None:
    data = HEAD + struct.pack("<BIQQ", client_records.QUEUED, (1 << 20) + 1, 0, 0) + bytes((1 << 20) + 1)
    assert client_records.read_image(data) == client_records.read_image(HEAD)


def test_malformed_counts_are_empty() -> None:
    for body in (b"", b"[]", b"{", b"1", b"\xff"):
        assert client_records.read_counts(client_records.Record(client_records.COUNTS, 0, 0, body)) == {}


def test_how_much_a_client_got_of_an_input_is_what_was_queued_or_lost() -> None:
    nine = struct.pack("<Q", 9)
    for kind, body, got in (
        (client_records.QUEUED, b"x", 6),
        (client_records.DROPPED, nine, 9),
        (client_records.DROPPED, b"short", 0),
        (client_records.SENT, nine, 0),
    ):
        assert client_records.Record(kind, 1, 6, body).delivered == got


Step = tuple[str, int]
FRAMES: Final = [
    *(b"MSG a\0", b"MSG b\0b", b"CMSG c\0c", b"MSG d\0" + b"d" * 40, b"CMSG e\0" + b"e" * 60, b"MSG f\0" + b"f" * 40)
]


def do(queue: SendQueue, step: Step, write: Callable[[bytes], None]) -> None:
    """Apply an operation of the bus to a queue, and write its record."""
    what, number = step
    if what == "put":
        write(client_records.pack_record(client_records.QUEUED, FRAMES[number % len(FRAMES)]))
        queue.put(FRAMES[number % len(FRAMES)])
    elif what == "lose":
        write(client_records.pack_dropped(number))
        queue.add_gap(number)
    elif what in ("take", "portion"):
        number = min(number, len(queue)) if what == "take" else len(queue.next_batch()) or min(1, len(queue))
        write(client_records.pack_record(client_records.SENT, number=number))
        for _ in range(number):
            queue.take()
    elif what == "lose here":
        if queue and queue.has_message_next:
            write(client_records.pack_record(client_records.HEAD_DROPPED, number=1))
            queue.take()
            queue.add_gap_here()
    else:
        name = list(ORDERS)[number % len(ORDERS)]
        write(client_records.pack_record(client_records.REQUESTED, name))
        queue.set_order(ORDERS[name])


def apply_record(data: bytes) -> SendQueue:
    queue = SendQueue()
    found = client_records.read_image(HEAD + data)
    assert found.size == len(HEAD + data)
    for one in found.records:
        if one.kind == client_records.REQUESTED:
            queue.set_order(ORDERS[one.body])
        else:
            queue.apply_record(one.kind, one.number, one.body)
    return queue


def image(queue: SendQueue) -> bytes:
    order = next(name for name, order in ORDERS.items() if order == queue.order)
    asked = b"" if queue.order == QUEUE else client_records.pack_record(client_records.REQUESTED, order)
    return asked + b"".join(map(client_records.pack_queue_entry, queue))


def shown(queue: SendQueue) -> tuple[int, int, int, int, list[Entry]]:
    return queue.order, queue.bytes, queue.messages, len(queue), list(queue)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "lose", "take", "portion", "lose here", "order"]), st.integers(1, 6)
    ),
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


def test_a_replay_refuses_what_cannot_be_and_ignores_what_is_not_of_the_queue() -> None:
    for kind in (client_records.SENT, client_records.HEAD_DROPPED):
        with pytest.raises(IndexError):
            SendQueue().apply_record(kind, 1, b"")
    queue = SendQueue()
    queue.put(b"MSG a\0")
    for kind in (
        client_records.HEAD,
        client_records.SUBSCRIBED,
        client_records.UNSUBSCRIBED,
        client_records.BLOCKED,
        client_records.RESUMED,
        client_records.COUNTS,
    ):
        queue.apply_record(kind, 5, b"x")
    assert list(queue) == [b"MSG a\0"]
