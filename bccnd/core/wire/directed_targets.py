"""Channel forms (plain, all, directed) and matching of directed messages.

``!`` is the all form, ``!<target>`` the directed form, anything else a plain channel. A target is exact if its last
token is all digits, otherwise a wildcard, as is one that ends in ``/*``; a wildcard matches its prefix and everything
below. Source: BCCN, WIRE FORMAT, "Directed-form matching".
"""

from __future__ import annotations

from typing import Final

from bccnd.errors import BadDatagram

PLAIN: Final = 0
ALL: Final = 1
DIRECTED: Final = 2
FORM_NAMES: Final = ("plain", "all", "directed")


def form_of(chan: bytes) -> int:
    """Return PLAIN, ALL or DIRECTED."""
    if not chan.startswith(b"!"):
        return PLAIN
    return ALL if chan == b"!" else DIRECTED


def is_directed(chan: bytes) -> bool:
    """Whether a channel is ``!`` with a target."""
    return len(chan) > 1 and chan.startswith(b"!")


def target_of(chan: bytes) -> bytes:
    """Return the target of a directed channel."""
    return chan[1:]


def check(target: bytes) -> None:
    """Check that a target is neither ``?...`` (anonymous) nor ``/...`` (the bus). Raises BadDatagram: bad_target."""
    if target.startswith((b"?", b"/")):
        raise BadDatagram("bad_target", "a target must not begin with ? or /")


def classify(target: bytes) -> tuple[bool, bytes]:
    """Return whether a target is exact, and the value or prefix to compare with a src."""
    if target.endswith(b"/*"):
        return False, target[:-2]
    last = target.rpartition(b"/")[2]
    # false for the empty token, so that "host/" is a wildcard
    return last.isdigit(), target


def matches(target: bytes, src: bytes) -> bool:
    """Whether ``target`` addresses ``src``; ``?`` is never addressed."""
    exact, value = classify(target)
    if src == b"?":
        return False
    return src == value or (not exact and src.startswith(value + b"/"))


def prefixes(src: bytes) -> list[bytes]:
    """Return every wildcard prefix that matches a src: ``a/b/1`` gives ``a``, ``a/b`` and ``a/b/1``."""
    tokens = src.split(b"/")
    return [b"/".join(tokens[: n + 1]) for n in range(len(tokens))]
