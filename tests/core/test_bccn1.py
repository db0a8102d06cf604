"""Datagram <-> bytes: what holds for all bytes. Single ones stand in the table of vectors, see test_vectors.py."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1, verdicts
from bccnd.core.bccn1 import Datagram
from bccnd.errors import BadDatagram
from tests.core import material
from tests.core.material import examples, reason_of

#: the verdicts that reading alone can give
OF_THE_PARSE = {
    "bad_envelope",
    "length_mismatch",
    "unsupported_version",
    "bad_body",
    "bad_src",
    "bad_seq",
    "bad_channel",
    "bad_target",
}

#: the grammar of the wire format once more, written as one expression and by somebody else
LEGAL = re.compile(
    rb"BCCN1\[(?P<len>0|[1-9][0-9]{0,4})(?::(?P<check>[!-<>-\\^-~]+=[!-\\^-~]+))?\]"
    rb"(?P<src>[!-)+-9;-{}~]{0,127}[!-)+-.0-9;-{}~]):(?P<seq>[0-9]+):(?P<chan>(?!![/?])[!-9;-{}~]{1,1024})"
    rb"\|(?P<payload>.*)",
    re.DOTALL,
)


def rebuilt(datagram: Datagram) -> bytes:
    src, seq, chan, payload, check = datagram
    return bccn1.build(bccn1.build_body(src, seq, chan, payload), check)


def any_bytes() -> st.SearchStrategy[bytes]:
    good = st.builds(bccn1.build, material.bodies(), material.checks())
    return st.one_of(st.binary(max_size=80), material.fragments(), material.near_misses(), material.mutated(good), good)


def test_the_verdicts_of_the_parse_are_verdicts() -> None:
    assert set(verdicts.NAMES) > OF_THE_PARSE


# -- what holds for all bytes


@given(material.legal_srcs(), material.seqs(), material.legal_chans(), material.payloads(), material.checks())
@examples(300)
def test_reading_undoes_building(src: bytes, seq: int, chan: bytes, payload: bytes, check: bytes) -> None:
    datagram = Datagram(src, seq, chan, payload, check)
    assert bccn1.read(rebuilt(datagram)) == datagram


@given(any_bytes())
@examples(800)
def test_reading_gives_a_datagram_or_the_name_of_a_verdict(raw: bytes) -> None:
    # Whatever is raised and is not of our family passes through reason_of and fails the test.
    assert reason_of(bccn1.read, raw) in {"", *OF_THE_PARSE}


@given(any_bytes())
@examples(800)
def test_reading_accepts_just_what_the_grammar_allows(raw: bytes) -> None:
    legal = LEGAL.fullmatch(raw)
    fits = (
        legal is not None
        and int(legal["len"]) == len(raw) - raw.index(b"]") - 1
        and int(legal["seq"].lstrip(b"0")[:21] or b"0") < 2**64
    )
    if not fits:
        assert reason_of(bccn1.read, raw) in OF_THE_PARSE
    else:
        assert legal is not None
        check = legal["check"] or b""
        assert bccn1.read(raw) == (legal["src"], int(legal["seq"]), legal["chan"], legal["payload"], check)


@given(any_bytes())
@examples(400)
def test_only_zeros_before_a_seq_are_lost_by_reading_and_building(raw: bytes) -> None:
    try:
        datagram = bccn1.read(raw)
    except BadDatagram:
        return
    body = raw[raw.index(b"]") + 1 :]
    src, digits, rest = body.split(b":", 2)
    plain = b"%b:%b:%b" % (src, digits.lstrip(b"0") or b"0", rest)
    assert rebuilt(datagram) == bccn1.build(plain, datagram.check)


@given(any_bytes())
@examples(400)
def test_the_envelope_alone_is_judged_as_in_the_whole(raw: bytes) -> None:
    envelope = reason_of(bccn1.split_envelope, raw)
    assert envelope in {"", "bad_envelope", "length_mismatch"}
    whole = reason_of(bccn1.read, raw)
    if envelope:
        assert whole == envelope
    else:
        assert whole not in {"bad_envelope", "length_mismatch"}


@given(any_bytes())
@examples(400)
def test_an_envelope_that_was_split_is_all_of_the_datagram(raw: bytes) -> None:
    try:
        magic, check, body = bccn1.split_envelope(raw)
    except BadDatagram:
        return
    assert raw == b"%b[%d%b%b]%b" % (magic, len(body), b":" if check else b"", check, body)


# -- the pieces


@pytest.mark.parametrize("algo", [b"", b"hmac", b"crc32"])
def test_starts_is_how_a_datagram_of_each_length_begins(algo: bytes) -> None:
    starts = bccn1.starts(algo)
    assert len(starts) == bccn1.MAX_RECEIVE
    for length, start in enumerate(starts):
        total = b"0123" if algo else b""
        assert bccn1.build(b"x" * length, algo + b"=" + total if algo else b"") == start + total + b"]" + b"x" * length


@given(material.checks().filter(bool))
@examples(200)
def test_a_check_is_split_at_its_first_equals_sign(check: bytes) -> None:
    algo, total = bccn1.split_check(check)
    assert b"=" not in algo
    assert algo + b"=" + total == check


@given(material.over(material.MARKS, 0, 6))
@examples(400)
def test_a_field_is_refused_alone_as_it_is_in_a_datagram(field: bytes) -> None:
    # Delimiters in a field change how many fields there are, so only the others can be compared.
    whole = {":": "", "|": ""}
    if not set(field.decode("latin-1")) & set(whole):
        assert reason_of(bccn1.check_src, field) == reason_of(bccn1.read_body, field + b":1:c|")
        assert reason_of(bccn1.read_seq, field) == reason_of(bccn1.read_body, b"a:" + field + b":c|")
        assert reason_of(bccn1.check_chan, field) == reason_of(bccn1.read_body, b"a:1:" + field + b"|")
    else:
        assert reason_of(bccn1.check_src, field) == "bad_src"
        assert reason_of(bccn1.read_seq, field) == "bad_seq"
        assert reason_of(bccn1.check_chan, field) == "bad_channel"


@pytest.mark.parametrize("zeros", [0, 1, 5000, 60_000])
def test_zeros_before_a_seq_cost_nothing_and_mean_nothing(zeros: int) -> None:
    # More digits than int() takes at all.
    assert bccn1.read_seq(b"0" * zeros + b"42") == 42
    assert bccn1.read_seq(b"0" * (zeros + 1)) == 0


@pytest.mark.parametrize("digits", [20, 21, 5000, 60_000])
def test_a_seq_of_too_many_digits_is_bad_however_many(digits: int) -> None:
    assert reason_of(bccn1.read_seq, b"9" * digits) == "bad_seq"
