"""Signatures: a vector of the standard, which key is for which sources, and what is no signature and no key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.trust.integrity_algorithms import Outcome
from bccnd.core.trust.signatures import Signatures, generate, private_key, public_key, public_of
from bccnd.core.wire import bccn1
from tests.core import material
from tests.core.material import examples, reason_of

#: the order of the group (RFC 8032, section 5.1): a second S for every signature, which must not be taken
ORDER = 2**252 + 27742317777372353535851937790883648493


@cache
def private(name: str) -> bytes:
    """A private key as PEM; the same for the same name."""
    return generate()


def public(name: str) -> bytes:
    return public_of(private(name))


def signed(name: str, body: bytes) -> bytes:
    return Signatures({}, private(name)).sum(body)


#: a key for all sources
VERIFIED, FAILED, NO_KEY = Outcome
EVERYONE = Signatures({b"": [public("fleet")]})


def body_of(src: str) -> bytes:
    return bccn1.build_body(src.encode(), 7, b"c", b"payload")


def test_a_signature_is_that_of_the_standard_in_lowercase_hex() -> None:
    # RFC 8032, section 7.1, test 2.
    secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    known = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = (
        b"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        b"085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    pem = Ed25519PrivateKey.from_private_bytes(secret).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    known_pem = Ed25519PublicKey.from_public_bytes(known).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert public_of(pem) == known_pem
    both = Signatures({b"": [known_pem]}, pem)
    assert both.sum(b"\x72") == signature
    assert both.check(signature, b"\x72").outcome is VERIFIED


def test_signing_and_verifying_need_only_their_own_keys() -> None:
    assert reason_of(EVERYONE.sum, b"a:1:c|x") == "no_signing_key"
    only_signs = Signatures({}, private("a"))
    assert only_signs.check(only_signs.sum(TAMPERED), TAMPERED) == (NO_KEY, "")
    assert (Signatures.name, Signatures.symmetric) == (b"sig", False)


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "1", "?"]), min_size=1, max_size=4).map("/".join)
KEYS = st.lists(st.sampled_from(["one", "two"]), max_size=2)


@given(st.dictionaries(st.one_of(NAMES, st.just("")), KEYS, max_size=5), NAMES, st.sampled_from(["one", "two", "none"]))
@example({"": ["one"], "a": ["two"]}, "ab/1", "one")
@example({"": ["one"], "a": []}, "a/1", "one")
@example({"a": ["one"], "a/b": ["one", "two"]}, "a/b/1", "two")
@examples(300)
def test_the_keys_of_the_longest_prefix_decide(signers: dict[str, list[str]], src: str, signer: str) -> None:
    fitting = [prefix for prefix in signers if prefix in ("", src) or src.startswith(prefix + "/")]
    expected = (VERIFIED if signer in signers[max(fitting, key=len)] else FAILED) if fitting else NO_KEY
    ring = Signatures({prefix.encode(): [public(name) for name in names] for prefix, names in signers.items()})
    assert ring.check(signed(signer, body_of(src)), body_of(src)).outcome is expected


TAMPERED = body_of("relay01/cardsys/7")
GOOD = signed("fleet", TAMPERED)


def other_s(total: bytes) -> bytes:
    """The same signature with its second half beyond the order of the group: valid to a careless verifier."""
    raw = bytes.fromhex(total.decode("ascii"))
    s = int.from_bytes(raw[32:], "little") + ORDER
    return (raw[:32] + s.to_bytes(32, "little")).hex().encode("ascii")


def test_a_signature_has_one_spelling() -> None:
    assert EVERYONE.check(GOOD, TAMPERED).outcome is VERIFIED
    cases = (GOOD.upper(), GOOD[:64] + GOOD[64:].upper())
    sizes = (b"", GOOD[:-1], GOOD[:-2], GOOD + b"0", GOOD + b"00", GOOD + b"\n", bytes.fromhex(GOOD.decode()) * 2)
    others = (b" " + GOOD[:-1], GOOD[:-1] + b" ", GOOD[:64] + b"_" + GOOD[65:], GOOD[:127] + b"g", other_s(GOOD))
    for spelling in (*cases, *sizes, *others):
        assert EVERYONE.check(spelling, TAMPERED).outcome is FAILED, spelling


def test_a_src_is_read_no_further_than_the_longest_there_can_be() -> None:
    for size in (127, 128, 129, 130, 1000, 60_000):
        src = (b"relay01/" + b"x" * size)[:size]
        body = src + b":1:c|x"
        everyone = Signatures({b"relay01": [public("host")], src: [public("long")]})
        # One byte beyond 128 is read, so that a longer name never passes for its own beginning.
        assert everyone.check(signed("long", body), body).outcome is (VERIFIED if size <= 129 else FAILED)
        assert everyone.check(signed("host", body), body).outcome is (FAILED if size <= 129 else VERIFIED)


OTHER_KINDS: list[ec.EllipticCurvePrivateKey | ed448.Ed448PrivateKey] = [
    ec.generate_private_key(ec.SECP256R1()),
    ed448.Ed448PrivateKey.generate(),
]
OTHER_PRIVATE = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) for key in OTHER_KINDS]
OTHER_PUBLIC = [key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for key in OTHER_KINDS]
ANOTHER = Ed25519PrivateKey.generate()
NO_KEYS = [
    b"",
    b"0123456789abcdef0123456789abcdef",
    ANOTHER.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()),
    ANOTHER.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
    ANOTHER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")),
    private("a")[:60],
    private("a").replace(b"-----END PRIVATE KEY-----\n", b""),
    b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
    b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
    b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    b"\xff\xfe" * 50,
]


def test_other_keys_and_other_bytes_are_refused() -> None:
    loads: list[Callable[[bytes], object]] = [private_key, public_of, lambda text: Signatures({}, text)]
    for secret in (*NO_KEYS, *OTHER_PRIVATE, public("a")):
        for load in loads:
            with pytest.raises(ValueError):
                load(secret)
    loads = [public_key, lambda text: Signatures({b"a": [public("a")], b"b": [public("b"), text]})]
    for known in (*NO_KEYS, *OTHER_PUBLIC, private("a")):
        for load in loads:
            with pytest.raises(ValueError):
                load(known)
    for refuse, other in ((private_key, OTHER_PRIVATE[0]), (public_key, OTHER_PUBLIC[0])):
        with pytest.raises(ValueError, match="not Ed25519"):
            refuse(other)


@given(
    st.one_of(st.binary(max_size=200), material.mutated(st.just(private("a"))), material.mutated(st.just(public("a"))))
)
@examples(200)
def test_any_bytes_are_a_key_or_a_value_error(text: bytes) -> None:
    for load in (private_key, public_key):
        with contextlib.suppress(ValueError):
            load(text)


def test_a_pem_may_have_text_around_it_and_either_line_end() -> None:
    text = private("a")
    for other in (text.rstrip(b"\n"), text.replace(b"\n", b"\r\n"), b"# relay01\n" + text + b"\n"):
        assert public_of(other) == public("a")
    public_key(public("a").rstrip(b"\n"))
