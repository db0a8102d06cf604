"""Signatures: a vector of the standard, which key speaks for which sources, and what is no signature and no key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, x25519
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

from bccnd.core import bccn1
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
    assert both.fits(signature, b"\x72") is True


@given(material.bodies())
@examples(100)
def test_whoever_has_the_key_can_sign_any_body_and_everyone_can_verify_it(body: bytes) -> None:
    everyone = keyring({"": "a"})
    assert everyone.fits(signed("a", body), body) is True
    assert everyone.fits(signed("b", body), body) is False


def test_signing_and_verifying_need_only_their_own_keys() -> None:
    assert reason_of(keyring({"": "a"}).sum, b"a:1:c|x") == "no_signing_key"
    only_signs = Signatures({}, private("a"))
    assert only_signs.fits(only_signs.sum(TAMPERED), TAMPERED) is None
    assert (Signatures.name, Signatures.repeatable) == (b"sig", False)


# -- which key speaks for which sources: keyring, signer, src, and what is found

HOST = {"relay01": "host"}
ROTATION = {"relay01": ["old", "new"], "relay02": ["other"]}
ALL = {"": "fleet", "relay01": "host", "relay01/cardsys": "program", "relay01/cardsys/7": "process"}
SPEAKS: list[tuple[Mapping[str, str | Sequence[str]], str, str, bool | None]] = [
    (HOST, "host", "relay01", True),
    (HOST, "host", "relay01/cardsys/7/worker-3", True),
    (HOST, "other", "relay01/cardsys/7", False),
    # By whole tokens.
    *((HOST, "host", src, None) for src in ("relay012", "relay012/cardsys/7", "relay0", "relay01.lan/cardsys/7")),
    *((HOST, "host", src, None) for src in ("xrelay01/cardsys/7", "relay02/relay01/7", "/relay01", "Relay01/a/7", "?")),
    ({"relay01/cardsys": "program"}, "program", "relay01", None),
    ({"relay01/cardsys": "program"}, "program", "relay01/cardsys-relay/7", None),
    # The longest decides alone.
    (ALL, "process", "relay01/cardsys/7", True),
    (ALL, "process", "relay01/cardsys/7/8", True),
    (ALL, "program", "relay01/cardsys/7", False),
    (ALL, "program", "relay01/cardsys/77", True),
    (ALL, "process", "relay01/cardsys/77", False),
    (ALL, "host", "relay01/cardsys", False),
    (ALL, "host", "relay01/cardsys2/7", True),
    (ALL, "host", "relay02/cardsys/7", False),
    # The empty prefix is that of every source without a longer one.
    (ALL, "fleet", "relay02/cardsys/7", True),
    (ALL, "fleet", "relay012", True),
    (ALL, "fleet", "?", True),
    (ALL, "fleet", "relay01/monitor/7", False),
    ({"?": "lost"}, "lost", "?", True),
    # For a rotation there are two keys.
    *((ROTATION, name, "relay01/a/7", fits) for name, fits in (("old", True), ("new", True), ("retired", False))),
    (ROTATION, "other", "relay01/cardsys/7", False),
    ({"relay01": "same", "relay02": "same"}, "same", "relay02/cardsys/7", True),
    # A prefix without keys still decides.
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


# -- tampering

TAMPERED = body_of("relay01/cardsys/7")


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
    "a blank before it": b" " + GOOD[:-1],
    "a blank behind it": GOOD[:-1] + b" ",
    "a line end behind it": GOOD + b"\n",
    "an underscore in it": GOOD[:64] + b"_" + GOOD[65:],
    "a letter beyond hex": GOOD[:127] + b"g",
    "as raw bytes": bytes.fromhex(GOOD.decode("ascii")) * 2,
    "with another S": other_s(GOOD),
}


def test_a_signature_has_one_spelling() -> None:
    everyone = keyring({"": "fleet"})
    assert everyone.fits(GOOD, TAMPERED) is True
    for name, spelling in SPELLINGS.items():
        assert everyone.fits(spelling, TAMPERED) is False, name


# -- malformed bodies


def test_a_malformed_body_is_looked_at_without_harm() -> None:
    found: dict[bytes, bool | None] = {
        **dict.fromkeys(
            [b"", b":", b":1:c|x", b"no colon at all", b"relay01|x", b"/", b"//", b"/" * 60_000, b"\x00\xff"]
        ),
        # A src may be read from a malformed body, which is refused behind the check.
        **dict.fromkeys([b"relay01", b"relay01/", b"relay01:", b"relay01/x|y", b"relay01/\x00\xff:1:c|x"], True),
    }
    for body, fits in found.items():
        assert keyring({"relay01": "host"}).fits(signed("host", body), body) is fits, body[:20]
        assert keyring({"": "host"}).fits(signed("host", body), body) is True, body[:20]


@given(st.binary(max_size=300), st.binary(max_size=130))
@examples(300)
def test_no_body_and_no_sum_raises(body: bytes, total: bytes) -> None:
    assert keyring({"a": "one", "a/b": "two"}).fits(total, body) in (None, False)
    assert keyring({"": "one"}).fits(total, body) is False


def test_a_src_is_read_no_further_than_the_longest_there_can_be() -> None:
    for size in (127, 128, 129, 130, 1000, 60_000):
        src = (b"relay01/" + b"x" * size)[:size]
        body = src + b":1:c|x"
        everyone = Signatures({b"relay01": [public("host")], src: [public("long")]})
        # One byte beyond 128 is read, so that a longer name never passes for its own beginning.
        assert everyone.fits(signed("long", body), body) is (size <= 129)
        assert everyone.fits(signed("host", body), body) is (size > 129)


def test_a_name_that_is_too_long_does_not_pass_for_its_beginning() -> None:
    longest_src = b"s" * bccn1.MAX_SRC
    # What is below the name is no src any more: its body is refused behind the check.
    for tail, fits in ((b"", True), (b"s", None), (b"ssssssssss", None), (b"/", True), (b"/t", True), (b"/t/u", True)):
        body = longest_src + tail + b":1:c|x"
        assert Signatures({longest_src: [public("long")]}).fits(signed("long", body), body) is fits
        assert (reason_of(bccn1.read_body, body) == "bad_src") is bool(tail)


# -- keys


OtherKey = ec.EllipticCurvePrivateKey | ed448.Ed448PrivateKey | x25519.X25519PrivateKey
OTHER_KINDS: list[OtherKey] = [
    ec.generate_private_key(ec.SECP256R1()),
    ed448.Ed448PrivateKey.generate(),
    x25519.X25519PrivateKey.generate(),
]
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


def pem(key: OtherKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: OtherKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_other_keys_and_other_bytes_are_refused() -> None:
    loads: list[Callable[[bytes], object]] = [private_key, public_of, lambda text: Signatures({}, text)]
    for secret in (*NO_KEYS, *map(pem, OTHER_KINDS), public("a")):
        for load in loads:
            with pytest.raises(ValueError):
                load(secret)
    loads = [public_key, lambda text: Signatures({b"a": [public("a")], b"b": [public("b"), text]})]
    for known in (*NO_KEYS, *map(public_pem, OTHER_KINDS), private("a")):
        for load in loads:
            with pytest.raises(ValueError):
                load(known)


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


def test_no_two_generated_keys_are_the_same() -> None:
    assert len({generate() for _ in range(20)}) == 20
