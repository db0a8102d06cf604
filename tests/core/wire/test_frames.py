"""Frames of the local bus: what is built reads back, and what is no frame is refused with a reason."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import NAMES
from tests.core import material
from tests.core.material import examples, reason_of

#: the regular expressions of the sbus text, and the same for a control message
GRAMMAR = {
    b"SUB": re.compile(rb"SUB ([^\0]*)(?:\0(.*))?", re.DOTALL),
    b"UNSUB": re.compile(rb"UNSUB ([^\0]*)(?:\0(.*))?", re.DOTALL),
    b"MSG": re.compile(rb"MSG ([^\0]*)\0(.*)", re.DOTALL),
    b"CMSG": re.compile(rb"CMSG ([^\0]*)(?:\0(.*))?", re.DOTALL),
}


PIECES = st.one_of(st.sampled_from([b"SUB", b"UNSUB", b"MSG", b"CMSG", b" ", b"\0", b"a/b"]), st.binary(max_size=3))
PACKETS = st.one_of(st.binary(max_size=20), st.lists(PIECES, max_size=6).map(b"".join))
KEYS = st.binary(max_size=20).map(lambda key: key.replace(b"\0", b"0"))


@given(PACKETS)
@example(b"MSG a")
@examples(700)
def test_packets_follow_the_grammar_exactly(packet: bytes) -> None:
    fitting = [(verb, legal) for verb, form in GRAMMAR.items() if (legal := form.fullmatch(packet))]
    if fitting:
        [(verb, legal)] = fitting
        assert frames.read(packet) == (verb, legal[1], legal[2] or b"")
    else:
        no_payload = "no_payload" if packet.startswith(b"MSG ") else "unknown_verb"
        assert reason_of(frames.read, packet) == (no_payload if packet else "empty")


@given(KEYS, st.binary(max_size=40))
@examples(200)
def test_what_is_built_reads_back(key: bytes, payload: bytes) -> None:
    assert frames.read(frames.message(key, payload)) == (frames.MSG, key, payload)
    assert frames.read(frames.control(key, payload)) == (frames.CMSG, key, payload)
    assert frames.read(frames.request(key, payload)) == (frames.CMSG, key, payload)
    assert frames.read(frames.request(key)) == (frames.CMSG, key, b"")
    assert frames.read(frames.subscribe(key)) == (frames.SUB, key, b"")
    assert frames.read(frames.unsubscribe(key)) == (frames.UNSUB, key, b"")


def test_frames_are_those_of_the_protocol() -> None:
    assert frames.request(b"a") == b"CMSG a"
    assert frames.request(b"a", b"") == frames.control(b"a", b"") == b"CMSG a\0"
    assert frames.gap(17) == b"CMSG !/bccn/gap\x0017"
    # The key stands last, so it may contain blanks.
    assert frames.error("bad_channel", b"a b") == b"CMSG !/bccn/error\0bad_channel a b"
    assert frames.meta(b"h/p/1", 7, 1_700_000_000_000_000_000, "10.0.0.1:5400") == (
        b"h/p/1:7:1700000000000000000:10.0.0.1:5400|"
    )
    assert frames.tapped("duplicate", "yard", 3, 1_700_000_000_000_000_000, "10.0.0.1:5400", b"BCCN1[7]a:1:c|x") == (
        b"MSG !/tap/duplicate\0yard:3:1700000000000000000:10.0.0.1:5400|BCCN1[7]a:1:c|x"
    )


def test_meta_of_an_interface_with_any_name_is_ascii() -> None:
    assert frames.meta(b"a", 1, 2, "[fe80::1%\xf6\udcc3]:3").startswith(b"a:1:2:[fe80::1%\\xf6\\udcc3]:3|")


PEERS = st.sampled_from(["10.0.0.1:5400", "[fe80::1%eth0]:5400", "local", ""])
ANY_PAYLOADS = st.one_of(material.FRAGMENTS, material.PAYLOADS, st.binary(max_size=40))


@given(material.LEGAL_SRCS, material.SEQS, st.integers(0, 2**63 - 1), PEERS, material.PAYLOADS)
@examples(200)
def test_meta_reads_back_before_any_payload(src: bytes, seq: int, received_ns: int, peer: str, payload: bytes) -> None:
    together = frames.meta(src, seq, received_ns, peer) + payload
    assert frames.read_meta(together) == (src, seq, received_ns, peer, payload)


@given(
    st.sampled_from(NAMES),
    st.sampled_from(["yard", "255.255.255.255#5400", "eth0/ff02--bcc#5400", "Höfe 1+2", ""]),
    st.integers(0, 2**40),
    st.integers(0, 2**63 - 1),
    PEERS,
    ANY_PAYLOADS,
)
@examples(300)
def test_frames_of_taps_and_links_read_back(
    verdict: str, segment: str, number: int, received_ns: int, peer: str, raw: bytes
) -> None:
    verb, key, payload = frames.read(frames.tapped(verdict, segment, number, received_ns, peer, raw))
    assert (verb, key) == (frames.MSG, frames.TAP + verdict.encode("ascii"))
    assert frames.read_tapped(key, payload) == (verdict, segment, number, received_ns, peer, raw)
    verb, key, payload = frames.read(frames.forwarded(number, raw))
    assert (verb, key, frames.read_forwarded(payload)) == (frames.MSG, frames.LINK, (number, raw))
    verb, key, payload = frames.read(frames.arrived("nng", number + 1, received_ns, peer, raw))
    assert (verb, key) == (frames.MSG, frames.LINK)
    assert frames.read_arrived(payload) == ("nng", number + 1, received_ns, peer, raw)


MOST: Final = b"1" * 20
#: Any client can publish these, or a recording have them: more digits than int() takes must not raise either.
BAD_HEADS = [
    *(b"", b"|", b"plain text", b"a|b", b"a:1:2:p", b"a:1:2|x", b"a:x:2:p|x", b"a:1:x:p|x", b"a::2:p|x"),
    *(b"a:-1:2:p|x", b"a:1:+2:p|x", b"a:1 :2:p|x", b"a:\xb2:2:p|x", b"a:1:\xb2:p|x"),
    *(b"a:" + b"1" * 5000 + b":2:p|x", b"a:1:" + b"1" * 5000 + b":p|x"),
    *(b"a:" + MOST + b"1:1:p|x", b"a:1:1" + MOST + b":p|x"),
]
NO_LINK = [*BAD_HEADS, b"nng:0:2:a:1|x", b":1:2:a:1|x", b"n\xff:1:2:a:1|x"]


def test_a_payload_without_a_head_is_refused() -> None:
    assert {reason_of(frames.read_meta, payload) for payload in BAD_HEADS} == {"no_meta"}
    assert {reason_of(frames.read_tapped, b"!/tap/accepted", payload) for payload in BAD_HEADS} == {"no_tap"}
    assert {reason_of(frames.read_tapped, key, b"yard:1:2:p|x") for key in (b"!/tap", b"a/b", b"")} == {"no_tap"}
    assert {reason_of(frames.read_arrived, payload) for payload in NO_LINK} == {"no_link"}
    origins = (b"", b"x", b"|x", b"-1|x", MOST + b"1|x")
    assert {reason_of(frames.read_forwarded, payload) for payload in origins} == {"no_link"}
    assert frames.read_meta(b"a:%b:%b:p|x" % (MOST, MOST)) == (b"a", int(MOST), int(MOST), "p", b"x")
    assert frames.read_forwarded(MOST + b"|x") == (int(MOST), b"x")


A: Final = b"MSG a\0x"
SEVEN: Final = b"\x07\0\0\0"


AROUND = st.integers(2040, 2056) | st.sampled_from([65_530, 70_000])
LONG = st.builds(lambda key, byte, size: frames.message(key, byte * size), KEYS, material.over(b"M\0 ", 1, 1), AROUND)
#: messages of all lengths, many of them around those that are precomputed
MESSAGES = st.one_of(st.builds(frames.message, KEYS, st.binary(max_size=30)), LONG)
BATCHES = st.lists(st.builds(frames.message, KEYS, st.binary(max_size=12)), min_size=1, max_size=5).map(frames.batch)


def test_a_batch_is_that_of_the_protocol() -> None:
    other = frames.message(b"!/tap/accepted", b"y" * 300)
    packet = b"MSGS 2\0" + SEVEN + A + b"\x3f\x01\0\0" + other
    assert len(other) == 0x13F
    assert frames.batch([A, other]) == packet
    for digits in (b"2", b"02", b"00000000000000000002"):
        assert frames.read_batch(packet.replace(b"2", digits, 1)) == [A, other]


@given(st.lists(MESSAGES, min_size=1, max_size=12))
@example([frames.message(b"a", b"x" * 100_000)] * 4)  # larger than the daemon makes
@example([frames.message(b"", b"")] * 7000)
@example([frames.message(b"", b"x" * (2048 - 5))])  # the first length that is not precomputed
@example([frames.message(b"", b"x" * (2048 - 5))] * 2)
@examples(300)
def test_a_batch_reads_back(together: list[bytes]) -> None:
    packet = frames.batch(together)
    assert frames.read_batch(packet) == together
    assert len(packet) == len(b"MSGS %d\0" % len(together)) + sum(4 + len(one) for one in together)


ONE: Final = SEVEN + A
NO_BATCH: Final = [
    ("no_batch", [b"", b"MSGS", b"MSGS ", b"MSGS 1", b"MSGS\0", A, b"CMSG a\0x"]),
    ("no_batch", [verb + b" 1\0" + ONE for verb in (b"MSG", b" MSGS", b"msgs")]),
    ("bad_count", [b"MSGS \0", b"MSGS 0\0", b"MSGS 00\0"]),
    ("bad_count", [b"MSGS %b\0" % count + ONE for count in (b"-1", b"+1", b" 1", b"1 ", b"1_0", b"0x1", b"\xb2")]),
    ("bad_count", [b"MSGS " + b"9" * digits + b"\0" + ONE for digits in (21, 5000)]),
    ("cut_short", [b"MSGS 1\0" + rest for rest in (b"", b"\x06\0\0", SEVEN, ONE[:-1], SEVEN + A[:3])]),
    ("cut_short", [b"MSGS 2\0" + rest for rest in (ONE, ONE + b"\x07", ONE + ONE[:-1])]),
    ("cut_short", [b"MSGS 1\0\xff\xff\xff\xff" + A, b"MSGS 1\0\0\0\0\x07" + A]),
    ("cut_short", [b"MSGS 99999999999999999999\0" + ONE]),
    ("trailing", [b"MSGS 1\0" + ONE + rest for rest in (b"x", ONE)]),
    ("no_message", [b"MSGS 1\0\x05\0\0\0" + A, b"MSGS 2\0" + ONE + b"\x05\0\0\0MSG a"]),
    ("no_message", [b"MSGS 1\0" + bytes((len(inside), 0, 0, 0)) + inside for inside in (b"MSG aa", b"", b"MSG ")]),
    ("no_message", [b"MSGS 1\0" + bytes((len(one), 0, 0, 0)) + one for one in (b"CMSG a\0", b"SUB a", b" MSG \0")]),
    ("no_message", [b"MSGS 1\0\x12\0\0\0MSGS 1\0" + ONE]),
]


@pytest.mark.parametrize(("reason", "packets"), NO_BATCH)
def test_what_is_no_batch_is_refused_with_a_reason(reason: str, packets: list[bytes]) -> None:
    for packet in packets:
        assert (packet, reason_of(frames.read_batch, packet)) == (packet, reason)


@given(material.mutated(BATCHES))
@examples(1000)
def test_damaged_batch_yields_messages_or_an_error(packet: bytes) -> None:
    reason = reason_of(frames.read_batch, packet)
    assert reason in {"", "no_batch", "bad_count", "cut_short", "no_message", "trailing"}
    if not reason:
        got = frames.read_batch(packet)
        assert got
        assert all(frames.read(one)[0] == frames.MSG for one in got)
        # No byte was skipped or read twice.
        assert packet[packet.index(0) :] == frames.batch(got)[len(b"MSGS %d" % len(got)) :]


@given(BATCHES, st.data())
@examples(300)
def test_no_part_of_a_batch_is_a_batch(packet: bytes, data: st.DataObject) -> None:
    assert reason_of(frames.read_batch, packet[: data.draw(st.integers(0, len(packet) - 1))])
    assert reason_of(frames.read_batch, packet + data.draw(st.binary(min_size=1, max_size=9)))
