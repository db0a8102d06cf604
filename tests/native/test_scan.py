"""Scanning bytes: the results of bytes.find, int and slices, and nothing outside of the bytes is read."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.native.twins import BEYOND, each, examples

RAW = st.one_of(
    st.binary(max_size=40),
    st.text("01:|9a\0\xff", max_size=40).map(lambda text: text.encode("latin-1")),
    st.text("0123456789", max_size=24).map(str.encode),
)
PLACE = st.one_of(st.integers(-3, 45), st.sampled_from(BEYOND))


@each("scan")
@given(raw=RAW, byte=st.one_of(st.sampled_from(b"01:|9a\0\xff"), st.integers(0, 255)), start=PLACE)
@examples(300)
def test_find_returns_the_first_position_from_the_start(scan: Any, raw: bytes, byte: int, start: int) -> None:
    assert scan.find(raw, byte, start) == (raw.find(byte, start) if start >= 0 else -1)


@each("scan")
def test_every_byte_is_found_and_nothing_beyond_either_end(scan: Any) -> None:
    whole = bytes(range(256))
    for byte in range(256):
        assert scan.find(whole, byte, 0) == scan.find(whole, byte, byte) == byte
        assert scan.find(whole, byte, byte + 1) == -1
        assert scan.find(whole + whole, byte, byte + 1) == 256 + byte
    # The byte behind the last one is a NUL in memory.
    assert scan.find(b"abc", 0, 0) == -1
    for start in (0, 1, *BEYOND):
        assert scan.find(b"", 0, start) == -1
    for start in (3, 4, *BEYOND):
        assert scan.find(b"abc", ord("c"), start) == -1
    assert scan.find((b"abc" * 100)[:4], ord("c"), 3) == -1


def naive_number(raw: bytes, start: int, end: int) -> int:
    if not 0 <= start <= end <= len(raw) or re.fullmatch(rb"[0-9]{1,19}", raw[start:end]) is None:
        return -1
    value = int(raw[start:end])
    return value if value < 1 << 63 else -1


@each("scan")
@given(raw=RAW, start=PLACE, end=PLACE)
@examples(400)
def test_parse_uint_returns_the_number(scan: Any, raw: bytes, start: int, end: int) -> None:
    assert scan.parse_uint(raw, start, end) == naive_number(raw, start, end)
    assert scan.parse_uint(raw, 0, len(raw)) == naive_number(raw, 0, len(raw))


NUMBERS: Final = [
    *((b"0", 0), (b"9", 9), (b"00", 0), (b"007", 7), (b"0000000000000000001", 1), (b"1000000000000000000", 10**18)),
    (b"9223372036854775807", (1 << 63) - 1),
    *((b"%d" % (one << 63), -1) for one in (1, 2)),
    *((text, -1) for text in (b"9223372036854775809", b"9999999999999999999", b"18446744073709551617")),
    # 20 digits, and more.
    *((text, -1) for text in (b"00000000000000000001", b"09223372036854775807", b"36893488147419103233", b"1" * 100)),
    *(
        (text, -1)
        for text in (b"", b"-1", b"+1", b" 1", b"1 ", b"1\n", b"1\0", b"\x001", b"1_0", b"0x1", b"1.", b"1e3")
    ),
    # What stands beside the digits in ASCII, and digits of other alphabets.
    *((text, -1) for text in (b"/", b":", b"1/", b":1", b"\xb2", b"\xb9", "\u0661".encode(), "\uff11".encode())),
]


@each("scan")
def test_a_number_has_1_to_19_digits_and_is_below_2_to_63(scan: Any) -> None:
    for digits, value in NUMBERS:
        assert scan.parse_uint(digits, 0, len(digits)) == value, digits
        assert scan.parse_uint(b"77" + digits + b"77", 2, 2 + len(digits)) == value, digits


@each("scan")
def test_no_references_are_kept(scan: Any) -> None:
    raw = bytes(range(100, 200))
    before = sys.getrefcount(raw)
    for _ in range(100):
        scan.find(raw, 120, 0)
        scan.parse_uint(raw, 1, 2)
    assert sys.getrefcount(raw) == before
