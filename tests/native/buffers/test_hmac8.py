"""The keyed hash: for every key and body it is what the standard library computes, and no other sum is accepted."""

from __future__ import annotations

import hmac
import subprocess
import sys
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.native.twins import each, examples


def reference(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, "sha256").hexdigest()[:16].encode()


@each("hmac8")
def test_a_sum_is_that_of_the_standard_library_whatever_the_length_of_key_and_body(hmac8: Any) -> None:
    for size in range(1, 201):
        for key in (bytes(range(size)), bytes(range(255, 255 - size, -1))):
            assert hmac8.Hmac8(key).sum(b"body") == reference(key, b"body"), size
    # At these sizes the hash takes another block.
    for size in (0, 1, 54, 55, 56, 57, 63, 64, 65, 118, 119, 120, 127, 128, 129, 1400, 2000):
        for body in (bytes(size), b"\n" * size, b"\x80" * size, (bytes(range(256)) * 8)[:size]):
            total = hmac8.Hmac8(b"key").sum(body)
            assert (type(total), total) == (bytes, reference(b"key", body)), size
            assert hmac8.Hmac8(b"key").verify_at(b"head=" + total + b"]" + body, 5, 21) is True


@each("hmac8")
def test_each_bit_of_the_sum_and_each_byte_of_the_body_counts(hmac8: Any) -> None:
    one = hmac8.Hmac8(b"a key")
    body = bytes(range(200))
    total = one.sum(body)
    assert any(byte in b"abcdef" for byte in total)
    # The byte between them does not.
    for between in (b"]", b"\xff", b"\0"):
        assert one.verify_at(total + between + body, 0, 16) is True
    for bit in range(128):
        digits = bytearray(total)
        digits[bit // 8] ^= 1 << bit % 8
        assert one.verify_at(bytes(digits) + b"]" + body, 0, 16) is False
    for place in range(200):
        other = bytearray(body)
        other[place] ^= 1
        assert one.verify_at(total + b"]" + bytes(other), 0, 16) is False
    for spoiled in (total + b"]" + body + b"\0", total + b"]" + body[:-1], total + b"]", total.upper() + b"]" + body):
        assert one.verify_at(spoiled, 0, 16) is False


@each("hmac8")
@given(body=st.binary(max_size=40), start=st.integers(0, 60), end=st.integers(0, 60))
@examples(300)
def test_sums_of_another_length_are_refused(hmac8: Any, body: bytes, start: int, end: int) -> None:
    one = hmac8.Hmac8(b"a key")
    whole = hmac.new(b"a key", body, "sha256").hexdigest().encode()
    raw = b"ab" + whole[:16] + b"]" + body + b"tail"
    if start <= end < len(raw):
        expected = end - start == 16 and raw[start:end] == reference(b"a key", raw[end + 1 :])
        assert one.verify_at(raw, start, end) is expected
    for length in (*range(16), *range(17, 40)):
        digits = (whole + whole)[:length]
        assert one.verify_at(digits + b"]" + body, 0, length) is False


@each("hmac8")
def test_keys_do_not_disturb_each_other(hmac8: Any) -> None:
    keyed_by = {key: hmac8.Hmac8(key) for key in (b"1", b"2", b"1" * 64, b"1" * 65)}
    for _ in range(3):
        for key, one in keyed_by.items():
            assert one.sum(b"body") == reference(key, b"body")
            assert one.verify_at(b"0" * 16 + b"]body", 0, 16) is False


@each("hmac8")
def test_no_references_are_kept(hmac8: Any) -> None:
    key, body = bytes(range(50)), bytes(range(100))
    before = sys.getrefcount(key), sys.getrefcount(body)
    one = hmac8.Hmac8(key)
    for _ in range(100):
        total = one.sum(body)
        one.verify_at(body, 0, 16)
    assert (sys.getrefcount(key), sys.getrefcount(body)) == before
    assert sys.getrefcount(total) == 2


OUTSIDE: Final = """
import sys
from bccnd.native.buffers.hmac8 import Hmac8

one = Hmac8(b"a key")
total = one.sum(b"")
for raw in (total, total[:15], total + b"]", b""):
    size = len(raw)
    for start, end in ((0, 16), (1, 17), (-16, 0), (-17, -1), (-8, 8), (size, size + 16), (size - 16, size)):
        if start < 0 or end >= size:
            assert one.verify_at(raw, start, end) is False, (raw, start, end)
for end in (1 << 20, 1 << 40, sys.maxsize, -sys.maxsize - 1 + 16):
    assert one.verify_at(total + b"]", end - 16, end) is False
"""


def test_places_outside_of_the_bytes_are_never_read() -> None:
    # In a process of its own, which may crash.
    done = subprocess.run([sys.executable, "-c", OUTSIDE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
