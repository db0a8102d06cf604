"""Algorithms that check a body: HMAC and CRC-32 here, Ed25519 in signatures.py; prepared_hmac.py is for the daemon.

Source: BCCN, "Integrity computation" and "HMAC".
"""

from __future__ import annotations

from binascii import crc32, hexlify
from collections.abc import Mapping
from enum import Enum
from hashlib import sha256
from hmac import compare_digest, digest
from typing import NamedTuple

from bccnd.core.wire import bccn1


class KeyUse(NamedTuple):
    """A key: whether it signs for this host, the src prefixes that it is valid for (empty: all), and the number
    of datagrams that it has verified."""

    fingerprint: str
    algorithm: str
    signs: bool
    signers: tuple[str, ...]
    verified: int


def fingerprint(key: bytes) -> str:
    """Return the public name of a key, 16 hex digits; it reveals no more than sums on the wire do."""
    return sha256(b"bccn key\0" + key).hexdigest()[:16]


class Outcome(Enum):
    """The outcome of a check: the sum is right, it is wrong, or there is no key for it."""

    VERIFIED = "verified"
    FAILED = "failed"
    NO_KEY = "no key"


class CheckResult(NamedTuple):
    """The outcome of a check, and the fingerprint of the key that verified the sum; empty if none did, or if the
    algorithm has no keys."""

    outcome: Outcome
    key: str = ""


class Algorithm:
    """Base class. ``name`` precedes the ``=`` on the wire; ``symmetric`` algorithms verify by computing the sum.
    ``verified`` counts accepted datagrams; ``fingerprint`` names the only key, and is empty without one."""

    name = b""
    symmetric = True

    def __init__(self) -> None:
        self.verified = 0
        self.fingerprint = ""

    def count_use(self, _key: str) -> None:
        """Count an accepted datagram that a key, by its fingerprint, has verified."""
        self.verified += 1

    def list_keys(self, signs: bool) -> list[KeyUse]:
        """Return the keys; ``signs`` is true for the algorithm that signs for this host."""
        if not self.fingerprint:
            return []
        return [KeyUse(self.fingerprint, self.name.decode("ascii"), signs, (), self.verified)]

    def adopt_counts(self, verified: Mapping[str, int]) -> None:
        """Add counts by fingerprint, from before a reload."""
        self.verified += verified.get(self.fingerprint, 0)

    def sum(self, body: bytes) -> bytes:
        """Return the sum of a body, in lowercase hex digits."""
        raise NotImplementedError

    def build(self, src: bytes, seq: int, frame: bytes) -> bytes:
        """Return the datagram of a message, which is a frame, with its sum."""
        chan, _, payload = frame[len(b"MSG ") :].partition(b"\0")
        body = bccn1.build_body(src, seq, chan, payload)
        return bccn1.build(body, b"=".join((self.name, self.sum(body))))

    def check(self, total: bytes, body: bytes) -> CheckResult:
        """Check a sum from the wire against a body."""
        if compare_digest(total, self.sum(body)):
            return CheckResult(Outcome.VERIFIED, self.fingerprint)
        return CheckResult(Outcome.FAILED)

    def verify_at(self, raw: bytes, start: int, end: int) -> bool:
        """Whether ``raw[start:end]`` is the sum of the body from ``end + 1`` on; for symmetric algorithms."""
        return compare_digest(raw[start:end], self.sum(raw[end + 1 :]))


class Unsigned(Algorithm):
    """Stands for no algorithm: the sum is empty."""

    def sum(self, _body: bytes) -> bytes:
        return b""

    def verify_at(self, _raw: bytes, start: int, end: int) -> bool:
        return start == end


class Hmac(Algorithm):
    """HMAC-SHA-256 under one key, truncated to 8 bytes, as 16 lowercase hex digits."""

    name = b"hmac"

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self.fingerprint = fingerprint(key)
        self._key = key

    def sum(self, body: bytes) -> bytes:
        return hexlify(digest(self._key, body, "sha256")[:8])


class Crc32(Algorithm):
    """The zlib/IEEE CRC: detects damage, not forgery."""

    name = b"crc32"

    def sum(self, body: bytes) -> bytes:
        return b"%08x" % crc32(body)
