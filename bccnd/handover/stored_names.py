"""Names under which the service manager stores this daemon's descriptors.

Invariant: a name never changes, since daemons of different versions find each other's descriptors by it.
"""

from __future__ import annotations

import re
from typing import Final

#: the input being processed (`native.memory.inflight_layout`); version 1.0 called it a ledger
INFLIGHT: Final = "ledger"
#: a connection and its log (`core.formats.client_log_format`), by the client's number
CLIENT: Final = "client-"
#: sources and counters (`native.memory.slot_layout`)
MEMORY: Final = "memory"
#: a log of sources, by number; only version 1.0 writes them (`handover.earlier_version`)
SOURCES: Final = "sources-"
_NUMBERED: Final = re.compile(f"({CLIENT}|{SOURCES})([0-9]{{1,18}})")


def split_number(name: str) -> tuple[str, int]:
    """Return the kind of a name, one of those above, and its number, 0 for none; an empty kind if it is another one."""
    found = _NUMBERED.fullmatch(name)
    if found is not None:
        return found[1], int(found[2])
    return (name if name in (INFLIGHT, MEMORY) else ""), 0


def is_stored(name: str) -> bool:
    """Whether a passed descriptor of this name was stored, whatever it is. `MEMORY` is not among these, because a
    socket unit may have that name."""
    return split_number(name)[0] in (CLIENT, SOURCES, INFLIGHT)
