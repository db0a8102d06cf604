"""Strategies for the tests of the core: fields of small alphabets, so that draws meet, and ways to spoil datagrams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from bccnd.core import bccn1
from bccnd.errors import BccndError
from tests import support

#: keys of the least length that the configuration allows
KEY = b"0123456789abcdef"
OTHER_KEY = b"fedcba9876543210"

GRAPHIC = bytes(range(0x21, 0x7F))
#: bytes that mean something somewhere in a datagram, and a few that mean nothing
MARKS = b"[]:=|!?*/ab01 \0\n\xff"

#: the verdicts that parsing alone can give
OF_THE_PARSE = {
    *("bad_envelope", "length_mismatch", "unsupported_version"),
    *("bad_body", "bad_src", "bad_seq", "bad_channel", "bad_target"),
}


def examples(count: int) -> settings:
    """The settings for a property that needs ``count`` examples in the profile ``full``; see `support.examples`."""
    return settings(max_examples=support.examples(count))


def over(alphabet: bytes, low: int, high: int) -> st.SearchStrategy[bytes]:
    """Byte strings of ``low`` to ``high`` bytes of an alphabet."""
    # By far the fastest way to draw bytes is to draw text.
    letters = st.characters(codec="latin-1", include_characters=alphabet.decode("latin-1"), categories=())
    return st.text(letters, min_size=low, max_size=high).map(lambda text: text.encode("latin-1"))


def of_length(alphabet: bytes, low: int, high: int) -> st.SearchStrategy[bytes]:
    """Long byte strings, a few drawn bytes over and over."""
    return st.builds(lambda seed, size: (seed * size)[:size], over(alphabet, 1, 4), st.integers(low, high))


def reason_of(call: Callable[..., object], *args: Any) -> str:
    """The reason of the BccndError that a call raises; empty when it raises none. Other exceptions pass through."""
    try:
        call(*args)
    except BccndError as refused:
        return refused.reason
    return ""


def legal_srcs() -> st.SearchStrategy[bytes]:
    graphic = GRAPHIC.translate(None, b":|*")
    return st.one_of(over(graphic, 1, 20), over(b"ab1/?", 1, 5), of_length(graphic, 120, 128)).filter(
        lambda src: not src.endswith(b"/")
    )


def legal_chans() -> st.SearchStrategy[bytes]:
    graphic = GRAPHIC.translate(None, b":|")
    return st.one_of(
        over(graphic, 1, 30),
        of_length(graphic, 1020, 1024),
        st.just(b"!"),
        over(b"ab1/*", 1, 6).map(lambda target: b"!" + target),
    ).filter(lambda chan: not chan.startswith((b"!/", b"!?")))


def seqs() -> st.SearchStrategy[int]:
    return st.one_of(st.integers(0, 20), st.integers(0, bccn1.MAX_SEQ), st.integers(bccn1.MAX_SEQ - 2, bccn1.MAX_SEQ))


def payloads() -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=40), over(MARKS, 0, 12))


def bodies() -> st.SearchStrategy[bytes]:
    return st.builds(bccn1.build_body, legal_srcs(), seqs(), legal_chans(), payloads())


def checks() -> st.SearchStrategy[bytes]:
    """``<algo>=<sum>`` of no real algorithm, or nothing."""
    graphic = GRAPHIC.translate(None, b"]")
    return st.one_of(
        st.just(b""),
        st.builds(
            lambda algo, total: algo + b"=" + total, over(graphic.translate(None, b"="), 1, 6), over(graphic, 1, 20)
        ),
    )


def fragments() -> st.SearchStrategy[bytes]:
    """Bytes made of pieces of datagrams."""
    words = b"BCCN1 BCCN2 [ ] : | = 0 1 3 12 hmac crc32 a/b ! ?".split()
    return st.lists(st.one_of(st.sampled_from(words), st.binary(max_size=3)), max_size=16).map(b"".join)


def near_misses() -> st.SearchStrategy[bytes]:
    """A true length around a body that is made of the marks of a body."""
    return st.builds(lambda magic, body: b"%b[%d]%b" % (magic, len(body), body), magics(), over(MARKS, 0, 14))


def magics() -> st.SearchStrategy[bytes]:
    return st.sampled_from([bccn1.MAGIC, bccn1.MAGIC, bccn1.MAGIC, b"BCCN2", b"B", b"", b"X" * 33])


@st.composite
def mutated(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes:
    """A good datagram, spoiled in one to three places."""
    raw = draw(good)
    for _ in range(draw(st.integers(1, 3))):
        # Most of what can be wrong is wrong near the beginning.
        at = draw(st.integers(0, min(len(raw), 60)))
        how = draw(st.sampled_from(["insert", "replace", "delete", "cut", "double"]))
        byte = bytes([draw(st.one_of(st.sampled_from(MARKS), st.integers(0, 255)))])
        if how == "insert":
            raw = raw[:at] + byte + raw[at:]
        elif how == "replace":
            raw = raw[:at] + byte + raw[at + 1 :]
        elif how == "delete":
            raw = raw[:at] + raw[at + 1 :]
        elif how == "cut":
            raw = raw[:at]
        else:
            raw = raw[:at] + raw[at : at + 4] + raw[at:]
    return raw
