"""The keyed hash: for every key and body it is what the standard library computes, and no other sum is accepted."""

from __future__ import annotations

import hmac
import sys

from hypothesis import given
from hypothesis import strategies as st

from bccnd.native.buffers.hmac8 import Hmac8
from tests.core.material import examples


def reference(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:8].hex().encode()


def test_a_sum_is_that_of_the_standard_library() -> None:
    for size in range(201):
        for key, body in ((bytes(range(size)), b"body"), (b"key", bytes(range(size))), (b"key", b"\x80" * 10 * size)):
            total = Hmac8(key).sum(body)
            assert total == reference(key, body), size
            assert Hmac8(key).verify_at(b"head=" + total + b"]" + body, 5, 21) is True


def test_each_bit_of_the_sum_and_each_byte_of_the_body_counts() -> None:
    prepared, body = Hmac8(b"a key"), bytes(range(200))
    raw = prepared.sum(body) + b"]" + body
    for place in range(len(raw)):
        for bit in range(8):
            other = bytearray(raw)
            other[place] ^= 1 << bit
            assert prepared.verify_at(bytes(other), 0, 16) is (place == 16), place  # the byte between does not
    for other_body in (body + b"\0", body[:-1], b""):
        assert prepared.verify_at(raw[:17] + other_body, 0, 16) is False


@given(
    body=st.binary(max_size=20),
    start=st.integers(-20, 60) | st.sampled_from([-sys.maxsize - 1, sys.maxsize - 16]),
    end=st.integers(-20, 60) | st.sampled_from([-sys.maxsize - 1 + 16, sys.maxsize]),
)
@examples(300)
def test_only_a_whole_sum_within_the_bytes_is_read(body: bytes, start: int, end: int) -> None:
    raw = b"ab" + reference(b"a key", body) * 2 + b"]" + body
    inside = start >= 0 and end - start == 16 and end < len(raw)
    expected = inside and raw[start:end] == reference(b"a key", raw[end + 1 :])
    assert Hmac8(b"a key").verify_at(raw, start, end) is expected
