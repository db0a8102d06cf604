"""HMAC that computes the hash states of its key once: for the daemon, which checks every datagram."""

from __future__ import annotations

from bccnd.core.trust.integrity_algorithms import Hmac
from bccnd.native.buffers.datagram import build
from bccnd.native.buffers.hmac8 import Hmac8


class PreparedHmac(Hmac):
    """Sums are those of `Hmac`."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._prepared = Hmac8(key)

    def sum(self, body: bytes) -> bytes:
        total: bytes = self._prepared.sum(body)
        return total

    def build(self, src: bytes, seq: int, frame: bytes) -> bytes:
        datagram: bytes = build(src, seq, frame, self._prepared)
        return datagram

    def verify_at(self, raw: bytes, start: int, end: int) -> bool:
        valid: bool = self._prepared.verify_at(raw, start, end)
        return valid
