"""The door: whether a datagram's check lets it in, and the check that we put on our own.

Law: a body is read only after its sum was accepted; sums are compared in constant time; a check that this door
cannot verify is never taken for a verified one. Source: BCCN, "Integrity computation" and "HMAC".

`hmac` is HMAC-SHA-256 cut to 8 bytes, in 16 lowercase hex digits. Signatures have a module of their own, loaded only
where they are used.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Final, NamedTuple

from bccnd.core.bccn1 import MAGIC, MAX_SRC, split_check, split_envelope, starts
from bccnd.errors import BadDatagram
from bccnd.native import scan
from bccnd.native.hmac8 import Hmac8

#: shorter keys can be guessed: 16 bytes are the strength of the truncated sum twice over
MIN_KEY: Final = 16
_BRACKET: Final = ord("]")
#: sources of which the key is remembered, where that is not the first one
_MAX_SIGNERS: Final = 10_000
#: how far behind the last number of a source another key is still taken for its present one: late copies
_LATE: Final = 8


class KeyUse(NamedTuple):
    """A key by its fingerprint: whether it signs what we send, the prefixes of the sources that it is valid for (none:
    all), and the number of datagrams that it has verified."""

    fingerprint: str
    algorithm: str
    signs: bool
    signers: tuple[str, ...]
    verified: int


def fingerprint(key: bytes) -> str:
    """The public name of a key, 16 hex digits: it says nothing about the key that its sums on the wire do not."""
    return sha256(b"bccn key\0" + key).hexdigest()[:16]


class Algorithm:
    """One way to check a body. ``name`` is what stands before the ``=`` on the wire; ``repeatable`` says that whoever
    can check a sum can make it. ``verified`` counts what was accepted by it, ``fingerprint`` names the key of the last
    one; it is empty where there is no key."""

    name = b""
    repeatable = True

    def __init__(self) -> None:
        self.verified = 0
        self.fingerprint = ""

    def count_use(self) -> None:
        """Count a datagram that was accepted."""
        self.verified += 1

    def list_keys(self, signs: bool) -> list[KeyUse]:
        """The keys; ``signs`` says whether what we send is signed here."""
        if not self.fingerprint:
            return []
        return [KeyUse(self.fingerprint, self.name.decode("ascii"), signs, (), self.verified)]

    def adopt_counts(self, verified: Mapping[str, int]) -> None:
        """Go on counting from these numbers, by fingerprint."""
        self.verified += verified.get(self.fingerprint, 0)

    def sum(self, body: bytes) -> bytes:
        """The sum of a body, in lowercase hex digits."""
        raise NotImplementedError

    def fits(self, total: bytes, body: bytes) -> bool | None:
        """Whether a sum from the wire is right for a body; None where there is no key to tell."""
        return compare_digest(total, self.sum(body))

    def verify_at(self, raw: bytes, start: int, end: int) -> bool:
        """Whether the sum in ``raw[start:end]`` is the one that we would have put there, for the body that begins
        behind the byte at ``end``; for those who are repeatable."""
        return compare_digest(raw[start:end], self.sum(raw[end + 1 :]))


class Hmac(Algorithm):
    """HMAC-SHA-256 under one key, cut to 8 bytes."""

    name = b"hmac"

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self.fingerprint = fingerprint(key)
        self._keyed = Hmac8(key)

    def sum(self, body: bytes) -> bytes:
        return self._keyed.sum(body)

    def verify_at(self, raw: bytes, start: int, end: int) -> bool:
        return self._keyed.verify_at(raw, start, end)


class Crc32(Algorithm):
    """The zlib/IEEE CRC: finds accidents, stops nobody."""

    name = b"crc32"

    def sum(self, body: bytes) -> bytes:
        return b"%08x" % crc32(body)


class IntegrityChecker:
    """Admits or refuses by check.

    ``verifiers`` are tried in order, the first also signs what we send; none of them means that no algorithm is
    configured. ``required`` refuses datagrams without a check. ``accept_unverifiable`` lets pass what carries a
    check that no verifier has a key for, for the days of a migration.
    """

    __slots__ = ("_accept_unverifiable", "_first", "_required", "_signed", "_signer", "_starts", "_verifiers")

    def __init__(
        self, verifiers: Sequence[Algorithm] = (), *, required: bool = False, accept_unverifiable: bool = False
    ) -> None:
        self._verifiers = tuple(verifiers)
        self._signer = self._verifiers[0] if self._verifiers else None
        #: whose sum is compared with the one that stands there, before anything is taken apart
        self._first = self._signer if self._signer is not None and self._signer.repeatable else None
        if self._first is not None:
            self._starts = starts(self._first.name)
        else:  # where a check is required or must be verified in another way, nothing is usual
            self._starts = () if required or verifiers else starts(b"")
        self._required = required
        self._accept_unverifiable = accept_unverifiable
        #: number and key of the last datagram of sources that the first key did not verify
        self._signed: dict[bytes, tuple[bytes, str]] = {}

    def verified_body(self, raw: bytes) -> bytes:
        """The body of a BCCN1 datagram whose envelope is in order and whose check is accepted.

        Raises BadDatagram: bad_envelope, length_mismatch, integrity_missing, integrity_unknown, integrity_failed,
        unsupported_version, in this order.
        """
        return raw[self.verify(raw) :]

    def verify(self, raw: bytes) -> int:
        """Where that body begins. Raises BadDatagram, as `verified_body`.

        One comparison settles the usual case: what precedes the body must be just what we would have put there.
        Everything else is examined by the letter.
        """
        end = scan.find(raw, _BRACKET, 0)
        size = len(raw) - end - 1
        if end >= 0 and size < len(self._starts):
            start = self._starts[size]
            if raw.startswith(start):
                if self._first is None:
                    if len(start) == end:
                        return end + 1
                elif self._first.verify_at(raw, len(start), end):
                    self._first.verified += 1
                    return end + 1
        body, verifier = self._examine(raw)
        if verifier is not None:
            verifier.count_use()
        if self._verifiers:
            self._remember(body, "" if verifier is None else verifier.fingerprint)
        return len(raw) - len(body)

    def inspect(self, raw: bytes) -> None:
        """Raises BadDatagram, as `verified_body`, and counts nothing."""
        self._examine(raw)

    def _examine(self, raw: bytes) -> tuple[bytes, Algorithm | None]:
        """The body, and what has verified it: by the letter, for any version, key and algorithm."""
        magic, check, body = split_envelope(raw)
        verifier = None
        if check:
            verifier = self._verify(check, body)
        elif self._required:
            raise BadDatagram("integrity_missing", "no check, and one is required")
        if magic != MAGIC:
            raise BadDatagram("unsupported_version", f"magic {magic!r}")
        return body, verifier

    def _remember(self, body: bytes, key: str) -> None:
        """Note which key a source signs with."""
        src, _, rest = body[: MAX_SRC + 22].partition(b":")
        self._signed.pop(src, None)
        self._signed[src] = rest.partition(b":")[0], key
        if len(self._signed) > _MAX_SIGNERS:
            del self._signed[next(iter(self._signed))]

    def key_of(self, src: bytes, last: int) -> str:
        """The fingerprint of the key that verified the latest datagrams of a source, of which ``last`` is the last
        number; empty if it is not known, or if they were not signed."""
        seq, key = self._signed.get(src, (b"", ""))
        if seq.isdigit() and int(seq[:20]) >= last - _LATE:
            return key
        return "" if self._first is None else self._first.fingerprint

    def list_keys(self) -> list[KeyUse]:
        return [key for one in self._verifiers for key in one.list_keys(one is self._signer)]

    def adopt_counts(self, before: IntegrityChecker) -> None:
        """Go on counting where the door before this one ended."""
        verified = {key.fingerprint: key.verified for key in before.list_keys()}
        for one in self._verifiers:
            one.adopt_counts(verified)

    def _verify(self, check: bytes, body: bytes) -> Algorithm | None:
        algo, total = split_check(check)
        known = False
        for verifier in self._verifiers:
            if verifier.name == algo:
                fits = verifier.fits(total, body)
                if fits:
                    return verifier
                known = known or fits is not None
        if known:
            raise BadDatagram("integrity_failed", "the check does not fit the body")
        if not self._accept_unverifiable:
            raise BadDatagram("integrity_unknown", f"no key for this {algo.decode('ascii')}")
        return None

    def sign(self, body: bytes) -> bytes:
        """The check for a body of ours, empty when no algorithm is configured.

        Raises BadMessage: no_signing_key, where only the signatures of others can be verified.
        """
        return b"%b=%b" % (self._signer.name, self._signer.sum(body)) if self._signer is not None else b""


def make_hmac(key: bytes) -> Hmac:
    """Raises ValueError for a key that would not protect what it seems to. How long it is, is for others to judge."""
    if not key:
        raise ValueError("an empty key protects nothing")
    if key.startswith(b"-----BEGIN "):
        # Perhaps a public one, and then a secret that everybody knows.
        raise ValueError("a key for signatures; hmac takes any other bytes")
    return Hmac(key)


def usual_algorithm(keys: Collection[object], signers: Collection[object]) -> str:
    """What is meant where keys are named and no algorithm is."""
    if signers:
        return "sig"
    return "hmac" if keys else "none"


def make_checker(
    algorithm: str,
    keys: Sequence[bytes] = (),
    signers: Mapping[bytes, Sequence[bytes]] | None = None,
    *,
    required: bool = True,
    accept_unverifiable: bool = False,
) -> IntegrityChecker:
    """The door for an algorithm: ``none``, ``crc32``, ``hmac`` (``keys``: the first signs, all verify) or ``sig``
    (``keys``: at most one private key; ``signers``: public keys by the prefix of the sources that they speak for; all
    of them as PEM).

    Raises ValueError for another algorithm, and for keys that do not go with it.
    """
    if algorithm not in ("none", "crc32", "hmac", "sig"):
        raise ValueError(f"there is no algorithm {algorithm!r}; choose none, crc32, hmac or sig")
    if keys and algorithm in ("none", "crc32"):
        raise ValueError(f"algorithm {algorithm} takes no keys")
    if signers and algorithm != "sig":
        raise ValueError(f"algorithm {algorithm} takes no signers")
    if algorithm == "hmac" and not keys:
        raise ValueError("hmac needs a key")
    if algorithm == "sig" and len(keys) > 1:
        raise ValueError("sig signs with one key; public keys are for signers")
    verifiers: Sequence[Algorithm]
    if algorithm == "none":
        return IntegrityChecker(accept_unverifiable=accept_unverifiable)
    if algorithm == "crc32":
        verifiers = [Crc32()]
    elif algorithm == "hmac":
        verifiers = [make_hmac(key) for key in keys]
    else:
        from bccnd.core.signatures import Signatures  # a library that most have no use for

        verifiers = [Signatures(signers or {}, keys[0] if keys else None)]
    return IntegrityChecker(verifiers, required=required, accept_unverifiable=accept_unverifiable)
