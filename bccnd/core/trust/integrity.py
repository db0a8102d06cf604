"""Verifies received datagrams and signs sent ones.

Invariant: nothing of a body is used before its sum was accepted, except the src that selects a public key; sums are
compared in constant time. Source: BCCN, "Integrity computation" and "HMAC".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from bccnd.core.trust.integrity_algorithms import Algorithm, Crc32, Hmac, KeyUse, Outcome, Unsigned
from bccnd.core.wire.bccn1 import MAGIC, MAX_SRC, split_check, split_envelope, sum_prefixes
from bccnd.errors import BadDatagram

#: shortest key in bytes: twice the strength of the truncated sum
MIN_KEY: Final = 16
_BRACKET: Final = ord("]")
#: sources remembered whose key is not the first one
_MAX_SIGNERS: Final = 10_000
#: seqs by which a source's remembered key may be behind its last seq: late copies
_LATE: Final = 8


class IntegrityChecker:
    """Verifies and signs with the configured algorithms.

    ``verifiers`` are tried in order; the first one signs; none means that no algorithm is configured. ``required``
    refuses datagrams without a sum. ``accept_unverifiable`` accepts sums that no verifier has a key for, during a
    migration.
    """

    __slots__ = (
        *("_accept_unverifiable", "_other_keys", "_prefixes", "_required", "_sum_size", "_usual", "_verifiers"),
        "signer",
    )

    def __init__(
        self, verifiers: Sequence[Algorithm] = (), *, required: bool = False, accept_unverifiable: bool = False
    ) -> None:
        self._verifiers = tuple(verifiers)
        #: signs the datagrams of this host, if there are verifiers
        self.signer = self._verifiers[0] if self._verifiers else None
        #: verifies the usual datagram without parsing it, if this begins with the prefix for its length; without
        #: prefixes every datagram is parsed
        self._usual: Algorithm = Unsigned()
        self._prefixes: tuple[bytes | None, ...] = ()
        self._sum_size = 0
        if self.signer is not None and self.signer.symmetric:
            self._usual = self.signer
            self._sum_size = len(self._usual.sum(b""))
        if self._usual is self.signer or (self.signer is None and not required):
            self._prefixes = sum_prefixes(self._usual.name, self._sum_size)
        self._required = required
        self._accept_unverifiable = accept_unverifiable
        #: seq and key of the last datagram of sources that the first key did not verify
        self._other_keys: dict[bytes, tuple[bytes, str]] = {}

    def verified_body(self, raw: bytes) -> bytes:
        """Return the body of a BCCN1 datagram with a valid envelope and sum.

        Raises BadDatagram: bad_envelope, length_mismatch, integrity_missing, integrity_unknown, integrity_failed,
        unsupported_version, in this order.
        """
        return raw[self.verify(raw, True) :]

    def verify(self, raw: bytes, counted: bool) -> int:
        """Return where the body begins; if it is ``counted``, remember the use of the key. Raises BadDatagram, as
        `verified_body`.

        In the usual case the envelope is exactly what this host would build for a datagram of this length, which one
        comparison finds out. Anything else is parsed.
        """
        size = len(raw)
        if size < len(self._prefixes):
            prefix = self._prefixes[size]
            if prefix is not None and raw.startswith(prefix):
                start = len(prefix)
                end = start + self._sum_size
                if raw[end] == _BRACKET and self._usual.verify_at(raw, start, end):
                    self._usual.verified += counted
                    return end + 1
        body, verifier, key = self._parse(raw)
        if counted:
            if verifier is not None:
                verifier.count_use(key)
            self._remember_key(body, key)
        return len(raw) - len(body)

    def count_own(self, count: int = 1) -> None:
        """Count datagrams of this host, which were recognized without their sums, as verified by the key that signs."""
        self._usual.verified += count

    def _parse(self, raw: bytes) -> tuple[bytes, Algorithm | None, str]:
        """Return the body and the algorithm and key that verified it, for any version, key and algorithm."""
        magic, check, body = split_envelope(raw)
        verifier, key = None, ""
        if check:
            verifier, key = self._verify(check, body)
        elif self._required:
            raise BadDatagram("integrity_missing", "no sum, and one is required")
        if magic != MAGIC:
            raise BadDatagram("unsupported_version", f"magic {magic!r}")
        return body, verifier, key

    def _remember_key(self, body: bytes, key: str) -> None:
        src, _, rest = body[: MAX_SRC + 22].partition(b":")
        self._other_keys.pop(src, None)
        self._other_keys[src] = rest.partition(b":")[0], key
        if len(self._other_keys) > _MAX_SIGNERS:
            del self._other_keys[next(iter(self._other_keys))]

    def key_of(self, src: bytes, last: int) -> str:
        """Return the fingerprint of the key that verified the latest datagrams of a source, up to the seq ``last``;
        empty if unknown or unsigned."""
        seq, key = self._other_keys.get(src, (b"", ""))
        if seq.isdigit() and int(seq[:20]) >= last - _LATE:
            return key
        return self._usual.fingerprint

    @property
    def algorithm(self) -> str:
        """The name of the algorithm that signs; ``none`` without one."""
        return "none" if self.signer is None else self.signer.name.decode("ascii")

    def list_keys(self) -> list[KeyUse]:
        return [key for one in self._verifiers for key in one.list_keys(one is self.signer)]

    def adopt_counts(self, before: IntegrityChecker) -> None:
        """Continue the counts of the checker before a reload."""
        verified = {key.fingerprint: key.verified for key in before.list_keys()}
        for one in self._verifiers:
            one.adopt_counts(verified)

    def _verify(self, check: bytes, body: bytes) -> tuple[Algorithm | None, str]:
        """Return the algorithm and key that verified a body; None if it is accepted without."""
        algo, total = split_check(check)
        failed = False
        for verifier in self._verifiers:
            if verifier.name == algo:
                outcome, key = verifier.check(total, body)
                if outcome is Outcome.VERIFIED:
                    return verifier, key
                failed = failed or outcome is Outcome.FAILED
        if failed:
            raise BadDatagram("integrity_failed", "the sum does not match the body")
        if not self._accept_unverifiable:
            raise BadDatagram("integrity_unknown", f"no key for this {algo.decode('ascii')} sum")
        return None, ""

    def sign(self, body: bytes) -> bytes:
        """Return ``<algo>=<sum>`` for a body, empty if no algorithm is configured.

        Raises BadMessage: no_signing_key, if there are only public keys.
        """
        return b"=".join((self.signer.name, self.signer.sum(body))) if self.signer is not None else b""


def _check_hmac_key(key: bytes) -> None:
    """Check a key, but for its length, which is checked with the configuration. Raises ValueError."""
    if not key:
        raise ValueError("the key is empty")
    if key.startswith(b"-----BEGIN "):
        # It may be public.
        raise ValueError("the key is a PEM key for signatures; hmac needs secret bytes")


def usual_algorithm(keys: Collection[object], signers: Collection[object]) -> str:
    """Return the algorithm for a configuration that names only keys."""
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
    hmac: Callable[[bytes], Algorithm] = Hmac,
) -> IntegrityChecker:
    """Make the checker for an algorithm: ``none``, ``crc32``, ``hmac`` (``keys``: the first signs, all verify) or
    ``sig`` (``keys``: at most one private key; ``signers``: public keys by src prefix; all in PEM). ``hmac`` makes the
    algorithm for one key.

    Raises ValueError for another algorithm, and for keys that do not go with it.
    """
    if algorithm not in ("none", "crc32", "hmac", "sig"):
        raise ValueError(f"unknown algorithm {algorithm!r}; choose none, crc32, hmac or sig")
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
        for key in keys:
            _check_hmac_key(key)
        verifiers = [hmac(key) for key in keys]
    else:
        from bccnd.core.trust.signatures import Signatures  # loads cryptography

        verifiers = [Signatures(signers or {}, keys[0] if keys else None)]
    return IntegrityChecker(verifiers, required=required, accept_unverifiable=accept_unverifiable)
