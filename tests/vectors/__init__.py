"""Reads the table of wire vectors, with which the core, `Endpoint` and the dissector are tested.

README.md beside this file describes the table. Nothing here imports bccnd: sums come from hmac, zlib and cryptography.
"""

from __future__ import annotations

import hmac
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

#: verdicts under which a message is delivered
DELIVERED: Final = {"accepted", "reordered", "restart"}
#: what stands for a key where an algorithm has none
CRC32: Final = "crc32"


class Fields(NamedTuple):
    """What reading gives. ``check`` is ``<algo>=<sum>`` as on the wire, or empty."""

    src: bytes
    seq: int
    chan: bytes
    payload: bytes
    check: bytes

    @property
    def form(self) -> str:
        if not self.chan.startswith(b"!"):
            return "plain"
        return "all" if self.chan == b"!" else "directed"


class Key(NamedTuple):
    """A key of the table: a secret, or a private and a public key as PEM."""

    secret: bytes = b""
    private: bytes = b""
    public: bytes = b""

    @property
    def pair(self) -> Ed25519PrivateKey:
        key = load_pem_private_key(self.private, password=None)
        assert isinstance(key, Ed25519PrivateKey)
        return key


class Vector(NamedTuple):
    """One datagram and what becomes of it."""

    name: str
    datagram: bytes
    verdict: str
    fields: Fields | None = None
    canonical: bool = False
    reaches: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    by: str | None = None
    over: bytes | None = None
    spoilt: bool = False
    attack: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def body(self) -> bytes:
        return self.datagram.partition(b"]")[2]

    @property
    def check(self) -> tuple[bytes, bytes]:
        """Algorithm and sum as they stand there, wherever there is an envelope."""
        algo, _, total = self.datagram.partition(b"]")[0].partition(b":")[2].partition(b"=")
        return algo, total


class DoorVectors(NamedTuple):
    """A configuration of integrity, and datagrams for it. Keys are names of `KEYS`."""

    name: str
    algorithm: str
    keys: tuple[str, ...]
    signers: Mapping[str, tuple[str, ...]]
    required: bool
    unverifiable: str
    vectors: tuple[Vector, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def secrets(self) -> list[bytes]:
        """The keys' bytes, as a program is given them: shared ones, or a private one as PEM."""
        return [KEYS[name].secret or KEYS[name].private for name in self.keys]

    @property
    def public(self) -> dict[str, list[bytes]]:
        """Public keys as PEM, by the prefix of the src."""
        return {prefix: [KEYS[name].public for name in names] for prefix, names in self.signers.items()}

    @property
    def signs(self) -> str | None:
        """What makes the sum of a datagram that is sent through this door."""
        return CRC32 if self.algorithm == "crc32" else next(iter(self.keys), None)

    @property
    def cannot_sign(self) -> bool:
        return self.algorithm == "sig" and not self.keys

    def seals(self, vector: Vector) -> bool:
        """Whether a sender behind this door would send just this datagram."""
        whole = vector.canonical and vector.over is None and not vector.spoilt
        return whole and vector.by == self.signs and bool(vector.by) == bool(vector.check[0]) and not self.cannot_sign


class Step(NamedTuple):
    """A datagram at a time, in seconds."""

    at: float
    datagram: bytes
    verdict: str
    peer: str = "10.0.0.5:5400"
    segment: str = "a"
    attack: str | None = None


class Rules(NamedTuple):
    """The rules of dedup."""

    sanity: int = 1024
    horizon: float = 2.0
    late: str = "drop"
    freshness: str = "restart"


class Sequence(NamedTuple):
    """Datagrams in their order, for one receiver that has heard nothing before."""

    name: str
    door: str
    rules: Rules
    own: tuple[bytes, ...]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return self.name


def latin(text: str) -> bytes:
    """The bytes that a text of the table stands for."""
    return text.encode("latin-1")


def total(key: str, data: bytes) -> bytes:
    """The sum of data in lowercase hexadecimal digits, by a key of the table."""
    if key == CRC32:
        return b"%08x" % zlib.crc32(data)
    if KEYS[key].secret:
        return hmac.digest(KEYS[key].secret, data, "sha256")[:8].hex().encode()
    return KEYS[key].pair.sign(data).hex().encode()


def sealed(key: str | None, body: bytes) -> bytes:
    """A whole datagram around a body, with the sum by a key of the table."""
    if key is None:
        return b"BCCN1[%d]%b" % (len(body), body)
    algo = CRC32 if key == CRC32 else "hmac" if KEYS[key].secret else "sig"
    return b"BCCN1[%d:%b=%b]%b" % (len(body), algo.encode(), total(key, body), body)


def _vector(raw: dict[str, Any]) -> Vector:
    more = {**raw, **{name: tuple(raw.get(name, ())) for name in ("reaches", "misses")}}
    more |= {name: latin(raw[name]) for name in ("datagram", "over") if name in raw}
    if "fields" in raw:
        texts = {name: latin(text) for name, text in raw["fields"].items() if name != "seq"}
        more["fields"] = Fields(**texts, seq=int(raw["fields"]["seq"]))
    return Vector(**more)


def _checker(raw: dict[str, Any]) -> DoorVectors:
    signers = {prefix: tuple(names) for prefix, names in raw["signers"].items()}
    vectors = tuple(_vector(one) for one in raw["vectors"])
    return DoorVectors(**{**raw, "keys": tuple(raw["keys"]), "signers": signers, "vectors": vectors})


def _step(raw: dict[str, Any]) -> Step:
    renamed = {"peer" if name == "from" else name: what for name, what in raw.items()}
    return Step(**{**renamed, "datagram": latin(raw["datagram"])})


def _sequence(raw: dict[str, Any]) -> Sequence:
    own = tuple(latin(src) for src in raw["own"])
    steps = tuple(_step(one) for one in raw["steps"])
    return Sequence(raw["name"], raw["door"], Rules(**raw["rules"]), own, steps)


_TABLE: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("bccn1.json").read_text(encoding="ascii"))

#: the identity of the receiver, in doors and sequences
RECEIVER: Final[str] = _TABLE["receiver"]
#: the longest datagram that a receiver takes
LARGEST: Final[int] = _TABLE["largest"]
KEYS: Final = {
    name: Key(**{part: latin(text) for part, text in parts.items()}) for name, parts in _TABLE["keys"].items()
}
VECTORS: Final = tuple(_vector(raw) for raw in _TABLE["vectors"])
DOORS: Final = {raw["name"]: _checker(raw) for raw in _TABLE["doors"]}
SEQUENCES: Final = tuple(_sequence(raw) for raw in _TABLE["sequences"])
#: the door through which `VECTORS` go: no check is made
UNCHECKED: Final = DOORS["unchecked"]


#: every vector with the door that it is for, the plain ones first
AT_DOORS: Final = (
    *((UNCHECKED, vector) for vector in VECTORS),
    *((door, vector) for door in DOORS.values() for vector in door.vectors),
)


def name_of(case: object) -> str | None:
    """The id of a test's argument."""
    return str(case) if isinstance(case, DoorVectors | Vector | Sequence) else None
