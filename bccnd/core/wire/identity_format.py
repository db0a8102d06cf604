"""Identities of local clients on the segment: ``<host>/<program>/<pid>``, with an optional ``/<tag>``.

Invariant: a program name cannot add a token, contain a wildcard or imitate a pid. Source: BCCN, "Src composition".
"""

from __future__ import annotations

from typing import Final

from bccnd.core.wire.bccn1 import FIELD_BYTES, MAX_SRC
from bccnd.errors import BadMessage

#: bytes of a token: those of src without the separator, the wildcard and the signs of other forms
_TOKEN_BYTES: Final = FIELD_BYTES.translate(None, b"/*?!")
#: those that the Perl module accepts in a name
PERL_TOKEN_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."
MAX_HOST: Final = 64
#: leaves room for a host, a program and a pid
MAX_TAG: Final = 32


def _keeping(legal: bytes) -> bytes:
    """Return a table for `bytes.translate` that replaces all other bytes by ``_``."""
    return bytes(byte if byte in legal else ord("_") for byte in range(256))


_TO_LEGAL: Final = _keeping(_TOKEN_BYTES)
_TO_PERL: Final = _keeping(PERL_TOKEN_BYTES)


def token(name: bytes, limit: int, *, perl_safe: bool = False) -> bytes:
    """Return a legal token of at most ``limit`` bytes; illegal bytes become ``_``, an empty name ``unknown``."""
    return name.translate(_TO_PERL if perl_safe else _TO_LEGAL)[:limit] or b"unknown"


def identity(host: bytes, program: bytes, pid: int, *, perl_safe: bool = False) -> bytes:
    """Return the src of a client, always legal and at most 128 bytes."""
    tail = b"/%d" % pid
    head = token(host, MAX_HOST, perl_safe=perl_safe)
    return head + b"/" + token(program, MAX_SRC - len(head) - len(tail) - 1, perl_safe=perl_safe) + tail


def tagged(base: bytes, tag: bytes, *, perl_safe: bool = False) -> bytes:
    """Append a tag to an identity. Raises BadMessage: bad_tag, for an illegal token or one that is too long."""
    legal = PERL_TOKEN_BYTES if perl_safe else _TOKEN_BYTES
    if not tag or tag.translate(None, legal) or len(base) + 1 + len(tag) > MAX_SRC or len(tag) > MAX_TAG:
        raise BadMessage("bad_tag", f"a tag is one token of 1 to {MAX_TAG} legal bytes")
    return base + b"/" + tag
