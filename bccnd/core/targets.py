"""Channel forms, and who a directed message is for.

Law: ``!`` alone is the all form, ``!<target>`` the directed form, everything else a plain channel. A target is
exact when its last token is all digits, a wildcard otherwise or when it ends in ``/*``; a wildcard takes its
prefix and everything below it. Source: BCCN, WIRE FORMAT, "Directed-form matching".
"""

from __future__ import annotations

from typing import Final

from bccnd.errors import BadDatagram

PLAIN: Final = 0
ALL: Final = 1
DIRECTED: Final = 2
FORM_NAMES: Final = ("plain", "all", "directed")


def form_of(chan: bytes) -> int:
    """PLAIN, ALL or DIRECTED."""
    if not chan.startswith(b"!"):
        return PLAIN
    return ALL if chan == b"!" else DIRECTED


def is_directed(chan: bytes) -> bool:
    """Whether chan is ``!`` and something behind it."""
    return len(chan) > 1 and chan.startswith(b"!")


def target_of(chan: bytes) -> bytes:
    """The target of a directed channel."""
    return chan[1:]


def check(target: bytes) -> None:
    """Raises BadDatagram: bad_target for ``?...``, which names nobody, and ``/...``, which is the bus itself."""
    if target.startswith((b"?", b"/")):
        raise BadDatagram("bad_target", "a target begins with neither ? nor /")


def classify(target: bytes) -> tuple[bool, bytes]:
    """Whether the target is exact, and the value or prefix that a src is compared with."""
    if target.endswith(b"/*"):
        return False, target[:-2]
    last = target.rpartition(b"/")[2]
    # bytes.isdigit() is ASCII only and false for the empty token, which leaves "host/" a wildcard.
    return last.isdigit(), target


def matches(target: bytes, src: bytes) -> bool:
    """Whether a directed message for ``target`` is for the holder of ``src``; ``?`` is never addressed."""
    exact, value = classify(target)
    if src == b"?":
        return False
    return src == value or (not exact and src.startswith(value + b"/"))


def prefixes(src: bytes) -> list[bytes]:
    """Every wildcard value that takes this src: ``a/b/1`` gives ``a``, ``a/b`` and ``a/b/1``."""
    tokens = src.split(b"/")
    return [b"/".join(tokens[: n + 1]) for n in range(len(tokens))]
