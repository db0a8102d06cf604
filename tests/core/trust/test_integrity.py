"""The integrity check against the rules one after the other, for any bytes; test_vectors.py has a table of doors."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.trust import integrity
from bccnd.core.trust.integrity import IntegrityChecker, make_checker
from bccnd.core.trust.integrity_algorithms import Algorithm, CheckResult, Crc32, Hmac, Outcome, fingerprint
from bccnd.core.trust.signatures import Signatures, fingerprint_of, generate, public_of
from bccnd.core.wire import bccn1
from bccnd.errors import BadDatagram
from tests.core import material
from tests.core.material import KEY, OTHER_KEY, examples, reason_of

Seal = Callable[[bytes], bytes]

THIRD_KEY = b"a key longer than one block of SHA-256, which is hashed before use: " * 2
PRIVATE, OTHER_PRIVATE = generate(), generate()
PUBLIC, OTHER_PUBLIC = public_of(PRIVATE), public_of(OTHER_PRIVATE)
#: the keys of sources on two hosts; a third host has none
SIGNERS = {b"a": [PUBLIC], b"b": [OTHER_PUBLIC]}
BODY, OF_B, OF_C = (host + b"/b/1:7:c/d|payload" for host in (b"a", b"b", b"c"))


def hmac_sum(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, hashlib.sha256).hexdigest()[:16].encode("ascii")


def crc_sum(body: bytes) -> bytes:
    return f"{zlib.crc32(body):08x}".encode("ascii")


def sig_sum(private: bytes, body: bytes) -> bytes:
    return Signatures({}, private).sum(body)


def checked(check: bytes, body: bytes = BODY, magic: bytes = b"BCCN1") -> bytes:
    return b"%b[%d%b]%b" % (magic, len(body), b":" + check if check else b"", body)


def signed(key: bytes, body: bytes = BODY) -> bytes:
    return checked(b"hmac=" + hmac_sum(key, body), body)


def by_sig(private: bytes, body: bytes = BODY) -> bytes:
    return checked(b"sig=" + sig_sum(private, body), body)


CRC, SIG = "crc32", "sig"


class Setting(NamedTuple):
    """The settings of a door: its verifiers are a key for HMAC, CRC or SIG."""

    verifiers: tuple[bytes | str, ...] = ()
    required: bool = False
    accept: bool = False

    def checker(self) -> IntegrityChecker:
        made = [verifier(one) for one in self.verifiers]
        return IntegrityChecker(made, required=self.required, accept_unverifiable=self.accept)


def verifier(one: bytes | str) -> Algorithm:
    if isinstance(one, bytes):
        return Hmac(one)
    return Crc32() if one == CRC else Signatures(SIGNERS, PRIVATE)


VERIFIERS: list[tuple[bytes | str, ...]] = [
    *((), (KEY,), (KEY, OTHER_KEY, THIRD_KEY), (CRC,), (CRC, KEY), (OTHER_KEY, CRC)),
    *((SIG,), (SIG, KEY), (KEY, SIG)),
]
OPEN = Setting().checker()
STRICT = Setting((KEY,), required=True).checker()


def naive_fits(verifier: bytes | str, algo: bytes, total: bytes, body: bytes) -> bool | None:
    """Whether a verifier accepts a sum; None where it has no key for it."""
    if isinstance(verifier, bytes):
        return total == hmac_sum(verifier, body) if algo == b"hmac" else None
    if algo != verifier.encode():
        return None
    if verifier == CRC:
        return total == crc_sum(body)
    private = {b"a": PRIVATE, b"b": OTHER_PRIVATE}.get(body.split(b":")[0].split(b"/")[0])
    # Ed25519 gives one signature for one body.
    return None if private is None else total == sig_sum(private, body)


def naive_admit(setting: Setting, raw: bytes) -> bytes | str:
    """The body, or the reason of the refusal: the rules one after the other."""
    try:
        magic, check, body = bccn1.split_envelope(raw)
    except BadDatagram as bad:
        return bad.reason
    algo, _, total = check.partition(b"=")
    found = [naive_fits(one, algo, total, body) for one in setting.verifiers]
    if not check:
        if setting.required:
            return "integrity_missing"
    elif True not in found:
        if False in found:
            return "integrity_failed"
        if not setting.accept:
            return "integrity_unknown"
    return body if magic == b"BCCN1" else "unsupported_version"


def sealed(algo: bytes, total: Seal) -> Seal:
    return lambda body: algo + b"=" + total(body)


GOOD_DATAGRAMS_BODIES = st.one_of(
    st.sampled_from([BODY, BODY, OF_B, OF_C, b"", b"a", b":", b"]][", b"b/x|y:1:c"]),
    material.BODIES,
    material.over(material.MARKS, 0, 12),
    st.integers(1490, 1510).map(lambda size: b"y" * size),
)
SEALS: list[Seal] = [
    *(lambda _: b"", lambda _: b"sig=00", lambda _: b"md5=00"),
    *(sealed(b"hmac", partial(hmac_sum, key)) for key in (KEY, KEY, OTHER_KEY, THIRD_KEY, b"unknown")),
    *(sealed(b"sig", partial(sig_sum, key)) for key in (PRIVATE, PRIVATE, OTHER_PRIVATE)),
    *(sealed(b"crc32", crc_sum), sealed(b"crc32", lambda body: crc_sum(body + b"x"))),
    sealed(b"sig", lambda body: sig_sum(PRIVATE, body).upper()),
]
MAGICS = st.sampled_from([b"BCCN1", b"BCCN1", b"BCCN1", b"BCCN2"])
GOOD_DATAGRAMS = st.builds(
    lambda body, sign, magic: checked(sign(body), body, magic), GOOD_DATAGRAMS_BODIES, st.sampled_from(SEALS), MAGICS
)


@given(
    st.builds(Setting, st.sampled_from(VERIFIERS), st.booleans(), st.booleans()),
    st.one_of(
        *(GOOD_DATAGRAMS, GOOD_DATAGRAMS, material.mutated(GOOD_DATAGRAMS)),
        *(material.FRAGMENTS, material.NEAR_MISSES, st.binary()),
    ),
)
@example(Setting(required=True), checked(b""))
@example(Setting(), b"BCCN1[8|")
@example(Setting((KEY,), True), checked(b"hmac=" + hmac_sum(KEY, BODY) + b"0"))
@example(Setting((SIG, KEY), True), signed(OTHER_KEY))
@example(Setting((SIG, KEY), True), by_sig(PRIVATE, OF_C))
@examples(1500)
def test_checker_follows_the_rules_for_any_bytes(setting: Setting, raw: bytes) -> None:
    expected, checker = naive_admit(setting, raw), setting.checker()
    assert reason_of(checker.verified_body, raw) == (expected if isinstance(expected, str) else "")
    if isinstance(expected, bytes):
        assert checker.verified_body(raw) == expected


def test_the_usual_case_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    crc = Setting((CRC,), required=True).checker()
    monkeypatch.setattr(integrity, "split_envelope", Mock(side_effect=AssertionError))
    for at, raw in ((OPEN, checked(b"")), (STRICT, signed(KEY)), (crc, checked(b"crc32=" + crc_sum(BODY)))):
        assert at.verified_body(raw) == BODY


def test_signatures_are_always_verified_and_never_compared() -> None:
    # A returning local signature has the expected spelling and is verified nevertheless.
    class Forgetful(Signatures):
        def check(self, total: bytes, body: bytes) -> CheckResult:
            return CheckResult(Outcome.FAILED)

    at = IntegrityChecker([Forgetful(SIGNERS, PRIVATE)])
    assert reason_of(at.verified_body, checked(at.sign(BODY))) == "integrity_failed"


@pytest.mark.parametrize(
    ("algorithm", "keys", "signers"),
    [
        *((algorithm, [], {}) for algorithm in ("md5", "", "HMAC", "hmac")),
        *((algorithm, [KEY], {}) for algorithm in ("none", "crc32", "sig")),
        *((algorithm, [KEY] * (algorithm == "hmac"), {b"": [PUBLIC]}) for algorithm in ("none", "crc32", "hmac")),
        *(("hmac", keys, {}) for keys in ([KEY, b""], [PRIVATE], [KEY, PUBLIC])),
        *(("sig", keys, {}) for keys in ([PUBLIC], [b""], [PRIVATE, OTHER_PRIVATE])),
        *(("sig", [PRIVATE], {b"a": [PUBLIC, bad]}) for bad in (b"", KEY, PRIVATE)),
    ],
)
def test_keys_that_do_not_fit_are_refused(algorithm: str, keys: list[bytes], signers: dict[bytes, list[bytes]]) -> None:
    with pytest.raises(ValueError):
        make_checker(algorithm, keys, signers)


def test_a_sum_is_required_unless_there_is_no_algorithm() -> None:
    assert reason_of(make_checker("hmac", [KEY]).verified_body, checked(b"")) == "integrity_missing"
    assert make_checker("none", [], required=True).verified_body(checked(b"")) == BODY


def sent_by(keys: bytes, src: bytes, seq: int) -> bytes:
    body = b"%b:%d:c|x" % (src, seq)
    return bccn1.build(body, IntegrityChecker([Hmac(keys)]).sign(body))


def test_what_each_key_has_verified_is_counted_by_source() -> None:
    checker = IntegrityChecker([Hmac(KEY), Hmac(OTHER_KEY)])
    for src, seq, key in ((b"a/1", 1, KEY), (b"a/1", 2, KEY), (b"b/1", 9, OTHER_KEY)):
        checker.verified_body(sent_by(key, src, seq))
    checker.verified_body(bccn1.build(b"c/1:5:c|x", b""))
    for uncounted in (sent_by(KEY, b"a/1", 3), sent_by(OTHER_KEY, b"a/1", 99)):
        checker.verify(uncounted, counted=False)
    first, other = (fingerprint(key) for key in (KEY, OTHER_KEY))
    keys = [(one.fingerprint, one.signs, one.verified) for one in checker.list_keys()]
    assert keys == [(first, True, 2), (other, False, 1)]
    asked = ((b"a/1", 2), (b"b/1", 9), (b"b/1", 99), (b"c/1", 5), (b"d/1", 1))
    assert [checker.key_of(*one) for one in asked] == [first, other, first, "", first]
    after = IntegrityChecker([Hmac(OTHER_KEY), Hmac(KEY)])
    after.adopt_counts(checker)
    after.adopt_counts(IntegrityChecker([Hmac(THIRD_KEY)]))  # a key that is no longer accepted
    keys = [(one.fingerprint, one.signs, one.verified) for one in after.list_keys()]
    assert keys == [(other, True, 1), (first, False, 2)]


def test_keys_of_the_sources_heard_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "_MAX_SIGNERS", 2)
    checker = IntegrityChecker([Hmac(KEY), Hmac(OTHER_KEY)])
    longest, last = b"a" * bccn1.MAX_SRC, 2**64 - 1
    for src in (longest, b"b/1", longest, b"c/1"):
        checker.verified_body(sent_by(OTHER_KEY, src, last))
    first, other = (fingerprint(key) for key in (KEY, OTHER_KEY))
    assert [checker.key_of(src, last) for src in (longest, b"b/1", b"c/1")] == [other, first, other]
    # datagrams may come late
    late = last + integrity._LATE
    assert [checker.key_of(b"c/1", seq) for seq in (late, late + 1)] == [other, first]


def test_public_keys_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "_MAX_SIGNERS", 2)
    names = [fingerprint_of(public) for public in (PUBLIC, OTHER_PUBLIC)]
    checker = make_checker("sig", [PRIVATE], {b"a": [OTHER_PUBLIC, PUBLIC], b"b": [OTHER_PUBLIC]})
    assert [one.verified for one in checker.list_keys()] == [0, 0]
    sealers = [make_checker("sig", [private]) for private in (PRIVATE, OTHER_PRIVATE)]
    bodies = [b"a/1:1:c|x", b"a/2:1:c|x", b"b/1:1:c|x"]
    for body, sealer in zip(bodies, (*sealers, sealers[1]), strict=True):
        checker.verified_body(bccn1.build(body, sealer.sign(body)))
    assert [tuple(one) for one in checker.list_keys()] == [
        (names[0], "sig", True, ("a",), 1),
        (names[1], "sig", False, ("a", "b"), 2),
    ]
    after = make_checker("sig", [PRIVATE], {b"b": [OTHER_PUBLIC], b"c": [public_of(generate())]})
    after.adopt_counts(checker)
    assert sorted(one.verified for one in after.list_keys()) == [0, 0, 2]
    # As many sources are remembered as may be, the latest; of others nothing is known.
    assert [checker.key_of(src, 1) for src in (b"a/1", b"a/2", b"b/1")] == ["", names[1], names[1]]


def test_an_algorithm_follows_from_the_keys() -> None:
    assert integrity.usual_algorithm([KEY], [PUBLIC]) == "sig"
    assert integrity.usual_algorithm([KEY], ()) == "hmac"
    assert integrity.usual_algorithm((), ()) == "none"
    assert not IntegrityChecker([Crc32()]).list_keys()
    assert [IntegrityChecker(keys).algorithm for keys in ((), (Hmac(KEY), Crc32()))] == ["none", "hmac"]
    # the name of a key in lists and counts of all hosts
    assert fingerprint(b"key") == "afe4399b9d025d56"
