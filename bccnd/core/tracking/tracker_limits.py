"""Holds the section ``dedup`` of the configuration in the form that compiled code reads, and its defaults."""

from __future__ import annotations

from typing import Any, Final

from bccnd.core.wire.verdicts import REORDERED, STALE

SANITY: Final = 1024
HORIZON: Final = 2.0
EXPIRE: Final = 86_400.0
#: 100,000 trackers take some 55 MB at most
MAX_SOURCES: Final = 100_000
#: heartbeat intervals without a sign of life, and a half, after which a source is dead
DEAD_AFTER: Final = 3


class TrackerLimits:
    """One object, shared by all parts that read these keys. Takes the keys of the section."""

    def __init__(self, **section: Any) -> None:
        self.refresh(**section)

    def refresh(
        self,
        sanity: int = SANITY,
        horizon: float = HORIZON,
        late: str = "drop",
        freshness: str = "restart",
        expire: float = EXPIRE,
        max_sources: int = MAX_SOURCES,
        linked: bool = False,
    ) -> None:
        """Change the limits, with times in seconds. Trackers stay; sweeps evict those beyond a lowered cap."""
        self.sanity = sanity
        #: the bits of a window
        self.mask = (1 << sanity) - 1
        self.horizon = horizon
        #: the verdict on a late datagram
        self.late = REORDERED if late == "deliver" else STALE
        self.monotonic = freshness == "monotonic"
        self.expire = expire
        self.max_sources = max_sources
        self.linked = linked
