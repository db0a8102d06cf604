"""What passes over a link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS, compile_pattern
from bccnd.core.wire.bccn1 import FIELD_BYTES, build, build_body
from bccnd.gateways.nng.filter import Filter, read_head

FIELD = st.text(alphabet=FIELD_BYTES.decode(), min_size=1, max_size=40).map(str.encode)
TOKEN = st.sampled_from(["a", "b", "ab", "heartbeat", "*", ">", "a*", ""])
PATTERN = st.lists(TOKEN, min_size=1, max_size=4).map("/".join)
KEY = st.lists(st.sampled_from(["a", "b", "ab", "abc", "heartbeat"]), min_size=1, max_size=4).map("/".join)


def made(chan: str, src: str = "host/prog/1", check: bytes = b"", payload: bytes = b"x") -> bytes:
    return build(build_body(src.encode(), 7, chan.encode(), payload), check)


@given(
    src=FIELD,
    chan=FIELD,
    payload=st.binary(max_size=50),
    check=st.sampled_from([b"", b"hmac=0011", b"sig=" + b"f" * 128]),
)
def test_src_and_channel_are_those_that_the_daemon_reads(src: bytes, chan: bytes, payload: bytes, check: bytes) -> None:
    assert read_head(build(build_body(src, 1, chan, payload), check)) == (src, chan)


def test_the_channel_is_found_in_every_form_and_length() -> None:
    for chan in ("a/b", "!", "!host/prog/1", "x" * 1024):
        assert read_head(made(chan, src="s" * 128, check=b"sig=" + b"f" * 128)) == (b"s" * 128, chan.encode())
    for datagram in (b"", b"BCCN1", b"BCCN1[3]", b"BCCN1[3]a:b", b"[]|", b"x" * 400 + b"]a:1:b|", b"]a:1:b:c|"):
        assert read_head(datagram) == (b"", b"")


@given(st.binary(max_size=400))
def test_garbage_is_never_an_error(datagram: bytes) -> None:
    assert all(one in datagram for one in read_head(datagram))


@pytest.mark.parametrize(
    ("patterns", "datagram", "expected"),
    [
        *(([""], datagram, "") for datagram in (made("a/b"), made("!"), b"garbage", b"")),
        ([""], made("a/b", src="?"), "nameless"),
        (["a/"], b"garbage", "malformed"),
        (["a/"], made("a/b"), ""),
        (["a/"], made("b"), "filtered"),
        ([], made("b"), "filtered"),
        # Messages to all and to one pass by a pattern of their own.
        *(
            (patterns, made(chan), expected)
            for chan in ("!", "!host/prog/1")
            for patterns, expected in ((["a/"], "filtered"), (["a/", "!"], ""), (["a/", ""], ""), ([">"], "filtered"))
        ),
        (["a/"], made("heartbeat/host/prog/1"), "filtered"),
        (["a/", "heartbeat/"], made("heartbeat/host/prog/1"), ""),
    ],
)
def test_what_a_filter_refuses(patterns: list[str], datagram: bytes, expected: str) -> None:
    assert Filter(patterns, nameless=False).check(datagram) == expected
    if expected == "nameless":
        assert Filter(patterns, nameless=True).check(datagram) == ""


@given(st.lists(PATTERN.filter(lambda text: text not in ("", "!")), min_size=1, max_size=4), KEY)
def test_a_filter_matches_what_a_subscription_does(patterns: list[str], key: str) -> None:
    tree: PatternTree[int] = PatternTree(DIALECTS["path"])
    for pattern in patterns:
        tree.add(compile_pattern(pattern.encode(), DIALECTS["path"]), 1)
    assert Filter(patterns, nameless=False).check(made(key)) == ("" if tree.match(key.encode()) else "filtered")
