"""The security guide: each cell of its tables about datagrams is tried on the daemon's way in."""

from __future__ import annotations

from binascii import crc32
from collections.abc import Callable
from functools import cache
from typing import Final

from bccnd.core.trust import signatures
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.trust.integrity_algorithms import Algorithm, Crc32, Hmac
from bccnd.core.trust.signatures import Signatures
from bccnd.core.wire.bccn1 import build
from tests.core.world import OWN, World
from tests.rules import dedup_rules
from tests.support import ROOT

GUIDE: Final = (ROOT / "docs/security.md").read_text()
#: the identity that is forged; another one of the fleet; the key that all share, if they share one
TRUE: Final = b"relay01/door/7"
OTHER: Final = b"relay02/door/8"
SHARED, WRONG = b"k" * 32, b"w" * 32
#: what is delivered
IN: Final = {"accepted", "reordered", "restart"}
#: seconds: beyond the horizon
LATER: Final = 10.0

Sign = Callable[[bytes], bytes]


@cache
def pairs() -> dict[bytes, bytes]:
    return {name: signatures.generate() for name in (b"relay01", b"relay02", b"nobody", b"own")}


def signer(host: bytes) -> Signatures:
    return Signatures({}, pairs()[host])


class Scheme:
    """A way to check: the door of the receiver, and what each side can make of a body."""

    def __init__(self, name: str) -> None:
        algorithm, _, freshness = name.partition(", ")
        self.rules = dedup_rules(monotonic=freshness == "monotonic")
        self.true: Algorithm | None = None
        self.outsider: Algorithm | None = None
        self.insider: Algorithm | None = None
        if algorithm == "crc32":
            self.true = self.outsider = self.insider = Crc32()
        elif algorithm == "hmac":
            self.true = self.insider = Hmac(SHARED)
            self.outsider = Hmac(WRONG)
        elif algorithm == "sig":
            self.true, self.insider, self.outsider = map(signer, (b"relay01", b"relay02", b"nobody"))
        verifiers: tuple[Algorithm, ...] = () if self.true is None else (self.true,)
        if algorithm == "sig":
            known = {name: [signatures.public_of(pairs()[name])] for name in (b"relay01", b"relay02", b"own")}
            verifiers = (Signatures(known),)
        self.checker = IntegrityChecker(verifiers, required=bool(verifiers))

    def world(self) -> World:
        return World(self.checker, self.rules)


def datagram(by: Algorithm | None, src: bytes, seq: int, payload: bytes = b"open") -> bytes:
    body = b"%b:%d:c/1|%b" % (src, seq, payload)
    return build(body, b"" if by is None else by.name + b"=" + by.sum(body))


def foreign(scheme: Scheme) -> bytes:
    body = TRUE + b":100:c/1|open"
    check = b"hmac=" + b"0" * 16 if not isinstance(scheme.true, Hmac) else b"crc32=%08x" % crc32(body)
    return build(body, check)


def changed(scheme: Scheme) -> bytes:
    return datagram(scheme.true, TRUE, 100).replace(b"open", b"opem")


def again(scheme: Scheme, after: float, gone_on: int = 0, forgotten: bool = False, src: bytes = TRUE) -> str:
    """The verdict on what was overheard and is sent once more."""
    world = scheme.world()
    heard = datagram(scheme.true, src, 100)
    first = world.verdict(heard)
    if first not in IN:
        return first
    now = 0.0
    if gone_on:
        assert world.verdict(datagram(scheme.true, src, 100 + gone_on), now=now) == "accepted"
    if forgotten:
        now = 2 * scheme.rules.expire
        world.sources.sweep(now)
        assert src not in world.sources
    return world.verdict(heard, now=now + after)


def held_back(scheme: Scheme) -> str:
    world = scheme.world()
    assert world.verdict(datagram(scheme.true, TRUE, 100)) == "accepted"
    return world.verdict(datagram(scheme.true, TRUE, 101), now=3600.0)


def put_behind(scheme: Scheme, ahead: int, by: str) -> str:
    """The verdict on a true message after its sender's name was used with a number ahead."""
    world = scheme.world()
    assert world.verdict(datagram(scheme.true, TRUE, 100)) == "accepted"
    world.verdict(datagram(getattr(scheme, by), TRUE, 100 + ahead, b"no"))
    return world.verdict(datagram(scheme.true, TRUE, 101), now=1.0)


def first(make: Callable[[Scheme], bytes]) -> Callable[[Scheme], str]:
    """The verdict on a datagram, where nothing came before it."""
    return lambda scheme: scheme.world().verdict(make(scheme))


#: what is tried, by the first column of the guide's tables; the verdict is that of the datagram that matters
TRIED: Final[dict[str, Callable[[Scheme], str]]] = {
    "a byte is damaged by accident": first(changed),
    "an attacker changes the payload and computes a new check": first(
        lambda at: datagram(at.outsider, TRUE, 100, b"opem")
    ),
    "an attacker forges a message under another name": first(lambda at: datagram(at.outsider, TRUE, 100)),
    "an attacker sends a message without a check": first(lambda at: datagram(None, TRUE, 100)),
    "an attacker sends a message with a check of another algorithm": first(foreign),
    "a host of the fleet sends under another one's name": first(lambda at: datagram(at.insider, TRUE, 100)),
    "an attacker sends under the name of a program of this host": first(lambda at: datagram(at.outsider, OWN, 100)),
    "at once": lambda at: again(at, 0.0),
    "after its sender was silent for longer than the horizon": lambda at: again(at, LATER),
    "after its sender has sent `dedup.sanity` further messages or more": lambda at: again(at, 0.0, gone_on=1024),
    "after its sender was forgotten": lambda at: again(at, 0.0, forgotten=True),
    "after the horizon, and it has no sender's name (`?`)": lambda at: again(at, LATER, src=b"?"),
    "only once, because the attacker held it back for an hour": held_back,
    "an attacker without a key used its sender's name with a slightly higher number": lambda at: put_behind(
        at, 500, "outsider"
    ),
    "an attacker without a key used the name with a much higher number": lambda at: put_behind(at, 10**9, "outsider"),
    "a host of the fleet used the name with a slightly higher number": lambda at: put_behind(at, 500, "insider"),
    "a host of the fleet used the name with a much higher number": lambda at: put_behind(at, 10**9, "insider"),
}


def rows() -> list[tuple[str, str, str]]:
    """What is tried, by which scheme, and what the guide says."""
    found = []
    schemes: list[str] = []
    for line in GUIDE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells[1:2] == ["none"]:
            schemes = cells[1:]
        elif schemes and cells and not cells[1].startswith("-"):
            found += [(cells[0], scheme, output) for scheme, output in zip(schemes, cells[1:], strict=True)]
        elif not cells:
            schemes = []
    return found


def test_a_cell_of_the_guide_is_what_becomes_of_it() -> None:
    found = rows()
    assert {what for what, _, _ in found} == set(TRIED)
    assert {scheme for _, scheme, _ in found} == {"none", "crc32", "hmac", "sig", "hmac, monotonic", "sig, monotonic"}
    tried = [(what, scheme, cell, TRIED[what](Scheme(scheme))) for what, scheme, cell in found]
    wrong = [one for one in tried if f"`{one[3]}`" not in one[2] or one[2].startswith("**in**") != (one[3] in IN)]
    assert wrong == []


def test_hiding_a_loss_takes_the_check_of_the_missing_number() -> None:
    for name, hidden in (("none", True), ("crc32", True), ("hmac", False), ("sig", False)):
        scheme = Scheme(name)
        world = scheme.world()
        world.feed(datagram(scheme.true, TRUE, 100), datagram(scheme.true, TRUE, 102))
        assert world.sources.missing == 1
        world.feed(datagram(scheme.outsider, TRUE, 101, b""))
        assert world.sources.missing == (0 if hidden else 1)
