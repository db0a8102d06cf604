"""The status that a gateway reports to the daemon.

Reports are bounded: reasons come from a list, numbers fit in 64 bits, times are those that calendars have, and only
some peers are named.
"""

from __future__ import annotations

import json
import time
from dataclasses import field
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, StringConstraints, TypeAdapter
from pydantic.dataclasses import dataclass

from bccnd.core.observing.counters import read_count
from bccnd.drop_catalog.drops import DROPS
from bccnd.gateways import Name

#: the reasons for which gateways drop messages or connections: labels of a metric
REASONS: Final = tuple(drop.name for drop in DROPS if drop.family == "gateway_dropped")
#: peers that a report names; others are only counted
MAX_NAMED: Final = 256
#: when this process started, by the monotonic clock
_STARTED: Final = time.monotonic()

_Count = Annotated[int, BeforeValidator(read_count)]
_Text = Annotated[str, StringConstraints(max_length=512)]
#: until the year 5138: calendars end at 9999, where the time is shown
_Seconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


@dataclass(config={"extra": "forbid", "strict": True, "defer_build": True})
class Peer:
    """The other end of a connection. ``peer`` is an address, ``name`` an id or URL, ``since`` in seconds of the wall
    clock; numbers are of messages, except ``queued``, which is of bytes."""

    peer: _Text
    name: _Text = ""
    since: _Seconds = 0.0
    received: _Count = 0
    sent: _Count = 0
    dropped: _Count = 0
    queued: _Count = 0


@dataclass(config={"defer_build": True})
class Status:
    """Figures of a gateway, which only grow while its process lives. ``connects`` counts connections made, and those
    that were refused or ended for a reason, which is in ``dropped`` too. ``started`` is when that process started, in
    seconds of the monotonic clock; 0 if its version does not report it."""

    gateway: Name
    peers: list[Peer] = field(default_factory=list)
    received: _Count = 0
    received_bytes: _Count = 0
    sent: _Count = 0
    sent_bytes: _Count = 0
    connects: _Count = 0
    dropped: dict[str, _Count] = field(default_factory=dict)
    peers_connected: _Count = 0
    started: _Seconds = 0.0

    def drop(self, reason: str, count: int = 1) -> None:
        """Count drops for one of `REASONS`."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def report(self) -> bytes:
        peers = [vars(peer) for peer in self.peers[:MAX_NAMED]]
        now = {"peers": peers, "peers_connected": len(self.peers), "started": _STARTED}
        return json.dumps(vars(self) | now).encode("ascii")


_STATUS: Final = TypeAdapter(Status)


def read_report(text: bytes) -> dict[str, Any] | None:
    """Read what `Status.report` made, within bounds; None for anything else."""
    try:
        status = _STATUS.validate_json(text)
    except ValueError:
        return None
    status.dropped = {reason: status.dropped.get(reason, 0) for reason in REASONS}
    status.peers = status.peers[:MAX_NAMED]
    return _STATUS.dump_python(status)  # type: ignore[no-any-return]


def no_report(name: str) -> dict[str, Any]:
    """Return the report of a gateway that has not reported yet."""
    return read_report(json.dumps({"gateway": name}).encode()) or {}
