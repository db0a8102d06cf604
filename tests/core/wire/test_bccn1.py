"""Parsing and building datagrams: properties for all bytes. Single datagrams are in test_vectors.py."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.wire import bccn1
from bccnd.core.wire.bccn1 import Datagram
from tests.core import material
from tests.core.material import OF_THE_PARSE, examples, reason_of

#: the grammar of the wire format as one expression, independent of the parser
LEGAL = re.compile(
    rb"BCCN1\[(?P<len>0|[1-9][0-9]{0,4})(?::(?P<check>[!-<>-\\^-~]+=[!-\\^-~]+))?\]"
    rb"(?P<src>[!-)+-9;-{}~]{0,127}[!-)+-.0-9;-{}~]):(?P<seq>[0-9]+):(?P<chan>(?!![/?])[!-9;-{}~]{1,1024})"
    rb"\|(?P<payload>.*)",
    re.DOTALL,
)


def rebuilt(datagram: Datagram) -> bytes:
    src, seq, chan, payload, check = datagram
    return bccn1.build(bccn1.build_body(src, seq, chan, payload), check)


GOOD = st.builds(bccn1.build, material.BODIES, material.CHECKS)
ANY_BYTES = st.one_of(st.binary(max_size=80), material.FRAGMENTS, material.NEAR_MISSES, material.mutated(GOOD), GOOD)


@given(ANY_BYTES)
@examples(1000)
def test_reading_accepts_exactly_what_the_grammar_allows(raw: bytes) -> None:
    legal = LEGAL.fullmatch(raw)
    if (
        legal is None
        or int(legal["len"]) != len(raw) - raw.index(b"]") - 1
        or int(legal["seq"].lstrip(b"0")[:21] or b"0") >= 2**64
    ):
        assert reason_of(bccn1.read, raw) in OF_THE_PARSE
        return
    found = bccn1.read(raw)
    assert found == (legal["src"], int(legal["seq"]), legal["chan"], legal["payload"], legal["check"] or b"")
    # Only zeros before the seq are lost by reading and building.
    src, digits, rest = raw[raw.index(b"]") + 1 :].split(b":", 2)
    plain = b"%b:%b:%b" % (src, digits.lstrip(b"0") or b"0", rest)
    assert rebuilt(found) == bccn1.build(plain, found.check)


@pytest.mark.parametrize(("algo", "total"), [(b"", b""), (b"hmac", b"0" * 16), (b"crc32", b"0" * 8)])
def test_prefixes_are_how_a_datagram_of_each_length_begins(algo: bytes, total: bytes) -> None:
    prefixes = bccn1.sum_prefixes(algo, len(total))
    built = [bccn1.build(b"x" * size, algo + b"=" + total if algo else b"") for size in range(bccn1.MAX_RECEIVE)]
    for raw in built:
        prefix = prefixes[len(raw)]
        assert prefix is not None
        assert raw.startswith(prefix + total + b"]")
    assert sum(prefix is not None for prefix in prefixes) == len(built)


@given(material.over(material.MARKS, 0, 6))
@examples(400)
def test_a_field_is_refused_alone_as_it_is_in_a_datagram(field: bytes) -> None:
    # A delimiter in a field changes how many fields there are, so only the others can be compared.
    if not set(field) & set(b":|"):
        assert reason_of(bccn1.check_src, field) == reason_of(bccn1.read_body, field + b":1:c|")
        valid = field.isdigit() and len(field) < 19
        assert reason_of(bccn1.read_body, b"a:" + field + b":c|") == ("" if valid else "bad_seq")
        assert reason_of(bccn1.check_chan, field) == reason_of(bccn1.read_body, b"a:1:" + field + b"|")
    else:
        assert reason_of(bccn1.check_src, field) == "bad_src"
        assert reason_of(bccn1.check_chan, field) == "bad_channel"


@pytest.mark.parametrize("digits", [20, 5000])
def test_a_seq_may_have_more_digits_than_int_takes(digits: int) -> None:
    assert bccn1.read_body(b"a:" + b"42".zfill(digits) + b":c|")[1] == 42
    assert reason_of(bccn1.read_body, b"a:" + b"9" * digits + b":c|") == "bad_seq"
