"""Signatures: the vectors of the standard, whose key speaks for whom, and what is no signature and no key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1, signatures
from bccnd.core.signatures import Signatures, generate, private_key, public_key, public_of
from tests.core import material
from tests.core.material import examples, reason_of

#: the order of the group (RFC 8032, section 5.1): a second S for every signature, which must not be taken
ORDER = 2**252 + 27742317777372353535851937790883648493


@cache
def pair(name: str) -> tuple[bytes, bytes]:
    """A private key and its public one, as PEM; the same for the same name."""
    private = generate()
    return private, public_of(private)


def private(name: str) -> bytes:
    return pair(name)[0]


def public(name: str) -> bytes:
    return pair(name)[1]


def signed(name: str, body: bytes) -> bytes:
    return Signatures({}, private(name)).sum(body)


def keyring(signers: Mapping[str, str | Sequence[str]]) -> Signatures:
    """Prefixes, and the names of the keys that speak for them."""
    return Signatures(
        {
            prefix.encode(): [public(name) for name in ([names] if isinstance(names, str) else names)]
            for prefix, names in signers.items()
        }
    )


def body_of(src: str) -> bytes:
    return bccn1.build_body(src.encode(), 7, b"c", b"payload")


# -- the standard

#: RFC 8032, section 7.1: secret key, public key, message, signature
VECTORS = {
    "TEST 1": (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595b"
            "be24655141438e7a100b"
        ),
    ),
    "TEST 2": (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb430"
            "2aeeb00d291612bb0c00"
        ),
    ),
    "TEST 3": (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716e"
            "d28dc027beceea1ec40a"
        ),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_signature_is_that_of_the_standard(name: str) -> None:
    secret, known, message, signature = (bytes.fromhex(text) for text in VECTORS[name])
    pem = Ed25519PrivateKey.from_private_bytes(secret).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    known_pem = Ed25519PublicKey.from_public_bytes(known).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert public_of(pem) == known_pem
    both = Signatures({b"": [known_pem]}, pem)
    assert both.sum(message) == signature.hex().encode("ascii")
    assert both.fits(signature.hex().encode("ascii"), message) is True


def test_a_signature_on_the_wire_is_its_64_bytes_in_lowercase_hex() -> None:
    body = body_of("a")
    total = signed("a", body)
    assert len(total) == 128
    assert bytes.fromhex(total.decode("ascii")).hex().encode("ascii") == total
    public_key(public("a")).verify(bytes.fromhex(total.decode("ascii")), body)


@given(material.bodies())
@examples(100)
def test_whoever_has_the_key_can_sign_any_body_and_everyone_can_verify_it(body: bytes) -> None:
    everyone = keyring({"": "a"})
    assert everyone.fits(signed("a", body), body) is True
    assert everyone.fits(signed("b", body), body) is False


def test_who_has_no_private_key_cannot_sign_and_says_so() -> None:
    assert reason_of(keyring({"": "a"}).sum, b"a:1:c|x") == "no_signing_key"


def test_who_signs_need_not_know_his_own_public_key() -> None:
    body = body_of("a")
    only_signs = Signatures({}, private("a"))
    assert only_signs.fits(only_signs.sum(body), body) is None


def test_signatures_cannot_be_computed_by_those_who_verify_them() -> None:
    assert Signatures.name == b"sig"
    assert not Signatures.repeatable


# -- who speaks for whom. A row is a keyring, who has signed, the src under which he speaks, and what is found.

HOST = {"relay01": "host"}
BOTH = {"relay01": "host", "relay01/cardsys": "program"}
ALL = {"": "fleet", "relay01": "host", "relay01/cardsys": "program", "relay01/cardsys/7": "process"}
SPEAKS: list[tuple[Mapping[str, str | Sequence[str]], str, str, bool | None]] = [
    ({"relay01": "host"}, "host", "relay01", True),
    ({"relay01": "host"}, "host", "relay01/cardsys", True),
    ({"relay01": "host"}, "host", "relay01/cardsys/7", True),
    ({"relay01": "host"}, "host", "relay01/cardsys/7/worker-3", True),
    ({"relay01": "host"}, "other", "relay01/cardsys/7", False),
    # By whole tokens.
    ({"relay01": "host"}, "host", "relay012", None),
    ({"relay01": "host"}, "host", "relay012/cardsys/7", None),
    ({"relay01": "host"}, "host", "relay0", None),
    ({"relay01": "host"}, "host", "relay01.lan/cardsys/7", None),
    ({"relay01": "host"}, "host", "xrelay01/cardsys/7", None),
    ({"relay01": "host"}, "host", "relay02/relay01/7", None),
    ({"relay01": "host"}, "host", "/relay01", None),
    ({"relay01/cardsys": "program"}, "program", "relay01", None),
    ({"relay01/cardsys": "program"}, "program", "relay01/cardsys-relay/7", None),
    ({"relay01": "host"}, "host", "Relay01/cardsys/7", None),
    # The longest decides alone.
    (BOTH, "program", "relay01/cardsys/7", True),
    (BOTH, "program", "relay01/cardsys", True),
    (BOTH, "host", "relay01/cardsys/7", False),
    (BOTH, "host", "relay01/cardsys", False),
    (BOTH, "host", "relay01/monitor/7", True),
    (BOTH, "program", "relay01/monitor/7", False),
    (BOTH, "program", "relay01", False),
    (BOTH, "host", "relay01/cardsys2/7", True),
    (ALL, "process", "relay01/cardsys/7", True),
    (ALL, "process", "relay01/cardsys/7/8", True),
    (ALL, "program", "relay01/cardsys/7", False),
    (ALL, "program", "relay01/cardsys/77", True),
    (ALL, "process", "relay01/cardsys/77", False),
    # The empty prefix speaks for whoever has no key of his own, and for nobody else.
    (ALL, "fleet", "relay02/cardsys/7", True),
    (ALL, "fleet", "relay012", True),
    (ALL, "fleet", "?", True),
    (ALL, "fleet", "relay01", False),
    (ALL, "fleet", "relay01/monitor/7", False),
    (ALL, "fleet", "relay01/cardsys/7", False),
    (ALL, "host", "relay02/cardsys/7", False),
    ({"": "fleet"}, "fleet", "relay01/cardsys/7", True),
    # The unknown sender may have a key, like any other.
    ({"?": "lost"}, "lost", "?", True),
    (HOST, "host", "?", None),
    # For a rotation there are two; one that was retired, or is of somebody else, is none.
    ({"relay01": ["old", "new"]}, "old", "relay01/cardsys/7", True),
    ({"relay01": ["old", "new"]}, "new", "relay01/cardsys/7", True),
    ({"relay01": ["old", "new"]}, "retired", "relay01/cardsys/7", False),
    ({"relay01": "new"}, "old", "relay01/cardsys/7", False),
    ({"relay01": ["old", "new"], "relay02": "other"}, "other", "relay01/cardsys/7", False),
    ({"relay01": "same", "relay02": "same"}, "same", "relay02/cardsys/7", True),
    # A prefix whose last key was taken away still decides.
    ({"": "fleet", "relay01": []}, "fleet", "relay01/cardsys/7", False),
    ({}, "host", "relay01", None),
]


@pytest.mark.parametrize(("signers", "signer", "src", "fits"), SPEAKS)
def test_a_key_speaks_for_the_sources_below_its_prefix(
    signers: Mapping[str, str | Sequence[str]], signer: str, src: str, fits: bool | None
) -> None:
    body = body_of(src)
    assert keyring(signers).fits(signed(signer, body), body) is fits


def longest(prefixes: set[str], src: str) -> str | None:
    """The prefix that decides, the slow way."""
    fitting = [prefix for prefix in prefixes if prefix in ("", src) or src.startswith(prefix + "/")]
    return max(fitting, key=len, default=None)


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "1"]), min_size=1, max_size=4).map("/".join)


@given(st.sets(st.one_of(NAMES, st.just("")), max_size=5), NAMES, st.data())
@examples(150)
def test_the_longest_prefix_decides_for_every_source(prefixes: set[str], src: str, data: st.DataObject) -> None:
    keys = {prefix: f"key of {prefix}" for prefix in prefixes}
    decides = longest(prefixes, src)
    signer = data.draw(st.sampled_from(sorted(prefixes))) if prefixes else "nobody"
    body = body_of(src)
    expected = None if decides is None else signer == decides
    assert keyring(keys).fits(signed(keys.get(signer, signer), body), body) is expected


def test_the_src_of_somebody_else_cannot_be_put_before_a_signature() -> None:
    everyone = keyring({"relay01": "one", "relay02": "two"})
    mine = signed("one", body_of("relay01/cardsys/7"))
    assert everyone.fits(mine, body_of("relay01/cardsys/7")) is True
    assert everyone.fits(mine, body_of("relay02/cardsys/7")) is False
    assert everyone.fits(signed("one", body_of("relay02/cardsys/7")), body_of("relay02/cardsys/7")) is False


# -- tampering

TAMPERED = body_of("relay01/cardsys/7")


@given(st.integers(0, len(TAMPERED) - 1), st.integers(1, 255))
@examples(300)
def test_no_byte_of_a_body_can_be_changed(at: int, change: int) -> None:
    spoiled = TAMPERED[:at] + bytes([TAMPERED[at] ^ change]) + TAMPERED[at + 1 :]
    total = signed("fleet", TAMPERED)
    assert keyring({"": "fleet"}).fits(total, spoiled) is False
    # Where the first bytes decide whose key it is, there may be none.
    assert not keyring({"relay01": "fleet"}).fits(total, spoiled)


@given(st.integers(0, 127), st.integers(1, 255))
@examples(300)
def test_no_byte_of_a_signature_can_be_changed(at: int, change: int) -> None:
    total = signed("fleet", TAMPERED)
    spoiled = total[:at] + bytes([total[at] ^ change]) + total[at + 1 :]
    assert keyring({"": "fleet"}).fits(spoiled, TAMPERED) is False


@given(st.one_of(st.binary(max_size=130), st.text("0123456789abcdef", min_size=126, max_size=130).map(str.encode)))
@examples(300)
def test_whatever_is_no_signature_is_none(total: bytes) -> None:
    assert keyring({"": "fleet"}).fits(total, TAMPERED) is False


def other_s(total: bytes) -> bytes:
    """The same signature with its second half beyond the order of the group: valid to a careless verifier."""
    raw = bytes.fromhex(total.decode("ascii"))
    s = int.from_bytes(raw[32:], "little") + ORDER
    return (raw[:32] + s.to_bytes(32, "little")).hex().encode("ascii")


GOOD = signed("fleet", TAMPERED)
SPELLINGS: dict[str, bytes] = {
    "nothing": b"",
    "in capitals": GOOD.upper(),
    "half in capitals": GOOD[:64] + GOOD[64:].upper(),
    "one digit less": GOOD[:-1],
    "one byte less": GOOD[:-2],
    "one digit more": GOOD + b"0",
    "one byte more": GOOD + b"00",
    "twice": GOOD * 2,
    "the first half": GOOD[:64],
    "a blank before it": b" " + GOOD[:-1],
    "a blank behind it": GOOD[:-1] + b" ",
    "a line end behind it": GOOD + b"\n",
    "an underscore in it": GOOD[:64] + b"_" + GOOD[65:],
    "a letter beyond hex": GOOD[:127] + b"g",
    "a sign before it": b"+" + GOOD[1:],
    "as raw bytes": bytes.fromhex(GOOD.decode("ascii")) * 2,
    "zeros": b"0" * 128,
    "with another S": other_s(GOOD),
    "backwards": GOOD[::-1],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_signature_has_one_spelling(spelling: str) -> None:
    everyone = keyring({"": "fleet"})
    assert everyone.fits(GOOD, TAMPERED) is True
    assert everyone.fits(SPELLINGS[spelling], TAMPERED) is False


# -- bodies that are none


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        (b"", None),
        (b":", None),
        (b":1:c|x", None),
        (b"no colon at all", None),
        (b"relay01", True),  # whose it is may be read from what is no body: it is refused behind the door
        (b"relay01/", True),
        (b"relay01:", True),
        (b"relay01|x", None),
        (b"relay01/x|y", True),
        (b"/", None),
        (b"//", None),
        (b"\x00\xff", None),
        (b"relay01/\x00\xff:1:c|x", True),
    ],
)
def test_a_body_that_is_none_is_looked_at_without_harm(body: bytes, fits: bool | None) -> None:
    assert keyring({"relay01": "host"}).fits(signed("host", body), body) is fits
    assert keyring({"": "host"}).fits(signed("host", body), body) is True


@given(st.binary(max_size=300), st.binary(max_size=130))
@examples(300)
def test_no_body_and_no_sum_raises(body: bytes, total: bytes) -> None:
    assert keyring({"a": "one", "a/b": "two"}).fits(total, body) in (None, False)
    assert keyring({"": "one"}).fits(total, body) is False


@pytest.mark.parametrize("size", [127, 128, 129, 130, 1000, 60_000])
def test_a_src_is_read_no_further_than_the_longest_there_can_be(size: int) -> None:
    src = (b"relay01/" + b"x" * size)[:size]
    body = src + b":1:c|x"
    everyone = Signatures({b"relay01": [public("host")], src: [public("long")]})
    # One byte beyond 128 is read, so that a longer name never passes for its own beginning.
    assert everyone.fits(signed("long", body), body) is (size <= 129)
    assert everyone.fits(signed("host", body), body) is (size > 129)


@pytest.mark.parametrize(
    ("tail", "fits"),
    [
        (b"", True),
        (b"s", None),
        (b"ssssssssss", None),
        # Below the name, and no src any more: it gets as far as the body, which is refused.
        (b"/", True),
        (b"/t", True),
        (b"/t/u", True),
    ],
)
def test_a_name_that_is_too_long_does_not_pass_for_its_beginning(tail: bytes, fits: bool | None) -> None:
    longest_src = b"s" * bccn1.MAX_SRC
    body = longest_src + tail + b":1:c|x"
    assert Signatures({longest_src: [public("long")]}).fits(signed("long", body), body) is fits
    assert (reason_of(bccn1.read_body, body) == "bad_src") is bool(tail)


def test_many_separators_cost_no_more_than_the_longest_src_has() -> None:
    body = b"/" * 60_000
    assert keyring({"a": "one"}).fits(signed("one", body), body) is None


# -- keys


OtherKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed448.Ed448PrivateKey | x25519.X25519PrivateKey


def pem(key: OtherKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: OtherKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


OTHER_KINDS: dict[str, OtherKey] = {
    "rsa": rsa.generate_private_key(65_537, 2048),
    "p256": ec.generate_private_key(ec.SECP256R1()),
    "ed448": ed448.Ed448PrivateKey.generate(),
    "x25519": x25519.X25519PrivateKey.generate(),
}
WITH_PASSPHRASE = Ed25519PrivateKey.generate().private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)
RAW = Ed25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
DER = Ed25519PrivateKey.generate().private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
NO_PEM: dict[str, bytes] = {
    "nothing": b"",
    "a key for hmac": b"0123456789abcdef0123456789abcdef",
    "raw": RAW,
    "der": DER,
    "a header and no more": b"-----BEGIN PRIVATE KEY-----\n",
    "cut": private("a")[:60],
    "without its end": private("a").replace(b"-----END PRIVATE KEY-----\n", b""),
    "an empty one": b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
    "no base64": b"-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n",
    "base64 of nonsense": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    "an empty public one": b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
    "a certificate": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "zeros": b"\0" * 200,
    "no text": b"\xff\xfe" * 50,
}


def refusal(load: Callable[[bytes], object], key: bytes) -> str:
    """Why a key is none, in words that name neither the library nor Python."""
    with pytest.raises(ValueError) as caught:
        load(key)
    told = str(caught.value)
    assert told
    assert not any(word in told.lower() for word in ("openssl", "asn", "cryptography", "error", "bytes", "password"))
    return told


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_key_of_another_kind_is_refused(kind: str) -> None:
    assert refusal(private_key, pem(OTHER_KINDS[kind])) == "a private key that is not Ed25519"
    assert refusal(public_key, public_pem(OTHER_KINDS[kind])) == "a public key that is not Ed25519"
    refusal(public_of, pem(OTHER_KINDS[kind]))


@pytest.mark.parametrize("name", NO_PEM)
def test_what_is_no_key_is_refused(name: str) -> None:
    assert refusal(private_key, NO_PEM[name]) == "no private key (PEM, without a passphrase)"
    assert refusal(public_key, NO_PEM[name]) == "no public key (PEM)"


def test_a_private_key_with_a_passphrase_is_refused_because_nobody_could_be_asked() -> None:
    assert "without a passphrase" in refusal(private_key, WITH_PASSPHRASE)


def test_one_half_of_a_pair_is_not_the_other() -> None:
    assert refusal(private_key, public("a")) == "no private key (PEM, without a passphrase)"
    assert refusal(public_key, private("a")) == "no public key (PEM)"


@given(
    st.one_of(st.binary(max_size=200), material.mutated(st.just(private("a"))), material.mutated(st.just(public("a"))))
)
@examples(200)
def test_any_bytes_are_a_key_or_a_value_error(text: bytes) -> None:
    for load in (private_key, public_key):
        with contextlib.suppress(ValueError):
            load(text)


def test_a_keyring_with_one_bad_key_is_none() -> None:
    for bad in (b"", private("a"), public_pem(OTHER_KINDS["rsa"])):
        with pytest.raises(ValueError):
            Signatures({b"a": [public("a")], b"b": [public("b"), bad]})
    for bad in (b"", public("a"), pem(OTHER_KINDS["ed448"]), WITH_PASSPHRASE):
        with pytest.raises(ValueError):
            Signatures({}, bad)


def test_a_pem_may_have_text_around_it_and_either_line_end() -> None:
    for text in (
        private("a").rstrip(b"\n"),
        private("a").replace(b"\n", b"\r\n"),
        b"# relay01\n" + private("a") + b"\n",
    ):
        assert public_of(text) == public("a")
    public_key(public("a").rstrip(b"\n"))


def test_no_two_generated_keys_are_the_same() -> None:
    assert len({signatures.generate() for _ in range(20)}) == 20
