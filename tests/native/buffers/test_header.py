"""Finding the fields of a body: as splitting the text does, in both builds."""

from __future__ import annotations

import sys
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.native.twins import BEYOND, each, examples

BODY = st.one_of(
    st.binary(max_size=40),
    st.text("01:|9a\0\xff", max_size=40).map(lambda text: text.encode("latin-1")),
    st.tuples(
        st.text("ab/:|", max_size=6), st.text("0129x", max_size=24), st.text("c:|", max_size=4), st.text(":|x")
    ).map(lambda parts: "{}:{}:{}|{}".format(*parts).encode()),
)
PLACE = st.one_of(st.integers(0, 6), st.sampled_from(BEYOND))


def naive(raw: bytes, at: int) -> tuple[bytes, bytes, bytes, bytes] | None:
    """Src, digits, channel and payload, by splitting."""
    if not 0 <= at <= len(raw):
        return None
    head, bar, payload = raw[at:].partition(b"|")
    fields = head.split(b":")
    return (*fields, payload) if bar and len(fields) == 3 else None  # type: ignore[return-value]


def number(digits: bytes) -> int | None:
    """The number of 64 bits that these digits are, if they are one."""
    significant = digits.lstrip(b"0") or b"0"
    if not digits or digits.translate(None, b"0123456789") or len(significant) > 20 or int(significant) >= 1 << 64:
        return None
    return int(significant)


@each("header")
@given(raw=BODY, at=PLACE)
@examples(500)
def test_the_fields_are_those_of_the_split_text(header: Any, raw: bytes, at: int) -> None:
    found, expected = header.Header(), naive(raw, at)
    assert found.parse(raw, at) is (expected is not None)
    if expected is not None:
        src, digits, chan, payload = expected
        fields = found.src_of(raw), raw[found.chan : found.bar], raw[found.bar + 1 :]
        assert fields == (src, chan, payload)
        assert found.src == at
        assert (found.seq if found.seq_valid else None) == number(digits)


SEQS: Final = [
    *(b"0", b"9", b"00", b"007", b"1" * 19, b"%d" % (2**63 - 1), b"%d" % 2**63, b"%d" % (2**64 - 1)),
    *(b"%d" % 2**64, b"%d" % (2**64 + 9), b"%d" % (2**65), b"9" * 20, b"1" * 21, b"0" * 5000, b"0" * 60_000 + b"42"),
    *(b"9" * 5000, b"", b"-1", b"+1", b" 1", b"1 ", b"1\n", b"1\0", b"1_0", b"0x1", b"1.", b"1e3", b"/", b"1/"),
    *(b"\xb2", "\u0661".encode(), "\uff11".encode()),
]


@each("header")
def test_a_seq_is_any_decimal_number_of_64_bits(header: Any) -> None:
    for digits in SEQS:
        found = header.Header()
        assert found.parse(b"[" + b"a:%b:c|" % digits, 1)
        assert (found.seq if found.seq_valid else None) == number(digits), digits


@each("header")
def test_no_references_are_kept(header: Any) -> None:
    raw = b"a:1:" + bytes(range(130, 200)) + b"|"
    before = sys.getrefcount(raw)
    found = header.Header()
    for _ in range(100):
        found.parse(raw, 0)
        found.src_of(raw)
    assert sys.getrefcount(raw) == before
