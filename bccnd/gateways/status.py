"""The status that a gateway reports to the daemon.

Reports are bounded: reasons come from a list, numbers fit in 64 bits, times are those that calendars have, and only
some peers are named.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from bccnd.core.observing.counters import MAX_COUNT
from bccnd.drop_catalog.drops import GATEWAY_REASONS
from bccnd.gateways import NAMES
from bccnd.snapshot import GatewayCounts

#: peers that a report names; others are only counted
MAX_NAMED: Final = 256
#: characters of a text
_MAX_TEXT: Final = 512
#: until the year 5138: calendars end at 9999, where the time is shown
_MAX_SECONDS: Final = 1e11
#: when this process started, by the monotonic clock
_STARTED: Final = time.monotonic()


class GatewayStatus(GatewayCounts):
    """The figures that a gateway counts, and its reports."""

    def drop(self, reason: str, count: int = 1) -> None:
        """Count drops for one of `GATEWAY_REASONS`."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def report(self) -> bytes:
        peers = [vars(peer) for peer in self.peers[:MAX_NAMED]]
        now = {"peers": peers, "peers_connected": len(self.peers), "started": _STARTED}
        return json.dumps(vars(self) | now).encode("ascii")


@cache
def _reader() -> TypeAdapter[GatewayCounts]:
    return TypeAdapter(GatewayCounts)


def read_report(text: bytes) -> GatewayCounts | None:
    """Read what `GatewayStatus.report` made, within bounds; None for anything else."""
    try:
        counts = _reader().validate_json(text, strict=True)
        _check_bounds(asdict(counts))
    except ValueError:
        return None
    if counts.gateway not in NAMES:
        return None
    counts.dropped = {reason: counts.dropped.get(reason, 0) for reason in GATEWAY_REASONS}
    counts.peers = counts.peers[:MAX_NAMED]
    return counts


def _check_bounds(value: Any) -> None:
    """Raise ValueError for a number or text out of bounds, also in a list or dictionary."""
    match value:
        case dict():
            _check_bounds(list(value.values()))
        case list():
            for item in value:
                _check_bounds(item)
        case str() if len(value) > _MAX_TEXT:
            raise ValueError("too long")
        case float() if not 0 <= value <= _MAX_SECONDS:
            raise ValueError("no time")
        case int() if not 0 <= value <= MAX_COUNT:
            raise ValueError("no count")
