"""Finding the fields of a body: as the plain parser does, and nothing outside of the bytes is read."""

from __future__ import annotations

import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.native.buffers.header import Header
from tests.core.material import examples

BODY = st.one_of(
    st.binary(max_size=40),
    st.text("01:|9a\0\xff", max_size=40).map(lambda text: text.encode("latin-1")),
    st.tuples(st.text("a:|", max_size=6), st.text("0129x", max_size=24), st.text("c:|", max_size=4)).map(
        lambda parts: "{}:{}:{}|x|:".format(*parts).encode()
    ),
)


def number(digits: bytes) -> int | None:
    """The number of 64 bits that these digits are, if they are one."""
    significant = digits.lstrip(b"0") or b"0"
    if not digits.isdigit() or len(significant) > 20 or int(significant) >= 1 << 64:
        return None
    return int(significant)


@given(raw=BODY, at=st.integers(0, 6) | st.sampled_from([-sys.maxsize - 1, -1, 1 << 32, sys.maxsize]))
@examples(500)
def test_the_fields_are_those_of_the_split_text(raw: bytes, at: int) -> None:
    header = Header()
    head, bar, payload = raw[at:].partition(b"|") if 0 <= at <= len(raw) else (b"", b"", b"")
    fields = head.split(b":")
    valid = bool(bar) and len(fields) == 3
    assert header.parse(raw, at) is valid
    if valid:
        src, digits, chan = fields
        found = header.src_of(raw), raw[header.chan : header.bar], raw[header.bar + 1 :]
        assert (header.src, *found) == (at, src, chan, payload)
        assert (header.seq if header.seq_valid else None) == number(digits)


SEQS: Final = [
    *(b"0", b"00", b"007", b"1" * 19, b"%d" % (2**64 - 1), b"%d" % 2**64, b"%d" % (2**64 + 9), b"9" * 20, b"1" * 21),
    *(b"0" * 60_000 + b"42", b"9" * 5000, b"", b"-1", b"+1", b" 1", b"1\n", b"1\0", b"1_0", b"0x1", b"/", b"\xb2"),
]


@pytest.mark.parametrize("digits", SEQS)
def test_a_seq_is_any_decimal_number_of_64_bits(digits: bytes) -> None:
    header = Header()
    assert header.parse(b"[a:%b:c|" % digits, 1)
    assert (header.seq if header.seq_valid else None) == number(digits)
