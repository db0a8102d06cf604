"""HMAC-SHA-256 truncated to 8 bytes, under one key.

The two hash states that depend only on the key are computed once. Sums are compared in constant time. Source: RFC 2104;
BCCN, "HMAC".
"""

from __future__ import annotations

from binascii import hexlify
from hashlib import sha256
from hmac import compare_digest
from typing import Final

_BLOCK: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class Hmac8:
    """Computes and verifies sums."""

    __slots__ = ("_new_inner", "_new_outer")

    def __init__(self, key: bytes) -> None:
        block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._new_inner = sha256(block.translate(_INNER)).copy
        self._new_outer = sha256(block.translate(_OUTER)).copy

    def sum(self, body: bytes) -> bytes:
        """Return the sum of a body, in 16 lowercase hex digits."""
        inner = self._new_inner()
        inner.update(body)
        outer = self._new_outer()
        outer.update(inner.digest())
        return hexlify(outer.digest()[:8])

    def verify_at(self, raw: bytes, start: int, end: int) -> bool:
        """Whether ``raw[start:end]`` is the sum of ``raw[end + 1 :]``."""
        return 0 <= start < end < len(raw) and compare_digest(raw[start:end], self.sum(raw[end + 1 :]))
