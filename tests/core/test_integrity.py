"""The door: sums against the standard library, every verdict, and the quick way in against the slow one."""

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
def test_hmac_is_the_head_of_the_standard_one_for_any_key_and_body(key: bytes, body: bytes) -> None:
    assert Hmac(key).sum(body) == hmac_sum(key, body)


@pytest.mark.parametrize("length", [0, 1, 16, 63, 64, 65, 127, 128, 129, 1000])
def test_hmac_is_right_at_the_edges_of_the_block(length: int) -> None:
    key = bytes(range(256)) * 4
    assert Hmac(key[:length]).sum(BODY) == hmac_sum(key[:length], BODY)


def test_hmac_of_the_known_answer() -> None:
    # RFC 4231, test case 2, cut to 8 bytes.
    assert Hmac(b"Jefe").sum(b"what do ya want for nothing?") == b"5bdcc146bf60754e"


@given(st.lists(st.binary(max_size=40), max_size=4))
@examples(100)
def test_a_sum_does_not_depend_on_the_sums_before_it(bodies: list[bytes]) -> None:
    algorithm = Hmac(KEY)
    assert [algorithm.sum(body) for body in bodies] == [hmac_sum(KEY, body) for body in bodies]


@given(st.binary(max_size=300))
@examples(200)
def test_crc32_is_that_of_zlib_in_eight_lowercase_digits(body: bytes) -> None:
    assert Crc32().sum(body) == crc_sum(body)


def test_crc32_of_the_known_answer() -> None:
    assert Crc32().sum(b"123456789") == b"cbf43926"


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
    ("signed by another key, lenient", LENIENT, signed(OTHER_KEY), "integrity_failed"),
    ("signed by the second key", ROTATING, signed(OTHER_KEY), ""),
    ("signed by the third key", ROTATING, signed(THIRD_KEY), ""),
    ("signed by none of the keys", ROTATING, signed(b"x" * 16), "integrity_failed"),
    ("unsigned, required", STRICT, checked(b""), "integrity_missing"),
    ("unsigned, required, lenient", LENIENT, checked(b""), "integrity_missing"),
    ("unsigned, not required", KEYED, checked(b""), ""),
    ("required although nothing is configured", door(required=True), checked(b""), "integrity_missing"),
    ("another algorithm", STRICT, checked(b"crc32=" + crc_sum(BODY)), "integrity_unknown"),
    ("another algorithm, lenient", LENIENT, checked(b"crc32=" + crc_sum(BODY)), ""),
    ("algorithm in capitals", STRICT, signed(KEY).replace(b"hmac", b"HMAC"), "integrity_unknown"),
    ("algorithm with more behind", STRICT, signed(KEY).replace(b"hmac", b"hmac2"), "integrity_unknown"),
    ("sum in capitals", STRICT, checked(b"hmac=" + hmac_sum(KEY, BODY).upper()), "integrity_failed"),
    ("sum too short", STRICT, checked(b"hmac=" + hmac_sum(KEY, BODY)[:-1]), "integrity_failed"),
    ("sum too long", STRICT, checked(b"hmac=" + hmac_sum(KEY, BODY) + b"0"), "integrity_failed"),
    ("sum with a second equals sign", STRICT, checked(b"hmac==" + hmac_sum(KEY, BODY)), "integrity_failed"),
    ("sum over the whole datagram", STRICT, checked(b"hmac=" + hmac_sum(KEY, checked(b""))), "integrity_failed"),
    ("crc32", CRC, checked(b"crc32=" + crc_sum(BODY)), ""),
    ("crc32 of something else", CRC, checked(b"crc32=" + crc_sum(BODY + b"x")), "integrity_failed"),
    ("crc32 in capitals", CRC, checked(b"crc32=" + crc_sum(b"123456789").upper(), b"123456789"), "integrity_failed"),
    ("hmac where crc32 is configured", CRC, signed(KEY), "integrity_unknown"),
    ("empty sum", STRICT, checked(b"hmac="), "bad_envelope"),
    ("empty algorithm", STRICT, checked(b"=" + hmac_sum(KEY, BODY)), "bad_envelope"),
    ("no equals sign", STRICT, checked(b"hmac"), "bad_envelope"),
    ("empty sum, lenient", LENIENT, checked(b"hmac="), "bad_envelope"),
    ("empty sum, nothing configured", OPEN, checked(b"hmac="), "bad_envelope"),
    ("empty datagram", STRICT, b"", "bad_envelope"),
    ("no closing bracket", OPEN, b"BCCN1[7a:1:c|x", "bad_envelope"),
    ("no closing bracket, but a length that would fit", OPEN, b"BCCN1[8|", "bad_envelope"),
    ("right sum, leading zero in the length", STRICT, signed(KEY).replace(b"[", b"[0"), "bad_envelope"),
    ("right sum, one byte more", STRICT, signed(KEY) + b"x", "length_mismatch"),
    ("right sum, one byte less", STRICT, signed(KEY)[:-1], "length_mismatch"),
    ("wrong length comes before a missing check", STRICT, checked(b"") + b"x", "length_mismatch"),
    ("wrong length comes before another version", STRICT, checked(b"", magic=b"BCCN2") + b"x", "length_mismatch"),
    ("another version, signed", STRICT, signed(KEY, magic=b"BCCN2"), "unsupported_version"),
    ("another version, signed by the second key", ROTATING, signed(OTHER_KEY, magic=b"X"), "unsupported_version"),
    ("another version, forged", STRICT, signed(OTHER_KEY, magic=b"BCCN2"), "integrity_failed"),
    ("another version, unsigned", STRICT, checked(b"", magic=b"BCCN2"), "integrity_missing"),
    ("another version, unknown algorithm", STRICT, checked(b"sig=00", magic=b"BCCN2"), "integrity_unknown"),
    ("another version, unknown algorithm, lenient", LENIENT, checked(b"sig=0", magic=b"BC"), "unsupported_version"),
    ("another version, nothing configured", OPEN, checked(b"", magic=b"BCCN2"), "unsupported_version"),
    ("longer than the table of starts, signed", STRICT, signed(KEY, LONG), ""),
    ("longer than the table of starts, second key", ROTATING, signed(OTHER_KEY, LONG), ""),
    ("longer than the table of starts, forged", STRICT, signed(OTHER_KEY, LONG), "integrity_failed"),
    ("longer than the table of starts, unsigned", OPEN, checked(b"", LONG), ""),
    ("longer than the table of starts, cut", OPEN, checked(b"", LONG)[:-1], "length_mismatch"),
    ("no body", STRICT, signed(KEY, b""), ""),
    ("a body of brackets", STRICT, signed(KEY, b"]]["), ""),
]


@pytest.mark.parametrize(("name", "at", "raw", "reason"), TABLE, ids=[row[0] for row in TABLE])
def test_the_door_gives_its_verdict(name: str, at: Door, raw: bytes, reason: str) -> None:
    assert reason_of(at.admit, raw) == reason
    if not reason:
        assert at.admit(raw) == raw.partition(b"]")[2]


@pytest.mark.parametrize("length", [0, 9, 10, 99, 100, 1498, 1499, 1500, 1501])
@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
def test_a_body_of_any_length_gets_in_by_any_key(length: int, key: bytes) -> None:
    body = b"x" * length
    assert ROTATING.admit(signed(key, body)) == body
    assert OPEN.admit(checked(b"", body)) == body


@pytest.mark.parametrize("byte", range(len(signed(KEY))))
def test_no_byte_of_a_signed_datagram_can_be_changed(byte: int) -> None:
    raw = signed(KEY)
    spoiled = raw[:byte] + bytes([raw[byte] ^ 1]) + raw[byte + 1 :]
    assert reason_of(STRICT.admit, spoiled) != ""


@pytest.mark.parametrize(
    ("at", "raw"),
    [(OPEN, checked(b"")), (STRICT, signed(KEY)), (ROTATING, signed(KEY)), (CRC, checked(b"crc32=" + crc_sum(BODY)))],
)
def test_the_usual_case_needs_no_examination(at: Door, raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(raw: bytes) -> NoReturn:
        raise AssertionError(f"{raw!r} was examined")

    monkeypatch.setattr(integrity, "split_envelope", unexpected)
    assert at.admit(raw) == raw.partition(b"]")[2]


def test_the_first_key_signs() -> None:
    assert ROTATING.seal(BODY) == b"hmac=" + hmac_sum(KEY, BODY)
    assert CRC.seal(BODY) == b"crc32=" + crc_sum(BODY)
    assert door(Crc32(), Hmac(KEY)).seal(BODY) == b"crc32=" + crc_sum(BODY)


def test_nothing_is_signed_where_nothing_is_configured() -> None:
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
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("accept", [False, True])
def test_a_door_that_was_made_is_as_strict_as_it_was_told(algorithm: str, required: bool, accept: bool) -> None:
    keys = {"hmac": [KEY], "sig": [PRIVATE]}.get(algorithm, [])
    signers = {b"": [PUBLIC]} if algorithm == "sig" else {}
    made = make_door(algorithm, keys, signers, required=required, accept_unverifiable=accept)
    # Where there is no algorithm there is nothing to require.
    unsigned = "integrity_missing" if required and algorithm != "none" else ""
    assert reason_of(made.admit, checked(b"")) == unsigned
    assert reason_of(made.admit, checked(b"md5=00")) == ("" if accept else "integrity_unknown")


def test_unless_told_otherwise_a_check_is_required() -> None:
    assert reason_of(make_door("hmac", [KEY]).admit, checked(b"")) == "integrity_missing"


NO_DOORS: list[tuple[str, list[bytes], dict[bytes, list[bytes]], str]] = [
    ("md5", [], {}, "there is no algorithm 'md5'"),
    ("", [], {}, "there is no algorithm ''"),
    ("HMAC", [KEY], {}, "there is no algorithm 'HMAC'"),
    ("none", [KEY], {}, "none takes no keys"),
    ("crc32", [KEY], {}, "crc32 takes no keys"),
    ("none", [], {b"": [PUBLIC]}, "none takes no signers"),
    ("crc32", [], {b"": [PUBLIC]}, "crc32 takes no signers"),
    ("hmac", [KEY], {b"": [PUBLIC]}, "hmac takes no signers"),
    ("hmac", [], {}, "hmac needs a key"),
    ("hmac", [b""], {}, "an empty key"),
    ("hmac", [KEY, b""], {}, "an empty key"),
    ("hmac", [PRIVATE], {}, "a key for signatures"),
    ("hmac", [KEY, PUBLIC], {}, "a key for signatures"),
    ("sig", [KEY], {}, "no private key"),
    ("sig", [PUBLIC], {}, "no private key"),
    ("sig", [b""], {}, "no private key"),
    ("sig", [PRIVATE, OTHER_PRIVATE], {}, "sig signs with one key"),
]


@pytest.mark.parametrize(("algorithm", "keys", "signers", "reason"), NO_DOORS)
def test_there_is_no_door_for_another_algorithm_or_with_keys_that_do_not_go_with_it(
    algorithm: str, keys: list[bytes], signers: dict[bytes, list[bytes]], reason: str
) -> None:
    with pytest.raises(ValueError) as caught:
        make_door(algorithm, keys, signers)
    assert reason in str(caught.value)


def test_there_is_no_door_with_a_signer_that_is_none() -> None:
    for bad in (b"", KEY, PRIVATE):
        with pytest.raises(ValueError):
            make_door("sig", [PRIVATE], {b"a": [PUBLIC, bad]})


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
    ("signed by another one, lenient", MIGRATING, by_sig(OTHER_PRIVATE), "integrity_failed"),
    ("signed by our own key for another one", SIGNING, by_sig(PRIVATE, OF_B), "integrity_failed"),
    ("of one who has no key", SIGNING, by_sig(PRIVATE, OF_C), "integrity_unknown"),
    ("of one who has no key, optional", OPTIONAL, by_sig(PRIVATE, OF_C), "integrity_unknown"),
    ("of one who has no key, lenient", MIGRATING, by_sig(PRIVATE, OF_C), ""),
    ("nonsense of one who has no key, lenient", MIGRATING, checked(b"sig=00", OF_C), ""),
    ("unsigned", SIGNING, checked(b""), "integrity_missing"),
    ("unsigned, lenient", MIGRATING, checked(b""), "integrity_missing"),
    ("unsigned, optional", OPTIONAL, checked(b""), ""),
    ("unsigned, optional, of one who has no key", OPTIONAL, checked(b"", OF_C), ""),
    ("by hmac", SIGNING, signed(KEY), "integrity_unknown"),
    ("by hmac, lenient", MIGRATING, signed(KEY), ""),
    ("a sum that is too short", SIGNING, checked(b"sig=" + sig_sum(PRIVATE, BODY)[:-1]), "integrity_failed"),
    ("a sum that is too long", SIGNING, checked(b"sig=" + sig_sum(PRIVATE, BODY) + b"0"), "integrity_failed"),
    ("a sum in capitals", SIGNING, checked(b"sig=" + sig_sum(PRIVATE, BODY).upper()), "integrity_failed"),
    ("no sum", SIGNING, checked(b"sig="), "bad_envelope"),
    ("algorithm in capitals", SIGNING, by_sig(PRIVATE).replace(b"sig", b"SIG"), "integrity_unknown"),
    ("one byte more", SIGNING, by_sig(PRIVATE) + b"x", "length_mismatch"),
    ("another version", SIGNING, by_sig(PRIVATE, magic=b"BCCN2"), "unsupported_version"),
    ("another version, forged", SIGNING, by_sig(OTHER_PRIVATE, magic=b"BCCN2"), "integrity_failed"),
    ("another version, unsigned", SIGNING, checked(b"", magic=b"BCCN2"), "integrity_missing"),
    ("another version, unsigned, optional", OPTIONAL, checked(b"", magic=b"BCCN2"), "unsupported_version"),
    ("no body", SIGNING, by_sig(PRIVATE, b""), "integrity_unknown"),
    ("longer than the table of starts", SIGNING, by_sig(PRIVATE, LONG), ""),
    ("longer than the table of starts, forged", SIGNING, by_sig(OTHER_PRIVATE, LONG), "integrity_failed"),
    ("where only hmac is known", STRICT, by_sig(PRIVATE), "integrity_unknown"),
    ("where nothing is known", OPEN, by_sig(PRIVATE), "integrity_unknown"),
    ("where nothing is known, lenient", LENIENT_OPEN, by_sig(PRIVATE), ""),
    ("signed, beside hmac", MIXED, by_sig(PRIVATE), ""),
    ("hmac, beside signatures", MIXED, signed(KEY), ""),
    ("another hmac, beside signatures", MIXED, signed(OTHER_KEY), "integrity_failed"),
    ("of one who has no key, beside hmac", MIXED, by_sig(PRIVATE, OF_C), "integrity_unknown"),
]


@pytest.mark.parametrize(("name", "at", "raw", "reason"), SIG_TABLE, ids=[row[0] for row in SIG_TABLE])
def test_the_door_for_signatures_gives_its_verdict(name: str, at: Door, raw: bytes, reason: str) -> None:
    assert reason_of(at.admit, raw) == reason
    if not reason:
        assert at.admit(raw) == raw.partition(b"]")[2]


@pytest.mark.parametrize("byte", range(len(by_sig(PRIVATE))))
def test_no_byte_of_a_datagram_with_a_signature_can_be_changed(byte: int) -> None:
    raw = by_sig(PRIVATE)
    spoiled = raw[:byte] + bytes([raw[byte] ^ 1]) + raw[byte + 1 :]
    assert reason_of(SIGNING.admit, spoiled) != ""


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


# -- the quick way in is a short cut and no other way


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
