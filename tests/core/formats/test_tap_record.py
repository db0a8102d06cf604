"""What is recorded of a datagram: all that can be parsed, and nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.tap_record import Observation, observe, seq_key, seq_of, split_peer
from bccnd.core.wire import bccn1
from bccnd.core.wire.bccn1 import MAX_SEQ
from bccnd.errors import BadDatagram


def test_a_good_datagram_is_taken_apart() -> None:
    raw = b"BCCN1[22:hmac=0123456789abcdef]a/b/1:7:!relay01|hello"
    assert observe("accepted", "lan", 3, 1_700_000_000_123_456_789, "10.0.0.1:5400", raw) == Observation(
        *(1_700_000_000_123_456, "lan", "10.0.0.1", 5400, "accepted", "BCCN1", "hmac", "a/b/1", 7 - 2**63, 3),
        *("!relay01", "directed", len(raw), b"hello"),
    )


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        pytest.param(b"", {}, id="nothing"),
        pytest.param(b"\xff\xfe[3]abc", {}, id="a magic that is no text"),
        pytest.param(b"BCCN1[9]a:1:b|c", {}, id="a wrong length"),
        pytest.param(b"BCCN1[07]a:1:b|c", {}, id="a zero before the length"),
        pytest.param(b"BCCN1[7:=b]a:1:b|c", {}, id="a sum of no algorithm"),
        pytest.param(b"BCCN1[7:a=b]]a:1:b|c", {}, id="a bracket too many"),
        pytest.param(b"BCCN1[3:crc32=00000000]abc", {"magic": "BCCN1", "algo": "crc32"}, id="a body that is none"),
        pytest.param(b"BCCN2[7]a:1:b|c", {"magic": "BCCN2"}, id="another version"),
        pytest.param(b"BCCN1[8]a/:1:b|c", {"magic": "BCCN1"}, id="a src that is none"),
        pytest.param(b"BCCN1[8]a:1:!?|c", {"magic": "BCCN1"}, id="a channel that is none"),
    ],
)
def test_what_cannot_be_read_is_left_out(raw: bytes, known: dict[str, str]) -> None:
    seen = observe("bad_body", "lan", 0, 0, "10.0.0.1:5400", raw)
    fields = ("magic", "algo", "src", "seq_key", "chan", "form", "payload")
    assert {name: getattr(seen, name) for name in fields} == {**dict.fromkeys(fields), **known}
    assert seen.length == len(raw)


@given(st.binary(max_size=200), st.text(max_size=30))
def test_no_datagram_and_no_peer_raises(raw: bytes, peer: str) -> None:
    assert observe("oversize", "lan", 0, 0, peer, raw).length == len(raw)


@given(st.integers(0, MAX_SEQ), st.integers(0, MAX_SEQ))
def test_keys_fit_in_64_signed_bits_and_keep_the_order(one: int, other: int) -> None:
    assert -(2**63) <= seq_key(one) < 2**63
    assert seq_of(seq_key(one)) == one
    assert (seq_key(one) < seq_key(other)) == (one < other)


def test_a_peer_is_an_address_and_a_port() -> None:
    assert split_peer("10.0.0.1:5400") == ("10.0.0.1", 5400)
    assert split_peer("[fe80::1]:5400") == ("fe80::1", 5400)
    assert split_peer("10.0.0.1:65535") == ("10.0.0.1", 65_535)
    assert split_peer("10.0.0.1:123456") == ("10.0.0.1:123456", 0)
    assert split_peer("local") == ("local", 0)
    assert split_peer("10.0.0.1:") == ("10.0.0.1:", 0)


#: sources and channels, legal ones and others
NAMES = st.sampled_from([b"x/y", b"?", b"!a/1", b"a*", b"a/", b"!"]) | st.binary(min_size=1, max_size=6)
#: what has more digits than usual is read in another way
SEQS = st.builds(lambda form, seq: form % seq, st.sampled_from([b"%d", b"%030d"]), st.integers(0, 2**64))


@given(NAMES, SEQS, NAMES, st.sampled_from([b"", b"a=b"]))
def test_what_can_be_read_is_recorded(src: bytes, seq: bytes, chan: bytes, check: bytes) -> None:
    raw = bccn1.build(b"%b:%b:%b|payload" % (src, seq, chan), check)
    seen = observe("accepted", "lan", 1, 5000, "h:1", raw)
    known: tuple[object, ...] = (None,) * 4
    with suppress(BadDatagram):
        bccn1.read(raw)
        known = src.decode(), seq_key(int(seq)), chan.decode(), b"payload"
    assert (seen.algo or "", seen.src, seen.seq_key, seen.chan, seen.payload) == (check[:1].decode(), *known)
