"""Datagrams of the simulation: made and read by hand, as the product's own builder is what is tested."""

from __future__ import annotations

import hmac
from typing import NamedTuple


class Datagram(NamedTuple):
    """A datagram, and what a receiver makes of it; ``valid`` is whether it passes every check."""

    raw: bytes
    src: bytes
    seq: int
    chan: bytes
    token: bytes
    valid: bool = True


def make(src: bytes, seq: int, chan: bytes, token: bytes, key: bytes = b"", *, valid: bool = True) -> Datagram:
    """Make a datagram whose payload is a token; one that is not ``valid`` has a wrong length, or a wrong sum."""
    body = b"%b:%d:%b|%b" % (src, seq, chan, token)
    check = b":hmac=" + hmac.digest(key, body, "sha256")[:8].hex().encode() if key else b""
    if not valid and key:
        check = check[:-1] + (b"0" if check[-1:] != b"0" else b"1")
    size = len(body) if valid or key else len(body) + 1
    return Datagram(b"BCCN1[%d%b]%b" % (size, check, body), src, seq, chan, token, valid)


def read(raw: bytes) -> Datagram:
    """Read a datagram that a daemon has broadcast."""
    body = raw.partition(b"]")[2]
    head, _, token = body.partition(b"|")
    src, seq, chan = head.split(b":", 2)
    return Datagram(raw, src, int(seq), chan, token)
