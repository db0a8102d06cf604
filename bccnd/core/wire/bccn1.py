"""Parses and builds datagrams: the envelope of any version, and the BCCN1 body.

The format is ``<magic>[<len>(:<algo>=<sum>)?]<body>`` with the body ``<src>:<seq>:<chan>|<payload>``. Anything else
raises BadDatagram with the verdict's name; building is the inverse of parsing. Source: BCCN, WIRE FORMAT.

The envelope is parsed first, so that integrity.py can verify the sum before the body is read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bccnd.core.wire import directed_targets
from bccnd.errors import BadDatagram

MAGIC: Final = b"BCCN1"
#: the hard ceiling for sent datagrams (BCCN, WIRE FORMAT: "Working datagram size limit")
MAX_SEND: Final = 1400
#: the default ceiling for received datagrams: that of the reference C sender
MAX_RECEIVE: Final = 1500
#: most bytes in a UDP datagram over IPv4
MAX_UDP: Final = 65507
MAX_SRC: Final = 128
MAX_CHAN: Final = 1024
MAX_SEQ: Final = 2**64 - 1
#: significant digits of MAX_SEQ
_SEQ_DIGITS: Final = 20
#: long enough for any magic, short enough to refuse binary noise
MAX_MAGIC: Final = 32
UNKNOWN_SRC: Final = b"?"
#: the channel of a heartbeat, before the src of its sender
HEARTBEAT: Final = b"heartbeat/"
#: details of refusals
BODY_FORM: Final = "not <src>:<seq>:<chan>|<payload>"
SEQ_FORM: Final = "seq must be decimal digits and fit in 64 bits"

_GRAPHIC: Final = bytes(range(0x21, 0x7F))
#: bytes of src and chan: graphic ASCII without the two delimiters
FIELD_BYTES: Final = _GRAPHIC.translate(None, b":|")
_MAGIC_BYTES: Final = _GRAPHIC.translate(None, b"[]")


class Datagram(NamedTuple):
    """The fields of a BCCN1 datagram. ``check`` is ``<algo>=<sum>`` as on the wire, or empty."""

    src: bytes
    seq: int
    chan: bytes
    payload: bytes
    check: bytes = b""


def sum_prefixes(algo: bytes, sum_size: int) -> tuple[bytes | None, ...]:
    """Return the bytes before the sum of an algorithm (empty: none), by length of the datagram; None for a length that
    no datagram with such a sum has."""
    found: list[bytes | None] = []
    for size in range(MAX_RECEIVE):
        prefix = b"%b[%d:%b=" % (MAGIC, size, algo) if algo else b"%b[%d" % (MAGIC, size)
        length = len(prefix) + sum_size + 1 + size
        found += [*[None] * (length - len(found)), prefix]
    return tuple(found)


def split_envelope(raw: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a datagram of any version into magic, check (``<algo>=<sum>`` or empty) and body.

    Raises BadDatagram: bad_envelope, length_mismatch.
    """
    magic, bracket, rest = raw.partition(b"[")
    inside, closing, body = rest.partition(b"]")
    if not bracket or not closing:
        raise BadDatagram("bad_envelope", "no [...] after the magic")
    if not magic or len(magic) > MAX_MAGIC or magic.translate(None, _MAGIC_BYTES):
        raise BadDatagram("bad_envelope", "the magic is empty, too long or not graphic ASCII")
    digits, colon, check = inside.partition(b":")
    if not _is_length(digits):
        raise BadDatagram("bad_envelope", "the length is not a plain decimal number")
    if colon:
        split_check(check)
    if int(digits) != len(body):
        raise BadDatagram("length_mismatch", f"{int(digits)} announced, {len(body)} present")
    return magic, check, body


def _is_length(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= 5 and (digits[:1] != b"0" or digits == b"0")


def split_check(check: bytes) -> tuple[bytes, bytes]:
    """Split ``<algo>=<sum>``. Raises BadDatagram: bad_envelope when either part is empty or not graphic ASCII."""
    algo, equals, total = check.partition(b"=")
    if not equals or not algo or not total or check.translate(None, _GRAPHIC):
        raise BadDatagram("bad_envelope", "the check is not <algo>=<sum>")
    return algo, total


def check_src(src: bytes) -> None:
    """Check a src: 1 to 128 legal bytes without ``*`` and not ending in ``/``. Raises BadDatagram: bad_src."""
    if not src or len(src) > MAX_SRC or src.translate(None, FIELD_BYTES) or b"*" in src or src.endswith(b"/"):
        raise BadDatagram("bad_src", "src must be 1 to 128 graphic ASCII bytes without : | * and no / at its end")


def check_chan(chan: bytes) -> None:
    """Check a channel: 1 to 1024 legal bytes, and a possible target. Raises BadDatagram: bad_channel, bad_target."""
    if not chan or len(chan) > MAX_CHAN or chan.translate(None, FIELD_BYTES):
        raise BadDatagram("bad_channel", "chan must be 1 to 1024 graphic ASCII bytes without : and |")
    if directed_targets.is_directed(chan):
        directed_targets.check(directed_targets.target_of(chan))


def read_body(body: bytes) -> tuple[bytes, int, bytes, bytes]:
    """Parse a BCCN1 body into src, seq, chan and payload; each field is checked, in this order.

    Raises BadDatagram: bad_body, bad_src, bad_seq, bad_channel, bad_target.
    """
    head, bar, payload = body.partition(b"|")
    fields = head.split(b":")
    if not bar or len(fields) != 3:
        raise BadDatagram("bad_body", BODY_FORM)
    src, digits, chan = fields
    check_src(src)
    seq = _read_seq(digits)
    check_chan(chan)
    return src, seq, chan, payload


def _read_seq(digits: bytes) -> int:
    # Leading zeros are legal, but int() of thousands of digits is slow.
    significant = digits.lstrip(b"0") or b"0"
    if not digits.isdigit() or len(significant) > _SEQ_DIGITS or int(significant) > MAX_SEQ:
        raise BadDatagram("bad_seq", SEQ_FORM)
    return int(significant)


def read(raw: bytes) -> Datagram:
    """Parse a BCCN1 datagram and check every field, without verifying its sum.

    Raises BadDatagram with the verdict's name.
    """
    magic, check, body = split_envelope(raw)
    if magic != MAGIC:
        raise BadDatagram("unsupported_version", f"magic {magic!r}")
    return Datagram(*read_body(body), check)


def build_body(src: bytes, seq: int, chan: bytes, payload: bytes) -> bytes:
    """Build a body; the caller checks the fields (`check_src`, `check_chan`)."""
    return b"".join((src, b":%d:" % seq, chan, b"|", payload))


def build(body: bytes, check: bytes = b"") -> bytes:
    """Build a datagram around a body; ``check`` is ``<algo>=<sum>`` or empty."""
    if check:
        return b"".join((MAGIC, b"[%d:" % len(body), check, b"]", body))
    return b"".join((MAGIC, b"[%d]" % len(body), body))
