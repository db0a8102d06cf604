"""The log of a client: what was written is read again, up to a torn end, and replayed it gives the same queue."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import tape
from bccnd.core.outbox import ORDERS, QUEUE, Entry, Outbox
from tests.core.material import examples

HEAD: Final = tape.head(program="somebody", started=12, slot=3)
#: records of each kind as bytes, and as they are read again
EACH: Final = [
    (tape.record(tape.HOLDS, b"a/>", 2, 7), tape.Record(tape.HOLDS, 7, 2, b"a/>")),
    (tape.record(tape.HOLDS, b"", 2**64 - 1, 2**64 - 1), tape.Record(tape.HOLDS, 2**64 - 1, 2**64 - 1, b"")),
    (tape.record(tape.DROPS, b"a/>", 1, 8), tape.Record(tape.DROPS, 8, 1, b"a/>")),
    (tape.record(tape.ASKED, b"CMSG echo/off\0"), tape.Record(tape.ASKED, 0, 0, b"CMSG echo/off\0")),
    (
        tape.record(tape.PUT, b"MSG a\0" + bytes(range(256)), 3, 9),
        tape.Record(tape.PUT, 9, 3, b"MSG a\0" + bytes(range(256))),
    ),
    (tape.record(tape.PUT, b"x" * 409_740, 3, 9), tape.Record(tape.PUT, 9, 3, b"x" * 409_740)),
    (tape.lost(5, 4, 10), tape.Record(tape.LOST, 10, 5, struct.pack("<Q", 4))),
    (tape.record(tape.LOST_HERE, number=1, serial=11), tape.Record(tape.LOST_HERE, 11, 1, b"")),
    (tape.record(tape.TOOK, number=60, serial=12), tape.Record(tape.TOOK, 12, 60, b"")),
    (tape.record(tape.WAITS, b"MSG k\0v", serial=13), tape.Record(tape.WAITS, 13, 0, b"MSG k\0v")),
    (tape.record(tape.GOES_ON, serial=14), tape.Record(tape.GOES_ON, 14, 0, b"")),
    (tape.counts(published=3, lost=4), tape.Record(tape.COUNTS, 0, 0, b'{"published": 3, "lost": 4}')),
]


def test_every_record_is_read_as_it_was_written() -> None:
    data = HEAD + b"".join(written for written, _ in EACH)
    assert tape.read(data) == tape.Tape(
        {"version": 1, "program": "somebody", "started": 12, "slot": 3}, [one for _, one in EACH], len(data), []
    )
    assert tape.read_counts(EACH[-1][1]) == {"published": 3, "lost": 4}


def test_how_a_record_is_written_stays_as_it_is() -> None:
    # The next daemon may be another version.
    assert tape.record(tape.PUT, b"MSG a\0b", 2, 258) == bytes.fromhex(
        "05 07000000 0201000000000000 0200000000000000 4d534720610062"
    )
    assert HEAD[:21] == struct.pack("<BIQQ", 1, len(HEAD) - 21, 0, 0)
    kinds = [tape.HEAD, tape.HOLDS, tape.DROPS, tape.ASKED, tape.PUT, tape.LOST]
    kinds += [tape.LOST_HERE, tape.TOOK, tape.WAITS, tape.GOES_ON, tape.COUNTS]
    assert kinds == list(range(1, 12))


def test_torn_anywhere_it_says_all_that_was_written_whole() -> None:
    short = [(written, one) for written, one in EACH if len(written) < 1000]
    data = HEAD + b"".join(written for written, _ in short)
    ends = [len(HEAD)]
    for written, _ in short:
        ends.append(ends[-1] + len(written))
    for size in range(len(data) + 1):
        found = tape.read(data[:size])
        whole = sum(end <= size for end in ends)
        assert found.size == (ends[whole - 1] if whole else 0)
        assert found.records == [one for _, one in short[: max(0, whole - 1)]]
        assert bool(found.head) == bool(whole)
        assert found.strange == []


def test_a_second_head_ends_the_log_before_it() -> None:
    whole = HEAD + EACH[0][0]
    for image in (HEAD, HEAD + EACH[1][0], HEAD[:-1], tape.record(tape.HEAD, b"nonsense")):
        found = tape.read(whole + image)
        assert (found.records, found.size, found.strange) == ([EACH[0][1]], len(whole), [])


def test_what_is_not_known_is_left_out_and_named() -> None:
    data = HEAD + tape.record(12, b"from the future") + EACH[0][0] + tape.record(0) + tape.record(255, b"x", 1, 2)
    found = tape.read(data + EACH[1][0])
    assert found.records == [EACH[0][1], EACH[1][1]]
    assert found.size == len(data + EACH[1][0])
    assert [one.rpartition(" ")[2] for one in found.strange] == ["12", "0", "255"]


def test_without_a_head_of_this_version_nothing_is_read() -> None:
    heads = [
        (tape.record(tape.HEAD, b'{"version": 2, "program": "x"}'), "2"),
        (tape.record(tape.HEAD, b'{"version": "1"}'), "1"),
        *((tape.record(tape.HEAD, body), "unknown") for body in (b'{"program": "x"}', b"{", b"[1]", b"\xff\xfe", b"")),
        (EACH[0][0], "unknown"),
        (tape.record(77, b"x"), "unknown"),
    ]
    for data, named in heads:
        found = tape.read(data + EACH[0][0])
        assert (found.head, found.records, found.size) == ({}, [], 0)
        [strange] = found.strange
        assert strange.endswith(named)


@examples(300)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_can_be_read(noise: bytes, headed: bool) -> None:
    found = tape.read((HEAD if headed else b"") + noise)
    assert (len(HEAD) if headed else 0) <= found.size <= len(HEAD) + len(noise)
    assert all(one.got >= 0 for one in found.records)


def test_a_record_that_claims_to_be_larger_than_any_is_none() -> None:
    data = HEAD + struct.pack("<BIQQ", tape.PUT, (1 << 20) + 1, 0, 0) + bytes((1 << 20) + 1)
    assert tape.read(data) == tape.read(HEAD)


def test_malformed_counts_are_empty() -> None:
    for body in (b"", b"[]", b"{", b"1", b"\xff"):
        assert tape.read_counts(tape.Record(tape.COUNTS, 0, 0, body)) == {}


def test_how_much_a_client_got_of_an_input_is_what_was_queued_or_lost() -> None:
    nine = struct.pack("<Q", 9)
    for kind, body, got in ((tape.PUT, b"x", 6), (tape.LOST, nine, 9), (tape.LOST, b"short", 0), (tape.TOOK, nine, 0)):
        assert tape.Record(kind, 1, 6, body).got == got


Step = tuple[str, int]
FRAMES: Final = [
    *(b"MSG a\0", b"MSG b\0b", b"CMSG c\0c", b"MSG d\0" + b"d" * 40, b"CMSG e\0" + b"e" * 60, b"MSG f\0" + b"f" * 40)
]


def do(box: Outbox, step: Step, write: Callable[[bytes], None]) -> None:
    """Apply an operation of the bus to a queue, and write its record."""
    what, number = step
    if what == "put":
        write(tape.record(tape.PUT, FRAMES[number % len(FRAMES)]))
        box.put(FRAMES[number % len(FRAMES)])
    elif what == "lose":
        write(tape.lost(number))
        box.lose(number)
    elif what in ("take", "portion"):
        number = min(number, len(box)) if what == "take" else len(box.portion()) or min(1, len(box))
        write(tape.record(tape.TOOK, number=number))
        for _ in range(number):
            box.take()
    elif what == "lose here":
        if box and box.has_message_next:
            write(tape.record(tape.LOST_HERE, number=1))
            box.take()
            box.lose_here()
    else:
        name = list(ORDERS)[number % len(ORDERS)]
        write(tape.record(tape.ASKED, name))
        box.set_order(ORDERS[name])


def live_again(data: bytes) -> Outbox:
    box = Outbox()
    found = tape.read(HEAD + data)
    assert found.size == len(HEAD + data)
    for one in found.records:
        if one.kind == tape.ASKED:
            box.set_order(ORDERS[one.body])
        else:
            box.live_again(one.kind, one.number, one.body)
    return box


def image(box: Outbox) -> bytes:
    order = next(name for name, order in ORDERS.items() if order == box.order)
    asked = b"" if box.order == QUEUE else tape.record(tape.ASKED, order)
    return asked + b"".join(map(tape.waiting, box))


def shown(box: Outbox) -> tuple[int, int, int, int, list[Entry]]:
    return box.order, box.bytes, box.messages, len(box), list(box)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "lose", "take", "portion", "lose here", "order"]), st.integers(1, 6)
    ),
    max_size=40,
)


@examples(600)
@given(st.sampled_from(sorted(ORDERS.values())), STEPS, st.integers(0, 40), STEPS)
def test_a_replayed_queue_is_the_same(order: int, before: list[Step], at: int, after: list[Step]) -> None:
    lived, written = Outbox(), bytearray()
    do(lived, ("order", order), written.extend)
    for number, step in enumerate(before):
        do(lived, step, written.extend)
        if number == at:
            written = bytearray(image(lived))
    again, drawn = live_again(bytes(written)), live_again(image(lived))
    assert shown(again) == shown(drawn) == shown(lived)
    for step in after:
        for box in (lived, again, drawn):
            do(box, step, lambda _: None)
        assert shown(again) == shown(drawn) == shown(lived)
    for _ in range(len(lived)):
        assert again.take() == drawn.take() == lived.take()
    assert (lived.bytes, lived.messages) == (again.bytes, again.messages) == (0, 0)


def test_a_replay_refuses_what_cannot_be_and_ignores_what_is_not_of_the_queue() -> None:
    for kind in (tape.TOOK, tape.LOST_HERE):
        with pytest.raises(IndexError):
            Outbox().live_again(kind, 1, b"")
    box = Outbox()
    box.put(b"MSG a\0")
    for kind in (tape.HEAD, tape.HOLDS, tape.DROPS, tape.WAITS, tape.GOES_ON, tape.COUNTS):
        box.live_again(kind, 5, b"x")
    assert list(box) == [b"MSG a\0"]
