"""What a local client is called on the segment: ``<host>/<program>/<pid>``, and perhaps ``/<tag>``.

Law: whatever the kernel says about a process becomes a legal src whose tokens the process cannot choose; no
program name can add a token, hold a wildcard or pass for another one's pid. Source: BCCN, "Src composition".
"""

from __future__ import annotations

from typing import Final

from bccnd.core.bccn1 import FIELD_BYTES, MAX_SRC
from bccnd.errors import BadMessage

#: legal in a token: all that is legal in src, but for the separator, the wildcard and the unknown sender's sign
_TOKEN_BYTES: Final = FIELD_BYTES.translate(None, b"/*?!")
#: what of these the Perl module takes in a name
PERL_TOKEN_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."
MAX_HOST: Final = 64
#: leaves room for a host, a program and a pid
MAX_TAG: Final = 32


def _keeping(legal: bytes) -> bytes:
    """A table for `bytes.translate` that leaves these bytes and makes ``_`` of all others."""
    return bytes(byte if byte in legal else ord("_") for byte in range(256))


_TO_LEGAL: Final = _keeping(_TOKEN_BYTES)
_TO_PERL: Final = _keeping(PERL_TOKEN_BYTES)


def token(name: bytes, limit: int, *, perl_safe: bool = False) -> bytes:
    """One legal token of at most ``limit`` bytes: what is not legal becomes ``_``, nothing becomes ``unknown``."""
    return name.translate(_TO_PERL if perl_safe else _TO_LEGAL)[:limit] or b"unknown"


def identity(host: bytes, program: bytes, pid: int, *, perl_safe: bool = False) -> bytes:
    """The src of a client; always legal and at most 128 bytes."""
    tail = b"/%d" % pid
    head = token(host, MAX_HOST, perl_safe=perl_safe)
    return head + b"/" + token(program, MAX_SRC - len(head) - len(tail) - 1, perl_safe=perl_safe) + tail


def tagged(base: bytes, tag: bytes, *, perl_safe: bool = False) -> bytes:
    """An identity with a tag behind it. Raises BadMessage: bad_tag, for one that is no legal token or too long."""
    legal = PERL_TOKEN_BYTES if perl_safe else _TOKEN_BYTES
    if not tag or tag.translate(None, legal) or len(base) + 1 + len(tag) > MAX_SRC or len(tag) > MAX_TAG:
        raise BadMessage("bad_tag", f"a tag is one token of 1 to {MAX_TAG} legal bytes")
    return base + b"/" + tag
