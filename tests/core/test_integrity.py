"""The integrity check: sums against the standard library, every verdict, and the fast path against the rules."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1, integrity
from bccnd.core.integrity import Algorithm, Crc32, Door, Hmac, make_door
from bccnd.core.signatures import Signatures, generate, public_of
from bccnd.errors import BadDatagram
from tests.core import material
from tests.core.material import KEY, OTHER_KEY, examples, reason_of

THIRD_KEY = b"a key longer than one block of SHA-256, which is hashed before use: " * 2
BODY = b"a/b/1:7:c/d|payload"


def hmac_sum(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, hashlib.sha256).hexdigest()[:16].encode("ascii")


def crc_sum(body: bytes) -> bytes:
    return f"{zlib.crc32(body):08x}".encode("ascii")


def signed(key: bytes, body: bytes = BODY, magic: bytes = b"BCCN1") -> bytes:
    return b"%b[%d:hmac=%b]%b" % (magic, len(body), hmac_sum(key, body), body)


def checked(check: bytes, body: bytes = BODY, magic: bytes = b"BCCN1") -> bytes:
    return b"%b[%d%b]%b" % (magic, len(body), b":" + check if check else b"", body)


# -- sums


@given(st.binary(max_size=200), st.binary(max_size=300))
@examples(300)
def test_sums_are_those_of_the_standard_library(key: bytes, body: bytes) -> None:
    # tests/leaf/test_keyed.py tries the edges of HMAC.
    assert Hmac(key).sum(body) == hmac_sum(key, body)
    assert Crc32().sum(body) == crc_sum(body)


# -- the table


def door(*verifiers: Algorithm, required: bool = False, accept: bool = False) -> Door:
    return Door(verifiers, required=required, accept_unverifiable=accept)


OPEN = door()
KEYED = door(Hmac(KEY))
STRICT = door(Hmac(KEY), required=True)
ROTATING = door(Hmac(KEY), Hmac(OTHER_KEY), Hmac(THIRD_KEY), required=True)
CRC = door(Crc32(), required=True)
LENIENT = door(Hmac(KEY), required=True, accept=True)
LENIENT_OPEN = door(accept=True)
LONG = b"a:1:c|" + b"x" * 2000

TABLE: list[tuple[str, Door, bytes, str]] = [
    ("nothing configured, no check", OPEN, checked(b""), ""),
    ("nothing configured, a check", OPEN, signed(KEY), "integrity_unknown"),
    ("nothing configured, a check, accepted", LENIENT_OPEN, signed(KEY), ""),
    ("signed by the key", STRICT, signed(KEY), ""),
    ("signed by another key", STRICT, signed(OTHER_KEY), "integrity_failed"),
    ("signed by the second key", ROTATING, signed(OTHER_KEY), ""),
    ("signed by the third key", ROTATING, signed(THIRD_KEY), ""),
    ("signed by none of the keys", ROTATING, signed(b"x" * 16), "integrity_failed"),
    ("unsigned, required", STRICT, checked(b""), "integrity_missing"),
    ("unsigned, not required", KEYED, checked(b""), ""),
    ("required although nothing is configured", door(required=True), checked(b""), "integrity_missing"),
    ("another algorithm", STRICT, checked(b"crc32=" + crc_sum(BODY)), "integrity_unknown"),
    ("another algorithm, lenient", LENIENT, checked(b"crc32=" + crc_sum(BODY)), ""),
    ("algorithm in capitals", STRICT, signed(KEY).replace(b"hmac", b"HMAC"), "integrity_unknown"),
    ("sum in capitals", STRICT, checked(b"hmac=" + hmac_sum(KEY, BODY).upper()), "integrity_failed"),
    ("sum too short", STRICT, checked(b"hmac=" + hmac_sum(KEY, BODY)[:-1]), "integrity_failed"),
    ("sum too long", STRICT, checked(b"hmac=" + hmac_sum(KEY, BODY) + b"0"), "integrity_failed"),
    ("sum over the whole datagram", STRICT, checked(b"hmac=" + hmac_sum(KEY, checked(b""))), "integrity_failed"),
    ("crc32", CRC, checked(b"crc32=" + crc_sum(BODY)), ""),
    ("crc32 of something else", CRC, checked(b"crc32=" + crc_sum(BODY + b"x")), "integrity_failed"),
    ("hmac where crc32 is configured", CRC, signed(KEY), "integrity_unknown"),
    ("empty sum", STRICT, checked(b"hmac="), "bad_envelope"),
    ("empty algorithm", STRICT, checked(b"=" + hmac_sum(KEY, BODY)), "bad_envelope"),
    ("no closing bracket", OPEN, b"BCCN1[7a:1:c|x", "bad_envelope"),
    ("no closing bracket, but a length that would fit", OPEN, b"BCCN1[8|", "bad_envelope"),
    ("right sum, leading zero in the length", STRICT, signed(KEY).replace(b"[", b"[0"), "bad_envelope"),
    ("right sum, one byte more", STRICT, signed(KEY) + b"x", "length_mismatch"),
    ("wrong length comes before a missing check", STRICT, checked(b"") + b"x", "length_mismatch"),
    ("another version, signed", STRICT, signed(KEY, magic=b"BCCN2"), "unsupported_version"),
    ("another version, forged", STRICT, signed(OTHER_KEY, magic=b"BCCN2"), "integrity_failed"),
    ("another version, unknown algorithm, lenient", LENIENT, checked(b"sig=0", magic=b"BC"), "unsupported_version"),
    ("another version, nothing configured", OPEN, checked(b"", magic=b"BCCN2"), "unsupported_version"),
    ("longer than the table of starts, signed", STRICT, signed(KEY, LONG), ""),
    ("longer than the table of starts, forged", STRICT, signed(OTHER_KEY, LONG), "integrity_failed"),
    ("longer than the table of starts, unsigned", OPEN, checked(b"", LONG), ""),
    ("no body", STRICT, signed(KEY, b""), ""),
    ("a body of brackets", STRICT, signed(KEY, b"]]["), ""),
]


def check_rows(rows: list[tuple[str, Door, bytes, str]]) -> None:
    """Each row of a table gets its verdict, and its body where it is accepted."""
    for name, at, raw, reason in rows:
        assert reason_of(at.admit, raw) == reason, name
        assert reason or at.admit(raw) == raw.partition(b"]")[2], name


def no_byte_can_be_changed(at: Door, raw: bytes) -> None:
    assert reason_of(at.admit, raw) == ""
    for byte in range(len(raw)):
        spoiled = raw[:byte] + bytes([raw[byte] ^ 1]) + raw[byte + 1 :]
        assert reason_of(at.admit, spoiled) != "", byte


def test_each_datagram_gets_its_verdict() -> None:
    check_rows(TABLE)


def test_no_byte_of_a_signed_datagram_can_be_changed() -> None:
    no_byte_can_be_changed(STRICT, signed(KEY))


def test_a_body_of_any_length_is_accepted_by_any_key() -> None:
    for length in (0, 9, 10, 99, 100, 1498, 1499, 1500, 1501):
        body = b"x" * length
        for key in (KEY, OTHER_KEY):
            assert ROTATING.admit(signed(key, body)) == body
        assert OPEN.admit(checked(b"", body)) == body


@pytest.mark.parametrize(
    ("at", "raw"),
    [(OPEN, checked(b"")), (STRICT, signed(KEY)), (ROTATING, signed(KEY)), (CRC, checked(b"crc32=" + crc_sum(BODY)))],
)
def test_the_usual_case_needs_no_examination(at: Door, raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(raw: bytes) -> NoReturn:
        raise AssertionError(f"{raw!r} was examined")

    monkeypatch.setattr(integrity, "split_envelope", unexpected)
    assert at.admit(raw) == raw.partition(b"]")[2]


def test_the_first_key_signs_and_without_keys_nothing_is_signed() -> None:
    assert ROTATING.seal(BODY) == b"hmac=" + hmac_sum(KEY, BODY)
    assert door(Crc32(), Hmac(KEY)).seal(BODY) == b"crc32=" + crc_sum(BODY)
    assert OPEN.seal(BODY) == b""


# -- for all bytes


class Setting(NamedTuple):
    """A door's settings, for the door itself and for its slow twin."""

    keys: tuple[bytes | None, ...]  # None is crc32
    required: bool
    accept: bool

    def door(self) -> Door:
        return door(
            *(Crc32() if key is None else Hmac(key) for key in self.keys), required=self.required, accept=self.accept
        )


SETTINGS = [
    Setting(keys, required, accept)
    for keys in [(), (KEY,), (KEY, OTHER_KEY), (None,), (None, KEY), (OTHER_KEY, None)]
    for required in (False, True)
    for accept in (False, True)
]


def naive_sums(keys: Sequence[bytes | None]) -> dict[bytes, list[Callable[[bytes], bytes]]]:
    table: dict[bytes, list[Callable[[bytes], bytes]]] = {}
    for key in keys:
        if key is None:
            table.setdefault(b"crc32", []).append(crc_sum)
        else:
            table.setdefault(b"hmac", []).append(lambda body, key=key: hmac_sum(key, body))  # type: ignore[misc]
    return table


def naive_admit(setting: Setting, raw: bytes) -> bytes | str:
    """The body, or the reason of the refusal: the rules one after the other."""
    try:
        magic, check, body = bccn1.split_envelope(raw)
    except BadDatagram as bad:
        return bad.reason
    algo, _, total = check.partition(b"=")
    sums = naive_sums(setting.keys)
    if not check:
        if setting.required:
            return "integrity_missing"
    elif algo in sums:
        if total not in [compute(body) for compute in sums[algo]]:
            return "integrity_failed"
    elif not setting.accept:
        return "integrity_unknown"
    return body if magic == b"BCCN1" else "unsupported_version"


def good_datagrams() -> st.SearchStrategy[bytes]:
    bodies = st.one_of(
        material.bodies(),
        st.binary(max_size=12),
        material.over(material.MARKS, 0, 12),
        st.integers(1490, 1510).map(lambda size: b"y" * size),
    )
    seals: list[Callable[[bytes], bytes]] = [
        lambda _: b"",
        lambda body: b"hmac=" + hmac_sum(KEY, body),
        lambda body: b"hmac=" + hmac_sum(OTHER_KEY, body),
        lambda body: b"hmac=" + hmac_sum(b"nobody's", body),
        lambda body: b"crc32=" + crc_sum(body),
        lambda body: b"crc32=" + crc_sum(body + b"x"),
        lambda _: b"sig=00",
    ]
    magics = st.sampled_from([b"BCCN1", b"BCCN1", b"BCCN1", b"BCCN2"])
    return st.builds(lambda body, seal, magic: checked(seal(body), body, magic), bodies, st.sampled_from(seals), magics)


@given(
    st.sampled_from(SETTINGS),
    st.one_of(
        good_datagrams(), material.mutated(good_datagrams()), material.fragments(), material.near_misses(), st.binary()
    ),
)
@examples(800)
def test_the_door_does_what_the_rules_say_for_any_bytes(setting: Setting, raw: bytes) -> None:
    expected = naive_admit(setting, raw)
    if isinstance(expected, bytes):
        assert setting.door().admit(raw) == expected
    else:
        assert reason_of(setting.door().admit, raw) == expected


@given(st.sampled_from(SETTINGS), material.bodies())
@examples(200)
def test_what_a_door_seals_it_admits(setting: Setting, body: bytes) -> None:
    at = setting.door()
    if setting.keys or not setting.required:
        assert at.admit(bccn1.build(body, at.seal(body))) == body


# -- the door for an algorithm

PRIVATE, OTHER_PRIVATE = generate(), generate()
PUBLIC, OTHER_PUBLIC = public_of(PRIVATE), public_of(OTHER_PRIVATE)


def sig_sum(private: bytes, body: bytes) -> bytes:
    return Signatures({}, private).sum(body)


def by_sig(private: bytes, body: bytes = BODY, magic: bytes = b"BCCN1") -> bytes:
    return checked(b"sig=" + sig_sum(private, body), body, magic)


@pytest.mark.parametrize(
    ("algorithm", "keys", "check"),
    [
        ("none", [], b""),
        ("crc32", [], b"crc32=" + crc_sum(BODY)),
        ("hmac", [KEY], b"hmac=" + hmac_sum(KEY, BODY)),
        ("hmac", [OTHER_KEY, KEY], b"hmac=" + hmac_sum(OTHER_KEY, BODY)),
        ("sig", [PRIVATE], b"sig=" + sig_sum(PRIVATE, BODY)),
    ],
)
def test_each_algorithm_has_a_door_that_seals_with_its_first_key(
    algorithm: str, keys: list[bytes], check: bytes
) -> None:
    made = make_door(algorithm, keys, {b"": [PUBLIC]} if algorithm == "sig" else None)
    assert made.seal(BODY) == check
    assert made.admit(checked(check)) == BODY


@pytest.mark.parametrize("algorithm", ["none", "crc32", "hmac", "sig"])
def test_what_make_door_gives_is_as_strict_as_it_is_told(algorithm: str) -> None:
    keys = {"hmac": [KEY], "sig": [PRIVATE]}.get(algorithm, [])
    signers = {b"": [PUBLIC]} if algorithm == "sig" else {}
    # Where there is no algorithm there is nothing to require.
    missing = "" if algorithm == "none" else "integrity_missing"
    for required, unsigned in ((False, ""), (True, missing)):
        for accept, foreign in ((False, "integrity_unknown"), (True, "")):
            made = make_door(algorithm, keys, signers, required=required, accept_unverifiable=accept)
            assert reason_of(made.admit, checked(b"")) == unsigned
            assert reason_of(made.admit, checked(b"md5=00")) == foreign
    usual = make_door(algorithm, keys, signers)
    assert (reason_of(usual.admit, checked(b"")), reason_of(usual.admit, checked(b"md5=00"))) == (
        missing,
        "integrity_unknown",
    )


@pytest.mark.parametrize(
    ("algorithm", "keys", "signers"),
    [
        ("md5", [], {}),
        ("", [], {}),
        ("HMAC", [KEY], {}),
        ("none", [KEY], {}),
        ("crc32", [KEY], {}),
        ("none", [], {b"": [PUBLIC]}),
        ("crc32", [], {b"": [PUBLIC]}),
        ("hmac", [KEY], {b"": [PUBLIC]}),
        ("hmac", [], {}),
        ("hmac", [KEY, b""], {}),
        ("hmac", [PRIVATE], {}),
        ("hmac", [KEY, PUBLIC], {}),
        ("sig", [KEY], {}),
        ("sig", [PUBLIC], {}),
        ("sig", [b""], {}),
        ("sig", [PRIVATE, OTHER_PRIVATE], {}),
        *(("sig", [PRIVATE], {b"a": [PUBLIC, bad]}) for bad in (b"", KEY, PRIVATE)),
    ],
)
def test_unknown_algorithms_and_keys_that_do_not_go_with_them_are_refused(
    algorithm: str, keys: list[bytes], signers: dict[bytes, list[bytes]]
) -> None:
    with pytest.raises(ValueError):
        make_door(algorithm, keys, signers)


# -- signatures at the door

SIG = {b"a": [PUBLIC], b"b": [OTHER_PUBLIC]}
SIGNING = make_door("sig", [PRIVATE], SIG)
VERIFYING = make_door("sig", [], SIG)
OPTIONAL = make_door("sig", [], SIG, required=False)
MIGRATING = make_door("sig", [], SIG, accept_unverifiable=True)
MIXED = door(Signatures(SIG, PRIVATE), Hmac(KEY), required=True)
OF_B = b"b/b/1:7:c/d|payload"
OF_C = b"c/b/1:7:c/d|payload"

SIG_TABLE: list[tuple[str, Door, bytes, str]] = [
    ("signed", SIGNING, by_sig(PRIVATE), ""),
    ("signed, and we sign nothing", VERIFYING, by_sig(PRIVATE), ""),
    ("signed by another one for himself", SIGNING, by_sig(OTHER_PRIVATE, OF_B), ""),
    ("signed by another one", SIGNING, by_sig(OTHER_PRIVATE), "integrity_failed"),
    ("signed by our own key for another one", SIGNING, by_sig(PRIVATE, OF_B), "integrity_failed"),
    ("of one who has no key", SIGNING, by_sig(PRIVATE, OF_C), "integrity_unknown"),
    ("of one who has no key, lenient", MIGRATING, by_sig(PRIVATE, OF_C), ""),
    ("nonsense of one who has no key, lenient", MIGRATING, checked(b"sig=00", OF_C), ""),
    ("unsigned", SIGNING, checked(b""), "integrity_missing"),
    ("unsigned, optional", OPTIONAL, checked(b""), ""),
    ("by hmac", SIGNING, signed(KEY), "integrity_unknown"),
    ("a sum that is too short", SIGNING, checked(b"sig=" + sig_sum(PRIVATE, BODY)[:-1]), "integrity_failed"),
    ("a sum in capitals", SIGNING, checked(b"sig=" + sig_sum(PRIVATE, BODY).upper()), "integrity_failed"),
    ("another version", SIGNING, by_sig(PRIVATE, magic=b"BCCN2"), "unsupported_version"),
    ("another version, unsigned, optional", OPTIONAL, checked(b"", magic=b"BCCN2"), "unsupported_version"),
    ("no body", SIGNING, by_sig(PRIVATE, b""), "integrity_unknown"),
    ("longer than the table of starts, forged", SIGNING, by_sig(OTHER_PRIVATE, LONG), "integrity_failed"),
    ("where nothing is known", OPEN, by_sig(PRIVATE), "integrity_unknown"),
    ("signed, beside hmac", MIXED, by_sig(PRIVATE), ""),
    ("hmac, beside signatures", MIXED, signed(KEY), ""),
    ("another hmac, beside signatures", MIXED, signed(OTHER_KEY), "integrity_failed"),
    ("of one who has no key, beside hmac", MIXED, by_sig(PRIVATE, OF_C), "integrity_unknown"),
]


def test_each_datagram_gets_its_verdict_where_signatures_are_verified() -> None:
    check_rows(SIG_TABLE)


def test_no_byte_of_a_datagram_with_a_signature_can_be_changed() -> None:
    no_byte_can_be_changed(SIGNING, by_sig(PRIVATE))


def test_signatures_are_verified_by_the_letter_and_never_compared() -> None:
    # A signature of ours that comes back may be spelled as we would, and is verified all the same.
    class Forgetful(Signatures):
        def fits(self, total: bytes, body: bytes) -> bool:
            return False

    at = door(Forgetful(SIG, PRIVATE))
    assert reason_of(at.admit, checked(at.seal(BODY))) == "integrity_failed"


def test_where_nobody_signs_nothing_can_be_sealed() -> None:
    assert reason_of(VERIFYING.seal, BODY) == "no_signing_key"
    assert SIGNING.seal(BODY) == b"sig=" + sig_sum(PRIVATE, BODY)


# -- the fast path accepts the same


class Unrepeatable(Hmac):
    """HMAC whose sums the door may not compute for itself, so that every datagram is examined."""

    repeatable = False


@given(
    st.lists(st.sampled_from([KEY, OTHER_KEY, THIRD_KEY]), min_size=1, max_size=3, unique=True),
    st.booleans(),
    st.booleans(),
    st.one_of(good_datagrams(), material.mutated(good_datagrams()), material.near_misses(), st.binary(max_size=40)),
)
@examples(400)
def test_a_door_that_may_compare_and_one_that_may_not_say_the_same(
    keys: list[bytes], required: bool, accept: bool, raw: bytes
) -> None:
    quick = door(*(Hmac(key) for key in keys), required=required, accept=accept)
    slow = door(*(Unrepeatable(key) for key in keys), required=required, accept=accept)
    assert reason_of(quick.admit, raw) == reason_of(slow.admit, raw)
    if not reason_of(quick.admit, raw):
        assert quick.admit(raw) == slow.admit(raw)
    body = raw[-40:]
    assert quick.seal(body) == slow.seal(body)


def sig_datagrams() -> st.SearchStrategy[bytes]:
    bodies = st.one_of(
        st.sampled_from([BODY, OF_B, OF_C, b"", b"a", b":", b"b/x|y:1:c"]), material.bodies(), st.binary(max_size=12)
    )
    seals: list[Callable[[bytes], bytes]] = [
        lambda _: b"",
        lambda body: b"sig=" + sig_sum(PRIVATE, body),
        lambda body: b"sig=" + sig_sum(OTHER_PRIVATE, body),
        lambda body: b"sig=" + sig_sum(PRIVATE, body + b"x"),
        lambda body: b"sig=" + sig_sum(PRIVATE, body).upper(),
        lambda body: b"hmac=" + hmac_sum(KEY, body),
        lambda _: b"sig=00",
    ]
    magics = st.sampled_from([b"BCCN1", b"BCCN1", b"BCCN1", b"BCCN2"])
    return st.builds(lambda body, seal, magic: checked(seal(body), body, magic), bodies, st.sampled_from(seals), magics)


def naive_sig(raw: bytes, *, required: bool, accept: bool) -> str:
    """The rules one after the other, with the keys of SIG told apart by the first token of the src."""
    try:
        magic, check, body = bccn1.split_envelope(raw)
    except BadDatagram as bad:
        return bad.reason
    algo, _, total = check.partition(b"=")
    private = {b"a": PRIVATE, b"b": OTHER_PRIVATE}.get(body.split(b":")[0].split(b"/")[0])
    if not check:
        if required:
            return "integrity_missing"
    elif algo == b"sig" and private is not None:
        # Ed25519 gives one signature for one body.
        if total != sig_sum(private, body):
            return "integrity_failed"
    elif not accept:
        return "integrity_unknown"
    return "" if magic == b"BCCN1" else "unsupported_version"


@given(st.booleans(), st.booleans(), st.one_of(sig_datagrams(), material.mutated(sig_datagrams())))
@examples(400)
def test_the_door_for_signatures_does_what_the_rules_say_for_any_bytes(
    required: bool, accept: bool, raw: bytes
) -> None:
    at = make_door("sig", [PRIVATE], SIG, required=required, accept_unverifiable=accept)
    assert reason_of(at.admit, raw) == naive_sig(raw, required=required, accept=accept)
