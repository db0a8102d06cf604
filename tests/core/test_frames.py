"""Frames of the local bus: what is built reads back, and what is no frame is refused with a reason."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import frames
from bccnd.core.verdicts import NAMES
from bccnd.errors import BadFrame
from tests.core import material
from tests.core.material import examples, reason_of

#: the regular expressions of the sbus text, and the same for a control message
GRAMMAR = {
    b"SUB": re.compile(rb"SUB ([^\0]*)(?:\0(.*))?", re.DOTALL),
    b"UNSUB": re.compile(rb"UNSUB ([^\0]*)(?:\0(.*))?", re.DOTALL),
    b"MSG": re.compile(rb"MSG ([^\0]*)\0(.*)", re.DOTALL),
    b"CMSG": re.compile(rb"CMSG ([^\0]*)(?:\0(.*))?", re.DOTALL),
}

READS = [
    (b"SUB a/b", (b"SUB", b"a/b", b"")),
    (b"SUB ", (b"SUB", b"", b"")),
    (b"SUB a\0ignored", (b"SUB", b"a", b"ignored")),
    (b"UNSUB a b", (b"UNSUB", b"a b", b"")),
    (b"MSG a\0", (b"MSG", b"a", b"")),
    (b"MSG a\0x\0y", (b"MSG", b"a", b"x\0y")),
    (b"MSG \0x", (b"MSG", b"", b"x")),
    (b"MSG  a\0x", (b"MSG", b" a", b"x")),
    (b"CMSG !/cred/whoami", (b"CMSG", b"!/cred/whoami", b"")),
    (b"CMSG !/cred/whoami\0", (b"CMSG", b"!/cred/whoami", b"")),
    (b"CMSG a\0MSG b\0c", (b"CMSG", b"a", b"MSG b\0c")),
]
REFUSED = [
    (b"", "empty"),
    (b"MSG", "unknown_verb"),
    (b"SUB", "unknown_verb"),
    (b" ", "unknown_verb"),
    (b"\0", "unknown_verb"),
    (b"sub a", "unknown_verb"),
    (b"SUBa", "unknown_verb"),
    (b"SUB\0a", "unknown_verb"),
    (b"SUBS a", "unknown_verb"),
    (b" SUB a", "unknown_verb"),
    (b"GET / HTTP/1.1", "unknown_verb"),
    (b"\xff\xfe a", "unknown_verb"),
    (b"MSG a", "no_payload"),
    (b"MSG ", "no_payload"),
]


def packets() -> st.SearchStrategy[bytes]:
    pieces = st.one_of(st.sampled_from([b"SUB", b"UNSUB", b"MSG", b"CMSG", b" ", b"\0", b"a/b"]), st.binary(max_size=3))
    return st.one_of(st.binary(max_size=20), st.lists(pieces, max_size=6).map(b"".join))


def keys() -> st.SearchStrategy[bytes]:
    return st.binary(max_size=20).map(lambda key: key.replace(b"\0", b"0"))


@pytest.mark.parametrize(("packet", "expected"), READS)
def test_a_frame_reads_as_verb_key_and_payload(packet: bytes, expected: tuple[bytes, bytes, bytes]) -> None:
    assert frames.read(packet) == expected


@pytest.mark.parametrize(("packet", "reason"), REFUSED)
def test_what_is_no_frame_is_refused_with_a_reason(packet: bytes, reason: str) -> None:
    with pytest.raises(BadFrame) as refused:
        frames.read(packet)
    assert refused.value.reason == reason


@given(packets())
@examples(700)
def test_a_packet_is_a_frame_just_when_the_grammar_says_so(packet: bytes) -> None:
    fitting = [(verb, legal) for verb, form in GRAMMAR.items() if (legal := form.fullmatch(packet))]
    if fitting:
        [(verb, legal)] = fitting
        assert frames.read(packet) == (verb, legal[1], legal[2] or b"")
    else:
        assert reason_of(frames.read, packet) in {"empty", "unknown_verb", "no_payload"}


@given(keys(), st.binary(max_size=40))
@examples(200)
def test_what_is_built_reads_back(key: bytes, payload: bytes) -> None:
    assert frames.read(frames.message(key, payload)) == (frames.MSG, key, payload)
    assert frames.read(frames.control(key, payload)) == (frames.CMSG, key, payload)
    assert frames.read(frames.request(key, payload)) == (frames.CMSG, key, payload)
    assert frames.read(frames.request(key)) == (frames.CMSG, key, b"")
    assert frames.read(frames.subscribe(key)) == (frames.SUB, key, b"")
    assert frames.read(frames.unsubscribe(key)) == (frames.UNSUB, key, b"")


def test_a_request_without_a_payload_has_no_nul_and_with_an_empty_one_it_has() -> None:
    assert frames.request(b"a") == b"CMSG a"
    assert frames.request(b"a", b"") == frames.control(b"a", b"") == b"CMSG a\0"


def test_what_the_daemon_tells_a_client() -> None:
    assert frames.gap(17) == b"CMSG !/bccn/gap\x0017"
    assert frames.error("too_long", b"a/b") == b"CMSG !/bccn/error\0too_long a/b"
    # The key stands last, so that blanks in it do no harm.
    assert frames.read(frames.error("bad_channel", b"a b"))[2].partition(b" ") == (b"bad_channel", b" ", b"a b")


# -- what precedes a payload for those who want to know


def test_meta_reads_as_in_the_contract() -> None:
    assert frames.meta(b"h/p/1", 7, 1_700_000_000_000_000_000, "10.0.0.1:5400") == (
        b"h/p/1:7:1700000000000000000:10.0.0.1:5400|"
    )


@given(
    material.legal_srcs(),
    material.seqs(),
    st.integers(0, 2**63 - 1),
    st.sampled_from(["10.0.0.1:5400", "local", "[fe80::1%eth0]:5400", ""]),
    material.payloads(),
)
@examples(200)
def test_meta_reads_back_before_any_payload(src: bytes, seq: int, received_ns: int, peer: str, payload: bytes) -> None:
    told = frames.meta(src, seq, received_ns, peer) + payload
    assert frames.read_meta(told) == (src, seq, received_ns, peer, payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"|",
        b"plain text",
        b"a|b",
        b"a:1:2|x",
        b"a:x:2:p|x",
        b"a:1:x:p|x",
        b"a::2:p|x",
        b"a:-1:2:p|x",
        b"a:1:+2:p|x",
        b"a:1 :2:p|x",
        b"a:1:2:p",
        b"a:\xb2:2:p|x",
    ],
)
def test_a_payload_without_meta_is_refused(payload: bytes) -> None:
    assert reason_of(frames.read_meta, payload) == "no_meta"


@pytest.mark.parametrize("payload", [b"a:" + b"1" * 5000 + b":2:p|x", b"a:1:" + b"1" * 5000 + b":p|x"])
def test_numbers_that_python_will_not_read_are_no_meta(payload: bytes) -> None:
    # Any client can publish this on a key that is no channel; it must not raise in those who receive it.
    assert reason_of(frames.read_meta, payload) == "no_meta"


# -- what the tap tells


def test_what_the_tap_tells_reads_as_in_the_contract() -> None:
    assert frames.tapped("duplicate", "yard", 3, 1_700_000_000_000_000_000, "10.0.0.1:5400", b"BCCN1[7]a:1:c|x") == (
        b"MSG !/tap/duplicate\0yard:3:1700000000000000000:10.0.0.1:5400|BCCN1[7]a:1:c|x"
    )


@given(
    st.sampled_from(NAMES),
    st.sampled_from(["yard", "255.255.255.255#5400", "eth0/ff02--bcc#5400", "Höfe 1+2", ""]),
    st.integers(0, 2**40),
    st.integers(0, 2**63 - 1),
    st.sampled_from(["10.0.0.1:5400", "[fe80::1%eth0]:5400", ""]),
    st.one_of(material.fragments(), material.payloads(), st.binary(max_size=40)),
)
@examples(300)
def test_what_the_tap_tells_reads_back_around_any_datagram(
    verdict: str, segment: str, epoch: int, received_ns: int, peer: str, datagram: bytes
) -> None:
    verb, key, payload = frames.read(frames.tapped(verdict, segment, epoch, received_ns, peer, datagram))
    assert verb == frames.MSG
    assert key == frames.TAP + verdict.encode("ascii")
    assert frames.read_tapped(key, payload) == (verdict, segment, epoch, received_ns, peer, datagram)


@pytest.mark.parametrize(
    ("key", "payload"),
    [
        (b"!/tap/accepted", b""),
        (b"!/tap/accepted", b"|"),
        (b"!/tap/accepted", b"yard:1:2:p"),
        (b"!/tap/accepted", b"yard:1:2|x"),
        (b"!/tap/accepted", b"yard:x:2:p|x"),
        (b"!/tap/accepted", b"yard:1:x:p|x"),
        (b"!/tap/accepted", b"yard::2:p|x"),
        (b"!/tap/accepted", b"yard:-1:2:p|x"),
        (b"!/tap/accepted", b"yard:1:\xb2:p|x"),
        (b"!/tap", b"yard:1:2:p|x"),
        (b"a/b", b"yard:1:2:p|x"),
        (b"", b"yard:1:2:p|x"),
    ],
)
def test_what_is_not_of_the_tap_is_refused(key: bytes, payload: bytes) -> None:
    assert reason_of(frames.read_tapped, key, payload) == "no_tap"


@pytest.mark.parametrize("payload", [b"a:" + b"1" * 5000 + b":2:p|x", b"a:1:" + b"1" * 5000 + b":p|x"])
def test_numbers_that_python_will_not_read_are_not_of_the_tap(payload: bytes) -> None:
    # Whoever reads it may have recorded it, or have it from another daemon; it must not raise there.
    assert reason_of(frames.read_tapped, b"!/tap/accepted", payload) == "no_tap"


@given(st.sampled_from([b"!/tap/", b"!/tap/\xff", b"c"]), st.binary(max_size=30) | material.over(b"a:|01\xff ", 0, 12))
@examples(300)
def test_reading_the_tap_gives_what_it_told_or_says_that_it_is_none(key: bytes, payload: bytes) -> None:
    reason = reason_of(frames.read_tapped, key, payload)
    assert reason in {"", "no_tap"}
    if not reason:
        assert payload.endswith(b"|" + frames.read_tapped(key, payload)[-1])


@given(st.one_of(st.binary(max_size=30), material.over(b"a:|01\xff ", 0, 12)))
@examples(400)
def test_reading_meta_gives_meta_or_says_that_there_is_none(payload: bytes) -> None:
    reason = reason_of(frames.read_meta, payload)
    assert reason in {"", "no_meta"}
    if not reason:
        src, _, _, _, rest = frames.read_meta(payload)
        assert payload.startswith(src + b":")
        assert payload.endswith(b"|" + rest)


# -- batches

A: Final = b"MSG a\0x"
SEVEN: Final = b"\x07\0\0\0"


def messages() -> st.SearchStrategy[bytes]:
    """Messages as they stand in a batch, on either side of the lengths that are at hand."""
    around = st.integers(2040, 2056) | st.sampled_from([65_530, 70_000])
    long = st.builds(
        lambda key, byte, size: frames.message(key, byte * size), keys(), material.over(b"M\0 ", 1, 1), around
    )
    return st.one_of(st.builds(frames.message, keys(), st.binary(max_size=30)), long)


def batches() -> st.SearchStrategy[bytes]:
    return st.lists(st.builds(frames.message, keys(), st.binary(max_size=12)), min_size=1, max_size=5).map(frames.batch)


def test_a_batch_reads_as_in_the_contract() -> None:
    other = frames.message(b"!/tap/accepted", b"y" * 300)
    packet = b"MSGS 2\0" + SEVEN + A + b"\x3f\x01\0\0" + other
    assert len(other) == 0x13F
    assert frames.batch([A, other]) == packet
    assert frames.read_batch(packet) == [A, other]


@given(st.lists(messages(), min_size=1, max_size=12))
@examples(300)
def test_a_batch_reads_back(together: list[bytes]) -> None:
    packet = frames.batch(together)
    assert frames.read_batch(packet) == together
    assert len(packet) == len(b"MSGS %d\0" % len(together)) + sum(4 + len(one) for one in together)


def test_as_many_as_a_batch_holds_read_back() -> None:
    smallest = [frames.message(b"", b"")] * 7000
    packet = frames.batch(smallest)
    assert len(packet) <= frames.MAX_BATCH
    assert frames.read_batch(packet) == smallest


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "no_batch"),
        (b"MSGS", "no_batch"),
        (b"MSGS ", "no_batch"),
        (b"MSGS 1", "no_batch"),
        (b"MSGS\0", "no_batch"),
        (b"MSG 1\0" + SEVEN + A, "no_batch"),
        (b" MSGS 1\0" + SEVEN + A, "no_batch"),
        (b"msgs 1\0" + SEVEN + A, "no_batch"),
        (A, "no_batch"),
        (b"CMSG a\0x", "no_batch"),
        (b"MSGS \0", "bad_count"),
        (b"MSGS 0\0", "bad_count"),
        (b"MSGS 00\0", "bad_count"),
        (b"MSGS -1\0" + SEVEN + A, "bad_count"),
        (b"MSGS +1\0" + SEVEN + A, "bad_count"),
        (b"MSGS  1\0" + SEVEN + A, "bad_count"),
        (b"MSGS 1 \0" + SEVEN + A, "bad_count"),
        (b"MSGS 1_0\0" + SEVEN + A, "bad_count"),
        (b"MSGS 0x1\0" + SEVEN + A, "bad_count"),
        (b"MSGS \xb2\0" + SEVEN + A, "bad_count"),
        (b"MSGS " + b"9" * 5000 + b"\0" + SEVEN + A, "bad_count"),
        (b"MSGS 1\0", "cut_short"),
        (b"MSGS 1\0\x06\0\0", "cut_short"),
        (b"MSGS 1\0" + SEVEN, "cut_short"),
        (b"MSGS 1\0" + SEVEN + A[:-1], "cut_short"),
        (b"MSGS 1\0" + SEVEN + A[:3], "cut_short"),
        (b"MSGS 2\0" + SEVEN + A, "cut_short"),
        (b"MSGS 2\0" + SEVEN + A + b"\x07", "cut_short"),
        (b"MSGS 2\0" + SEVEN + A + SEVEN + A[:-1], "cut_short"),
        (b"MSGS 1\0\xff\xff\xff\xff" + A, "cut_short"),
        (b"MSGS 1\0\0\0\0\x07" + A, "cut_short"),
        (b"MSGS 99999999999999999999\0" + SEVEN + A, "cut_short"),
        (b"MSGS 1\0" + SEVEN + A + b"x", "trailing"),
        (b"MSGS 1\0" + SEVEN + A + SEVEN + A, "trailing"),
        (b"MSGS 1\0\x05\0\0\0" + A, "no_message"),
        (b"MSGS 1\0\x06\0\0\0MSG aa", "no_message"),
        (b"MSGS 1\0\0\0\0\0", "no_message"),
        (b"MSGS 1\0\x04\0\0\0MSG ", "no_message"),
        (b"MSGS 1\0\x07\0\0\0CMSG a\0", "no_message"),
        (b"MSGS 1\0\x05\0\0\0SUB a", "no_message"),
        (b"MSGS 1\0\x06\0\0\0 MSG \0", "no_message"),
        (b"MSGS 1\0\x12\0\0\0MSGS 1\0" + SEVEN + A, "no_message"),
        (b"MSGS 2\0" + SEVEN + A + b"\x05\0\0\0MSG a", "no_message"),
    ],
)
def test_what_is_no_batch_is_refused_with_a_reason(packet: bytes, reason: str) -> None:
    assert reason_of(frames.read_batch, packet) == reason


@pytest.mark.parametrize("digits", [b"2", b"02", b"00000000000000000002"])
def test_a_count_is_a_number_however_it_is_written(digits: bytes) -> None:
    assert frames.read_batch(b"MSGS " + digits + b"\0" + 2 * (SEVEN + A)) == [A, A]


def test_a_batch_larger_than_the_daemon_makes_is_read() -> None:
    large = [frames.message(b"a", b"x" * 100_000)] * 4
    assert frames.read_batch(frames.batch(large)) == large


@given(material.mutated(batches()))
@examples(1000)
def test_a_spoilt_batch_gives_messages_or_says_what_is_wrong(packet: bytes) -> None:
    reason = reason_of(frames.read_batch, packet)
    assert reason in {"", "no_batch", "bad_count", "cut_short", "no_message", "trailing"}
    if not reason:
        got = frames.read_batch(packet)
        assert got
        assert all(frames.read(one)[0] == frames.MSG for one in got)
        # Nothing of it was passed over, nothing read twice.
        assert packet[packet.index(0) :] == frames.batch(got)[len(b"MSGS %d" % len(got)) :]


@given(batches(), st.data())
@examples(300)
def test_no_part_of_a_batch_is_a_batch(packet: bytes, data: st.DataObject) -> None:
    assert reason_of(frames.read_batch, packet[: data.draw(st.integers(0, len(packet) - 1))])
    assert reason_of(frames.read_batch, packet + data.draw(st.binary(min_size=1, max_size=9)))


@pytest.mark.parametrize("packet", [b"MSGS 1\0" + SEVEN + A, b"MSGS 0\0", b"MSGS "])
def test_a_batch_is_no_frame(packet: bytes) -> None:
    # Only the daemon sends them; from a client they are refused like any other word that is none.
    assert reason_of(frames.read, packet) == "unknown_verb"
