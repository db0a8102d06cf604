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
from bccnd.core.integrity import Algorithm, Crc32, Door, Hmac
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
