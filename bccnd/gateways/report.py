"""How a gateway tells the daemon how it is, and how the daemon reads that.

What is told is bounded: reasons come from a list, numbers fit in 64 bits, and of peers so many are named as fit in a
message. What makes no sense is no report.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from bccnd.core.counters import read_count
from bccnd.gateways.names import NAMES, REASONS

#: peers that a report names; the others are only counted
MAX_NAMED: Final = 256
#: characters of an address or name
MAX_NAME: Final = 512


@dataclass
class Peer:
    """Somebody at the other end. ``peer`` is an address, ``name`` an id or a URL, ``since`` in seconds of the wall
    clock; numbers are of messages, but for ``queued``, which is of bytes."""

    peer: str
    name: str = ""
    since: float = 0.0
    received: int = 0
    sent: int = 0
    dropped: int = 0
    queued: int = 0


@dataclass
class Status:
    """How a gateway is; numbers only go up while its process lives."""

    gateway: str
    peers: list[Peer] = field(default_factory=list)
    received: int = 0
    received_bytes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    #: connections made, and those that were refused or ended for a reason, which stands in ``dropped`` too
    connects: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count what was let fall for one of `REASONS`."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def report(self) -> bytes:
        """As it is told to the daemon."""
        said = dict(vars(self))
        said["peers"] = [asdict(peer) for peer in self.peers[:MAX_NAMED]]
        said["peers_connected"] = len(self.peers)
        return json.dumps(said, separators=(",", ":")).encode("ascii")


def read_report(text: bytes) -> dict[str, Any] | None:
    """What `Status.report` made, with all its keys and nothing unbounded in it; None for anything else."""
    try:
        return _checked(json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None


def no_report(name: str) -> dict[str, Any]:
    """What is known of a gateway that has told nothing yet."""
    return _checked(json.loads(Status(name).report()))


def _checked(said: Any) -> dict[str, Any]:
    numbers = ("received", "received_bytes", "sent", "sent_bytes", "connects", "peers_connected")
    found: dict[str, Any] = {"gateway": NAMES[NAMES.index(said["gateway"])]}
    found |= {name: read_count(said[name]) for name in numbers}
    found["dropped"] = {reason: read_count(said["dropped"].get(reason, 0)) for reason in REASONS}
    found["peers"] = [_peer(asdict(Peer(**each))) for each in said["peers"][:MAX_NAMED]]
    return found


def _peer(told: dict[str, Any]) -> dict[str, Any]:
    if not all(isinstance(told[name], str) and len(told[name]) <= MAX_NAME for name in ("peer", "name")):
        raise ValueError("peer")
    if not isinstance(told["since"], int | float) or not math.isfinite(told["since"]):
        raise ValueError("since")
    return told | {name: read_count(told[name]) for name in ("received", "sent", "dropped", "queued")}
