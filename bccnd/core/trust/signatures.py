"""Ed25519 signatures: `sig=<128 lowercase hex digits>` over the body.

Invariant: a public key is valid only for sources below its prefix; of several prefixes only the longest counts, so that
the key of a host is not valid for a program with its own key. Source: BCCN, "HMAC" (other algorithms) and "Src
composition".
"""

from __future__ import annotations

from binascii import hexlify, unhexlify
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from bccnd.core.trust.integrity_algorithms import Algorithm, CheckResult, KeyUse, Outcome, fingerprint
from bccnd.core.wire.bccn1 import MAX_SRC
from bccnd.core.wire.directed_targets import prefixes
from bccnd.errors import BadMessage

_DIGITS: Final = 128
_HEX: Final = b"0123456789abcdef"


class Signatures(Algorithm):
    """Verifies with the public keys of the longest matching src prefix; signs with the private key, if there is one.

    A prefix matches whole tokens: ``relay01`` matches ``relay01`` and ``relay01/cardsys/7``, not ``relay012``. The
    empty prefix matches all.
    """

    name = b"sig"
    symmetric = False

    def __init__(self, signers: Mapping[bytes, Sequence[bytes]], private: bytes | None = None) -> None:
        """The keys are PEM. Raises ValueError for anything but Ed25519, and for a private key with a passphrase."""
        super().__init__()
        self._keys = {
            prefix: tuple((public_key(pem), fingerprint_of(pem)) for pem in pems) for prefix, pems in signers.items()
        }
        self._private = private_key(private) if private is not None else None
        self._own = "" if private is None else fingerprint_of(public_of(private))
        self._verified = dict.fromkeys((name for keys in self._keys.values() for _, name in keys), 0)

    def sum(self, body: bytes) -> bytes:
        """Return the signature of a body. Raises BadMessage: no_signing_key."""
        if self._private is None:
            raise BadMessage("no_signing_key", "there is no private key to sign with")
        return hexlify(self._private.sign(body))

    def check(self, total: bytes, body: bytes) -> CheckResult:
        src = body[: MAX_SRC + 1].partition(b":")[0]
        for prefix in reversed([b"", *prefixes(src)]):
            keys = self._keys.get(prefix)
            if keys is not None:
                for key, name in keys:
                    if _verify(key, total, body):
                        return CheckResult(Outcome.VERIFIED, name)
                return CheckResult(Outcome.FAILED)
        return CheckResult(Outcome.NO_KEY)

    def count_use(self, key: str) -> None:
        self._verified[key] += 1

    def list_keys(self, signs: bool) -> list[KeyUse]:
        signers: dict[str, list[str]] = {} if not self._own else {self._own: []}
        for prefix, keys in self._keys.items():
            for _, name in keys:
                signers.setdefault(name, []).append(prefix.decode("ascii"))
        return [
            KeyUse(name, "sig", signs and name == self._own, tuple(prefixes), self._verified.get(name, 0))
            for name, prefixes in signers.items()
        ]

    def adopt_counts(self, verified: Mapping[str, int]) -> None:
        for name in self._verified:
            self._verified[name] += verified.get(name, 0)


def _verify(key: Ed25519PublicKey, total: bytes, body: bytes) -> bool:
    # A signature has one spelling, so that it cannot be turned into a second datagram.
    if len(total) != _DIGITS or total.translate(None, _HEX):
        return False
    try:
        key.verify(unhexlify(total), body)
    except InvalidSignature:
        return False
    return True


def private_key(pem: bytes) -> Ed25519PrivateKey:
    """Load a key. Raises ValueError with the reason."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("not a private key in PEM without a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the private key is not Ed25519")
    return key


def public_key(pem: bytes) -> Ed25519PublicKey:
    """Load a key. Raises ValueError with the reason."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("not a public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("the public key is not Ed25519")
    return key


def fingerprint_of(pem: bytes) -> str:
    """Return the fingerprint of a public key. Raises ValueError."""
    return fingerprint(public_key(pem).public_bytes(Encoding.Raw, PublicFormat.Raw))


def public_of(pem: bytes) -> bytes:
    """Return the public key, in PEM, of a private one. Raises ValueError."""
    return private_key(pem).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def generate() -> bytes:
    """Return a new private key, in PEM."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
