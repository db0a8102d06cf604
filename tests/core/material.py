"""Strategies for the tests of the core: fields of small alphabets, so that draws meet, and ways to spoil datagrams."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from bccnd.core.wire import bccn1
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


def sign(key: bytes | None, body: bytes) -> bytes:
    return b"" if key is None else b"hmac=" + hmac.digest(key, body, "sha256")[:8].hex().encode("ascii")


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


IN_SRC = GRAPHIC.translate(None, b":|*")
LEGAL_SRCS = st.one_of(over(IN_SRC, 1, 20), over(b"ab1/?", 1, 5), of_length(IN_SRC, 120, 128)).filter(
    lambda src: not src.endswith(b"/")
)
IN_CHAN = GRAPHIC.translate(None, b":|")
LEGAL_CHANS = st.one_of(
    over(IN_CHAN, 1, 30),
    of_length(IN_CHAN, 1020, 1024),
    st.just(b"!"),
    over(b"ab1/*", 1, 6).map(lambda target: b"!" + target),
).filter(lambda chan: not chan.startswith((b"!/", b"!?")))
SEQS = st.one_of(st.integers(0, 20), st.integers(0, bccn1.MAX_SEQ), st.integers(bccn1.MAX_SEQ - 2, bccn1.MAX_SEQ))
PAYLOADS = st.one_of(st.binary(max_size=40), over(MARKS, 0, 12))
BODIES = st.builds(bccn1.build_body, LEGAL_SRCS, SEQS, LEGAL_CHANS, PAYLOADS)
IN_CHECK = GRAPHIC.translate(None, b"]")
#: ``<algo>=<sum>`` of no real algorithm, or nothing
CHECKS = st.one_of(
    st.just(b""),
    st.builds(
        lambda algo, total: algo + b"=" + total, over(IN_CHECK.translate(None, b"="), 1, 6), over(IN_CHECK, 1, 20)
    ),
)
WORDS = b"BCCN1 BCCN2 [ ] : | = 0 1 3 12 hmac crc32 a/b ! ?".split()
#: bytes made of pieces of datagrams
FRAGMENTS = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=3)), max_size=16).map(b"".join)
MAGICS = st.sampled_from([bccn1.MAGIC, bccn1.MAGIC, bccn1.MAGIC, b"BCCN2", b"B", b"", b"X" * 33])
#: a true length around a body that is made of the marks of a body
NEAR_MISSES = st.builds(lambda magic, body: b"%b[%d]%b" % (magic, len(body), body), MAGICS, over(MARKS, 0, 14))


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
